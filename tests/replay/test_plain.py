"""Workflows that are a plain `def`: the same verbs and the same journal, and no thread while they wait."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.utils.asyncio import async_unsafe

from outlast import (
    BlockingContext,
    CompensationContext,
    Context,
    DefinitionError,
    Signal,
    StepContext,
    StepFailed,
    WorkflowFailed,
    step,
    workflow,
)
from outlast.engine import plain as module
from outlast.engine.decision import Finished, Parked, Working
from outlast.engine.execution import Execution
from outlast.model.run import Status
from support.replaying import Rehearsal, ended, for_every_crash, outcome

approved = Signal("approved", bool)


@step
async def charge(order: str) -> str:
    return f"charge of {order}"


@step
def reserve(order: str) -> str:
    return f"goods for {order}"


@workflow("plain")
def plain(ctx: BlockingContext, order: str) -> list[str]:
    charged, reserved = ctx.do(charge(order), reserve(order))
    ctx.sleep("settle", "1h")
    label = ctx.step("label", lambda s: f"label {s.attempt}")
    ctx.set_status({"label": label})
    if not ctx.wait_for("approval", ctx.signal(approved, key=order), timeout="2d"):
        ctx.fail("nobody approved")
    ctx.commit("sold")
    ctx.sleep_until("morning", ctx.now() + timedelta(hours=1))
    won = ctx.first("call", ctx.signal(approved), ctx.timer("1h"))
    return [charged, reserved, label, "a signal" if won.topic else "nobody called", ctx.do(charge.named("rest")(order))]


@workflow("plain")
async def awaiting(ctx: Context, order: str) -> list[str]:
    charged, reserved = await asyncio.gather(charge(order), reserve(order))
    await ctx.sleep("settle", "1h")
    label = await ctx.step("label", lambda s: f"label {s.attempt}")
    ctx.set_status({"label": label})
    if not await ctx.wait_for("approval", ctx.signal(approved, key=order), timeout="2d"):
        ctx.fail("nobody approved")
    ctx.commit("sold")
    await ctx.sleep_until("morning", ctx.now() + timedelta(hours=1))
    won = await ctx.first("call", ctx.signal(approved), ctx.timer("1h"))
    return [charged, reserved, label, "a signal" if won.topic else "nobody called", await charge.named("rest")(order)]


def sold(code: object) -> Rehearsal:
    run = Rehearsal(code, "chair")
    run.turn()
    run.advance("1h")
    run.turn()
    run.send(approved, True, key="chair")
    run.end()
    return run


def test_it_records_what_an_async_one_records() -> None:
    run = sold(plain)

    other = sold(awaiting)
    assert run.journal == other.journal
    assert run.custom_status == other.custom_status == '{"label":"label 1"}'
    end = run.cut(len(run.journal)).end()
    assert isinstance(end, Finished)
    assert end.output == '["charge of chair","goods for chair","label 1","nobody called","charge of chair"]'


def test_it_goes_on_after_a_crash_at_any_point() -> None:
    run = sold(plain)
    end = run.cut(len(run.journal)).end()

    def holds(again: Rehearsal) -> bool:
        again.send(approved, True, key="chair")
        return again.end() == end

    for_every_crash(run, holds, after="settle done")


def test_without_greenlet_it_is_refused_where_it_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)

    with pytest.raises(DefinitionError, match=r"pip install 'outlast\[blocking\]'"):

        @workflow("without")
        def without(ctx: BlockingContext) -> None: ...


def test_what_it_draws_is_recorded() -> None:
    @workflow("drawing")
    def drawing(ctx: BlockingContext) -> list[Any]:
        return [ctx.random(), str(ctx.uuid())]

    @workflow("drawing")
    async def drawing_awaited(ctx: Context) -> list[Any]:
        return [ctx.random(), str(ctx.uuid())]

    run = Rehearsal(drawing)
    end = run.end()
    assert end == Rehearsal(drawing_awaited).end()
    assert run.cut(len(run.journal)).end() == end


@pytest.mark.parametrize("keeps", [True, False])
def test_it_is_undone_when_it_fails(keeps: bool) -> None:
    undone: list[str] = []

    def undo(s: CompensationContext, result: str) -> None:
        undone.append(result)

    @workflow("undone")
    def failing(ctx: BlockingContext) -> None:
        ctx.step("a", lambda s: "a", compensate=undo)
        ctx.sleep("nap", "1h")
        try:
            ctx.step("b", lambda s: "b", compensate=undo)
        finally:
            ctx.fail("enough")

    run = Rehearsal(failing)
    end = run.end(keep=keeps)
    assert isinstance(end, Finished)
    assert (end.status, end.failure and end.failure.message) == (Status.FAILED, "enough")
    assert undone == ["b", "a"]


def test_the_error_of_a_step_is_raised_where_it_was_called() -> None:
    @workflow("caught")
    def caught(ctx: BlockingContext) -> str:
        def breaks(s: StepContext) -> str:
            raise ValueError("no")

        try:
            return ctx.step("breaks", breaks, retry=1)
        except StepFailed as error:
            return f"caught: {error}"

    assert "ValueError: no" in ended(caught)


def test_a_cancelled_one_is_told_where_it_waits() -> None:
    told: list[str] = []

    @workflow("cancelled")
    def cancelled(ctx: BlockingContext) -> None:
        try:
            ctx.sleep("long", "1h")
        except asyncio.CancelledError:
            told.append("cancelled")
            raise

    run = Rehearsal(cancelled)
    turn = run.turn()
    run.ask_stop()
    turn = run.turn(kept=turn.execution)

    assert turn.finished().status is Status.CANCELLED
    assert told == ["cancelled"]


def test_while_it_waits_it_holds_no_thread_and_a_close_ends_it() -> None:
    told: list[str] = []

    @workflow("closed")
    def closed(ctx: BlockingContext) -> None:
        try:
            ctx.sleep("long", "1h")
        finally:
            told.append("finally")
            with suppress(Exception):
                ctx.do(charge("never"))

    before = threading.active_count()
    runs = [Rehearsal(closed) for _ in range(100)]
    turns = [run.turn() for run in runs]
    assert all(isinstance(turn.state, Parked) for turn in turns)
    assert threading.active_count() == before

    loops = [weakref.ref(turn.execution._code.loop) for turn in turns]  # pyright: ignore[reportPrivateUsage]
    while turns:
        turns.pop().execution.close()
    gc.collect()

    assert told == ["finally"] * 100
    assert [run.performed for run in runs] == [[]] * 100
    assert {loop() for loop in loops} == {None}


def test_a_method_may_be_plain() -> None:
    @workflow("method")
    class Greeting:
        def __init__(self, word: str) -> None:
            self.word = word

        def run(self, ctx: BlockingContext, name: str) -> str:
            return ctx.step("greet", lambda s: f"{self.word}, {name}")

    assert ended(Greeting("Hello"), "Ada") == "Hello, Ada"


def test_its_context_variables_are_its_own() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("outside")
    seen: list[str | None] = []

    @workflow("variables")
    def variables(ctx: BlockingContext) -> None:
        seen.append(variable.get(None))
        variable.set("inside")
        ctx.sleep("nap", "1h")
        seen.append(variable.get(None))
        seen.append(ctx.do(read()))

    async def read() -> str | None:
        return variable.get(None)

    Rehearsal(variables).end(keep=True)
    assert seen == [None, "inside", "inside"]
    assert variable.get() == "outside"


@pytest.mark.parametrize("where", ["a step", "a thread"])
def test_its_verbs_are_refused_elsewhere(where: str) -> None:
    def on_a_thread(use: Any) -> None:
        around = contextvars.copy_context()
        thread = threading.Thread(target=lambda: around.run(lambda: _caught(use)))
        thread.start()
        thread.join()

    @workflow("elsewhere")
    def elsewhere(ctx: BlockingContext) -> None:
        def use(s: object = None) -> None:
            ctx.sleep("nap", "1h")

        if where == "a step":
            ctx.step("use", use)
        else:
            on_a_thread(use)
            ctx.sleep("after", "1h")

    end = outcome(elsewhere)
    assert isinstance(end, Finished)
    assert end.failure is not None
    assert end.failure.type == "outlast.errors.DefinitionError"
    assert "ctx.sleep" in end.failure.message


def test_in_a_step_it_awaits_nothing() -> None:
    """What is handed to `do` there asks the run nothing, so nothing else would say that it was not awaited."""

    @workflow("elsewhere")
    def elsewhere(ctx: BlockingContext) -> None:
        ctx.step("use", lambda s: ctx.do(asyncio.sleep(0)), retry=False)

    end = outcome(elsewhere)
    assert isinstance(end, Finished)
    assert end.failure is not None
    assert "in its own workflow's code only" in end.failure.message


def _caught(use: Any) -> None:
    with suppress(Exception):
        use()


@pytest.mark.parametrize(
    "given, told",
    [
        (charge, "Call it: ctx.do(charge(...))"),
        ("charge", "takes calls of steps, as in ctx.do(charge(order)); 'charge' is"),
    ],
)
def test_what_is_no_call_is_refused_with_what_to_write(given: Any, told: str) -> None:
    """Python's own error spoke of an `await` expression, where the code has none."""

    @workflow("uncalled")
    def uncalled(ctx: BlockingContext) -> None:
        ctx.do(given)

    end = outcome(uncalled)
    assert isinstance(end, Finished)
    assert end.failure is not None
    assert end.failure.type == "outlast.errors.DefinitionError"
    assert told in end.failure.message


