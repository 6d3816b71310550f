"""A call in workflow code that is not awaited: what is done with it in the place of its result says so."""

from __future__ import annotations

import asyncio
import inspect
import json
import operator
from collections.abc import Awaitable, Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

import pytest

from outlast import BlockingContext, Context, DefinitionError, StepContext, step, transactional_step, workflow
from outlast.engine.decision import Finished
from outlast.model.origins import origin
from outlast.model.run import Status
from support.replaying import Rehearsal, for_every_crash


@step
async def charge(amount: int) -> int:
    return amount


@step
def ship(charged: object) -> str:
    return f"shipped after {charged}"


@transactional_step
def pay(tx: object, amount: int) -> int:
    return amount


SECOND = "second"


def _line_of(code: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if line.strip() == code)
    return number


def _failed(run: Rehearsal) -> str:
    end = run.end()
    assert isinstance(end, Finished)
    assert end.status is Status.FAILED
    assert end.failure is not None
    assert end.failure.type == "outlast.errors.DefinitionError"
    return end.failure.message


USES: dict[str, tuple[Callable[[Any], object], str]] = {
    "attribute": (lambda charged: charged.id, "read `.id` of"),
    "item": (lambda charged: charged["id"], "take `['id']` of"),
    "truth": (lambda charged: 1 if charged else 2, "ask whether it is true"),
    "not": (operator.not_, "ask whether it is true"),
    "f-string": (lambda charged: f"{charged}", "write as text"),
    "f-string with a format": (lambda charged: f"{charged:>5}", "write as text"),
    "str": (str, "write as text"),
    "percent": (lambda charged: "%s" % charged, "write as text"),  # noqa: UP031  people do
    "format": ("{}".format, "write as text"),
    "print": (print, "write as text"),
    "plus": (lambda charged: charged + 1, "calculate with"),
    "plus, on the right": (lambda charged: 1 + charged, "calculate with"),
    "sum": (lambda charged: sum([charged]), "calculate with"),
    "minus": (operator.neg, "calculate with"),
    "int": (int, "calculate with"),
    "round": (round, "calculate with"),
    "range": (range, "calculate with"),
    "for": (list, "iterate over"),
    "unpacking": (lambda charged: (*charged,), "iterate over"),
    "len": (len, "count"),
    "in": (lambda charged: 1 in charged, "look into"),
    "less": (lambda charged: charged < 5, "compare"),
    "less, on the right": (lambda charged: 5 < charged, "compare"),  # noqa: SIM300  the other side
    "max": (lambda charged: max(charged, 5), "compare"),
    "equal": (lambda charged: charged == 5, "compare"),
    "unequal, on the right": (lambda charged: 5 != charged, "compare"),  # noqa: SIM300  the other side
    "among": (lambda charged: charged in ["yes", "no"], "compare"),
}


@pytest.mark.parametrize("use, wanted", USES.values(), ids=USES)
def test_whatever_is_done_with_a_call_says_that_it_was_not_awaited(use: Callable[[Any], object], wanted: str) -> None:
    """It was an AttributeError of a coroutine; or no error at all, since that is true and has a text."""

    @workflow("forgetful")
    async def forgetful(ctx: Context) -> object:
        charged = charge.named("charge-1")(1)
        return use(charged)

    run = Rehearsal(forgetful)
    message = _failed(run)

    line = _line_of('charged = charge.named("charge-1")(1)')
    assert f"There is no result to {wanted}: the call of step charge-1 at {__file__}:{line} was not awaited." in message
    assert "Write `await` before it; in a plain `def` put `ctx.do(...)` around it." in message
    assert message.endswith("(run 'run-1')")
    assert run.performed == []


def test_the_failure_came_from_the_line_where_it_was_used() -> None:
    @workflow("forgetful")
    async def forgetful(ctx: Context) -> object:
        charged: Any = charge(1)
        await ctx.sleep("nap", "1s")
        return charged.id

    run = Rehearsal(forgetful)
    end = run.end()

    assert isinstance(end, Finished)
    assert end.failure is not None
    assert str(origin(end.failure)) == f"{__file__}:{_line_of('return charged.id')}"


def test_the_line_is_the_one_of_the_call_among_many() -> None:
    @workflow("forgetful")
    async def forgetful(ctx: Context) -> object:
        await charge.named("first")(
            1,
        )
        second: Any = (
            charge.named(SECOND)(2)
        )  # fmt: skip
        return second.id

    line = _line_of("charge.named(SECOND)(2)")
    assert f"the call of step second at {__file__}:{line} was" in _failed(Rehearsal(forgetful))


