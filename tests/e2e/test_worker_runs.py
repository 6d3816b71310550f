"""Runs on a worker with everything real but its processes: SQLite, the engine, the client."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from outlast import Context, Outlast, Retry, RunFailed, Signal, Status, StepContext, WorkerOptions, step, workflow
from outlast.model.ids import RunId
from outlast.ports.operation import Op
from outlast.ports.store import Claim, ClaimRequest
from outlast.stores.sql import SqlStore
from outlast.testing import ManualClock
from outlast.worker import turnover
from support.gated_order import drained, effects, opened, order, parked, prepare
from support.worker_fakes import until


@pytest.fixture(autouse=True)
def _fresh_effects() -> None:
    effects.clear()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/outlast.db"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def test_a_cancel_waits_for_the_step_that_runs_and_undoes_what_is_done(url: str) -> None:
    async with Outlast(url, workflows=[order], worker=WorkerOptions(poll="1h")) as app:
        run = await app.start(order)
        await effects.entered.wait()
        assert (await app.cancel(run.id, "changed my mind")).accepted
        await until(lambda: effects.last and effects.last.stop_requested)
        effects.gate.set()
        with pytest.raises(RunFailed, match="changed my mind"):
            await run.result(timeout="30s")
        journal = (await app.get(run.id, journal=True)).journal  # type: ignore[union-attr]
        assert "slow" in [entry.name for entry in journal], "it finished, so it is recorded"
    assert [what for what, _ in effects.done] == ["prepare", "slow", "undo prepared"]


async def test_a_cancel_from_another_process_reaches_a_running_step(url: str) -> None:
    """By the notice of the file's change, not by the renewal, which is 20 minutes away."""
    told = asyncio.Event()

    @step
    async def patient(s: StepContext) -> str:
        effects.did("patient", s)
        await until(lambda: s.stop_requested)
        told.set()
        return "gave in"

    @workflow("patience")
    async def patience(ctx: Context) -> str:
        return await patient()

    async with (
        Outlast(url, workflows=[patience], worker=WorkerOptions(lease="1h")) as working,
        opened(Outlast(url, workflows=[patience], worker=False)) as asking,
    ):
        run = await working.start(patience)
        await effects.entered.wait()
        await asking.cancel(run.id)
        await told.wait()
        with pytest.raises(RunFailed):
            await run.result()


async def test_a_cancel_aborts_a_step_that_says_so(url: str) -> None:
    @step(on_cancel="abort")
    async def hanging(s: StepContext) -> None:
        effects.did("hanging", s)
        await asyncio.Event().wait()

    @workflow("hangs")
    async def hangs(ctx: Context) -> None:
        await prepare()
        await hanging()

    async with Outlast(url, workflows=[hangs]) as app:
        run = await app.start(hangs)
        await until(lambda: ("hanging", 1) in effects.done)
        await app.cancel(run.id)
        with pytest.raises(RunFailed):
            await run.result(timeout="30s")
    assert effects.done[-1] == ("undo prepared", 1)


async def test_a_step_that_takes_too_long_is_tried_again_and_given_up(url: str) -> None:
    @step(timeout="5ms", retry=Retry(attempts=2, delay="1ms"))
    async def hanging(s: StepContext) -> None:
        effects.did("hanging", s)
        await asyncio.Event().wait()

    @workflow("hangs")
    async def hangs(ctx: Context) -> None:
        await hanging()

    async with Outlast(url, workflows=[hangs]) as app:
        with pytest.raises(RunFailed, match="TimeoutError"):
            await app.start_and_wait(hangs)
    assert effects.done == [("hanging", 1), ("hanging", 2)]