def test_real_waiting_in_its_code_is_refused_as_in_any_workflow() -> None:
    @workflow("reaching")
    def reaching(ctx: BlockingContext) -> None:
        ctx.do(asyncio.to_thread(print))

    end = outcome(reaching)
    assert isinstance(end, Finished)
    assert end.failure is not None
    assert end.failure.type == "outlast.errors.WorkflowIOError"


def test_what_has_ended_is_known_while_the_code_goes_on_and_nothing_while_it_is_replayed() -> None:
    seen: list[list[str]] = []
    looking: list[Execution] = []

    def look() -> None:
        seen.append([record.name for record in looking[-1].recorded_meanwhile()])

    @workflow("looking")
    def code(ctx: BlockingContext) -> None:
        ctx.random()
        look()
        ctx.do(charge("chair"))
        ctx.uuid()
        look()

    run = Rehearsal(code)
    looking.append(run.execution())
    turn = run.begin(kept=looking[-1])
    turn.perform("charge")
    assert seen == [[], ["charge", "$uuid:0"]]
    assert turn.progress.records[:2] == tuple(run.journal[1:3])

    again = run.cut(2)
    looking.append(again.execution())
    again.begin(kept=looking[-1])
    assert seen[2:] == [[], []]


@async_unsafe
def query() -> None:
    """Refuse an event loop, as Django's ORM does."""


