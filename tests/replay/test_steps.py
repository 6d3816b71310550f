"""Steps: performed once, recorded once, and answered from the journal ever after."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import threading
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from outlast import Context, Failure, StepContext, StepFailed, step, workflow
from outlast.engine.decision import Finished, Working
from outlast.engine.frames import current_step
from outlast.model.journal import Kind, Phase
from outlast.model.run import Status
from support.replaying import Rehearsal, ended, performed


@step
async def double(number: int) -> int:
    return number * 2


@workflow("three-steps")
async def three_steps(ctx: Context, number: int) -> int:
    number = await double.named("first")(number)
    number = await double.named("second")(number)
    return await double.named("third")(number)


def test_a_step_starts_only_after_what_came_before_is_given_out_to_be_written() -> None:
    run = Rehearsal(three_steps, 1)
    turn = run.begin()
    assert (turn.progress.records, turn.calls) == ((), ["first"])

    turn.perform("first")

    assert [record.name for record in turn.progress.records] == ["first"]
    assert turn.calls == ["second"]


def test_the_last_result_and_the_end_are_one_answer() -> None:
    turn = Rehearsal(three_steps, 1).turn()

    assert [record.name for record in turn.progress.records] == ["third"]
    assert turn.state == Finished(Status.COMPLETED, "8", None)


def test_one_row_is_recorded_for_a_step_that_succeeds_at_once() -> None:
    run = Rehearsal(three_steps, 1)
    run.end()

    first = run.record("first")
    assert (first.kind, first.phase, first.attempt, first.payload) == (Kind.STEP, Phase.DONE, 1, "2")
    assert run.names == ["first", "second", "third"]


def test_what_is_recorded_is_not_performed_again() -> None:
    run = Rehearsal(three_steps, 1)
    run.end()
    after_a_crash = run.cut(2)

    assert after_a_crash.end() == Finished(Status.COMPLETED, "8", None)
    assert after_a_crash.performed == ["third"]


def test_a_finished_journal_is_replayed_to_the_same_end() -> None:
    """The worker died after the last step was durable and before the run's end was."""
    run = Rehearsal(three_steps, 1)
    run.end()
    after_a_crash = run.cut(3)

    assert after_a_crash.end() == Finished(Status.COMPLETED, "8", None)
    assert after_a_crash.performed == []


@pytest.mark.parametrize("value", [None, 0, 0.0, False, "", [], {}, ()])
def test_empty_values_come_back_as_themselves_from_the_journal(value: object) -> None:
    @workflow("empty")
    async def empty(ctx: Context, given: Any) -> Any:  # noqa: ANN401, RUF100
        returned = await ctx.step("echo", lambda s: given)
        return [type(returned).__name__, returned == value, returned]

    assert ended(empty, value) == [type(value).__name__, True, value]


def test_a_step_that_returned_none_is_not_performed_again() -> None:
    @workflow("none")
    async def none(ctx: Context) -> str:
        await ctx.step("a", lambda s: None)
        return await ctx.step("b", lambda s: "b")

    run = Rehearsal(none)
    run.end()
    after_a_crash = run.cut(1)
    after_a_crash.end()

    assert run.record("a").payload == "null"
    assert after_a_crash.performed == ["b"]


def test_the_code_gets_a_copy_on_the_first_run_too() -> None:
    """What a step keeps hold of and changes later must not change what the workflow saw."""

    @dataclasses.dataclass
    class Basket:
        items: list[str]

    mine = Basket(["apple"])

    @step
    async def fill() -> Basket:
        return mine

    @workflow("basket")
    async def basket(ctx: Context) -> list[str]:
        got = await fill()
        mine.items.append("pear")
        return got.items

    assert Rehearsal(basket).end() == Finished(Status.COMPLETED, '["apple"]', None)


def test_a_result_that_cannot_be_stored_fails_at_once_and_names_its_place() -> None:
    @workflow("handle")
    async def handle(ctx: Context) -> str:
        try:
            await ctx.step("open", lambda s: {"fh": io.StringIO()}, retry=5)
        except StepFailed as error:
            return f"{error.attempts} {error.cause.type} {error.cause.message}"
        return "stored"

    said = ended(handle)
    assert said.startswith("1 outlast.errors.ValueNotStorable result of step 'open'['fh'] cannot be stored")


