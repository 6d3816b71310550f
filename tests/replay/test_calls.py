"""Functions that cannot be called as they are: known before anything is done where it can be, and not tried again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from outlast import Context, DefinitionError, Failure, StepContext, step, transactional_step, workflow
from outlast.engine.decision import Finished
from support.replaying import Rehearsal


def failure_of(run: Rehearsal) -> Failure:
    end = run.end()
    assert isinstance(end, Finished)
    assert end.failure is not None
    return end.failure


@step
async def two(x: int, y: int = 0) -> int:
    return x + y


@step
def two_with_context(s: StepContext, x: int, *, y: int = 0) -> int:
    return x + y


@transactional_step
def two_of_transaction(db: object, x: int, y: int = 0) -> int:
    return x + y


class Shop:
    @step
    async def two(self, s: StepContext, x: int) -> int:
        return x


CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any], str]] = [
    (two, (1, 2, 3), {}, "two() takes from 1 to 2 positional arguments but 3"),
    (two, (1,), {"z": 3}, "two() got an unexpected keyword argument 'z'"),
    (two_with_context, (), {}, "two_with_context() missing 1 required"),
    (two_with_context, (1,), {"s": 2}, "two_with_context() got multiple values for argument 's'"),
    (two_of_transaction, (), {}, "two_of_transaction() missing 1 required"),
    (Shop().two, (1, 2), {}, "Shop.two() takes 3 positional arguments but 4"),
]


@pytest.mark.parametrize(("called", "args", "kwargs", "told"), CALLS)  # noqa: PT006
def test_a_step_that_is_called_wrongly_fails_at_once(
    called: Any, args: tuple[Any, ...], kwargs: dict[str, Any], told: str
) -> None:
    """It was tried again and again, after delays of seconds, though it could never do anything."""

    @workflow("wrong-call")
    async def wrong_call(ctx: Context) -> None:
        await called(*args, **kwargs)

    run = Rehearsal(wrong_call)
    failure = failure_of(run)

    assert [entry.split()[1] for entry in run.log] == ["failed", "done"]
    assert failure.type == "outlast.errors.StepFailed"
    assert told in failure.message
    assert "Nothing was done, and it is not tried again." in failure.message


async def test_outside_of_workflows_a_wrong_call_is_an_error_of_python() -> None:
    with pytest.raises(TypeError):
        await two(1, 2, 3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: object) -> object:
        return function(*args, "given by the wrapper")

    return wrapper


def test_an_error_of_the_function_itself_is_tried_again() -> None:
    """It may be raised because of what the other side answered."""

    @step
    def adds() -> int:
        return 1 + None  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]

    @step
    @wrapped
    def is_wrapped(given: str) -> int:
        raise TypeError(given)

    unknown = step(name="unknown")(functools.partial(max, 1, None))

    @workflow("raises")
    async def raises(ctx: Context, which: str) -> None:
        await {"adds": adds, "is_wrapped": is_wrapped, "unknown": unknown}[which]()

    for which in ("adds", "is_wrapped", "unknown"):
        run = Rehearsal(raises, which)
        failure_of(run)
        assert run.performed == [which] * 3


def no_arguments() -> int:
    return 5


def two_arguments(s: object, other: object) -> int:
    return 5


def three_arguments(tx: object, s: object, other: object) -> int:
    return 5


def keywords(*, s: object) -> int:
    return 5


class Asked:
    def verb(self) -> int:
        return 5

    def __call__(self, a: object, b: object, c: object) -> int:
        return 5


def undo_of_one(result: object) -> None: ...


MISFITS: list[tuple[str, Callable[..., Any], dict[str, Any], str]] = [
    ("step", no_arguments, {}, "no_arguments cannot be called so"),
    ("step", lambda: 5, {}, "takes its StepContext, as `lambda s: ...` does; <lambda> cannot be called so"),
    ("step", two_arguments, {}, "two_arguments cannot be called so"),
    ("step", keywords, {}, "keywords cannot be called so"),
    ("step", Asked().verb, {}, "verb cannot be called so"),
    ("step", Asked(), {}, "Asked cannot be called so"),
    ("step", functools.partial(two_arguments, 1, 2), {}, "two_arguments cannot be called so"),
    (
        "step",
        lambda s: 5,
        {"compensate": undo_of_one},
        "A compensation takes a CompensationContext and the step's result",
    ),
    ("transaction", no_arguments, {}, "takes its transaction, and its StepContext if it likes; no_arguments"),
    ("transaction", three_arguments, {}, "three_arguments cannot be called so"),
    (
        "transaction",
        lambda tx: 5,
        {"compensate": two_arguments},
        "A compensation takes its transaction, a Compensation",
    ),
]


@pytest.mark.parametrize(("verb", "function", "options", "told"), MISFITS)  # noqa: PT006
def test_a_function_that_takes_other_arguments_is_refused_before_its_effect(
    verb: str, function: Callable[..., Any], options: dict[str, Any], told: str
) -> None:
    """Of a compensation it was found when the step had been done and was to be undone."""

    @workflow("misfit")
    async def misfit(ctx: Context) -> None:
        await getattr(ctx, verb)("it", function, **options)

    run = Rehearsal(misfit)
    failure = failure_of(run)

    assert failure.type == "outlast.errors.DefinitionError"
    assert told in failure.message
    assert run.performed == []


@pytest.mark.parametrize(
    "function",
    [
        lambda s: 5,
        lambda s, other=1: 5,
        lambda *all: 5,
        lambda s, *rest, **options: 5,
        functools.partial(two_arguments, other=1),
        functools.partial(two_arguments, 1),
    ],
)
def test_a_function_that_takes_one_more_or_less_is_taken(function: Callable[..., Any]) -> None:
    @workflow("fits")
    async def fits(ctx: Context) -> int:
        return await ctx.step("it", function)

    end = Rehearsal(fits).end()
    assert isinstance(end, Finished)
    assert end.output == "5"


def test_a_compensation_that_takes_other_arguments_is_refused_where_it_is_declared() -> None:
    with pytest.raises(
        DefinitionError, match="A compensation takes a CompensationContext and the step's result; undo_of"
    ):
        two.compensate(undo_of_one)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(DefinitionError, match="A compensation takes its transaction"):
        two_of_transaction.compensate(two_arguments)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
