"""Attempts: how many, when, and what an attempt that was cut off counts for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from outlast import Context, NonRetryable, Retry, RetryAfter, StepFailed, workflow
from outlast.engine.decision import Finished, Working
from outlast.model.journal import Phase
from outlast.model.run import Status
from support.replaying import START, Rehearsal, for_every_crash, microseconds

SECOND = 1_000_000


@workflow("one")
async def one(ctx: Context) -> str:
    try:
        return await ctx.step("try", lambda s: "done")
    except StepFailed as error:
        return f"{error.attempts}: {error.cause}"


def retried(**options: Any) -> Rehearsal:  # noqa: ANN401, RUF100
    return Rehearsal(one, retry=Retry(**options))


def test_a_step_that_raised_waits_durably_for_its_next_attempt() -> None:
    run = retried(delay="2s")
    turn = run.begin()
    turn.raises("try", OSError("down"))

    record = run.record("try", Phase.RETRY)
    assert (record.attempt, record.due_at) == (1, START + 2 * SECOND)
    assert turn.parked().due_at == START + 2 * SECOND


def test_the_wait_is_neither_shortened_nor_begun_again_by_a_crash() -> None:
    run = retried(delay="2s")
    run.begin().raises("try", OSError("down"))
    run.advance("1s")
    again = run.cut(1)

    assert again.turn().parked().due_at == START + 2 * SECOND
    again.advance("1s")
    (call,) = again.begin().progress.calls
    assert call.attempt == 2


def test_attempts_grow_apart_until_none_is_left() -> None:
    run = retried(attempts=4, delay="1s", factor=3)
    turn = run.begin()
    delays: list[int] = []
    while isinstance(turn.state, Working):
        turn.raises("try", OSError("down"))
        if not isinstance(turn.state, Finished):
            due_at = turn.parked().due_at
            assert due_at is not None
            delays.append((due_at - run.now) // SECOND)
            run.now = due_at
            turn = run.begin()

    assert delays == [1, 3, 9]
    assert turn.state == Finished(Status.COMPLETED, '"4: OSError: down"', None)
    assert run.log == ["try retry", "try retry", "try retry", "try failed"]


def test_a_retried_step_ends_the_same_after_a_crash_anywhere() -> None:
    run = retried()
    turn = run.begin()
    turn.raises("try", OSError("down"))
    run.advance("1s")
    turn = run.begin()
    turn.returns("try", "done")

    for_every_crash(run, lambda again: again.end() == Finished(Status.COMPLETED, '"done"', None))


def test_a_retry_that_falls_due_while_other_steps_run_is_made_in_the_same_turn() -> None:
    @workflow("two")
    async def two(ctx: Context) -> list[str]:
        return list(await asyncio.gather(ctx.step("a", lambda s: "a"), ctx.step("b", lambda s: "b")))

    run = Rehearsal(two)
    turn = run.begin()
    turn.raises("a", OSError("down"))
    assert turn.state == Working(START + SECOND)
    assert turn.calls == ["b"]

    run.advance("1s")
    turn.run()

    assert turn.calls == ["b", "a"]
    assert turn.in_flight["a"].attempt == 2


# Which errors are tried again.


def wrapped(error: Exception) -> Exception:
    outer = RuntimeError("wrap")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize(
    "error",
    [
        NonRetryable("card stolen"),
        wrapped(NonRetryable("card stolen")),
        wrapped(wrapped(NonRetryable("card stolen"))),
        ExceptionGroup("two", [ValueError("a"), NonRetryable("card stolen")]),
        ExceptionGroup("outer", [ValueError("a"), ExceptionGroup("inner", [wrapped(NonRetryable("card stolen"))])]),
    ],
    ids=["itself", "cause", "cause of a cause", "in a group", "deep in groups"],
)
def test_an_error_that_must_not_be_tried_again_is_found_wherever_it_stands(error: Exception) -> None:
    run = retried(attempts=5)
    turn = run.begin()
    turn.raises("try", error)

    assert turn.finished().status is Status.COMPLETED
    assert run.log == ["try failed"]


def test_an_error_that_was_only_being_handled_does_not_count() -> None:
    """`raise` inside `except` without `from` says nothing about why."""
    error = RuntimeError("while cleaning up")
    error.__context__ = NonRetryable("card stolen")
    run = retried()
    run.begin().raises("try", error)

    assert run.log == ["try retry"]


def test_a_group_without_a_final_error_is_tried_again() -> None:
    run = retried()
    run.begin().raises("try", ExceptionGroup("two", [ValueError("a"), KeyError("b")]))

    assert run.log == ["try retry"]


def test_causes_that_go_round_in_a_circle_are_looked_at_once() -> None:
    error = wrapped(ValueError("a"))
    assert error.__cause__ is not None
    error.__cause__.__cause__ = error
    run = retried()
    run.begin().raises("try", error)

    assert run.log == ["try retry"]


@pytest.mark.parametrize("delay", ["90s", timedelta(seconds=90)])
def test_a_step_may_say_when_to_try_again(delay: str | timedelta) -> None:
    run = retried(delay="1s")
    turn = run.begin()
    turn.raises("try", wrapped(RetryAfter(delay)))

    assert turn.parked().due_at == START + 90 * SECOND


def test_saying_when_does_not_give_more_attempts() -> None:
    run = retried(attempts=1)
    run.begin().raises("try", RetryAfter("90s"))

    assert run.log == ["try failed"]


def test_a_condition_on_errors_decides_which_are_tried_again() -> None:
    asked: list[tuple[str, int]] = []

    def transient(error: BaseException, attempt: int) -> bool:
        asked.append((str(error), attempt))
        return str(error) == "busy"

    run = retried(retry_if=transient)
    turn = run.begin()
    turn.raises("try", OSError("busy"))
    run.advance("1s")
    turn = run.begin()
    turn.raises("try", OSError("gone"))

    assert turn.finished().output == '"2: OSError: gone"'
    assert asked == [("busy", 1), ("gone", 2)]


def test_a_function_may_choose_the_delays() -> None:
    run = retried(delays=lambda attempt, error: f"{attempt * 7}s")
    turn = run.begin()
    turn.raises("try", OSError("down"))

    assert turn.parked().due_at == START + 7 * SECOND


def broken(*_: object) -> Any:  # noqa: ANN401, RUF100
    raise LookupError("no such thing")


async def answered_later() -> bool:
    return True


@pytest.mark.parametrize(
    "options,said",
    [
        ({"retry_if": broken}, "Retry(retry_if=...) raised LookupError: no such thing"),
        ({"delays": broken}, "Retry(delays=...) raised LookupError: no such thing"),
        ({"retry_if": lambda *_: answered_later()}, "which nobody awaits. Write it as a plain `def`"),
        ({"delays": lambda *_: answered_later()}, "which nobody awaits. Write it as a plain `def`"),
        ({"delays": lambda *_: "soon"}, "Retry(delays=...) raised outlast.errors.InvalidDuration"),
        ({"delays": lambda *_: 5}, "Retry(delays=...) raised outlast.errors.InvalidDuration"),
        ({"delays": lambda *_: "-1s"}, "Retry(delays=...) raised outlast.errors.InvalidDuration"),
    ],
    ids=["retry_if", "delays", "retry_if later", "delays later", "no duration", "no unit", "negative"],
)
def test_an_option_that_is_broken_gives_up_and_says_so(options: dict[str, Callable[..., Any]], said: str) -> None:
    run = retried(**options)
    turn = run.begin()
    turn.raises("try", OSError("down"))

    assert run.log == ["try failed"]
    assert said in (turn.finished().output or "")
    assert "OSError: down" in (turn.finished().output or "")


def test_a_delay_that_a_step_says_wrongly_gives_up_and_says_so() -> None:
    run = retried()
    turn = run.begin()
    turn.raises("try", RetryAfter("soon"))

    assert run.log == ["try failed"]
    said = "because its RetryAfter(...) raised outlast.errors.InvalidDuration: RetryAfter(...) must be a text such as"
    assert said in (turn.finished().output or "")


@pytest.mark.parametrize(
    "options,least,most",
    [
        ({"jitter": "none"}, 60, 60),
        ({"jitter": "full"}, 0, 60),
        ({"jitter": "equal"}, 30, 60),
        ({"delay": "5s", "max_delay": "5s"}, 5, 5),
        ({"max_delay": "0s"}, 0, 0),
        ({"factor": 0.5}, 60, 60),
    ],
)
def test_the_wait_is_bounded_and_spread_as_asked(options: dict[str, Any], least: int, most: int) -> None:
    run = retried(**{"delay": "60s", **options})
    waits = set[int]()
    for _ in range(20):
        turn = run.cut(0).begin()
        turn.raises("try", OSError("down"))
        waits.add(turn.rehearsal.journal[0].due_at or 0)

    assert START + least * SECOND <= min(waits) <= max(waits) <= START + most * SECOND
    assert len(waits) == 1 if least == most else len(waits) > 1


def test_the_thousandth_attempt_still_has_a_delay() -> None:
    """2.0 to the power of 1,999 is no float."""
    run = retried(attempts=3000, max_delay="3s")
    run.begin().raises("try", OSError("down"))
    run.journal[0] = run.journal[0].__class__(0, run.journal[0].kind, Phase.RETRY, "try", 2000, START, "{}", START)
    turn = run.begin()
    turn.raises("try", OSError("down"))

    assert turn.parked().due_at == START + 3 * SECOND


# Attempts that were cut off.


def test_an_attempt_that_died_with_its_worker_counts() -> None:
    run = retried(attempts=3)
    (call,) = run.begin(lapses=1).progress.calls

    assert call.attempt == 2


def test_a_step_that_keeps_killing_its_worker_fails_without_being_called_again() -> None:
    run = retried(attempts=3)
    turn = run.begin(lapses=3)

    assert turn.finished().output == '"3: StepInterrupted: the worker died while it ran"'
    assert run.performed == []
    assert run.record("try").attempt == 3


def test_recorded_attempts_and_died_ones_add_up() -> None:
    run = retried(attempts=3)
    run.begin().raises("try", OSError("down"))
    run.advance("1s")
    (call,) = run.begin(lapses=1).progress.calls
    assert call.attempt == 3

    assert run.begin(lapses=2).finished().output == '"3: StepInterrupted: the worker died while it ran"'


def test_a_retry_that_was_not_due_yet_cannot_have_died() -> None:
    run = retried(attempts=3)
    run.begin().raises("try", OSError("down"))
    turn = run.begin(lapses=1)
    turn.parked()
    run.advance("1s")

    (call,) = turn.run().calls
    assert call.attempt == 2


def test_only_what_may_have_been_in_flight_is_counted() -> None:
    @workflow("after")
    async def after(ctx: Context) -> None:
        for name in ("a", "b"):
            try:
                await ctx.step(name, lambda s: None, retry=2)
            except StepFailed:
                continue

    turn = Rehearsal(after).begin(lapses=2)
    assert turn.calls == ["b"]
    assert turn.in_flight["b"].attempt == 1


def test_an_attempt_that_a_shutdown_cut_short_does_not_count() -> None:
    run = retried(attempts=2)
    for _ in range(5):
        turn = run.begin()
        assert turn.in_flight["try"].attempt == 1
        turn.gives_back("try")

    assert run.journal == []
    assert run.turn().finished().output == '"done"'


def test_an_attempt_given_back_is_made_again_in_the_same_execution() -> None:
    turn = retried().begin(lapses=1)
    turn.gives_back("try")
    turn.run()

    assert turn.in_flight["try"].attempt == 2


def test_a_timeout_is_tried_again_like_any_error() -> None:
    run = retried()
    turn = run.begin()
    turn.raises("try", TimeoutError("2 s passed"))

    assert turn.parked().due_at == START + SECOND
    assert run.log == ["try retry"]


def test_a_step_that_nobody_waits_for_any_more_is_not_tried_again() -> None:
    @workflow("impatient")
    async def impatient(ctx: Context) -> str:
        try:
            async with asyncio.timeout(10):
                await ctx.step("slow", lambda s: "done")
        except TimeoutError:
            return await ctx.step("instead", lambda s: "instead")
        return "in time"

    run = Rehearsal(impatient)
    turn = run.begin()
    run.advance("10s")
    turn.run()
    assert turn.calls == ["slow", "instead"]

    turn.raises("slow", OSError("down"))
    turn.perform("instead")

    assert turn.finished().output == '"instead"'
    assert run.record("slow").phase is Phase.FAILED
    for_every_crash(run, lambda again: again.end() == turn.state, after="$timer:0 done")


def test_a_retry_that_nobody_waits_for_any_more_does_not_keep_the_run() -> None:
    @workflow("impatient")
    async def impatient(ctx: Context) -> str:
        try:
            async with asyncio.timeout(0.5):
                await ctx.step("slow", lambda s: "done")
        except TimeoutError:
            await ctx.sleep("rest", "1h")
        return "rested"

    run = Rehearsal(impatient)
    run.begin().raises("slow", OSError("down"))
    run.advance("0.5s")

    assert run.turn().parked().due_at == START + microseconds("1h0.5s")


def an_hour(*_: object) -> str:
    return "1h"


def never(*_: object) -> bool:
    return False


@pytest.mark.parametrize(
    ("app", "own", "waits"),  # noqa: PT006
    [
        (Retry(attempts=6), Retry(delay="1s"), [1, 2, 4, 8, 16]),
        (Retry(delay="1h"), 4, [3600] * 3),
        (Retry(delay="1h", factor=1), Retry(attempts=2), [3600]),
        (Retry(attempts=4, delay="10s", factor=3, max_delay="50s"), Retry(), [10, 30, 50]),
        (Retry(attempts=4, delay="10s", max_delay="50s"), Retry(factor=10), [10, 50, 50]),
        (Retry(attempts=4, delay="1s", max_delay="2s"), Retry(delay="10s"), [10, 10, 10]),
        (Retry(attempts=4, delay="1s", max_delay="2s"), Retry(delay="10s", max_delay="3s"), [3, 3, 3]),
        (Retry(attempts=4, delays=an_hour), Retry(attempts=2), [3600]),
        (Retry(attempts=3, delays=an_hour), Retry(delay="1s"), [1, 2]),
        (Retry(attempts=3, delay="1s"), Retry(delays=an_hour), [3600, 3600]),
        (Retry(retry_if=never), Retry(attempts=5), []),
        (Retry(retry_if=never), Retry(retry_if=lambda *_: True), [1, 2]),
        (Retry(attempts=6), False, []),
        (Retry(), Retry(), [1, 2]),
    ],
)
def test_what_a_step_leaves_out_is_as_the_application_has_it(app: Retry, own: Any, waits: list[int]) -> None:
    """A step that asked for another delay lost the application's attempts, and one that asked for more its delay."""

    @workflow("merged")
    async def merged(ctx: Context) -> None:
        await ctx.step("try", lambda s: 1, retry=own)

    assert waits_of("try", Rehearsal(merged, retry=app)) == waits


