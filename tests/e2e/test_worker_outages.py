"""A database that fails under a working worker: every operation of a run fails once, before its COMMIT and after it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from outlast import Context, Outlast, Signal, StepContext, WorkerOptions, step, workflow
from outlast.errors import DatabaseUnavailable
from outlast.worker import claiming, flusher
from support.gated_order import parked
from support.tcp_proxy import TcpProxy
from support.worker_fakes import until

approved = Signal("approved", str)
done: list[tuple[str, int]] = []


@step(retry=3)
async def first(s: StepContext) -> int:
    done.append(("first", s.attempt))
    return 1


@step(retry=3)
def second(s: StepContext, number: int) -> int:
    done.append(("second", s.attempt))
    return number + 1


@workflow("paper")
async def paper(ctx: Context) -> str:
    number = await second(await first())
    ctx.set_status("waiting")
    name = await ctx.wait_for("approval", ctx.signal(approved))
    return f"{number} {name}"


class Failing:
    """Lets one of the worker's operations fail: the one with this number, before it does anything or after its COMMIT."""

    def __init__(self, database: Any, number: int, *, after: bool) -> None:
        self.names: list[str] = []
        self._run = database.run
        self._number = number
        self._after = after
        database.run = self.run

    @property
    def has_failed(self) -> bool:
        return len(self.names) > self._number

    async def run(self, make: Callable[[], Any], *, repeatable: bool = True, patience: float = 30.0) -> object:
        op = make()
        name = op.__name__
        op.close()
        if name not in ("flush", "flushed", "claim", "disown", "renew", "reap"):
            return await self._run(make, repeatable=repeatable, patience=patience)
        self.names.append(name)
        if len(self.names) != self._number + 1:
            return await self._run(make, repeatable=repeatable, patience=patience)
        if self._after:
            await self._run(make, repeatable=repeatable, patience=patience)
        raise DatabaseUnavailable(f"{name} number {self._number} failed by the test's order")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    done.clear()
    monkeypatch.setattr(claiming, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(flusher, "_FIRST_PAUSE", 0.001)


async def run_once(app: Outlast) -> str:
    run = await app.start(paper, id="p")
    await parked(app, "p")
    await app.signal(approved, "Ada")
    return await run.result(timeout="30s")


@pytest.mark.parametrize("after", [False, True], ids=["before COMMIT", "after COMMIT"])
@pytest.mark.parametrize("number", range(1, 12))
async def test_one_failing_operation_costs_no_step_and_no_attempt(number: int, after: bool) -> None:
    """Incident F085: the connection was lost at the moment of a step's result, and that counted as the step's failure."""
    app = Outlast("sqlite://", workflows=[paper], worker=WorkerOptions(poll="5ms"))
    failing = Failing(app._database, number, after=after)

    async with app:
        assert await run_once(app) == "2 Ada"
        await until(lambda: failing.has_failed)
        run = await app.get("p", journal=True)
        assert run is not None
        assert [entry.name for entry in run.journal] == ["first", "second", "approval"]
        assert (run.lapses, run.custom_status, run.worker) == (0, "waiting", None)

    assert done == [("first", 1), ("second", 1)]


async def test_runs_go_on_when_a_server_that_was_away_is_back(
    postgres_url: str, postgres_proxy: TcpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """Incident F008, with a server that is away for a while in the middle of twenty runs."""
    caplog.set_level(logging.ERROR)
    url = postgres_proxy.url(postgres_url)
    gate = asyncio.Event()
    counts: dict[str, int] = {}

    @workflow("gated")
    async def gated(ctx: Context, number: int) -> int:
        async def body(s: StepContext) -> int:
            counts[s.idempotency_key] = counts.get(s.idempotency_key, 0) + 1
            await gate.wait()
            return number

        await ctx.step("one", body)
        return await ctx.step("two", body)

    async with Outlast(url, workflows=[gated], worker=WorkerOptions(poll="50ms")) as app:
        runs = await asyncio.gather(*(app.start(gated, number) for number in range(20)))
        await until(lambda: len(counts) == 20)
        postgres_proxy.refuse()
        gate.set()
        asyncio.get_running_loop().call_later(0.5, postgres_proxy.let_through)
        assert [await run.result(timeout="50s") for run in runs] == list(range(20))
    assert set(counts.values()) == {1}
    assert len(counts) == 40
