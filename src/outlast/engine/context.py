"""What workflow code is given to work with: the verbs of one run.

Every verb asks the run (`host`) and awaits its answer. Names are unique in a run, over all verbs, and make its journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NoReturn, TypeVar, Unpack, cast, overload
from uuid import UUID

from outlast.engine import signatures
from outlast.engine.conditions import Condition, check_conditions
from outlast.engine.host import DONE, Host, StepRequest, Won, awaited
from outlast.engine.step import PLAIN, DeclaredStep, StepChoices, step_options
from outlast.engine.stepcontext import CompensationContext, StepContext
from outlast.engine.transactional import in_transaction, undo_in_transaction
from outlast.errors import InvalidArgument, ValueNotStorable, WorkflowFailed
from outlast.model import ids
from outlast.model.durations import Duration, to_us
from outlast.model.journal import Kind
from outlast.model.signal import Signal
from outlast.model.times import to_datetime, to_instant
from outlast.model.values import shape_of

R = TypeVar("R")
T = TypeVar("T")

MAX_CUSTOM_STATUS: Final = 16_384
_ANYTHING: Final = shape_of(Any)


class Context:
    """The verbs of one run. Workflow code gets it as its first argument; steps and threads may not use it.

    Code between two verbs runs again at every replay: keep it free of effects, and take from `now`, `random` and `uuid` what
    would differ from one time to the next.
    """

    __slots__ = ("_host", "run_id", "version", "workflow")

    def __init__(self, host: Host, run_id: ids.RunId, workflow: str, version: int) -> None:
        self._host = host
        self.run_id: ids.RunId = run_id
        self.workflow: str = workflow
        self.version: int = version

    # Steps.

    # Three, so that mypy too sees what a lambda gives to await.
    @overload
    async def step(
        self,
        name: str,
        function: Callable[[StepContext], Coroutine[Any, Any, R]],
        *,
        compensate: Callable[[CompensationContext, R], object] | None = None,
        **options: Unpack[StepChoices],
    ) -> R: ...
    @overload
    async def step(
        self,
        name: str,
        function: Callable[[StepContext], Awaitable[R]],
        *,
        compensate: Callable[[CompensationContext, R], object] | None = None,
        **options: Unpack[StepChoices],
    ) -> R: ...
    @overload
    async def step(
        self,
        name: str,
        function: Callable[[StepContext], Awaitable[R] | R],
        *,
        compensate: Callable[[CompensationContext, R], object] | None = None,
        **options: Unpack[StepChoices],
    ) -> R: ...
    @awaited
    async def step(
        self,
        name: str,
        function: Callable[[StepContext], Any],
        *,
        compensate: Callable[[CompensationContext, Any], object] | None = None,
        **options: Unpack[StepChoices],
    ) -> object:
        """Perform `function` once under this name and return its recorded result. The options are those of `@step`.

        An `async def` runs on the event loop; a plain function, and so a lambda, on a thread, and what it returns is
        awaited if need be. Raises StepFailed when it gives up. Nothing is performed before all recorded so far is durable.
        """
        if not self._host.check("ctx.step"):
            await self._host.stall()
        signatures.check_callable(function, f"The function of step {name!r}")
        if isinstance(function, DeclaredStep):
            self._host.refuse(f"{function!r} is a step already: call it, as in `await charge.named({name!r})(order)`.")
        signatures.check_takes(
            function, 1, what=f"The function of step {name!r} takes its StepContext, as `lambda s: ...` does"
        )
        chosen = PLAIN if compensate is None and not options else step_options(compensate, **options)
        shape = shape_of(signatures.result_type(function))
        return await self._host.ask_step(
            StepRequest(self._name(name), function, signatures.is_awaited(function), shape, chosen)
        )

    @overload
    async def transaction(
        self,
        name: str,
        function: Callable[[Any], Coroutine[Any, Any, R]],
        *,
        compensate: Callable[[Any, CompensationContext, R], object] | None = None,
        **options: Unpack[StepChoices],
    ) -> R: ...
    @overload
    async def transaction(
        self,
        name: str,
        function: Callable[[Any, StepContext], Coroutine[Any, Any, R]],
        *,
        compensate: Callable[[Any, CompensationContext, R], object] | None = None,
        **options: Unpack[StepChoices],
    ) -> R: ...
    @overload
    async def transaction(
        self,
        name: str,
        function: Callable[[Any], Awaitable[R] | R],
        *,
        compensate: Callable[[Any, CompensationContext, R], object] | None = None,
        **options: Unpack[StepChoices],
    ) -> R: ...
    @overload
    async def transaction(
        self,
        name: str,
        function: Callable[[Any, StepContext], Awaitable[R] | R],
        *,
        compensate: Callable[[Any, CompensationContext, R], object] | None = None,
        **options: Unpack[StepChoices],
    ) -> R: ...
    @awaited
    async def transaction(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        compensate: Callable[[Any, CompensationContext, Any], object] | None = None,
        **options: Unpack[StepChoices],
    ) -> object:
        """Perform `function` under this name in a transaction of the application's, which commits with the result's entry.

        It is called with the session or connection, and the StepContext if it takes two arguments; what undoes it
        (`compensate=`) with a transaction too. Otherwise as `step` and `@transactional_step`. Raises StepFailed.
        """
        if not self._host.check("ctx.transaction"):
            await self._host.stall()
        signatures.check_callable(function, f"The function of transaction {name!r}")
        if isinstance(function, DeclaredStep):
            self._host.refuse(
                f"{function!r} is a step already: call it, as in `await {function.name}.named({name!r})(order)`."
            )
        chosen = step_options(None, **options) if options else PLAIN
        if compensate is not None:
            chosen = replace(chosen, undo=undo_in_transaction(compensate))
        shape, is_awaited = shape_of(signatures.result_type(function)), signatures.is_awaited(function)
        return await self._host.ask_step(
            StepRequest(
                self._name(name), in_transaction(function, name), is_awaited, shape, chosen, is_transactional=True
            )
        )

    # Waiting.

    @awaited
    async def sleep(self, name: str, duration: Duration) -> None:
        """Return after this duration, counted from the first time the code came here. Zero or less returns at once."""
        if not self._host.check("ctx.sleep"):
            await self._host.stall()
        delay = to_us(duration, what=f"the duration of sleep {name!r}", allow_negative=True)
        await self._kept(name, self._host.ask_sleep(self._name(name), delay=delay, until=None))

    @awaited
    async def sleep_until(self, name: str, when: datetime) -> None:
        """Return at this instant, or at once when it has passed. A datetime without a time zone is refused."""
        if not self._host.check("ctx.sleep_until"):
            await self._host.stall()
        until = to_instant(_moment(when), what=f"the time of sleep {name!r}")
        await self._kept(name, self._host.ask_sleep(self._name(name), delay=None, until=until))

    def signal(self, signal: Signal[T], *, key: str | None = None) -> Condition[T]:
        """Describe the next signal with this name and key that the run has not taken yet. Nothing waits for it so far."""
        self._host.check("ctx.signal")
        if not isinstance(signal, Signal):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types
            raise InvalidArgument(f"ctx.signal takes a Signal(...); {signal!r} is a {type(signal).__name__}.")
        label = f"signal {signal.name!r}" if key is None else f"signal {signal.name!r} with key {key!r}"
        return Condition(label, topic=ids.topic(signal.name, ids.signal_key(key)), shape=signal.shape)

    def timer(self, when: Duration | datetime) -> Condition[None]:
        """Describe a time: an instant, or a duration that counts from when the wait for it is first reached."""
        self._host.check("ctx.timer")
        if isinstance(when, datetime):
            return Condition(f"timer at {when}", until=to_instant(when, what="the time of a timer"))
        return Condition(f"timer of {when}", delay=to_us(when, what="the duration of a timer", allow_negative=True))

    @overload
    async def wait_for(self, name: str, condition: Condition[T]) -> T: ...
    @overload
    async def wait_for(self, name: str, condition: Condition[T], *, timeout: Duration | None) -> T | None: ...
    @awaited
    async def wait_for(self, name: str, condition: Condition[T], *, timeout: Duration | None = None) -> T | None:
        """Wait for one condition and return its value; None when the timeout, counted from the first time, has passed.

        A signal stored at or before the deadline wins, also when the run is woken later. One without a payload has the value
        None, as a timeout does: use `first` with a timer and ask `won`. Raises ValueUnreadable for a payload that cannot
        be read as its type.
        """
        if not self._host.check("ctx.wait_for"):
            await self._host.stall()
        conditions: list[Condition[Any]] = [condition]
        if timeout is not None:
            limit = to_us(timeout, what=f"the timeout of wait {name!r}", allow_negative=True)
            conditions.append(Condition(f"timeout of wait {name!r}", delay=limit))
        return cast("T | None", (await self._first(Kind.WAIT, name, conditions)).value)

    @awaited
    async def first(self, name: str, *conditions: Condition[Any]) -> Condition[Any]:
        """Wait for the first of these conditions and return it; each then knows whether it `won`.

        Among signals stored at or before the earliest of the timers the oldest wins; if there are none that timer does. What
        did not win is not taken: a later wait may have it.
        """
        if not self._host.check("ctx.first"):
            await self._host.stall()
        if not conditions:
            raise InvalidArgument(f"first({name!r}) needs at least one condition.")
        return conditions[(await self._first(Kind.FIRST, name, conditions)).index]

    # The run itself.

    def commit(self, name: str) -> None:
        """Pass a point of no return: what has completed so far is not undone any more."""
        self._host.check("ctx.commit")
        self._host.commit(self._name(name))
        return DONE

    def fail(self, message: str) -> NoReturn:
        """End the run as failed, for a reason of the business. What has completed is undone."""
        self._host.check("ctx.fail")
        raise WorkflowFailed(message)

    def set_status(self, value: object) -> None:
        """Publish a value that callers see as `Run.custom_status`, at most 16,384 bytes as JSON; None clears it.

        It is written with whatever is written next, and not journaled: only the last value counts.
        """
        self._host.check("ctx.set_status")
        if value is None:
            self._host.set_custom_status(None)
            return DONE
        text = _ANYTHING.encode(value, "custom status")
        size = len(text.encode())
        if size > MAX_CUSTOM_STATUS:
            raise ValueNotStorable("custom status", f"it takes {size:,} bytes; at most {MAX_CUSTOM_STATUS:,} are kept")
        self._host.set_custom_status(text)
        return DONE

    # What would differ from one time to the next.

    def now(self) -> datetime:
        """Return the time, aware and in UTC, as it was when the code first came here."""
        self._host.check("ctx.now")
        return to_datetime(self._host.now())

    def random(self) -> float:
        """Return a random number from 0 up to 1, the same on every replay."""
        self._host.check("ctx.random")
        return self._host.random()

    def uuid(self) -> UUID:
        """Return a random UUID, the same on every replay."""
        self._host.check("ctx.uuid")
        return self._host.uuid()

    def __repr__(self) -> str:
        return f"<Context of run {self.run_id!r}>"

    async def _first(self, kind: Kind, name: str, conditions: Sequence[Condition[Any]]) -> Won:
        check_conditions(name, conditions)
        for condition in conditions:
            condition.begin()
        won = await self._kept(name, self._host.ask_wait(kind, self._name(name), conditions))
        conditions[won.index].win(won.value)
        return won

    async def _kept(self, name: str, answer: asyncio.Future[R]) -> R:
        """Await an answer; when whoever waits is cancelled, the run need not wait either."""
        try:
            return await answer
        except asyncio.CancelledError:
            self._host.abandon(name)
            raise

    def _name(self, name: str) -> str:
        try:
            return _entry_name(name)
        except (InvalidArgument, TypeError) as error:
            self._host.refuse(str(error))


@lru_cache(maxsize=4096)
def _entry_name(name: str) -> str:
    return ids.entry_name(name)


def _moment(value: object) -> datetime:
    if not isinstance(value, datetime):
        raise InvalidArgument(f"sleep_until takes an aware datetime; {value!r} is a {type(value).__name__}.")
    return value
