"""Misuse of the context: found at once, before any effect, and never swallowed."""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from outlast import (
    CompensationContext,
    Condition,
    Context,
    DefinitionError,
    Failure,
    Signal,
    StepContext,
    step,
    workflow,
)
from outlast.engine.decision import Finished, Working
from outlast.model.run import Status, StopKind
from support.replaying import Rehearsal, for_every_crash, outcome

go = Signal("go")
undone: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_undone() -> None:
    undone.clear()


def undo(s: CompensationContext, result: object) -> None:
    undone.append(s.step)


def misuse(end: object, *, undoes: str = "") -> Failure:
    """How a run ended that was misused: failed by a DefinitionError, and these steps were undone."""
    assert isinstance(end, Finished)
    assert end.failure is not None
    assert (end.status, end.failure.type) == (Status.FAILED, "outlast.errors.DefinitionError")
    assert undone == undoes.split()
    return end.failure


@step
async def work(word: str) -> str:
    return word


Ask = Callable[[Context, str], Any]

NAMED: dict[str, Ask] = {
    "step": lambda ctx, name: ctx.step(name, lambda s: None),
    "sleep": lambda ctx, name: ctx.sleep(name, "1h"),
    "sleep_until": lambda ctx, name: ctx.sleep_until(name, ctx.now()),
    "wait_for": lambda ctx, name: ctx.wait_for(name, ctx.signal(go)),
    "first": lambda ctx, name: ctx.first(name, ctx.signal(go)),
    "commit": lambda ctx, name: ctx.commit(name),
}


async def asked(answer: Any) -> None:
    if asyncio.iscoroutine(answer):
        await answer


@pytest.mark.parametrize("verb", NAMED)
@pytest.mark.parametrize("first", ["step", "commit"])
def test_a_name_is_used_once_over_all_verbs(verb: str, first: str) -> None:
    @workflow("twice")
    async def twice(ctx: Context) -> str:
        await ctx.step("before", lambda s: None, compensate=undo)
        await asked(NAMED[first](ctx, "it"))
        with suppress(Exception):
            await asked(NAMED[verb](ctx, "it"))
        await ctx.step("after", lambda s: None)
        return "swallowed"

    run = Rehearsal(twice)
    # A commit is a point of no return, after which it stays.
    failure = misuse(run.end(), undoes="before" if first == "step" else "")

    assert "The name 'it' is used twice" in failure.message
    assert "'run-1'" in failure.message
    assert "after" not in run.performed


def test_two_branches_may_not_share_a_name() -> None:
    @workflow("branches")
    async def branches(ctx: Context) -> None:
        await asyncio.gather(work("a"), work("b"))

    run = Rehearsal(branches)
    assert "'work' is used twice" in misuse(run.end()).message
    assert run.performed == []


@pytest.mark.parametrize("verb", NAMED)
@pytest.mark.parametrize("name", ["$now:0", "", "x" * 513, "a\nb", "\ud800", 5, None, ["a"]])
def test_a_name_that_cannot_be_recorded_is_refused(verb: str, name: Any) -> None:
    @workflow("named")
    async def named(ctx: Context) -> str:
        with suppress(Exception):
            await asked(NAMED[verb](ctx, name))
        await work("after")
        return "swallowed"

    run = Rehearsal(named)
    misuse(run.end())
    assert run.performed == []
    assert [name for name in run.names if name != "$now:0"] == ["$stop"]


@pytest.mark.parametrize("verb", NAMED)
def test_a_name_may_be_longer_than_an_id(verb: str) -> None:
    longest = "\U0001f600" * 512

    @workflow("long-named")
    async def long_named(ctx: Context) -> None:
        await asked(NAMED[verb](ctx, longest))

    run = Rehearsal(long_named)
    run.turn()

    assert longest in run.names


MADE = Condition[None]("signal 'go'", topic="go", shape=go.shape)

