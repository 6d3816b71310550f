"""Workflows written as a plain `def`: the same verbs, each of which returns when its answer is there.

The code runs on a greenlet of its own, which stands still inside a verb while the run waits: no thread is held, and nothing
else of a run is different. It is the coroutine around the greenlet that the run's event loop sees. A greenlet goes on only
on the thread that began it, so whoever drives the run does that on one and the same thread; a worker has some for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime
from importlib.util import find_spec
from inspect import isawaitable
from typing import Any, NoReturn, TypeVar, Unpack, overload
from uuid import UUID

from outlast.engine.conditions import Condition
from outlast.engine.context import Context
from outlast.engine.step import DeclaredStep, StepChoices
from outlast.engine.stepcontext import CompensationContext, StepContext
from outlast.errors import DefinitionError
from outlast.model import ids
from outlast.model.durations import Duration
from outlast.model.signal import Signal

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
R = TypeVar("R")
T = TypeVar("T")


class BlockingContext:
    """The verbs of one run, for a workflow that is a plain `def`. See `Context`: names, options, errors and what happens on
    replay are the same; here each verb returns its value instead of something to await.

    Code between two verbs runs on a thread, one of a few that the worker has for it, and may compute. Whatever waits for the
    outside world belongs in a step: only its result is recorded.
    """

    __slots__ = ("_ctx", "run_id", "version", "workflow")

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.run_id: ids.RunId = ctx.run_id
        self.workflow: str = ctx.workflow
        self.version: int = ctx.version

    # Steps.

    @overload
    def do(self, call: Awaitable[A], /) -> A: ...
    @overload
    def do(self, call: Awaitable[A], second: Awaitable[B], /) -> tuple[A, B]: ...
    @overload
    def do(self, call: Awaitable[A], second: Awaitable[B], third: Awaitable[C], /) -> tuple[A, B, C]: ...
    @overload
    def do(self, call: Awaitable[T], second: Awaitable[T], /, *more: Awaitable[T]) -> tuple[T, ...]: ...
    def do(self, *calls: Awaitable[Any]) -> Any:
        """Perform a step that was declared with `@step` and return its result: `charged = ctx.do(charge(order))`.

        Several are performed at the same time, and their results returned together. When one of them gives up its error is
        raised at once; the others go on and are recorded, as in `asyncio.gather`.
        """
        for call in calls:
            _check_call(call)
        return _answer(_awaited(calls[0]) if len(calls) == 1 else _gathered(calls))

    @overload
    def step(
        self,
        name: str,
        function: Callable[[StepContext], Coroutine[Any, Any, R]],
        *,
        compensate: Callable[[CompensationContext, R], object] | None = None,
        **options: Unpack[StepChoices],
    ) -> R: ...
    @overload
    def step(
        self,
        name: str,
        function: Callable[[StepContext], Awaitable[R] | R],
        *,
        compensate: Callable[[CompensationContext, R], object] | None = None,
        **options: Unpack[StepChoices],
    ) -> R: ...
    def step(
        self,
        name: str,
        function: Callable[[StepContext], Any],
        *,
        compensate: Callable[[CompensationContext, Any], object] | None = None,
        **options: Unpack[StepChoices],
    ) -> object:
        """Perform `function` once under this name and return its recorded result. See `Context.step`."""
        return _answer(self._ctx.step(name, function, compensate=compensate, **options))

    @overload
    def transaction(
        self,
        name: str,
        function: Callable[[Any], R],
        *,
        compensate: Callable[[Any, CompensationContext, R], object] | None = None,
        **options: Unpack[StepChoices],
    ) -> R: ...
    @overload
    def transaction(
        self,
        name: str,
        function: Callable[[Any, StepContext], R],
        *,
        compensate: Callable[[Any, CompensationContext, R], object] | None = None,
        **options: Unpack[StepChoices],
    ) -> R: ...
    def transaction(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        compensate: Callable[[Any, CompensationContext, Any], object] | None = None,
        **options: Unpack[StepChoices],
    ) -> object:
        """Perform `function` in a transaction of the application's, which commits with the result's entry. See
        `Context.transaction`; a function to be awaited belongs in a `@transactional_step`."""
        return _answer(self._ctx.transaction(name, function, compensate=compensate, **options))

    # Waiting.

    def sleep(self, name: str, duration: Duration) -> None:
        """Return after this duration. See `Context.sleep`."""
        _answer(self._ctx.sleep(name, duration))

    def sleep_until(self, name: str, when: datetime) -> None:
        """Return at this instant. See `Context.sleep_until`."""
        _answer(self._ctx.sleep_until(name, when))

    def signal(self, signal: Signal[T], *, key: str | None = None) -> Condition[T]:
        """Describe a signal to wait for. See `Context.signal`."""
        return self._ctx.signal(signal, key=key)

    def timer(self, when: Duration | datetime) -> Condition[None]:
        """Describe a time to wait for. See `Context.timer`."""
        return self._ctx.timer(when)

    @overload
    def wait_for(self, name: str, condition: Condition[T]) -> T: ...
    @overload
    def wait_for(self, name: str, condition: Condition[T], *, timeout: Duration | None) -> T | None: ...
    def wait_for(self, name: str, condition: Condition[T], *, timeout: Duration | None = None) -> T | None:
        """Wait for one condition and return its value; None when the timeout has passed. See `Context.wait_for`."""
        return _answer(self._ctx.wait_for(name, condition, timeout=timeout))

    def first(self, name: str, *conditions: Condition[Any]) -> Condition[Any]:
        """Wait for the first of these conditions and return it. See `Context.first`."""
        return _answer(self._ctx.first(name, *conditions))

    # The run itself.

    def commit(self, name: str) -> None:
        """Pass a point of no return. See `Context.commit`."""
        self._ctx.commit(name)

    def fail(self, message: str) -> NoReturn:
        """End the run as failed, for a reason of the business. See `Context.fail`."""
        self._ctx.fail(message)

    def set_status(self, value: object) -> None:
        """Publish a value as `Run.custom_status`. See `Context.set_status`."""
        self._ctx.set_status(value)

    def now(self) -> datetime:
        """Return the recorded time. See `Context.now`."""
        return self._ctx.now()

    def random(self) -> float:
        """Return a recorded random number. See `Context.random`."""
        return self._ctx.random()

    def uuid(self) -> UUID:
        """Return a recorded random UUID. See `Context.uuid`."""
        return self._ctx.uuid()


def check_installed(what: str) -> None:
    """Raise DefinitionError when the library that plain workflows need is missing."""
    if find_spec("greenlet") is None:
        raise DefinitionError(
            f"{what} is a plain `def`, which needs greenlet. Install it with: pip install 'outlast[blocking]'"
        )


def begun(code: Callable[..., R], *arguments: object) -> Coroutine[Any, Any, R]:
    """Make the coroutine that runs plain code."""
    from outlast.engine import greenlets  # noqa: PLC0415 -- greenlet is optional, and looked for at the declaration

    return greenlets.performed(code, *arguments)


def _check_call(call: object) -> None:
    if isawaitable(call):
        return
    if isinstance(call, DeclaredStep):
        raise DefinitionError(f"ctx.do(...) was given {call!r} itself. Call it: ctx.do({call.name}(...)).")
    raise DefinitionError(f"ctx.do(...) takes calls of steps, as in ctx.do(charge(order)); {call!r} is none.")


def _answer(asking: Coroutine[Any, Any, T]) -> T:
    from outlast.engine import greenlets  # noqa: PLC0415 -- as above

    if greenlets.is_plain():
        return greenlets.answered(asking)
    # On a thread, or in a step: what the verb asks of the run first is where it is, and it raises.
    try:
        asking.send(None)
    finally:
        asking.close()
    raise DefinitionError("A BlockingContext can be used in its own workflow's code only.")


async def _awaited(call: Awaitable[T]) -> T:
    return await call


async def _gathered(calls: Sequence[Awaitable[Any]]) -> tuple[Any, ...]:
    return tuple(await asyncio.gather(*calls))
