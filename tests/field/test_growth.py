"""What a long history and many runs cost: time in proportion to what is new, and no memory that stays behind."""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from itertools import pairwise
from types import FrameType

import pytest

from outlast import Context, Outlast, Signal, WorkerOptions, workflow
from outlast.testing import ManualClock
from support.field_apps import forgetful

BATCH = 10
woken = Signal("woken", int)


@workflow("long")
async def long(ctx: Context, steps: int) -> int:
    """Steps, with a pause after each few of them."""
    for number in range(steps):
        await ctx.step(f"step-{number}", lambda s: "a line")
        if number % BATCH == BATCH - 1:
            await ctx.sleep(f"pause-{number}", "1h")
    return steps


@workflow("straight")
async def straight(ctx: Context, steps: int) -> int:
    """Steps, with one pause after all of them."""
    for number in range(steps):
        await ctx.step(f"step-{number}", lambda s: "a line")
    await ctx.sleep("pause", "1h")
    return steps


@workflow("brief")
async def brief(ctx: Context, batch: int) -> int | None:
    return await ctx.wait_for("woken", ctx.signal(woken, key=str(batch)))


class Calls:
    """How many functions were called: the cost of something, the same on any machine."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event in {"call", "c_call"}:
            self.count += 1


@contextmanager
def counted() -> Generator[Calls, None, None]:
    calls, before = Calls(), sys.getprofile()
    sys.setprofile(calls)
    try:
        yield calls
    finally:
        sys.setprofile(before)


async def test_waking_a_run_costs_the_same_however_long_its_history_is() -> None:
    clock = ManualClock()
    costs: list[int] = []
    async with Outlast("sqlite://", workflows=[long], worker=WorkerOptions(poll="1h"), clock=clock) as app:
        run = await app.start(long, 40 * BATCH)
        await app.drain()
        for _ in range(40):
            clock.advance("1h")
            with counted() as calls:
                await app.drain()
            costs.append(calls.count)

        assert await run.result() == 40 * BATCH
    early, late = sum(costs[1:9]), sum(costs[31:39])
    assert late < early * 1.2, costs


async def test_replay_costs_what_the_history_is_long() -> None:
    clock = ManualClock()

    async def cost(steps: int) -> int:
        async with forgetful("sqlite://", straight, clock=clock) as app:
            run = await app.start(straight, steps)
            await app.drain()
            clock.advance("1h")
            with counted() as calls:
                await app.drain()
            assert await run.result() == steps
        return calls.count

    base, once, twice = await cost(1), await cost(400), await cost(800)
    assert (twice - base) < 2.1 * (once - base)


@pytest.mark.parametrize("cached_runs", [0, 1000])
async def test_runs_that_have_ended_leave_nothing_in_memory(cached_runs: int) -> None:
    await check_memory("sqlite://", WorkerOptions(cached_runs=cached_runs, poll="1h"))


async def test_a_server_makes_no_difference_to_that(postgres_url: str) -> None:
    await check_memory(postgres_url, WorkerOptions(poll="1h"))


async def check_memory(url: str, options: WorkerOptions) -> None:
    """Batches of runs that wait for a signal, get it and end. What is kept of each would show in every stretch of them."""
    size = 60

    async def work(app: Outlast, batches: range) -> None:
        for batch in batches:
            runs = await app.start_many(brief, [batch] * size)
            await app.drain()
            await app.signal(woken, batch, key=str(batch))
            await app.drain()
            assert [await run.result() for run in runs] == [batch] * size

    async with Outlast(url, workflows=[brief], worker=options) as app:
        in_use: list[int] = []
        for stretch in range(5):
            await work(app, range(3 * stretch, 3 * stretch + 3))
            in_use.append(memory_blocks())

        growth = [after - before for before, after in pairwise(in_use)]
        assert min(growth) < 3 * size, growth


def memory_blocks() -> int:
    """How many pieces of memory are in use. One that stays behind for each run would be as many more."""
    gc.collect()
    return sys.getallocatedblocks()
