"""Runs that end because their time is over, or because their code raised."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from outlast import Context, Failure, Signal, StepFailed, step, workflow
from outlast.engine.decision import Finished, Working
from outlast.model.journal import Phase
from outlast.model.run import Status, Stop, StopKind
from support.replaying import START, Rehearsal

HOUR = 3_600_000_000
go = Signal("go")


@step
async def work(name: str) -> str:
    return name


@workflow("plain")
async def plain(ctx: Context) -> str:
    await work.named("a")("a")
    await ctx.wait_for("go", ctx.signal(go))
    return await work.named("b")("b")


def stop_kind(run: Rehearsal) -> str:
    payload = run.record("$stop").payload
    assert payload is not None
    return json.loads(payload)["kind"]


@workflow("long")
async def long(ctx: Context) -> str:
    await ctx.sleep("first", "1h")
    await ctx.sleep("second", "1h")
    return await work.named("a")("a")


def test_a_run_that_passes_its_deadline_fails() -> None:
    run = Rehearsal(long, timeout="90m")
    end = run.end()

    assert isinstance(end, Finished)
    assert end.failure is not None
    assert (end.status, end.failure.type) == (Status.FAILED, "outlast.errors.RunTimedOut")
    assert end.failure.message == "The run took longer than its timeout of 1h30m."
    assert run.now == START + HOUR * 3 // 2
    assert stop_kind(run) == "timeout"


def test_the_deadline_does_not_begin_again_after_a_crash() -> None:
    run = Rehearsal(long, timeout="90m")
    run.turn()
    run.advance("1h")
    run.turn()
    crashed = run.cut(3)
    crashed.advance("20m")

    assert crashed.turn().parked().due_at == START + HOUR * 3 // 2


def test_what_happened_in_time_counts_even_if_the_worker_was_late() -> None:
    @workflow("in-time")
    async def in_time(ctx: Context) -> str:
        await ctx.sleep("first", "1h")
        return "in time"

    run = Rehearsal(in_time, timeout="90m")
    run.turn()
    run.advance("5h")

    assert run.turn().finished() == Finished(Status.COMPLETED, '"in time"', None)


def test_nothing_new_is_done_after_the_deadline() -> None:
    run = Rehearsal(plain, timeout="1h")
    turn = run.begin()
    run.advance("2h")
    turn.run()
    turn.perform("a")

    assert turn.finished().status is Status.FAILED
    assert run.log == ["$stop done", "a done"]


def test_a_run_that_is_first_looked_at_after_its_deadline_runs_nothing() -> None:
    run = Rehearsal(plain, timeout="1h")
    run.advance("2h")

    assert run.turn().finished().status is Status.FAILED
    assert run.names == ["$stop"]


@pytest.mark.parametrize("asked_at,kind", [("59m", "cancel"), ("61m", "timeout")])
def test_of_a_cancel_and_the_deadline_the_earlier_one_decides(asked_at: str, kind: str) -> None:
    run = Rehearsal(plain, timeout="1h")
    run.turn()
    run.advance(asked_at)
    run.ask_stop()
    run.advance("1d")
    run.turn()

    assert stop_kind(run) == kind


def test_a_worker_is_told_when_to_look_at_the_deadline() -> None:
    run = Rehearsal(plain, timeout="1h")
    turn = run.begin()
    assert turn.state == Working(START + HOUR)
    turn.perform("a")
    assert turn.parked().due_at == START + HOUR


# Failures.


def test_an_error_of_the_code_fails_the_run_and_is_recorded() -> None:
    @workflow("broken")
    async def broken(ctx: Context) -> None:
        raise KeyError("x") from OSError("y")

    run = Rehearsal(broken)
    end = run.end()

    assert isinstance(end, Finished)
    assert end.failure is not None
    assert (end.status, end.failure.type, end.failure.message) == (Status.FAILED, "KeyError", "'x'")
    assert end.failure.inner == (Failure(type="OSError", message="y"),)
    assert run.log == ["$stop done"]
    assert stop_kind(run) == "failure"


def test_failing_for_a_reason_of_the_business_keeps_its_words() -> None:
    @workflow("refused")
    async def refused(ctx: Context) -> None:
        ctx.fail("Order 7 was not delivered.")

    end = Rehearsal(refused).end()
    assert isinstance(end, Finished)
    assert end.failure is not None
    assert (end.failure.type, end.failure.message) == ("outlast.errors.WorkflowFailed", "Order 7 was not delivered.")


def test_the_members_of_a_group_are_kept() -> None:
    @workflow("group")
    async def group(ctx: Context) -> None:
        def fail(error: Exception) -> Any:  # noqa: ANN401, RUF100
            def raising(s: object) -> None:
                raise error

            return raising

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ctx.step("a", fail(ValueError("a")), retry=False))
            tasks.create_task(ctx.step("b", fail(KeyError("b")), retry=False))

    run = Rehearsal(group)
    turn = run.begin()
    assert turn.calls == ["a", "b"]
    turn.perform("a")
    assert turn.state == Working(None)
    turn.perform("b")
    failure = turn.finished().failure

    assert failure is not None
    assert failure.type == "ExceptionGroup"
    (member,) = failure.inner
    assert member.type == "outlast.errors.StepFailed"
    assert [inner.type for inner in member.inner] == ["ValueError"]
    assert run.log == ["a failed", "$stop done", "b failed"]


def test_an_output_that_cannot_be_stored_fails_the_run() -> None:
    @workflow("output")
    async def output(ctx: Context) -> Any:  # noqa: ANN401, RUF100
        return {"handle": open}

    end = Rehearsal(output).end()
    assert isinstance(end, Finished)
    assert end.failure is not None
    assert end.failure.type == "outlast.errors.ValueNotStorable"
    assert "output['handle']" in end.failure.message


def test_an_output_that_is_too_big_fails_the_run() -> None:
    @workflow("output")
    async def output(ctx: Context) -> str:
        return "x" * 101

    run = Rehearsal(output)
    run.most = 100
    end = run.end()
    assert isinstance(end, Finished)
    assert end.failure is not None
    assert end.failure.message == "output cannot be stored: at most 100"


def test_an_output_that_raises_when_it_is_looked_at_fails_the_run() -> None:
    class Gone:
        @property
        def __class__(self) -> type:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
            raise ReferenceError("it is gone")

        @__class__.setter
        def __class__(self, kind: type) -> None: ...

    @workflow("gone")
    async def gone(ctx: Context) -> Any:
        return Gone()

    end = Rehearsal(gone).end()
    assert isinstance(end, Finished)
    assert end.failure is not None
    assert (end.status, end.failure.type) == (Status.FAILED, "ReferenceError")


def test_a_caught_step_failure_is_no_failure_of_the_run() -> None:
    @workflow("plan-b")
    async def plan_b(ctx: Context) -> str:
        try:
            await ctx.step("a", lambda s: 1 // 0, retry=False)
        except StepFailed:
            return "plan b"
        return "plan a"

    assert Rehearsal(plan_b).end() == Finished(Status.COMPLETED, '"plan b"', None)


def test_a_damaged_stop_holds_the_run() -> None:
    run = Rehearsal(plain)
    run.turn()
    run.ask_stop()
    run.turn()
    record = run.journal[-1]
    run.journal[-1] = type(record)(record.seq, record.kind, Phase.DONE, record.name, payload='{"kind": "why"}')

    assert "$stop" in run.turn().held().failure.message


def test_a_stop_that_is_asked_for_again_while_the_run_is_replayed_changes_nothing() -> None:
    run = Rehearsal(plain)
    turn = run.begin()
    stop = run.ask_stop(message="first")
    turn.execution.request_stop(stop)
    turn.run()
    crashed = run.cut(1)
    crashed.stop = Stop(StopKind.CANCEL, Failure(type="x", message="again"), START)

    assert crashed.turn().finished().failure == stop.failure
