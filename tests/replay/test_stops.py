"""Stops: the first reason recorded decides how a run ends, whatever its code catches."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from outlast import Context, Signal, step, workflow
from outlast.engine.decision import Finished, Working
from outlast.model.failures import decode_failure
from outlast.model.journal import Kind
from outlast.model.run import Status, StopKind
from support.replaying import Rehearsal, for_every_crash

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


def test_a_cancelled_run_ends_as_cancelled_for_the_reason_given() -> None:
    run = Rehearsal(plain)
    run.turn()
    stop = run.ask_stop(message="The customer changed her mind.")
    turn = run.turn()

    assert turn.finished() == Finished(Status.CANCELLED, None, stop.failure)
    assert run.log[-1] == "$stop done"
    assert stop_kind(run) == "cancel"
    assert run.record("$stop").kind is Kind.STOP


def test_a_run_that_was_cancelled_before_it_began_runs_nothing() -> None:
    seen: list[str] = []

    @workflow("unborn")
    async def unborn(ctx: Context) -> str:
        seen.append("ran")
        return "done"

    run = Rehearsal(unborn)
    run.ask_stop()

    assert run.turn().finished().status is Status.CANCELLED
    assert seen == []
    assert run.names == ["$stop"]


def test_the_code_is_told_by_cancellation() -> None:
    told: list[str] = []

    @workflow("told")
    async def told_by(ctx: Context) -> None:
        try:
            await ctx.wait_for("go", ctx.signal(go))
        except asyncio.CancelledError:
            told.append("cancelled")
            raise

    run = Rehearsal(told_by)
    turn = run.turn()
    run.ask_stop()

    assert run.turn(kept=turn.execution).finished().status is Status.CANCELLED
    assert told == ["cancelled"]


SWALLOWERS: dict[str, Any] = {}


def swallower(function: Any) -> Any:  # noqa: ANN401, RUF100
    SWALLOWERS[function.__name__] = workflow(function.__name__)(function)
    return function


@swallower
async def returns_instead(ctx: Context) -> str:
    try:
        await ctx.wait_for("go", ctx.signal(go))
    except BaseException:  # noqa: BLE001
        return "swallowed"
    return "went"


@swallower
async def raises_instead(ctx: Context) -> str:
    try:
        await ctx.wait_for("go", ctx.signal(go))
    except BaseException as error:
        raise ValueError("instead") from error
    return "went"


@swallower
async def asks_again_and_again(ctx: Context) -> str:
    for n in range(300):
        try:
            await ctx.wait_for(f"go {n}", ctx.signal(go))
        except BaseException:  # noqa: BLE001
            continue
        break
    return "swallowed"


@swallower
async def awaits_something_else(ctx: Context) -> str:
    for _ in range(300):
        try:
            await ctx.wait_for("go", ctx.signal(go))
        except BaseException:  # noqa: BLE001
            try:
                await asyncio.get_running_loop().create_future()
            except BaseException:  # noqa: BLE001
                continue
        break
    return "swallowed"


@swallower
async def cleans_up_with_a_step(ctx: Context) -> str:
    try:
        await ctx.wait_for("go", ctx.signal(go))
    finally:
        await work.named("clean")("clean")
    return "went"


@swallower
async def sleeps_in_between(ctx: Context) -> str:
    try:
        await ctx.wait_for("go", ctx.signal(go))
    except BaseException:  # noqa: BLE001
        await asyncio.sleep(5)
    return "went"


@swallower
async def turns_for_ever(ctx: Context) -> str:
    try:
        await ctx.wait_for("go", ctx.signal(go))
    except BaseException:  # noqa: BLE001
        while True:  # noqa: ASYNC110 - what must not be done
            await asyncio.sleep(0)
    return "went"


@swallower
async def keeps_a_background_task(ctx: Context) -> str:
    async def background() -> None:
        for _ in range(150):
            try:
                await asyncio.get_running_loop().create_future()
            except BaseException:  # noqa: BLE001
                continue

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(ctx.wait_for("go", ctx.signal(go)))
        tasks.create_task(background())
    return "went"


@pytest.mark.parametrize("name", SWALLOWERS)
@pytest.mark.parametrize("kind", [StopKind.CANCEL, StopKind.TERMINATE])
def test_whatever_the_code_catches_the_recorded_reason_decides(
    name: str, kind: StopKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlast.engine.stops._MOST_HANDLES", 1000)
    run = Rehearsal(SWALLOWERS[name])
    turn = run.turn()
    stop = run.ask_stop(kind)
    turn = run.turn(kept=turn.execution)

    assert turn.finished() == Finished(Status.CANCELLED, None, stop.failure)
    assert run.performed == []
    assert run.names[-1] == "$stop"


@pytest.mark.parametrize("name", SWALLOWERS)
def test_code_that_catches_everything_still_waits(name: str) -> None:
    """There is no exception that suspends a run, so none can be caught."""
    turn = Rehearsal(SWALLOWERS[name]).turn()

    assert [wait.topic for wait in turn.parked().waits] == ["go"]
    turn.execution.close()


def test_every_verb_is_refused_once_the_run_is_stopped() -> None:
    refused: list[str] = []

    @workflow("verbs")
    async def verbs(ctx: Context) -> None:
        try:
            await ctx.wait_for("go", ctx.signal(go))
        except asyncio.CancelledError:
            asks: list[tuple[str, Any]] = [
                ("step", lambda: ctx.step("x", lambda s: None)), ("named", lambda: work.named("y")("y")),
                ("sleep", lambda: ctx.sleep("z", "1s")), ("wait", lambda: ctx.wait_for("v", ctx.signal(go))),
                ("asyncio.sleep", lambda: asyncio.sleep(1)), ("timer", lambda: ctx.timer("1s")),
                ("now", ctx.now), ("random", ctx.random), ("uuid", ctx.uuid), ("commit", lambda: ctx.commit("c")),
                ("fail", lambda: ctx.fail("f")), ("status", lambda: ctx.set_status("s")),
                ("time", asyncio.get_running_loop().time),
            ]  # fmt: skip
            for name, ask in asks:
                try:
                    answer = ask()
                    if asyncio.iscoroutine(answer):
                        await answer
                except asyncio.CancelledError:
                    refused.append(name)
            raise

    run = Rehearsal(verbs)
    turn = run.turn()
    run.ask_stop()
    turn = run.turn(kept=turn.execution)

    assert len(refused) == 13
    assert run.log == ["go open", "$stop done"]
    assert turn.progress.custom_status is None


@pytest.mark.parametrize("kind", [StopKind.CANCEL, StopKind.TIMEOUT])
def test_a_step_that_stopped_code_asks_for_is_told_of_once(kind: StopKind, caplog: pytest.LogCaptureFixture) -> None:
    """A `finally` with a step in it, as code elsewhere has it, was passed over without a word."""

    @workflow("locking")
    async def locking(ctx: Context) -> None:
        try:
            await ctx.wait_for("go", ctx.signal(go))
        finally:
            try:
                await work.named("unlock")("x")
            finally:
                await work.named("tell")("x")

    run = Rehearsal(locking)
    turn = run.turn()
    run.ask_stop(kind)
    run.turn(kept=turn.execution)

    (told,) = [record for record in caplog.records if record.name == "outlast.engine"]
    assert told.levelno == logging.WARNING
    assert "of workflow 'locking' has been stopped: its step 'unlock' is not performed" in told.getMessage()
    assert "compensate=" in told.getMessage()


def test_a_step_in_flight_finishes_and_is_recorded() -> None:
    run = Rehearsal(plain)
    turn = run.begin()
    stop = run.ask_stop()
    turn.execution.request_stop(stop)
    turn.run()
    assert turn.state == Working(None)
    assert run.log == ["$stop done"]

    turn.perform("a")

    assert turn.finished() == Finished(Status.CANCELLED, None, stop.failure)
    assert run.log == ["$stop done", "a done"]
    for_every_crash(run, lambda again: again.end() == turn.state)


def test_what_a_step_raises_after_the_stop_is_recorded_and_not_tried_again() -> None:
    run = Rehearsal(plain)
    turn = run.begin()
    turn.execution.request_stop(run.ask_stop())
    turn.run()
    turn.raises("a", asyncio.CancelledError())

    assert turn.finished().status is Status.CANCELLED
    assert run.log == ["$stop done", "a failed"]
    cause = decode_failure(run.record("a").payload or "")
    assert cause.type == "asyncio.exceptions.CancelledError"


def test_a_retry_that_waits_is_not_made_after_the_stop() -> None:
    run = Rehearsal(plain)
    turn = run.begin()
    turn.raises("a", OSError("down"))
    run.ask_stop()

    assert run.turn(kept=turn.execution).finished().status is Status.CANCELLED
    assert run.log == ["a retry", "$stop done"]


def test_a_code_that_returned_before_the_stop_was_seen_has_completed() -> None:
    @workflow("quick")
    async def quick(ctx: Context) -> str:
        return await work.named("a")("a")

    run = Rehearsal(quick)
    turn = run.begin()
    turn.perform("a")
    turn.execution.request_stop(run.ask_stop())

    assert turn.run().state == Finished(Status.COMPLETED, '"a"', None)


def test_what_happened_before_the_stop_was_asked_for_is_told_first() -> None:
    """The signal came first; the run was only woken after both."""

    @workflow("signal-first")
    async def signal_first(ctx: Context) -> str:
        await ctx.wait_for("go", ctx.signal(go))
        return "went"

    run = Rehearsal(signal_first)
    run.turn()
    run.send(go)
    run.advance("1s")
    run.ask_stop()
    assert run.turn().finished() == Finished(Status.COMPLETED, '"went"', None)

    other = Rehearsal(signal_first)
    other.turn()
    other.ask_stop()
    other.advance("1s")
    other.send(go)
    assert other.turn().finished().status is Status.CANCELLED


def test_a_stop_seen_after_a_step_was_done_comes_before_the_next_one() -> None:
    run = Rehearsal(plain)
    turn = run.begin()
    run.advance("1s")
    turn.execution.step_returned(turn.in_flight.pop("a"), "a")
    run.advance("1s")
    turn.execution.request_stop(run.ask_stop())
    turn.run()

    assert turn.finished().status is Status.CANCELLED
    assert run.log == ["a done", "go open", "$stop done"]


def test_the_first_reason_stays() -> None:
    run = Rehearsal(plain)
    turn = run.begin()
    first = run.ask_stop(message="first")
    turn.execution.request_stop(first)
    turn.execution.request_stop(run.ask_stop(message="second"))
    turn.run()
    turn.execution.request_stop(run.ask_stop(message="third"))
    turn.perform("a")

    assert turn.finished().failure == first.failure


def test_terminating_replaces_a_cancel_that_was_not_seen_yet() -> None:
    run = Rehearsal(plain)
    turn = run.begin()
    turn.execution.request_stop(run.ask_stop())
    terminate = run.ask_stop(StopKind.TERMINATE, "Terminated.")
    turn.execution.request_stop(terminate)
    turn.run()
    turn.perform("a")

    assert turn.finished().failure == terminate.failure
    assert stop_kind(run) == "terminate"


def test_a_failure_recorded_first_is_not_replaced_by_a_cancel() -> None:
    @workflow("failing")
    async def failing(ctx: Context) -> None:
        background = asyncio.ensure_future(work.named("slow")("slow"))
        await work.named("a")("a")
        assert not background.done()
        raise ValueError("wrong")

    run = Rehearsal(failing)
    turn = run.begin()
    turn.perform("a")
    assert run.log == ["a done", "$stop done"]
    turn.execution.request_stop(run.ask_stop())
    turn.run()
    turn.perform("slow")

    failure = turn.finished().failure
    assert failure is not None
    assert (turn.finished().status, failure.type, failure.message) == (Status.FAILED, "ValueError", "wrong")
    assert run.log == ["a done", "$stop done", "slow done"]
    for_every_crash(run, lambda again: again.end() == turn.state, after="$stop done")