def test_django_s_refusal_is_told_as_what_belongs_in_a_step() -> None:
    """It spoke of an async context, to people who write none."""

    @workflow("querying")
    def querying(ctx: BlockingContext) -> None:
        query()

    @workflow("querying")
    async def querying_awaited(ctx: Context) -> None:
        query()

    for code in (querying, querying_awaited):
        end = outcome(code)
        assert isinstance(end, Finished)
        assert end.failure is not None
        assert end.failure.type == "outlast.errors.WorkflowIOError"
        assert "Django's database is not available in workflow code" in end.failure.message
        assert "Move it into a step" in end.failure.message
        assert "query()" in end.failure.traceback
        assert [inner.type for inner in end.failure.inner] == ["django.core.exceptions.SynchronousOnlyOperation"]


def test_steps_that_are_done_together_are_in_flight_together() -> None:
    @workflow("together")
    def together(ctx: BlockingContext) -> tuple[str, ...]:
        return ctx.do(*(charge.named(f"charge-{number}")(str(number)) for number in range(4)))

    run = Rehearsal(together)
    turn = run.begin()
    assert len(turn.in_flight) == 4
    for number in (2, 0, 3, 1):
        assert isinstance(turn.state, Working)
        turn.perform(f"charge-{number}")
    assert turn.finished().output == '["charge of 0","charge of 1","charge of 2","charge of 3"]'


def test_what_it_raises_is_the_run_s_failure() -> None:
    @workflow("raises")
    def raises(ctx: BlockingContext) -> None:
        raise WorkflowFailed("as any other")

    end = outcome(raises)
    assert isinstance(end, Finished)
    assert end.failure is not None
    assert end.failure.message == "as any other"
