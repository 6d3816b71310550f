"""Replay stays cheap: bounds that are far above what it takes, and far below what a slip would cost."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field

from outlast import Context, workflow
from outlast.engine.decision import Finished, Parked, Working
from outlast.engine.execution import Execution
from support.replaying import Rehearsal


@workflow("many")
async def many(ctx: Context, count: int) -> int:
    for number in range(count):
        await ctx.step(f"step-{number}", lambda s: 1)
    return count


def recorded(count: int) -> Rehearsal:
    run = Rehearsal(many, count)
    execution = run.execution()
    execution.resume()
    progress = execution.run()
    while isinstance(progress.state, Working):
        run.journal += progress.records
        for call in progress.calls:
            execution.step_returned(call, 1)
        progress = execution.run()
    run.journal += progress.records
    assert len(run.journal) == count
    return run


def seconds(function: Callable[[], object]) -> float:
    """The processor's time, and the best of three: other work on the machine is no fault of replay."""
    taken: list[float] = []
    for _ in range(3):
        began = time.process_time()
        function()
        taken.append(time.process_time() - began)
    return min(taken)


def replay(run: Rehearsal) -> None:
    execution = run.execution()
    execution.resume()
    assert isinstance(execution.run().state, Finished)


def test_a_journal_of_1_000_entries_is_replayed_in_less_than_100_ms() -> None:
    run = recorded(1_000)

    assert seconds(lambda: replay(run)) < 0.1


def test_replay_grows_with_the_journal_and_not_with_its_square() -> None:
    small, large = recorded(1_000), recorded(8_000)

    assert seconds(lambda: replay(large)) < 2.5 * 8 * seconds(lambda: replay(small))


def test_2_000_timers_at_once_take_less_than_2_s() -> None:
    branches = 2_000

    @workflow("wide")
    async def wide(ctx: Context) -> int:
        await asyncio.gather(*(ctx.sleep(f"sleep-{number}", f"{number + 1}s") for number in range(branches)))
        return branches

    def through() -> None:
        run = Rehearsal(wide)
        execution = run.execution()
        execution.resume()
        execution.run()
        run.advance("1d")
        assert isinstance(execution.run().state, Finished)

    assert seconds(through) < 2.0


def test_results_that_were_handed_over_are_not_kept() -> None:
    """A run of many thousand steps must not hold all that they returned."""

    @workflow("forgetful")
    async def forgetful(ctx: Context) -> int:
        for number in range(50):
            await ctx.step(f"step-{number}", lambda s: Result())
        return 50

    run = Rehearsal(forgetful)
    turn = run.begin()
    for _ in range(40):
        turn.returns(turn.calls[0], Result())
    gc.collect()
    assert sum(issubclass(type(thing), Result) for thing in gc.get_objects()) < 5

    replayed = run.cut(40).begin()
    gc.collect()
    assert replayed.calls == ["step-40"]
    assert sum(issubclass(type(thing), Result) for thing in gc.get_objects()) < 5


@dataclass
class Result:
    """Something that can be counted."""

    content: list[int] = field(default_factory=lambda: [1, 2, 3])


def test_a_parked_run_takes_little_memory() -> None:
    """Thousands of them are kept. The collector has to look through each of their objects, too."""

    @workflow("sleeper")
    async def sleeper(ctx: Context) -> None:
        await ctx.sleep("nap", "1h")

    run = Rehearsal(sleeper)

    def parked() -> Execution:
        execution = run.execution()
        execution.resume()
        assert isinstance(execution.run().state, Parked)
        return execution

    parked()
    gc.collect()
    tracemalloc.start()
    try:
        before, looked_through = tracemalloc.get_traced_memory()[0], len(gc.get_objects())
        kept = [parked() for _ in range(100)]
        gc.collect()
        bytes_of_one = (tracemalloc.get_traced_memory()[0] - before) / len(kept)
        objects_of_one = (len(gc.get_objects()) - looked_through) / len(kept)
    finally:
        tracemalloc.stop()

    assert bytes_of_one < 8_000
    # Since Python 3.14 the collector looks through empty dicts and those of plain values, too.
    assert objects_of_one < (53 if sys.version_info < (3, 14) else 73)
