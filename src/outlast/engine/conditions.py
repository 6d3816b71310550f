"""What a run can wait for: a signal, or a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, Generic, NoReturn, TypeVar, cast

from outlast.errors import ConditionNotWon, DefinitionError, InvalidArgument
from outlast.model.signal import Signal
from outlast.model.values import Shape

T_co = TypeVar("T_co", covariant=True)

_NOTHING: Final = object()


class Condition(Generic[T_co]):
    """A signal or a time that a wait may be for; made by `ctx.signal` and `ctx.timer`, and inert until it is waited for.

    After `await ctx.first(...)` it knows whether it `won`, and then has the signal's payload as `value`. It may be used in
    any number of waits, one after another: each begins anew.
    """

    __slots__ = ("_value", "delay", "label", "shape", "topic", "until")

    def __init__(
        self,
        label: str,
        *,
        topic: str | None = None,
        shape: Shape[Any] | None = None,
        delay: int | None = None,
        until: int | None = None,
    ) -> None:
        self.label: str = label
        self.topic: str | None = topic
        self.shape: Shape[Any] | None = shape
        self.delay: int | None = delay
        self.until: int | None = until
        self._value: object = _NOTHING

    @property
    def won(self) -> bool:
        """True when the last wait for this condition ended by it."""
        return self._value is not _NOTHING

    @property
    def value(self) -> T_co:
        """The payload of the signal that ended the wait; None for a timer. Raises ConditionNotWon before that."""
        if self._value is _NOTHING:
            raise ConditionNotWon(self.label)
        return cast("T_co", self._value)

    def _refuse_await(self) -> NoReturn:
        raise DefinitionError(
            f"`await` was written before the {self.label} itself, which only describes what to wait for. Wait for it by a "
            "name: `await ctx.wait_for(name, ...)`, or `await ctx.first(name, ...)` for whichever of several comes first. "
            "To let time pass, write `await ctx.sleep(name, duration)`."
        )

    # Type checkers see that it cannot be awaited.
    __await__: ClassVar[None] = cast("None", _refuse_await)

    def __bool__(self) -> NoReturn:
        raise DefinitionError(
            f"Whether the {self.label} has come is not told by the condition itself, which only describes what to wait for: "
            "ask `.won` after `await ctx.first(...)`."
        )

    def begin(self) -> None:
        """Forget how an earlier wait ended."""
        self._value = _NOTHING

    def win(self, value: object) -> None:
        """Note that a wait ended by this condition."""
        self._value = value

    def __repr__(self) -> str:
        return f"<Condition: {self.label}>"


def check_conditions(name: str, conditions: Sequence[object]) -> None:
    """Raise InvalidArgument for what is not a condition, and say what to write instead."""
    for condition in conditions:
        if not isinstance(condition, Condition):
            raise InvalidArgument(
                f"A wait is for what ctx.signal or ctx.timer returned; wait {name!r} was given {condition!r}."
                f"{_instead(condition)}"
            )


def _instead(given: object) -> str:
    match given:
        case Signal():
            return " Write `ctx.signal(...)` around it, with its key if it has one."
        case str() | timedelta() | datetime():
            return f" For a time write `ctx.timer({given!r})`."
        case list() | tuple() | set() | frozenset():
            return " Pass conditions one by one to `ctx.first`, or put a `*` before the list."
        case _:
            return ""