@pytest.mark.parametrize(
    "make",
    [threading.Lock, lambda: (number for number in "12"), lambda: int, lambda: iter([1]), object],
    ids=["lock", "generator", "class", "iterator", "object"],
)
def test_what_has_no_stored_form_is_never_recorded_as_a_result(make: Callable[[], object]) -> None:
    @workflow("strange")
    async def strange(ctx: Context) -> str:
        try:
            await ctx.step("make", lambda s: make())
        except StepFailed as error:
            return error.cause.type
        return "stored"

    assert ended(strange) == "outlast.errors.ValueNotStorable"


def test_what_a_plain_function_returns_to_be_awaited_is_awaited() -> None:
    async def fetch(key: str) -> str:
        return f"fetched under {key}"

    @workflow("lambda")
    async def through_lambda(ctx: Context) -> str:
        return await ctx.step("fetch", lambda s: fetch(s.idempotency_key))

    assert ended(through_lambda) == "fetched under run-1:fetch"


def test_a_coroutine_that_nobody_awaited_is_not_a_result() -> None:
    @workflow("forgotten")
    async def forgotten(ctx: Context) -> None:
        await ctx.step("make", lambda s: None, retry=False)

    async def later() -> None: ...

    turn = Rehearsal(forgotten).begin()
    turn.returns("make", later())

    failure = turn.finished().failure
    assert failure is not None
    assert "result of step 'make'" in failure.message


def test_a_step_knows_its_run_its_attempt_and_its_key() -> None:
    @step(retry=2)
    async def tell(s: StepContext, word: str) -> str:
        if s.attempt == 1:
            raise OSError
        return f"{word}: {s.run_id} {s.step} {s.attempt} {s.idempotency_key}"

    @workflow("tell")
    async def telling(ctx: Context) -> str:
        return await tell("a")

    assert ended(telling) == "a: run-1 tell 2 run-1:tell"


def test_a_step_called_inside_another_is_a_plain_call() -> None:
    @step
    async def inner(s: StepContext) -> str:
        return s.idempotency_key

    @step
    async def outer() -> list[str]:
        return [await inner(), await inner()]

    @workflow("nested")
    async def nested(ctx: Context) -> list[str]:
        return await outer()

    run = Rehearsal(nested)
    assert run.end() == Finished(Status.COMPLETED, '["run-1:outer:inner","run-1:outer:inner#2"]', None)
    assert run.names == ["outer"]


def test_a_frame_tells_who_asks_from_inside_a_step() -> None:
    seen: list[str] = []

    def look(s: StepContext) -> None:
        frame = current_step()
        assert frame is not None
        seen.append(f"{frame.run_id} {frame.step} {frame.idempotency_key} {frame.next_call()} {frame.next_call()}")

    @workflow("frames")
    async def frames(ctx: Context) -> None:
        assert current_step() is None
        await ctx.step("look", look)

    Rehearsal(frames).end()

    assert seen == ["run-1 look run-1:look 1 2"]
    assert current_step() is None


def test_an_awaited_part_of_a_plain_step_is_inside_it_too() -> None:
    async def rest() -> str:
        frame = current_step()
        return frame.step if frame else "outside"

    @workflow("rest")
    async def resting(ctx: Context) -> str:
        return await ctx.step("plain", lambda s: rest())

    assert ended(resting) == "plain"


def test_the_error_of_a_step_is_the_same_on_the_first_run_and_on_replay() -> None:
    class Refused(Exception):
        def __init__(self, *, status: int, lock: threading.Lock) -> None:
            super().__init__(f"status {status}")
            self.lock = lock

    @step(retry=False)
    async def refuse() -> None:
        raise Refused(status=402, lock=threading.Lock()) from OSError("line cut")

    seen: list[StepFailed] = []

    @workflow("refused")
    async def refused(ctx: Context) -> str:
        try:
            await refuse()
        except StepFailed as error:
            seen.append(error)
        return await ctx.step("next", lambda s: "next")

    run = Rehearsal(refused)
    run.end()
    run.cut(1).end()

    first, again = seen
    assert (first.step, first.attempts, first.cause) == (again.step, again.attempts, again.cause)
    assert str(first) == str(again)
    assert first.cause.message == "status 402"
    assert first.cause.inner == (Failure(type="OSError", message="line cut"),)
    assert "raise Refused" in first.cause.traceback


