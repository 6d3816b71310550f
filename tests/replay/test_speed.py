"""Replay stays cheap: bounds that are far above what it takes, and far below what a slip would cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from outlast import Context, workflow
from outlast.engine.decision import Finished, Working
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
