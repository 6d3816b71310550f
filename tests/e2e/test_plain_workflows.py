"""Workflows without async, started and awaited without async, on every store."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

import pytest

from outlast import BlockingContext, Outlast, Signal, StepContext, WorkerOptions, step, workflow
from support.probing import until, until_awaited

pytestmark = pytest.mark.every_database
approved = Signal("approved", bool)
seen: list[threading.Thread] = []


@step
def charge(s: StepContext, cents: int) -> str:
    seen.append(threading.current_thread())
    return f"{s.idempotency_key}: {cents}"


@workflow("order")
def order(ctx: BlockingContext, cents: int) -> list[str | bool | None]:
    seen.append(threading.current_thread())
    charged = ctx.do(charge(cents))
    answer = ctx.wait_for("approval", ctx.signal(approved, key=ctx.run_id), timeout="1h")
    seen.append(threading.current_thread())
    return [charged, answer]


async def test_a_plain_workflow_waits_for_a_signal_and_goes_on(database_url: str) -> None:
    seen.clear()
    async with Outlast(database_url, workflows=[order], worker=WorkerOptions(poll="1h", cached_runs=0)) as app:
        run = await app.start(order, 5, id="o-1")
        await until_awaited(lambda: _waits(app, "o-1"), "the order to wait")
        await app.signal(approved, True, key="o-1")

        assert await run.result(timeout="20s") == ["o-1:charge: 5", True]
    first, step_thread, again, last = seen
    # Replayed once; the step ran once, on a thread of the steps.
    assert again is last
    assert (
        len({threading.current_thread(), step_thread, first})
        == len({threading.current_thread(), step_thread, last})
        == 3
    )


async def _waits(app: Outlast, run_id: str) -> bool:
    run = await app.get(run_id)
    return run is not None and bool(run.waiting_for)


def test_a_worker_on_a_thread_serves_a_program_without_async(shared_database_url: str) -> None:
    app = Outlast(shared_database_url, workflows=[order], worker=False)
    with contextlib.closing(app.blocking) as client:
        client.migrate()
        run = client.start(order, 7, id="o-2")
        with _worker(shared_database_url):
            until(lambda: (found := client.get("o-2")) is not None and found.waiting_for, "the order to wait")
            client.signal(approved, False, key="o-2")
            assert run.result(timeout="20s") == ["o-2:charge: 7", False]


@contextlib.contextmanager
def _worker(url: str) -> Iterator[None]:
    ended = threading.Event()

    async def work() -> None:
        async with Outlast(url, workflows=[order]):
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
