"""Plain code that waits: a greenlet stands still while the coroutine around it awaits in its place.

Imports greenlet, which only workflows written as a plain `def` need; so it is itself imported by those alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from greenlet import getcurrent, greenlet

R = TypeVar("R")
T = TypeVar("T")


class _Plain(greenlet):
    """The code of one plain workflow. Its parent is whoever drives the run's event loop."""


async def performed(function: Callable[..., R], *arguments: object) -> R:
    """Run a plain function and await for it whatever it hands to `answered`."""
    plain = _Plain(function)
    # The context variables of the run's task, which has a context of its own.
    plain.gr_context = getcurrent().gr_context
    asked: Any = plain.switch(*arguments)
    while not plain.dead:
        try:
            answer: object = await asked
        except BaseException as error:  # noqa: BLE001  all of it is the code's: a cancellation, and being closed
            asked = plain.throw(type(error), error, error.__traceback__)
        else:
            asked = plain.switch(answer)
    return cast("R", asked)


def is_plain() -> bool:
    """Say whether it is a plain workflow's own code that runs here."""
    return isinstance(getcurrent(), _Plain)


def answered(awaitable: Awaitable[T]) -> T:
    """Have the coroutine around this greenlet await something, and return what it came to. Only where `is_plain`."""
    driver = getcurrent().parent
    assert driver is not None
    return cast("T", driver.switch(awaitable))