async def test_a_plain_function_runs_on_a_thread_and_may_block(url: str) -> None:
    release = threading.Event()

    @step
    def blocks() -> str:
        release.wait(30)
        return threading.current_thread().name

    @step
    async def releases() -> None:
        release.set()

    @workflow("both")
    async def both(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            blocked = group.create_task(blocks())
            group.create_task(releases())
        return blocked.result()

    async with Outlast(url, workflows=[both]) as app:
        assert (await app.start_and_wait(both)).startswith("outlast-step")


async def test_parallel_steps_overlap_and_share_their_flushes(url: str) -> None:
    inside = 0
    most = 0

    @workflow("fan")
    async def fan(ctx: Context) -> int:
        async def body(_: StepContext) -> int:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            inside -= 1
            return 1

        return sum(await asyncio.gather(*(ctx.step(f"s{number}", body) for number in range(50))))

    async with Outlast(url, workflows=[fan]) as app:
        assert await app.start_and_wait(fan) == 50
    assert most == 50


async def test_one_unreadable_run_does_not_strand_the_others(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Incident F007: five runs are due, the second one's input cannot be read."""

    @workflow("plain")
    async def plain(ctx: Context, number: int) -> int:
        return number

    async with opened(Outlast(url, workflows=[plain], worker=False)) as app:
        runs = await app.start_many(plain, range(5))
        with sqlite3.connect(url.removeprefix("sqlite:///")) as database:
            database.execute("update outlast_runs set input = '{broken' where id = ?", (runs[1].id,))
        database.close()
        await app.drain()

        assert [await runs[number].result() for number in (0, 2, 3, 4)] == [0, 2, 3, 4]
        broken = await app.get(runs[1].id)
        assert broken is not None
        assert (broken.status, broken.worker) in [(Status.SUSPENDED, None), (Status.FAILED, None)]
        assert broken.held is not None or broken.failure is not None


async def test_code_that_does_not_match_holds_a_run_until_it_does(url: str, clock: ManualClock) -> None:
    go = Signal("go")

    @workflow("changing")
    async def before(ctx: Context) -> str:
        await ctx.step("one", lambda _: "1")
        await ctx.wait_for("go", ctx.signal(go))
        return "done"

    @workflow("changing")
    async def after(ctx: Context) -> str:
        await ctx.step("renamed", lambda _: "1")
        return "wrong"

    async with opened(drained(url, clock, before)) as old:
        run = await old.start(before)
        await old.drain()
        await old.signal(go)
    async with opened(drained(url, clock, after)) as new:
        await new.drain()
        held = await new.get(run.id)
        assert held is not None
        assert held.status is Status.SUSPENDED
        assert held.held is not None
        assert await new.drain() == 0, "not before its time"
    clock.advance("31s")
    async with opened(drained(url, clock, before)) as old:
        await old.drain()
        assert await old.result(run.id) == "done"
        restored = await old.get(run.id)
        assert restored is not None
        assert restored.held is None


async def test_waking_a_parked_run_needs_no_replay(url: str) -> None:
    go = Signal("go", int)
    passes_of_code: list[int] = []

    @workflow("waits")
    async def waits(ctx: Context) -> int:
        passes_of_code.append(1)
        total = 0
        for number in range(3):
            total += await ctx.wait_for(f"go {number}", ctx.signal(go)) or 0
        return total

    async with Outlast(url, workflows=[waits]) as app:
        run = await app.start(waits)
        for number in range(3):
            await app.signal(go, number)
        assert await run.result(timeout="30s") == 3
    assert len(passes_of_code) == 1

    async with Outlast(url, workflows=[waits], worker=WorkerOptions(cached_runs=0, poll="10ms")) as app:
        run = await app.start(waits)
        await parked(app, run.id)
        for number in range(3):
            await app.signal(go, number)
        assert await run.result(timeout="30s") == 3
    assert len(passes_of_code) > 2


async def test_more_runs_than_slots_all_end(url: str) -> None:
    running = 0
    most = 0

    @workflow("plain")
    async def plain(ctx: Context, number: int) -> int:
        async def body(_: StepContext) -> int:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return number

        return await ctx.step("body", body)

    async with Outlast(url, workflows=[plain], worker=WorkerOptions(concurrency=3, poll="1h")) as app:
        runs = await app.start_many(plain, range(50))
        assert [await run.result(timeout="30s") for run in runs] == list(range(50))
    assert most <= 3


async def test_smaller_priorities_go_first(url: str, clock: ManualClock) -> None:
    """Incident F017."""
    order_of_runs: list[int] = []

    @workflow("plain")
    async def plain(ctx: Context, number: int) -> None:
        await ctx.step("note", lambda _: order_of_runs.append(number))

    app = Outlast(url, workflows=[plain], worker=WorkerOptions(concurrency=1), clock=clock)
    async with opened(app):
        for number, priority in enumerate([5, 0, 9, 0]):
            await app.start(plain, number, priority=priority)
        await app.drain()
    assert order_of_runs == [1, 3, 0, 2]


async def test_runs_that_were_claimed_ahead_of_slow_ones_go_on_elsewhere(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker takes more than it has slots for, since all went quickly until now; another one has free slots."""
    monkeypatch.setattr(turnover, "_MOMENT", 3600.0)  # a slow machine must not forget how quick the first ones were
    monkeypatch.setattr(turnover, "_SOBER", 0.0)  # nor claim nothing ahead any more, because quick ones waited long
    claimed = set[RunId]()
    claim = SqlStore.claim

    def noted(store: SqlStore, request: ClaimRequest) -> Op[Claim]:
        answer = yield from claim(store, request)
        claimed.update(run.id for run in answer.runs)
        if len(claimed) > 64 + 16:
            monkeypatch.setattr(turnover, "_SOBER", 3600.0)
        return answer

    monkeypatch.setattr(SqlStore, "claim", noted)
    gate, begun = asyncio.Event(), set[int]()

    @step
    async def passing(number: int) -> int:
        begun.add(number)
        if number >= 64:
            await gate.wait()
        return number

    @workflow("passes")
    async def passes(ctx: Context, number: int) -> int:
        return await passing(number)

    async with opened(Outlast(url, workflows=[passes], worker=False)) as client:
        runs = await client.start_many(passes, range(64 + 32))
        async with Outlast(url, workflows=[passes], worker=WorkerOptions(concurrency=16, poll="1h")):
            await until(lambda: len(begun) == 64 + 16 < len(claimed))
            async with Outlast(url, workflows=[passes], worker=WorkerOptions(concurrency=16, poll="1h")):
                await until(lambda: len(begun) == 64 + 32)
                gate.set()
                assert sorted([await run.result() for run in runs]) == list(range(64 + 32))
        assert {run.lapses for run in (await client.list(limit=200)).runs} == {0}
