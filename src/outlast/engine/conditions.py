"""What a run can wait for: a signal, or a time."""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar, cast

from outlast.errors import ConditionNotWon
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

    def begin(self) -> None:
        """Forget how an earlier wait ended."""
        self._value = _NOTHING

    def win(self, value: object) -> None:
        """Note that a wait ended by this condition."""
        self._value = value

    def __repr__(self) -> str:
        return f"<Condition: {self.label}>"