@pytest.mark.parametrize(
    ("own", "undo", "waits"),  # noqa: PT006
    [(4, None, [60, 120, 240]), (4, Retry(delay="1s"), [1]), (None, None, [60]), (None, 3, [60, 120])],
)
def test_what_undoing_leaves_out_is_as_the_application_has_it(own: Any, undo: Any, waits: list[int]) -> None:
    @workflow("merged")
    async def merged(ctx: Context) -> None:
        await ctx.step("do", lambda s: 1, retry=own, compensate=lambda s, r: None, compensate_retry=undo)
        ctx.fail("no")

    run = Rehearsal(merged, retry=Retry(attempts=2, delay="1m"))
    assert waits_of("$compensate:do", run) == waits


def waits_of(name: str, run: Rehearsal) -> list[int]:
    """Have all attempts fail; the seconds between them, each after a replay."""
    waits: list[int] = []
    turn = run.begin()
    while isinstance(turn.state, Working):
        if name not in turn.in_flight:
            turn.perform(next(iter(turn.in_flight)))
            continue
        turn.raises(name, OSError("down"))
        if not isinstance(turn.state, Finished):
            due_at = turn.parked().due_at
            assert due_at is not None
            waits.append((due_at - run.now) // SECOND)
            run.now = due_at
            turn = run.begin()
    return waits


def test_attempts_that_are_recorded_count_under_a_policy_that_was_changed() -> None:
    """A deploy with fewer attempts: the one that is waited for is made, and is the last."""
    run = retried(attempts=9)
    run.begin().raises("try", OSError("down"))
    run.advance("1s")
    run.begin().raises("try", OSError("down"))

    other = run.cut(len(run.journal))
    other.retry = Retry(attempts=2)
    other.advance("2s")
    turn = other.begin()
    turn.raises("try", OSError("down"))

    assert turn.finished().output == '"3: OSError: down"'
