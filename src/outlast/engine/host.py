"""What workflow code may ask of the run it belongs to, and how that run is found.

Authors' objects (`Context`, `Step`) speak to a `Host`. Every question is answered at once: with a value, or with a future
that is set when the journal or the outside world has the answer.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NoReturn, Protocol, TypeVar, cast
from uuid import UUID

import msgspec

from outlast.engine.calls import CallToBeAwaited, call_to_be_awaited
from outlast.engine.conditions import Condition
from outlast.engine.eventloop import WorkflowLoop, running_loop
from outlast.model.journal import Kind
from outlast.model.options import OnCancel, Retry
from outlast.model.values import Shape

M = TypeVar("M", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class Undo:
    """What undoes a step: called with a context and the step's recorded result, before them the transaction if it is to be
    called in one."""

    function: Callable[..., Any]
    is_awaited: bool
    is_transactional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """How a step is performed and undone; the same for every call of it."""

    retry: Retry | None = None
    timeout: timedelta | None = None
    undo: Undo | None = None
    undo_retry: Retry | None = None
    on_cancel: OnCancel = "finish"


class StepRequest(msgspec.Struct):
    """One call of a step in workflow code. `function` has the call's arguments in it already; that of a transactional step
    is called with the context and the transaction."""

    name: str
    function: Callable[..., Any]
    is_awaited: bool
    shape: Shape[Any]
    options: StepOptions
    is_transactional: bool = False


@dataclass(frozen=True, slots=True)
class Won:
    """How a wait ended: the place of the condition that won, and the value it brought."""

    index: int
    value: Any


class _Done:
    """What a verb answers that has nothing to wait for: like None, and `await` before the verb does no harm."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield from ()

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "None"


DONE: Final = cast("None", _Done())
"""To callers and their type checkers it is None: an `await` is not needed, only harmless."""


class Host(Protocol):
    """The run that workflow code belongs to. Every question raises what a misuse, a mismatch or a stop calls for."""

    def check(self, call: str) -> bool:
        """Raise when this is not the run's own code, or when the code is not to go on. `call` names what was called.

        False for code that catches all of that without end: what it asks for is not recorded, and never answered.
        """
        ...

    def stall(self) -> asyncio.Future[Any]:
        """Return what is never answered."""
        ...

    def ask_step(self, request: StepRequest) -> asyncio.Future[Any]:
        """Have a step performed; its recorded result, or StepFailed."""
        ...

    def ask_sleep(self, name: str, *, delay: int | None, until: int | None) -> asyncio.Future[None]:
        """Wait for so many microseconds, or until an instant."""
        ...

    def ask_wait(self, kind: Kind, name: str, conditions: Sequence[Condition[Any]]) -> asyncio.Future[Won]:
        """Wait for the first of these conditions."""
        ...

    def abandon(self, name: str) -> None:
        """Nobody waits for this sleep or wait any more."""
        ...

    def commit(self, name: str) -> None:
        """Pass the point of no return."""
        ...

    def now(self) -> int:
        """Return the recorded time."""
        ...

    def random(self) -> float:
        """Return a recorded random number."""
        ...

    def uuid(self) -> UUID:
        """Return a recorded random UUID."""
        ...

    def set_custom_status(self, text: str | None) -> None:
        """Publish a stored value, or nothing, as the run's custom status."""
        ...

    def refuse(self, message: str) -> NoReturn:
        """Raise a DefinitionError that ends the run, whatever the code does about it."""
        ...

    def note_call(self, call: CallToBeAwaited) -> None:
        """The code has made a call that is to be awaited. A run whose code returns without that fails."""
        ...


def current_host() -> Host | None:
    """Return the run whose code this is, or None outside of workflow code."""
    loop = running_loop()
    return loop.owner if type(loop) is WorkflowLoop else None


def to_be_awaited(call: Coroutine[Any, Any, Any], name: str) -> Coroutine[Any, Any, Any]:
    """Have a call known by this name when it is never awaited: to the run whose code made it, elsewhere to Python.

    It was made by the caller of whoever calls this.
    """
    host = current_host()
    if host is None:
        coroutine: Any = call
        coroutine.__qualname__ = name
        return call
    caller = sys._getframe(2)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  nothing else tells
    noted = call_to_be_awaited(call, name, caller)
    host.note_call(noted)
    return noted


def awaited(method: M) -> M:
    """Do so for each call of a context's method."""
    made: Any = method
    name = f"ctx.{made.__name__}"

    @functools.wraps(made)
    def call(*args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:  # noqa: ANN401  those of any method
        return to_be_awaited(made(*args, **kwargs), name)

    return cast("M", call)