VERBS: dict[str, Callable[[Context], Any]] = {
    "step": lambda ctx: ctx.step("it", lambda s: None),
    "sleep": lambda ctx: ctx.sleep("it", "1h"),
    "sleep_until": lambda ctx: ctx.sleep_until("it", datetime.now(UTC)),
    "wait_for": lambda ctx: ctx.wait_for("it", MADE),
    "first": lambda ctx: ctx.first("it", MADE),
    "commit": lambda ctx: ctx.commit("it"),
    "signal": lambda ctx: ctx.signal(go),
    "timer": lambda ctx: ctx.timer("1s"),
    "fail": lambda ctx: ctx.fail("no"),
    "set_status": lambda ctx: ctx.set_status("x"),
    "now": lambda ctx: ctx.now(),
    "random": lambda ctx: ctx.random(),
    "uuid": lambda ctx: ctx.uuid(),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("catches", [True, False])
def test_no_verb_may_be_used_in_a_step(verb: str, catches: bool) -> None:
    @workflow("inside")
    async def inside(ctx: Context) -> str:
        async def use(s: StepContext) -> str:
            with suppress(*[Exception] if catches else []):
                await asked(VERBS[verb](ctx))
            return "swallowed"

        await ctx.step("before", lambda s: None, compensate=undo)
        with suppress(Exception):
            await ctx.step("use", use, retry=5)
        await work("after")
        return "swallowed"

    run = Rehearsal(inside)
    failure = misuse(run.end(), undoes="before")

    assert f"ctx.{verb} was called inside step 'use'" in failure.message
    assert run.performed == ["before", "use", "$compensate:before"]
    assert run.log == ["before done", "use failed", "$stop done", "$compensate:before done"]


def test_a_step_beside_it_keeps_its_own_result() -> None:
    @workflow("beside")
    async def beside(ctx: Context) -> None:
        def use(s: StepContext) -> None:
            with suppress(Exception):
                ctx.now()

        await asyncio.gather(ctx.step("use", use), work("a"))

    run = Rehearsal(beside)
    turn = run.begin()
    turn.in_flight["use"].invoke()
    turn.perform("work")
    assert turn.state == Working(None)
    turn.returns("use")

    misuse(turn.state)
    assert run.log == ["work done", "use failed", "$stop done"]


def test_steps_in_flight_finish_before_a_misused_run_ends() -> None:
    @workflow("in-flight")
    async def in_flight(ctx: Context) -> None:
        slow = asyncio.ensure_future(ctx.step("slow", lambda s: None, compensate=undo))
        await work("a")
        assert not slow.done()
        ctx.commit("$no")

    run = Rehearsal(in_flight)
    turn = run.begin()
    turn.perform("work")
    assert turn.state == Working(None)
    turn.perform("slow")
    turn.perform("$compensate:slow")

    misuse(turn.state, undoes="slow")
    assert run.log == ["work done", "$stop done", "slow done", "$compensate:slow done"]


def test_no_verb_may_be_used_on_a_thread_of_one_s_own() -> None:
    seen: list[BaseException] = []

    @workflow("thread")
    async def threads(ctx: Context) -> str:
        def use() -> None:
            try:
                ctx.now()
            except DefinitionError as error:
                seen.append(error)

        around = contextvars.copy_context()
        thread = threading.Thread(target=around.run, args=(use,))
        thread.start()
        thread.join()
        return "swallowed"

    assert "called outside the code of run 'run-1'" in misuse(outcome(threads)).message
    assert len(seen) == 1


def test_the_context_is_of_no_use_after_the_turn() -> None:
    kept: list[Context] = []

    @workflow("leaky")
    async def leaky(ctx: Context) -> None:
        kept.append(ctx)
        await ctx.sleep("long", "1h")

    run = Rehearsal(leaky)
    turn = run.turn()
    with pytest.raises(DefinitionError, match="after its turn"):
        kept[0].now()
    run.advance("1h")

    misuse(run.turn(kept=turn.execution).state)


def test_the_context_of_another_run_is_none_of_a_step_s_business() -> None:
    kept: list[Context] = []

    @workflow("victim")
    async def victim(ctx: Context) -> str:
        kept.append(ctx)
        await ctx.sleep("long", "1h")
        return "unharmed"

    @workflow("thief")
    async def thief(ctx: Context) -> None:
        await ctx.step("steal", lambda s: kept[0].now())

    run, other = Rehearsal(victim), Rehearsal(thief)
    other.run_id = type(other.run_id)("run-2")
    turn = run.turn()
    assert "ctx.now was called inside step 'steal'" in misuse(other.end()).message

    run.advance("1h")
    assert run.turn(kept=turn.execution).finished().output == '"unharmed"'


def test_a_definition_error_that_a_step_raises_ends_the_run() -> None:
    """A step made something with outlast that can never work; trying again will not help."""

    @workflow("step-error")
    async def step_error(ctx: Context) -> str:
        def declare(s: StepContext) -> None:
            step(5)  # type: ignore[call-overload]

        with suppress(Exception):
            await ctx.step("declare", declare, retry=5)
        return "swallowed"

    run = Rehearsal(step_error)
    assert "must be a function" in misuse(run.end()).message
    assert run.performed == ["declare"]


class Opaque:
    """A class of which nothing is stored; it is known to be without subclasses only when the step is used."""


def test_a_step_whose_result_can_never_be_stored_is_refused_before_its_effect() -> None:
    """A card was charged, its result refused, and nothing undone, because the step had raised."""

    @step
    def charge() -> Opaque:
        return Opaque()

    @workflow("opaque")
    async def opaque(ctx: Context) -> None:
        await work("a")
        with suppress(Exception):
            await charge()

    run = Rehearsal(opaque)
    assert "The result of step 'charge' is annotated with Opaque" in misuse(run.end()).message
    assert run.performed == ["work"]


def test_a_step_whose_result_can_never_be_stored_is_refused_where_it_is_declared() -> None:
    class Charge:
        def __init__(self, number: str) -> None:
            self.number = number

    with pytest.raises(DefinitionError, match=r"The result of step 'charge' is annotated with .*Charge"):

        @step
        def charge() -> Charge:
            return Charge("1")


def test_misuse_beats_the_return_of_the_code() -> None:
    @workflow("background")
    async def background(ctx: Context) -> str:
        def use(s: StepContext) -> None:
            ctx.now()

        task = asyncio.ensure_future(ctx.step("use", use))
        await work("a")
        return "done" if not task.done() else "too early"

    run = Rehearsal(background)
    turn = run.begin()
    turn.perform("work")
    turn.perform("use")

    misuse(turn.state)


def test_a_stop_that_was_recorded_first_beats_misuse() -> None:
    @workflow("stopped")
    async def stopped(ctx: Context) -> None:
        await ctx.step("use", lambda s: ctx.now())

    run = Rehearsal(stopped)
    turn = run.begin()
    stop = run.ask_stop(StopKind.CANCEL)
    turn.execution.request_stop(stop)
    turn.run()
    turn.perform("use")

    assert turn.finished() == Finished(Status.CANCELLED, None, stop.failure)


def test_misuse_that_a_late_thread_commits_after_its_attempt_is_only_refused() -> None:
    """The attempt timed out and is not listened to any more."""

    @workflow("late")
    async def late(ctx: Context) -> str:
        await ctx.step("slow", lambda s: ctx.now(), retry=1)
        return "unreached"

    run = Rehearsal(late)
    turn = run.begin()
    call = turn.in_flight["slow"]
    turn.raises("slow", TimeoutError())
    with pytest.raises(DefinitionError):
        call.invoke()

    failure = turn.finished().failure
    assert failure is not None
    assert failure.type == "outlast.errors.StepFailed"


@pytest.mark.parametrize("catches", [True, False])
def test_a_misused_run_is_undone_to_the_end_after_a_crash_at_any_point(catches: bool) -> None:
    """A deploy brought a name that is used twice, beyond what runs had recorded: their customers were charged."""

    @workflow("charged")
    async def charged(ctx: Context) -> None:
        slow = asyncio.ensure_future(ctx.step("slow", lambda s: None, compensate=undo))
        await ctx.step("charge", lambda s: None, compensate=undo)
        await ctx.step("reserve", lambda s: None, compensate=undo)
        with suppress(*[Exception] if catches else []):
            await ctx.sleep("reserve", "1h")
        await slow

    run = Rehearsal(charged)
    turn = run.begin()
    for name in ("charge", "reserve", "slow", "$compensate:reserve", "$compensate:slow", "$compensate:charge"):
        turn.perform(name)
    misuse(turn.state, undoes="reserve slow charge")
    assert run.log[2:4] == ["$stop done", "slow done"]

    def holds(again: Rehearsal) -> bool:
        undone.clear()
        left = [name for name in ("reserve", "slow", "charge") if f"$compensate:{name} done" not in again.log]
        return again.end() == turn.state and undone == left

    for_every_crash(run, holds, after="slow done")


@step
async def charge(amount: int) -> int:
    return amount


@step
async def tell(who: str) -> str:
    return who


def test_a_call_that_is_never_awaited_fails_the_run_and_undoes_what_was_done() -> None:
    taken_back: list[object] = []

    @workflow("forgetful")
    async def forgetful(ctx: Context) -> str:
        await ctx.step("reserve", lambda s: 1, compensate=lambda c, result: taken_back.append(result))
        tell("ada")  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]  the mistake
        await ctx.sleep("nap", "1s")
        return "done"

    state = Rehearsal(forgetful).end()

    assert isinstance(state, Finished)
    assert state.failure is not None
    assert f"never awaited its call of step tell ({__file__}:" in state.failure.message
    assert "), which so has done nothing. Write `await`" in state.failure.message
    assert taken_back == [1]


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda ctx: ctx.sleep("nap", "1s"), "ctx.sleep"),
        (lambda ctx: ctx.step("one", lambda s: 1), "ctx.step"),
        (lambda ctx: charge.named("charge-2")(1), "step charge-2"),
    ],
)
def test_whatever_is_to_be_awaited_is_named(call: Callable[[Context], object], name: str) -> None:
    @workflow("forgetful")
    async def forgetful(ctx: Context) -> None:
        call(ctx)

    state = Rehearsal(forgetful).end()

    assert isinstance(state, Finished)
    assert state.failure is not None
    assert f"its call of {name} ({__file__}:" in state.failure.message


def test_a_call_may_be_awaited_later_or_closed_or_be_a_task() -> None:
    @workflow("later")
    async def later(ctx: Context) -> list[int]:
        calls = [charge.named(f"charge-{number}")(number) for number in range(40)]
        await ctx.sleep("nap", "1s")
        await asyncio.sleep(0)
        calls.pop().close()
        task = asyncio.ensure_future(calls.pop())
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await ctx.sleep("long", "1h")
        return [await call for call in calls] + [await task]

    state = Rehearsal(later).end()

    assert isinstance(state, Finished)
    assert state.output == json.dumps([*range(38), 38], separators=(",", ":"))


def test_a_step_that_nobody_awaits_outside_of_workflows_is_named_by_python() -> None:
    def forget() -> None:
        charge(1)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]  the mistake

    with pytest.warns(RuntimeWarning, match="coroutine 'step charge' was never awaited"):
        forget()