def test_the_error_ends_the_run_whatever_the_code_makes_of_it_and_after_every_crash() -> None:
    undone: list[object] = []

    @workflow("catching")
    async def catching(ctx: Context) -> str:
        await ctx.step("reserve", lambda s: 1, compensate=lambda s, result: undone.append(result))
        charged: Any = charge(1)
        try:
            if charged:
                await ctx.step("ship", lambda s: 2)
        except Exception:  # noqa: BLE001  what it catches makes no difference
            await ctx.sleep("nap", "1s")
        return "done"

    run = Rehearsal(catching)
    message = _failed(run)

    assert "ask whether it is true" in message
    assert "Whether there is a call at all is asked by `is not None`." in message
    assert undone == [1]
    assert "ship" not in run.performed
    for_every_crash(run, lambda again: _failed(again) == message)


VERBS: dict[str, tuple[Callable[[Context], Any], str]] = {
    "ctx.step": (lambda ctx: ctx.step("one", lambda s: 1), "ctx.step"),
    "ctx.transaction": (lambda ctx: ctx.transaction("one", lambda tx: 1), "ctx.transaction"),
    "ctx.sleep": (lambda ctx: ctx.sleep("one", "1s"), "ctx.sleep"),
    "ctx.wait_for": (lambda ctx: ctx.wait_for("one", ctx.timer("1s")), "ctx.wait_for"),
    "ctx.first": (lambda ctx: ctx.first("one", ctx.timer("1s")), "ctx.first"),
    "a transactional step": (lambda ctx: pay(1), "step pay"),
}


@pytest.mark.parametrize("call, name", VERBS.values(), ids=VERBS)
def test_every_call_that_is_to_be_awaited_says_so(call: Callable[[Context], Any], name: str) -> None:
    @workflow("forgetful")
    async def forgetful(ctx: Context) -> object:
        return call(ctx).won

    assert f"the call of {name} at {__file__}:" in _failed(Rehearsal(forgetful))


def test_a_plain_workflow_is_told_too() -> None:
    @workflow("plain")
    def plain(ctx: BlockingContext) -> object:
        plainly: Any = charge(1)
        return plainly["id"]

    assert f"the call of step charge at {__file__}:{_line_of('plainly: Any = charge(1)')} was not awaited" in _failed(
        Rehearsal(plain)
    )


def test_a_call_that_is_handed_to_a_step_fails_the_run_there() -> None:
    """The step was tried again and again, with a coroutine for its argument."""

    @workflow("handed-on")
    async def handed_on(ctx: Context) -> str:
        return await ship(charge(1))

    run = Rehearsal(handed_on)
    message = _failed(run)

    assert "There is no result to write as text: the call of step charge at" in message
    assert run.performed == ["ship"]


def test_a_call_is_not_the_result_after_it_was_awaited_either() -> None:
    @workflow("mixed-up")
    async def mixed_up(ctx: Context) -> object:
        call: Any = charge(1)
        await call
        return call.id

    message = _failed(Rehearsal(mixed_up))

    assert f"There is no result to read `.id` of in the call of step charge at {__file__}:" in message
    assert "use what `await` gave" in message


def test_a_call_that_the_code_returns_is_one_that_was_never_awaited() -> None:
    @workflow("returned")
    async def returned(ctx: Context) -> object:
        return {"charged": charge(1)}

    assert "never awaited its call of step charge" in _failed(Rehearsal(returned))


@pytest.mark.parametrize("name", ["_state", "__dataclass_fields__", "__html__"])
def test_what_libraries_look_for_is_not_there(name: str) -> None:
    seen: list[bool] = []

    @workflow("looked-at")
    async def looked_at(ctx: Context) -> int:
        call = charge(1)
        seen.append(hasattr(call, name))
        return await call

    end = Rehearsal(looked_at).end()

    assert isinstance(end, Finished)
    assert (end.output, seen) == ("1", [False])


def test_to_all_who_ask_it_is_a_coroutine() -> None:
    def asks(call: Coroutine[Any, Any, int]) -> list[object]:
        return [
            inspect.iscoroutine(call),
            asyncio.iscoroutine(call),
            inspect.isawaitable(call),
            isinstance(call, Coroutine),
            isinstance(call, Awaitable),
            not isinstance(call, Generator | Callable),
            inspect.getcoroutinestate(call),
            call.__qualname__,
            call == call,  # noqa: PLR0124  it is asked of lists of them
            {call: 1}[call] == 1,
        ]

    told: list[list[object]] = []
    shown: list[str] = []

    @workflow("asked")
    async def asked(ctx: Context) -> int:
        call, other = charge(1), charge.named("other")(2)
        told.append([*asks(call), call != other, [other, call].index(call)])
        shown.append(repr(call))
        other.close()
        return await call

    end = Rehearsal(asked).end()

    assert isinstance(end, Finished)
    assert end.output == "1"
    assert told == [[True, True, True, True, True, True, "CORO_CREATED", "step charge", True, True, True, 1]]
    assert shown[0].startswith(f"<call of step charge at {__file__}:")


