"""Plain workflows whose code computes or blocks: on a thread while it does, and nobody else waits. On SQLite."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from django.utils.asyncio import async_unsafe

from outlast import (
    BlockingContext,
    CompensationContext,
    Context,
    Outlast,
    Run,
    RunCancelled,
    RunFailed,
    Signal,
    Status,
    StepContext,
    StepFailed,
    WorkerOptions,
    Workflow,
    step,
    workflow,
)
from outlast.testing import ManualClock
from support.probing import until_awaited

go_on = Signal("go-on", str)


class Desk:
    """Where the code of a test's workflows stands, and on which threads it was."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin again; the workflows refer to this one object."""
        self.entered, self.gate = threading.Event(), threading.Event()
        self.threads: list[threading.Thread] = []
        self.effects: list[str] = []
        self.told = asyncio.Event()

    def stand(self) -> None:
        """Block, as a long computation would, until the test opens the gate."""
        self.threads.append(threading.current_thread())
        gate = self.gate
        self.entered.set()
        assert gate.wait(60)

    async def is_entered(self) -> None:
        assert await asyncio.to_thread(self.entered.wait, 60)
        self.entered.clear()


desk = Desk()


@pytest.fixture(autouse=True)
def _another_test() -> None:
    desk.clear()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/outlast.db"


@step
def book(s: StepContext, what: str) -> str:
    desk.effects.append(f"{what} {s.attempt}")
    return what


@book.compensate
def unbook(s: CompensationContext, what: str) -> None:
    desk.effects.append(f"undo {what}")


@workflow("blocks")
def blocks(ctx: BlockingContext, name: str) -> str:
    booked = ctx.do(book(name))
    desk.stand()
    return ctx.do(book.named("rest")(f"{booked}'s rest"))


@step(on_cancel="abort")
async def watch() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        desk.told.set()


@step(retry=False)
def give_up() -> None:
    raise ValueError("enough")


@workflow("watched")
def watched(ctx: BlockingContext, name: str) -> str:
    """Blocks while a step of it is under way, which hears of a request to stop."""
    booked = ctx.do(book(name))
    with suppress(StepFailed):
        ctx.do(watch(), give_up())
    desk.stand()
    return ctx.do(book.named("rest")(f"{booked}'s rest"))


@workflow("short")
def short(ctx: BlockingContext, name: str) -> str:
    desk.threads.append(threading.current_thread())
    return ctx.do(book(name))


@workflow("awaiting")
async def awaiting(ctx: Context, name: str) -> str:
    return await book(name)


@workflow("waits")
def waits(ctx: BlockingContext, name: str) -> str | None:
    desk.threads.append(threading.current_thread())
    answer = ctx.wait_for("answer", ctx.signal(go_on, key=name), timeout="1h")
    desk.threads.append(threading.current_thread())
    return answer


@workflow("reaches")
def reaches(ctx: BlockingContext) -> None:
    ctx.do(asyncio.to_thread(print))


@async_unsafe
def query() -> None:
    """Refuse an event loop, as Django's ORM does."""


@workflow("queries")
def queries(ctx: BlockingContext) -> None:
    query()


WORKFLOWS = [blocks, watched, short, awaiting, waits, reaches, queries]


@asynccontextmanager
async def opened(url: str, **options: object) -> AsyncGenerator[Outlast, None]:
    async with Outlast(url, workflows=WORKFLOWS, worker=WorkerOptions(**{"poll": "20ms", **options})) as app:  # type: ignore[arg-type]
        yield app


async def test_the_loop_and_other_runs_go_on_while_code_blocks(url: str) -> None:
    async with opened(url) as app:
        run = await app.start(blocks, "a")
        await desk.is_entered()

        assert await app.start_and_wait(awaiting, "b") == "b"
        assert await app.start_and_wait(short, "c") == "c"

        desk.gate.set()
        assert await run.result() == "a's rest"
    assert threading.current_thread() not in desk.threads


async def test_a_run_that_waits_in_memory_goes_on_where_it_stood(url: str) -> None:
    async with opened(url) as app:
        run = await app.start(waits, "w")
        await until_awaited(lambda: _waits(app, run.id), "it to wait")
        await app.signal(go_on, "on", key="w")
        assert await run.result() == "on"
    assert len(desk.threads) == 2, "no replay"
    assert desk.threads[0] is desk.threads[1]


async def test_a_run_that_is_not_in_memory_is_replayed_on_a_thread(url: str) -> None:
    async with opened(url, cached_runs=0) as app:
        run = await app.start(waits, "w")
        await until_awaited(lambda: _waits(app, run.id), "it to wait")
        await app.signal(go_on, "on", key="w")
        assert await run.result() == "on"
    assert len(desk.threads) == 3
    assert threading.current_thread() not in desk.threads


async def test_runs_that_wait_hold_no_threads_and_at_the_end_none_is_left(url: str) -> None:
    before = set(threading.enumerate())
    async with opened(url) as app:
        runs = [await app.start(waits, f"w-{number}") for number in range(30)]
        for run in runs:
            await until_awaited(lambda run=run: _waits(app, run.id), "it to wait")  # type: ignore[misc]
        assert len(_workflow_threads() - before) <= 4
    assert _workflow_threads() - before == set()


