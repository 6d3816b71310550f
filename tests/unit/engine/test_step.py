"""Declaring steps, and calling them where no run is."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock, Mock

import pytest

from outlast import (
    BlockingContext,
    CompensationContext,
    Context,
    DefinitionError,
    InvalidArgument,
    InvalidDuration,
    InvalidName,
    Retry,
    Step,
    StepContext,
    step,
    transactional_step,
    workflow,
)
from outlast.engine.decision import Finished
from outlast.engine.frames import current_step
from support.replaying import Rehearsal, ended, outcome

if TYPE_CHECKING:
    from nowhere import Nothing  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]


# Outside of a workflow.


@step
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@step(name="told", retry=5)
async def tell(s: StepContext, word: str, *, loud: bool = False) -> str:
    return f"{word.upper() if loud else word} {s.step} {s.attempt}"


@step
def shout(word: str) -> str:
    return word.upper()


async def test_a_step_is_called_like_its_function() -> None:
    assert await add(1) == 2
    assert await add(1, b=5) == 6
    assert await tell("a", loud=True) == "A told 1"
    assert await shout("a") == "A"
    assert await add.named("again")(1) == 2


async def test_each_call_outside_has_a_key_of_its_own() -> None:
    """Nothing remembers such a call, so a key that came twice would make a provider drop a second order."""

    @step
    async def key(s: StepContext) -> str:
        return s.idempotency_key

    assert await key() != await key()


async def test_a_step_called_outside_is_inside_its_own_frame() -> None:
    @step
    async def look() -> str | None:
        frame = current_step()
        return frame and frame.step

    assert await look() == "look"
    assert current_step() is None


async def test_errors_of_the_function_come_through() -> None:
    @step(retry=5)
    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await fail()


def test_a_step_shows_its_name() -> None:
    assert add.name == "add"
    assert repr(tell) == "<Step 'told'>"
    assert tell.named("again").name == "again"
    assert isinstance(add, Step)
    assert add.__doc__ == "Add two numbers."


# Unusual callables.


@dataclass
class Plain:
    word: str

    def __call__(self, s: StepContext) -> str:
        return f"{self.word} {s.step}"

    async def method(self, s: StepContext) -> str:
        return f"{self.word} {s.step}"


@dataclass
class Awaited(Plain):
    async def __call__(self, s: StepContext) -> str:  # type: ignore[override]
        await asyncio.sleep(0)
        return f"{self.word} {s.step}"


async def two(word: str, s: StepContext) -> str:
    return f"{word} {s.step}"


def wrapping(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


async def bare(s: StepContext) -> str:
    return f"made {s.step}"


CALLABLES: dict[str, Callable[..., Any]] = {
    "instance": Plain("made"),
    "async instance": Awaited("made"),
    "bound method": Plain("made").method,
    "partial": functools.partial(two, "made"),
    "partial of a partial": functools.partial(functools.partial(two), "made"),
    "wrapped": wrapping(bare),
    "wrapped twice": wrapping(wrapping(bare)),
    "lambda": lambda s: f"made {s.step}",
    "lambda to await": lambda s: bare(s),  # noqa: PLW0108
    "partial of a wrapped one": functools.partial(wrapping(two), "made"),
}


@pytest.mark.parametrize("kind", CALLABLES)
def test_whatever_can_be_called_is_awaited_as_it_must_be(kind: str) -> None:
    @workflow("callables")
    async def callables(ctx: Context) -> str:
        return await ctx.step("it", CALLABLES[kind])

    assert ended(callables) == "made it"


@pytest.mark.parametrize("kind", CALLABLES)
async def test_they_can_be_declared_as_steps_too(kind: str) -> None:
    declared = step(name="it")(CALLABLES[kind])
    takes_context = "lambda" not in kind

    value = await declared() if takes_context else await declared(StepContext("run", "it"))
    assert value == "made it"


@pytest.mark.parametrize("kind", CALLABLES)
def test_what_gives_something_to_await_goes_to_the_loop(kind: str) -> None:
    @workflow("callables")
    async def callables(ctx: Context) -> str:
        return await ctx.step("it", CALLABLES[kind])

    (call,) = Rehearsal(callables).begin().progress.calls
    assert call.is_async is (kind not in ("instance", "lambda", "lambda to await"))


def test_mocks_can_stand_in() -> None:
    @workflow("mocks")
    async def mocks(ctx: Context) -> list[Any]:
        return [await ctx.step("a", Mock(return_value=1)), await ctx.step("b", AsyncMock(return_value=2))]

    assert ended(mocks) == [1, 2]


def names_of_unusual() -> list[str]:
    return [step(CALLABLES[kind]).name for kind in ("instance", "bound method", "partial", "wrapped")]


def test_an_unusual_callable_is_named_after_what_was_written() -> None:
    assert names_of_unusual() == ["Plain", "method", "two", "bare"]


def generator(s: StepContext) -> Iterator[int]:
    yield 1


async def async_generator(s: StepContext) -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "said"),  # noqa: PT006
    [
        (5, "must be a function; 5 is a int"),
        (None, "must be a function; None is a NoneType"),
        ("charge", "must be a function; 'charge' is a str. A name is given as name='charge'."),
        (Plain, "must be a function; Plain is a class"),
        (generator, "must return its result; generator yields"),
        (async_generator, "must return its result; async_generator yields"),
        (functools.partial(generator), "must return its result"),
    ],
)
def test_what_can_never_be_a_step_is_refused_at_its_declaration(function: Any, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        step(name="it")(function)

    @workflow("refused")
    async def refused(ctx: Context) -> None:
        await ctx.step("it", function)

    end = outcome(refused)
    assert isinstance(end, Finished)
    assert end.failure is not None
    assert end.failure.type == "outlast.errors.DefinitionError"


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(DefinitionError, match="A lambda has no name"):
        step(lambda: 1)
    assert step(name="one")(lambda: 1).name == "one"


def test_a_step_is_not_made_a_step_again() -> None:
    with pytest.raises(DefinitionError, match="<Step 'add'> is a step already"):
        step(add)


def test_a_step_is_called_and_not_passed() -> None:
    @workflow("passed")
    async def passed(ctx: Context) -> None:
        await ctx.step("sum", add)  # type: ignore[arg-type]

    end = outcome(passed)
    assert isinstance(end, Finished)
    assert end.failure is not None
    assert "<Step 'add'> is a step already: call it" in end.failure.message


@pytest.mark.parametrize("name", ["", "$x", "x" * 513, "a\nb", 5])
def test_a_name_that_cannot_be_recorded_is_refused(name: Any) -> None:
    for declare in (lambda: step(name=name)(bare), lambda: add.named(name)):
        with pytest.raises(InvalidName):
            declare()


@pytest.mark.parametrize(
    ("options", "error"),  # noqa: PT006
    [
        ({"retry": -1}, InvalidArgument),
        ({"retry": True}, InvalidArgument),
        ({"retry": "3"}, InvalidArgument),
        ({"compensate_retry": 1.5}, InvalidArgument),
        ({"timeout": "0s"}, InvalidDuration),
        ({"timeout": "-1s"}, InvalidDuration),
        ({"timeout": 5}, InvalidDuration),
        ({"on_cancel": "ignore"}, InvalidArgument),
        ({"compensate": 5}, DefinitionError),
        ({"compensate": generator}, DefinitionError),
    ],
)
def test_options_are_checked_where_they_stand(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        step(**options)(bare)

    @workflow("options")
    async def bad_options(ctx: Context) -> None:
        await ctx.step("it", bare, **options)

    run = Rehearsal(bad_options)
    end = run.end()
    assert isinstance(end, Finished)
    assert end.failure is not None
    assert end.failure.type == f"outlast.errors.{error.__name__}"
    assert run.performed == []


@pytest.mark.parametrize("declares", [step, transactional_step])
@pytest.mark.parametrize(
    ("option", "meant"),  # noqa: PT006
    [
        ("retries", " Did you mean retry=?"),
        ("compensation", " Did you mean compensate=?"),
        ("compansate_retry", " Did you mean compensate_retry=?"),
        ("time_out", " Did you mean timeout=?"),
        ("nane", " Did you mean name=?"),
        ("queue", ""),
    ],
)
def test_an_option_that_there_is_not_is_refused_and_the_nearest_named(declares: Any, option: str, meant: str) -> None:
    """They were passed over: a step with `compansate=` was never undone, and nobody was told."""
    told = (
        f"A step has no option {option}=.{meant} The options are name=, compensate=, retry=, timeout=, "
        "compensate_retry=, on_cancel=."
    )
    with pytest.raises(InvalidArgument) as refused:
        declares(**{option: None})
    assert str(refused.value) == told

    @workflow("misspelt")
    async def misspelt(ctx: Context) -> None:
        verb: Any = ctx.step if declares is step else ctx.transaction
        await verb("it", bare, **{option: None})

    run = Rehearsal(misspelt)
    end = run.end()
    assert isinstance(end, Finished)
    assert end.failure is not None
    assert end.failure.message == told
    assert run.performed == []


@pytest.mark.parametrize(("retry", "attempts"), [(None, 3), (False, 1), (0, 1), (1, 1), (4, 4), (Retry(attempts=2), 2)])  # noqa: PT006
def test_a_policy_may_be_written_short(retry: Any, attempts: int) -> None:
    @workflow("short")
    async def short(ctx: Context) -> None:
        await ctx.step("it", bare, retry=retry)

    run = Rehearsal(short)
    turn = run.begin()
    made = 0
    while turn.calls:
        turn.raises("it", OSError())
        made += 1
        run.advance("1h")
        turn.run()

    assert made == attempts


# Contexts.


def test_the_context_is_passed_only_where_it_is_asked_for() -> None:
    async def quoted(s: "StepContext", word: str) -> str:  # noqa: UP037 - what this is about
        return f"{s.step} {word}"

    async def dotted(s: "outlast.StepContext", word: str) -> str:  # type: ignore[name-defined]  # noqa: F821, UP037  # pyright: ignore[reportUndefinedVariable]
        return f"{s.step} {word}"

    async def unfindable(s: StepContext, word: str, other: Nothing = None) -> str:
        return f"{s.step} {word}"

    async def other_first(word: str) -> str:
        return f"it {word}"

    for function in (quoted, dotted, unfindable, other_first):
        assert asyncio.run(step(name="it")(function)("a")) == "it a"  # type: ignore[call-arg, arg-type]


class Shop:
    def __init__(self, name: str) -> None:
        self.name = name

    @step
    async def charge(self, s: StepContext, cents: int) -> str:
        return f"{self.name} {s.step} {cents}"

    @step(name="greeted")
    def greet(self) -> str:
        return f"Hello from {self.name}"


async def test_a_method_is_bound_to_its_instance() -> None:
    shop = Shop("Acme")

    assert await shop.charge(5) == "Acme charge 5"
    assert await shop.charge.named("again")(6) == "Acme again 6"
    assert await shop.greet() == "Hello from Acme"
    assert isinstance(Shop.charge, Step)


def test_a_method_is_journaled_too() -> None:
    shop = Shop("Acme")

    @workflow("methods")
    async def methods(ctx: Context) -> list[str]:
        return [await shop.charge(5), await shop.charge.named("second")(6), await shop.greet()]

    assert ended(methods) == ["Acme charge 5", "Acme second 6", "Hello from Acme"]


def test_a_second_compensation_is_refused() -> None:
    @step
    async def once() -> str:
        return "once"

    @once.compensate
    async def undo(s: CompensationContext, made: str) -> None: ...

    assert inspect.iscoroutinefunction(undo)
    with pytest.raises(DefinitionError, match="Step 'once' has a compensation already"):
        once.compensate(undo)


def test_a_compensation_declared_later_is_known_under_every_name() -> None:
    seen: list[str] = []

    @step
    async def make(word: str) -> str:
        return word

    named = make.named("early")

    @make.compensate
    def undo(s: CompensationContext, made: str) -> None:
        seen.append(made)

    @workflow("late")
    async def late(ctx: Context) -> None:
        await named("a")
        ctx.fail("no")

    outcome(late)
    assert seen == ["a"]


def test_contexts_can_be_made_for_tests() -> None:
    assert StepContext("run", "step", 2).attempt == 2
    context = CompensationContext("run", "step")
    assert (context.idempotency_key, context.reason.message) == ("run:$compensate:step", "")


# Types of results.


@dataclass
class Money:
    cents: int


def test_a_result_comes_back_as_the_type_that_the_function_names() -> None:
    def plain(s: StepContext) -> Money:
        return Money(1)

    async def awaited(s: StepContext) -> Money:
        return Money(2)

    def future(s: StepContext) -> asyncio.Future[Money]:
        return asyncio.ensure_future(awaited(s))

    def bare_annotation(s: StepContext) -> "asyncio.Future":  # type: ignore[type-arg]  # noqa: UP037
        return asyncio.ensure_future(awaited(s))

    @workflow("types")
    async def types(ctx: Context) -> list[str]:
        made = [
            await ctx.step("plain", plain),
            await ctx.step("awaited", awaited),
            await ctx.step("future", future),
            await ctx.step("lambda", lambda s: Money(4)),
        ]
        return [f"{type(money).__name__} {money.cents}" for money in made]

    run = Rehearsal(types)
    run.end()

    assert [record.payload for record in run.journal[:3]] == ['{"cents":1}', '{"cents":2}', '{"cents":2}']
    assert ended(types) == ["Money 1", "Money 2", "Money 2", "Money 4"]


def test_a_workflows_context_among_the_parameters_is_refused() -> None:
    async def charge(ctx: Context, order: str) -> None: ...

    def refund(order: str, ctx: BlockingContext) -> None: ...

    with pytest.raises(DefinitionError, match=r"Step 'charge' takes a workflow's context as 'ctx'.*StepContext"):
        step(charge)
    with pytest.raises(DefinitionError, match="Step 'refund' takes a workflow's context as 'ctx'"):
        step(refund)
