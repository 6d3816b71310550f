"""Undoing: the completed steps in reverse order of their calls, each recorded and retried, going on after a crash."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outlast import CompensationContext, Context, Failure, Signal, workflow
from outlast.engine.decision import Finished, Parked
from outlast.model.journal import Kind
from outlast.model.run import Status, StopKind
from support.replaying import START, Rehearsal, for_every_crash

SECOND = 1_000_000
go = Signal("go")
undone: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_undone() -> None:
    undone.clear()


def undo(s: CompensationContext, result: str) -> None:
    undone.append(result)


async def make(ctx: Context, name: str, **options: Any) -> str:  # noqa: ANN401, RUF100
    return await ctx.step(name, lambda s: name, compensate=undo, **options)


@workflow("failing")
async def failing(ctx: Context) -> None:
    for name in "abc":
        await make(ctx, name)
    ctx.fail("no")


def failed(failure: Failure | None) -> Finished:
    return Finished(Status.FAILED, None, failure)


def reason(run: Rehearsal) -> Failure | None:
    end = run.end()
    assert isinstance(end, Finished)
    return end.failure


def test_the_last_step_is_undone_first() -> None:
    run = Rehearsal(failing)
    run.end()

    assert undone == ["c", "b", "a"]
    assert run.names[-4:] == ["$stop", "$compensate:c", "$compensate:b", "$compensate:a"]


def test_the_reason_is_recorded_before_anything_is_undone() -> None:
    run = Rehearsal(failing)
    turn = run.begin()
    for name in "abc":
        turn.perform(name)

    assert [record.name for record in turn.progress.records] == ["c", "$stop"]
    assert turn.progress.status is Status.COMPENSATING
    assert turn.calls == ["$compensate:c"]
    assert turn.in_flight["$compensate:c"].kind is Kind.COMPENSATION


def test_a_crash_anywhere_repeats_nothing_that_was_recorded_and_forgets_nothing() -> None:
    run = Rehearsal(failing)
    end = run.end()

    def goes_on(again: Rehearsal) -> bool:
        known = len(again.journal)
        undone.clear()
        ended = again.end()
        return ended == end and undone == ["c", "b", "a"][max(0, known - 4) :]

    for_every_crash(run, goes_on, after="$stop done")


def test_the_original_error_is_still_the_cause_after_a_crash_in_the_middle() -> None:
    run = Rehearsal(failing)
    turn = run.begin()
    for name in ("a", "b", "c", "$compensate:c"):
        turn.perform(name)
    undone.clear()
    failure = reason(run.cut(len(run.journal)))

    assert undone == ["b", "a"]
    assert failure is not None
    assert (failure.type, failure.message) == ("outlast.errors.WorkflowFailed", "no")


@pytest.mark.parametrize("order", ["abc", "cba", "bca"])
def test_parallel_steps_are_undone_by_the_order_of_their_calls(order: str) -> None:
    @workflow("parallel")
    async def parallel(ctx: Context) -> None:
        await asyncio.gather(*(make(ctx, name) for name in "abc"))
        ctx.fail("no")

    run = Rehearsal(parallel)
    turn = run.begin()
    for name in order:
        turn.perform(name)
    while not isinstance(turn.state, Finished):
        turn.perform(turn.calls[0])

    assert undone == ["c", "b", "a"]
    for_every_crash(run, lambda again: isinstance(again.end(), Finished))


def test_a_step_that_failed_is_not_undone() -> None:
    """Nothing was recorded of what it did: its function cleans up after itself, or is two steps."""

    @workflow("half-way")
    async def half_way(ctx: Context) -> None:
        await make(ctx, "a")

        def insert_and_fail(s: object) -> str:
            raise OSError("after the insert")

        await ctx.step("c", insert_and_fail, compensate=undo, retry=False)

    run = Rehearsal(half_way)
    run.end()

    assert undone == ["a"]
    for_every_crash(run, lambda again: isinstance(again.end(), Finished) and "c" not in undone)


def test_a_step_that_timed_out_is_not_undone_either() -> None:
    @workflow("half-way")
    async def half_way(ctx: Context) -> None:
        await make(ctx, "a")
        await make(ctx, "c", retry=False)

    run = Rehearsal(half_way)
    turn = run.begin()
    turn.perform("a")
    turn.raises("c", TimeoutError())
    turn.perform("$compensate:a")

    assert turn.finished().status is Status.FAILED
    assert undone == ["a"]


def test_other_branches_finish_and_are_undone_as_well() -> None:
    @workflow("gather")
    async def gather(ctx: Context) -> None:
        async def fail() -> None:
            await ctx.step("fail", lambda s: 1 // 0, retry=False)

        await asyncio.gather(make(ctx, "a"), make(ctx, "b"), fail())

    run = Rehearsal(gather)
    turn = run.begin()
    turn.perform("a")
    turn.perform("fail")
    assert turn.calls == ["b"]
    assert run.log == ["a done", "fail failed", "$stop done"]
    assert turn.progress.status is Status.RUNNING

    turn.perform("b")
    while not isinstance(turn.state, Finished):
        turn.perform(turn.calls[0])

    assert undone == ["b", "a"]
    assert run.log == [
        "a done", "fail failed", "$stop done", "b done", "$compensate:b done", "$compensate:a done",
    ]  # fmt: skip


# Points of no return.


def test_what_completed_before_the_point_of_no_return_is_not_undone() -> None:
    @workflow("committed")
    async def committed(ctx: Context) -> None:
        await make(ctx, "a")
        await make(ctx, "b")
        ctx.commit("delivered")
        await make(ctx, "c")
        ctx.fail("no")

    run = Rehearsal(committed)
    end = run.end()

    assert undone == ["c"]
    assert run.record("delivered").kind is Kind.COMMIT
    for_every_crash(run, lambda again: again.end() == end and not {"a", "b"} & set(undone), after="delivered done")


def test_a_step_in_flight_at_the_point_of_no_return_is_undone() -> None:
    """It completes after it."""

    @workflow("committed")
    async def committed(ctx: Context) -> None:
        slow = asyncio.ensure_future(make(ctx, "slow"))
        await make(ctx, "a")
        ctx.commit("delivered")
        await slow
        ctx.fail("no")

    run = Rehearsal(committed)
    turn = run.begin()
    turn.perform("a")
    turn.perform("slow")
    turn.perform("$compensate:slow")

    assert turn.finished().status is Status.FAILED
    assert undone == ["slow"]


def test_a_commit_that_was_not_durable_undoes_what_came_before_it() -> None:
    @workflow("committed")
    async def committed(ctx: Context) -> None:
        await make(ctx, "a")
        ctx.commit("delivered")
        await ctx.wait_for("go", ctx.signal(go))

    run = Rehearsal(committed)
    run.turn()
    crashed = run.cut(1)
    crashed.ask_stop()
    crashed.turn()
    assert undone == []

    run.ask_stop()
    run.turn()
    assert undone == []
    assert run.log == ["a done", "delivered done", "go open", "$stop done"]


# Cancelled, terminated, timed out.


@workflow("waiting")
async def waiting(ctx: Context) -> None:
    for name in "abc":
        await make(ctx, name)
    await ctx.wait_for("go", ctx.signal(go))


def test_a_cancelled_run_is_undone_and_ends_as_cancelled() -> None:
    run = Rehearsal(waiting)
    run.turn()
    stop = run.ask_stop()
    turn = run.turn()

    assert turn.finished() == Finished(Status.CANCELLED, None, stop.failure)
    assert undone == ["c", "b", "a"]
    for_every_crash(run, lambda again: again.end() == turn.state, after="$stop done")


def test_a_run_that_timed_out_is_undone_without_regard_to_its_deadline() -> None:
    run = Rehearsal(waiting, timeout="1h")
    run.turn()
    run.advance("1h")
    turn = run.begin()
    run.advance("9h")
    while not isinstance(turn.state, Finished):
        turn.perform(turn.calls[0])

    assert turn.finished().status is Status.FAILED
    assert undone == ["c", "b", "a"]


def test_a_terminated_run_is_not_undone() -> None:
    run = Rehearsal(waiting)
    run.turn()
    stop = run.ask_stop(StopKind.TERMINATE, "Terminated.")

    assert run.turn().finished() == Finished(Status.CANCELLED, None, stop.failure)
    assert undone == []


def test_a_cancel_while_undoing_changes_nothing() -> None:
    run = Rehearsal(failing)
    turn = run.begin()
    for name in "abc":
        turn.perform(name)
    for name in "cba":
        turn.execution.request_stop(run.ask_stop())
        turn.run()
        turn.perform(f"$compensate:{name}")

    assert turn.finished().status is Status.FAILED
    assert undone == ["c", "b", "a"]


def test_a_step_in_flight_when_the_run_is_cancelled_is_undone_once_it_finished() -> None:
    run = Rehearsal(waiting)
    turn = run.begin()
    turn.perform("a")
    turn.execution.request_stop(run.ask_stop())
    turn.run()
    assert turn.calls == ["b"]
    turn.perform("b")
    turn.perform("$compensate:b")
    turn.perform("$compensate:a")

    assert turn.finished().status is Status.CANCELLED
    assert run.log == ["a done", "$stop done", "b done", "$compensate:b done", "$compensate:a done"]
    for_every_crash(run, lambda again: again.end() == turn.state, after="$stop done")


def test_terminating_while_undoing_lets_the_running_one_finish_and_skips_the_rest() -> None:
    run = Rehearsal(failing)
    turn = run.begin()
    for name in "abc":
        turn.perform(name)
    stop = run.ask_stop(StopKind.TERMINATE, "Terminated.")
    turn.execution.request_stop(stop)
    turn.run()
    turn.perform("$compensate:c")
    end = turn.finished()

    assert undone == ["c"]
    assert end.failure is not None
    assert (end.status, end.failure.message) == (Status.CANCELLED, "Terminated.")
    assert [inner.message for inner in end.failure.inner] == ["no"]


def test_terminating_is_not_delayed_by_a_retry_of_undoing() -> None:
    run = Rehearsal(failing)
    turn = run.begin()
    for name in "abc":
        turn.perform(name)
    turn.raises("$compensate:c", OSError("down"))
    assert turn.parked() == Parked(Status.COMPENSATING, START + SECOND, ())

    run.ask_stop(StopKind.TERMINATE, "Terminated.")
    assert run.cut(len(run.journal)).turn().finished().status is Status.CANCELLED
    assert run.turn(kept=turn.execution).finished().status is Status.CANCELLED
    assert undone == []