async def test_a_run_that_is_cancelled_while_its_code_computes_is_undone(url: str) -> None:
    async with opened(url) as app:
        run = await app.start(watched, "a")
        await desk.is_entered()

        await app.cancel(run.id)
        await desk.told.wait()
        desk.gate.set()

        with pytest.raises(RunCancelled):
            await run.result()
        assert desk.effects == ["a 1", "undo a"], "what it asks for after the request is not begun"


async def test_what_ended_before_the_code_computes_is_recorded_while_it_does(url: str) -> None:
    async with opened(url) as app:
        run = await app.start(blocks, "a")
        await desk.is_entered()
        await until_awaited(lambda: _has(app, run.id, "book"), "the step to be recorded")
        desk.gate.set()
        assert await run.result() == "a's rest"


async def test_a_worker_that_stops_waits_for_the_code(url: str) -> None:
    async with opened(url, shutdown_timeout="1h") as app:
        run = await app.start(blocks, "a")
        await desk.is_entered()
        closing = asyncio.create_task(app.close())
        # Somebody else sees that it does not take the run's leave yet.
        async with Outlast(url, workflows=WORKFLOWS, worker=False) as other:
            assert (await _run(other, run.id)).status is Status.RUNNING
            desk.gate.set()
            await closing
            assert (await _run(other, run.id)).status is Status.SUSPENDED
    async with opened(url) as next_one:
        assert await next_one.result(run.id, timeout="60s") == "a's rest"
    assert desk.effects == ["a 1", "a's rest 1"]


async def test_a_worker_gives_a_run_back_whose_code_does_not_return(url: str) -> None:
    async with opened(url, shutdown_timeout="0s") as app:
        run = await app.start(blocks, "a")
        other = await app.start(waits, "w")
        await desk.is_entered()
        await until_awaited(lambda: _waits(app, other.id), "it to wait")
    first_gate, desk.gate = desk.gate, threading.Event()

    async with opened(url) as next_one:
        await desk.is_entered()
        # What the first one's code does now nobody hears.
        first_gate.set()
        await asyncio.to_thread(_ended, desk.threads[0])
        assert (await _run(next_one, run.id)).status is Status.RUNNING
        desk.gate.set()
        assert await next_one.result(run.id, timeout="60s") == "a's rest"
        await next_one.signal(go_on, "on", key="w")
        assert await next_one.result(other.id, timeout="60s") == "on"
    assert desk.effects == ["a 1", "a's rest 1"]


async def test_what_code_does_after_the_lease_was_lost_is_not_heard(url: str) -> None:
    clock = ManualClock()

    def drained() -> Outlast:
        return Outlast(url, workflows=WORKFLOWS, clock=clock, worker=False)

    async with drained() as away, drained() as living:
        run = await away.start(blocks, "a")
        being_away = asyncio.create_task(away.drain())
        await desk.is_entered()
        first_gate, desk.gate = desk.gate, threading.Event()
        clock.advance("31s")

        taking_over = asyncio.create_task(living.drain())
        await desk.is_entered()
        # The zombie's code comes to rest first; another run shows it that its lease is over.
        first_gate.set()
        await being_away
        assert (await _run(living, run.id)).status is Status.RUNNING
        desk.gate.set()
        await taking_over

        assert await run.result() == "a's rest"
        assert desk.effects.count("a 1") == 1
        journal = (await _run(living, run.id)).journal
        assert len({entry.name for entry in journal}) == len(journal)


@pytest.mark.parametrize("code", [reaches, queries])
async def test_what_reaches_outside_is_refused_on_the_thread_too(url: str, code: Workflow[None, None]) -> None:
    async with opened(url) as app:
        with pytest.raises(RunFailed, match="Move it into a step"):
            await app.start_and_wait(code)


PROGRAM = """
import asyncio, sys, threading, time
from outlast import BlockingContext, Outlast, WorkerOptions, workflow

entered = threading.Event()

class Slow:
    def __del__(self) -> None:
        time.sleep(0.2)

slow = Slow()  # Python is a while about its end.

@workflow("stuck")
def stuck(ctx: BlockingContext, how: str) -> None:
    ctx.step("first", lambda s: None)
    entered.set()
    while True:
        if how == "computes":
            continue
        threading.Event().wait(0.001 if how == "looks" else None)

async def main() -> None:
    async with Outlast(sys.argv[1], workflows=[stuck], worker=WorkerOptions(shutdown_timeout="0s")) as app:
        await app.start(stuck, sys.argv[2], id="s")
        await asyncio.to_thread(entered.wait)
    print("closed")

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["computes", "looks", "blocks"])
def test_code_that_never_returns_neither_keeps_the_process_nor_breaks_it(url: str, tmp_path: Path, how: str) -> None:
    """Python ends a daemon thread by unwinding its stack, which a greenlet does not bear: that was a segmentation fault."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    ended = subprocess.run([sys.executable, program, url, how], capture_output=True, text=True, timeout=50, check=False)

    assert (ended.stdout, ended.returncode) == ("closed\n", 0)
    assert "Traceback" not in ended.stderr


async def _waits(app: Outlast, run_id: str) -> bool:
    return bool((await _run(app, run_id)).waiting_for)


async def _has(app: Outlast, run_id: str, step: str) -> bool:
    return any(entry.name == step for entry in (await _run(app, run_id)).journal)


async def _run(app: Outlast, run_id: str) -> Run:
    run = await app.get(run_id, journal=True)
    assert run is not None
    return run


def _workflow_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("outlast-workflow")}


def _ended(thread: threading.Thread) -> None:
    thread.join(60)
    assert not thread.is_alive()