WAYS: dict[str, Callable[[], Awaitable[object]]] = {
    "await": lambda: charge(1),
    "gather": lambda: asyncio.gather(charge(1), charge.named("b")(2)),
    "create_task": lambda: asyncio.create_task(charge(1)),
    "a named task": lambda: asyncio.create_task(charge(1), name="the charge"),
    "ensure_future": lambda: asyncio.ensure_future(charge(1)),
    "shield": lambda: asyncio.shield(charge(1)),
    "wait_for": lambda: asyncio.wait_for(charge(1), 5),
    "a task group": lambda: _grouped(charge(1), charge.named("b")(2)),
    "by hand": lambda: _by_hand(charge(1)),
}


async def _grouped(*calls: Coroutine[Any, Any, int]) -> list[int]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(call) for call in calls]
    return [task.result() for task in tasks]


class _by_hand:  # noqa: N801  used like a function
    """Drives a call as a wrapper of a library may."""

    def __init__(self, call: Coroutine[Any, Any, int]) -> None:
        self.call = call

    def __await__(self) -> Any:
        answered = None
        while True:
            try:
                future = self.call.send(answered)
            except StopIteration as end:
                return end.value
            try:
                answered = yield future
            except BaseException as error:
                self.call.throw(error)
                raise


@pytest.mark.parametrize("way", WAYS)
def test_it_may_be_awaited_in_every_way(way: str) -> None:
    @workflow("awaiting")
    async def awaiting(ctx: Context) -> Any:
        return await WAYS[way]()

    run = Rehearsal(awaiting)
    end = run.end()

    assert isinstance(end, Finished)
    assert end.output is not None
    answer: Any = json.loads(end.output)
    assert answer in (1, [1, 2])
    assert run.performed == (["charge", "b"] if answer == [1, 2] else ["charge"])
    for_every_crash(run, lambda again: again.end() == end)


def test_it_is_awaited_once() -> None:
    @workflow("twice")
    async def twice(ctx: Context) -> None:
        call = charge(1)
        await call
        await call

    end = Rehearsal(twice).end()

    assert isinstance(end, Finished)
    assert end.failure is not None
    assert end.failure.message == "cannot reuse already awaited coroutine"


def test_an_error_of_a_step_is_thrown_where_its_call_is_awaited() -> None:
    @workflow("failing")
    async def failing(ctx: Context) -> str:
        call = ctx.step("bad", _bad, retry=False)
        try:
            await call
        except Exception as error:  # noqa: BLE001  what it is is asserted
            return str(error)
        return ""

    end = Rehearsal(failing).end()

    assert isinstance(end, Finished)
    assert end.output is not None
    assert "gave up after 1 attempt: ValueError: no" in end.output


def _bad(_: StepContext) -> None:
    raise ValueError("no")


def test_calls_are_let_go_of_with_their_run() -> None:
    """A run holds its calls, which know their run."""
    held: list[Any] = []

    @workflow("held")
    async def kept(ctx: Context) -> None:
        call = charge(1)
        held.append(call)
        await ctx.sleep("nap", "1h")
        await call

    run = Rehearsal(kept)
    turn = run.turn()
    turn.execution.close()

    (call,) = held
    assert inspect.getcoroutinestate(call) == inspect.CORO_CLOSED
    with pytest.raises(DefinitionError):
        call.id  # noqa: B018  it is refused


def test_a_run_that_fails_tells_of_calls_that_were_never_awaited_too() -> None:
    """What is made with such a call may fail in words that do not speak of it."""

    @workflow("joining")
    async def joining(ctx: Context) -> str:
        charged: Any = charge(5)  # forgotten
        parts = [charged]
        return ",".join(parts)

    end = Rehearsal(joining).end()

    assert isinstance(end, Finished)
    assert end.failure is not None
    assert end.failure.type == "TypeError"
    (also,) = end.failure.inner
    assert also.type == "outlast.errors.DefinitionError"
    place = f"{Path(__file__)}:{_line_of('charged: Any = charge(5)  # forgotten')}"
    assert also.message.startswith(f"The code also never awaited its call of step charge ({place})")