def test_a_step_may_fail_with_a_database_error_of_its_own() -> None:
    """It is the step's outcome, and no reason for the engine to think that its own database is away."""

    class OperationalError(Exception): ...

    @workflow("business")
    async def business(ctx: Context) -> str:
        def query(s: StepContext) -> str:
            raise OperationalError("connection reset")

        return await ctx.step("query", query, retry=False)

    end = Rehearsal(business).end()
    assert isinstance(end, Finished)
    assert (end.status, end.failure and end.failure.type) == (Status.FAILED, "outlast.errors.StepFailed")


def test_the_failure_of_a_run_keeps_the_error_of_the_step_that_failed_it() -> None:
    @workflow("failing")
    async def failing(ctx: Context) -> None:
        await ctx.step("ask", lambda s: 1 // 0, retry=False)

    end = Rehearsal(failing).end()
    assert isinstance(end, Finished)
    assert end.failure is not None
    (cause,) = end.failure.inner
    assert cause.type == "ZeroDivisionError"
    assert "1 // 0" in cause.traceback


def test_a_step_that_raises_its_own_cancellation_has_failed() -> None:
    @step(retry=2)
    async def cancels() -> None:
        raise asyncio.CancelledError

    @workflow("cancels")
    async def workflow_that_cancels(ctx: Context) -> str:
        try:
            await cancels()
        except StepFailed as error:
            return f"{error.attempts} {error.cause.type}"
        return "done"

    assert ended(workflow_that_cancels) == "2 asyncio.exceptions.CancelledError"


def test_a_step_may_raise_what_would_end_the_process() -> None:
    @workflow("exit")
    async def exiting(ctx: Context) -> str:
        def leave(s: StepContext) -> None:
            raise SystemExit(3)

        try:
            await ctx.step("leave", leave, retry=False)
        except StepFailed as error:
            return error.cause.type
        return "done"

    assert ended(exiting) == "SystemExit"


def test_an_unreadable_result_holds_the_run_and_names_the_step() -> None:
    run = Rehearsal(three_steps, 1)
    run.end()
    cut = run.cut(2)
    cut.journal[1] = replace(cut.journal[1], payload='{"half')

    failure = cut.turn().held().failure

    assert failure.type == "outlast.errors.ValueUnreadable"
    assert "run-1" in failure.message
    assert "step 'second'" in failure.message
    assert "deployed: restore the old type, or let the new one take what is stored too" in failure.message


def test_an_unreadable_input_holds_the_run() -> None:
    run = Rehearsal(three_steps, 1)
    run.input = '"one"'

    failure = run.turn().held().failure

    assert failure.type == "outlast.errors.ValueUnreadable"
    assert "input of run 'run-1' cannot be read back: Expected `int`, got `str`. The run is held" in failure.message
    assert "restore the old type" in failure.message


def test_a_step_gets_its_options() -> None:
    @workflow("options")
    async def options(ctx: Context) -> None:
        await ctx.step("slow", lambda s: None, timeout="2s", on_cancel="abort")

    (call,) = Rehearsal(options).begin().progress.calls

    assert call.timeout is not None
    assert call.timeout.total_seconds() == 2
    assert (call.on_cancel, call.is_async, call.kind) == ("abort", False, Kind.STEP)


def test_a_step_sees_that_its_run_was_asked_to_stop() -> None:
    @workflow("flag")
    async def flag(ctx: Context) -> bool:
        return await ctx.step("look", lambda s: s.stop_requested)

    (call,) = Rehearsal(flag).begin().progress.calls
    assert performed(call) is False
    call.stop_flag()
    assert performed(call) is True


def test_steps_run_in_the_order_in_which_the_code_asks() -> None:
    @workflow("parallel")
    async def parallel(ctx: Context) -> list[int]:
        return await asyncio.gather(*(double.named(f"double-{number}")(number) for number in range(4)))

    turn = Rehearsal(parallel).begin()

    assert turn.calls == ["double-0", "double-1", "double-2", "double-3"]
    assert turn.state == Working(None)
    assert ended(parallel) == [0, 2, 4, 6]


def test_a_result_that_is_too_big_fails_its_step_and_is_not_tried_again() -> None:
    """Another attempt would return the same."""

    @workflow("big")
    async def big(ctx: Context) -> str:
        try:
            await ctx.step("make", lambda _: "x" * 101)
        except StepFailed as error:
            return str(error)
        return "stored"

    run = Rehearsal(big)
    run.most = 100
    end = run.end()

    assert isinstance(end, Finished)
    assert run.log[0] == "make failed"
    assert "result of step 'make' cannot be stored: at most 100" in (run.record("make").payload or "")
    assert run.performed == ["make"]
