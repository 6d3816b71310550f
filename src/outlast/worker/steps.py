"""Performs attempts of steps: async functions as tasks on the application's loop, plain ones on threads of our own.

An attempt ends with one outcome, reported from a plain callback of the loop. What happens after that (a function that
returns later than its timeout, one that was told to end and did not) is watched but no longer heard.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from outlast.engine.decision import StepCall
from outlast.engine.performing import discard
from outlast.model.ids import RunId
from outlast.worker.certainty import Certainty
from outlast.worker.threads import Around, Threads, called

logger: Final = logging.getLogger("outlast.worker")

_GRACE: Final = 5.0
"""Seconds a timed-out coroutine may take to clean up before its run goes on without it."""


@dataclass(frozen=True, slots=True)
class Returned:
    """The function returned."""

    value: object


@dataclass(frozen=True, slots=True)
class Raised:
    """The function raised, or took longer than its timeout (TimeoutError)."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Recorded:
    """The function returned, and what it wrote was committed together with the record of it."""


@dataclass(frozen=True, slots=True)
class GivenBack:
    """The worker's shutdown cut the attempt short, so it says nothing about the step."""


GIVEN_BACK: Final = GivenBack()
RECORDED: Final = Recorded()
Ending: TypeAlias = Returned | Recorded | Raised | GivenBack


class Attempt(Protocol):
    """An attempt under way. After its outcome was reported these do nothing."""

    def request_stop(self) -> None:
        """Tell the step that its run was asked to stop; cancel its coroutine when it is declared `on_cancel="abort"`."""
        ...

    def cut(self) -> None:
        """Cut it short for a shutdown: it ends as given back, unless it returns a value all the same."""
        ...

    def drop(self) -> None:
        """End it without any report: somebody else performs this run now."""
        ...


Report: TypeAlias = Callable[[StepCall, Ending], None]


class Steps:
    """Begin attempts."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context,
        certainty: Certainty,
        *,
        threads: int,
        around: Around = called,
    ) -> None:
        self.loop = loop
        self.context = context
        self.certainty = certainty
        self.threads: Threads = Threads(loop, context, threads, may_begin=lambda: certainty.is_given, around=around)
        certainty.tell = self.threads.dispatch
        self.tasks: dict[asyncio.Task[Any], tuple[RunId, str]] = {}

    def perform(self, run_id: RunId, call: StepCall, report: Report) -> Attempt:
        """Begin an attempt and report its outcome once, from a plain callback of the loop."""
        if call.is_async:
            return _Coroutine(self, run_id, call, report)
        attempt = ThreadAttempt(self, run_id, call, report)
        self.threads.run(attempt)
        return attempt

    def task(
        self, awaiting: Callable[[], Awaitable[object]], run_id: RunId, name: str, context: contextvars.Context
    ) -> asyncio.Task[Any]:
        """Await something of a step's in a task of its own."""
        task = self.loop.create_task(_awaited(awaiting, self.certainty), name=name, context=context)
        self.tasks[task] = (run_id, name)
        return task

    def current(self) -> tuple[RunId, str] | None:
        """Return the run and step whose coroutine has the loop at this moment. Safe from any thread."""
        task = asyncio.current_task(self.loop)
        return None if task is None else self.tasks.get(task)

    def close(self) -> None:
        """Cancel what still runs and let the threads end. Nothing is reported any more."""
        for task in list(self.tasks):
            task.cancel()
        self.threads.close()


@dataclass(frozen=True, slots=True)
class _Exit:
    error: SystemExit


async def _awaited(awaiting: Callable[[], Awaitable[object]], certainty: Certainty) -> object:
    if not certainty.is_given:
        await certainty.given()
    try:
        return await awaiting()
    except SystemExit as error:
        # A task hands SystemExit to the loop, which would end the application and every other run here. It is the
        # outcome of one step, as it would be on a thread.
        return _Exit(error)


class _Attempt:
    """What both kinds share: one report, a timeout, a coroutine to await."""

    __slots__ = ("_context", "_is_cut", "_report", "_run_id", "_steps", "_task", "_timed_out", "_timer", "call")

    def __init__(self, steps: Steps, run_id: RunId, call: StepCall, report: Report) -> None:
        self.call: StepCall = call
        self._steps = steps
        self._run_id = run_id
        self._report: Report | None = report
        self._context = steps.context.copy()
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timed_out = False
        self._is_cut = False

    def _await(self, awaiting: Callable[[], Awaitable[object]]) -> None:
        self._task = self._steps.task(awaiting, self._run_id, self.call.name, self._context)
        self._task.add_done_callback(self._done, context=self._steps.context)

    def _done(self, task: asyncio.Task[Any]) -> None:
        del self._steps.tasks[task]
        try:
            ending = self._ending(task)
        except Exception as error:
            # Of the value's own code. Without an ending the turn would wait for ever.
            ending = Raised(error)
        self._end(ending)

    def _ending(self, task: asyncio.Task[Any]) -> Ending:
        # Read the error first: a task whose error nobody asked for complains when it is collected.
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if self._timed_out:
            return self._late()
        if error is not None:
            return GIVEN_BACK if self._is_cut else Raised(error)
        value = task.result()
        # By its type alone: `isinstance` asks the value for its class, and a dead proxy raises then.
        return Raised(value.error) if type(value) is _Exit else Returned(value)

    def _late(self) -> Raised:
        return Raised(TimeoutError(f"step {self.call.name!r} took longer than its timeout of {self.call.timeout}"))

    def _end(self, ending: Ending) -> None:
        self._disarm()
        report, self._report = self._report, None
        if report is not None:
            report(self.call, ending)

    def _end_soon(self, ending: Ending) -> None:
        self._steps.loop.call_soon(self._end, ending, context=self._steps.context)

    def _arm(self, expire: Callable[[], None], seconds: float) -> None:
        self._timer = self._steps.loop.call_later(seconds, expire, context=self._steps.context)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Coroutine(_Attempt):
    """An attempt on the loop, in a task of its own because its code may ask for the current task or set timeouts."""

    __slots__ = ()

    def __init__(self, steps: Steps, run_id: RunId, call: StepCall, report: Report) -> None:
        super().__init__(steps, run_id, call, report)
        self._await(call.invoke)
        if call.timeout is not None:
            self._arm(self._expire, call.timeout.total_seconds())

    def request_stop(self) -> None:
        if self._report is not None:
            self.call.stop_flag()
            if self.call.on_cancel == "abort":
                self._cancel()

    def cut(self) -> None:
        if self._report is not None:
            self._is_cut = True
            self._cancel()

    def drop(self) -> None:
        self._disarm()
        self._report = None
        self._cancel()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _expire(self) -> None:
        if self._task is not None and self._task.cancel():
            # Until it has cleaned up, the next attempt would run beside it.
            self._timed_out = True
            self._arm(self._give_up_waiting, _GRACE)

    def _give_up_waiting(self) -> None:
        logger.warning(
            "Step %r of run %r was cancelled at its timeout and has not ended %g s later; the run goes on without it.",
            self.call.name, self._run_id, _GRACE,
        )  # fmt: skip
        self._end(self._late())


class ThreadAttempt(_Attempt):
    """An attempt on a thread. Nothing can interrupt it: when its time is over it is no longer listened to."""

    __slots__ = ()

    def request_stop(self) -> None:
        if self._report is not None:
            self.call.stop_flag()
            if self.call.on_cancel == "abort":
                self._interrupt(Raised(asyncio.CancelledError()))

    def cut(self) -> None:
        if self._report is not None:
            self._is_cut = True
            self.call.stop_flag()
            if not self._interrupt(GIVEN_BACK):
                self._end_soon(GIVEN_BACK)

    def drop(self) -> None:
        self._disarm()
        self._report = None
        self.call.stop_flag()
        self._interrupt(GIVEN_BACK)

    def _interrupt(self, ending: Ending) -> bool:
        """End it if that can be done: before a thread took it, or while it awaits what the function returned."""
        if self._task is not None:
            return self._task.cancel()
        if self._steps.threads.withdraw(self):
            self._end_soon(ending)
            return True
        return False

    def started(self) -> None:
        # Only now its time begins: waiting for a thread is no fault of the step.
        if self.call.timeout is not None and self._report is not None:
            self._arm(self._expire, self.call.timeout.total_seconds())

    def work(self) -> object:
        return self._context.run(self.call.invoke)

    def returned(self, value: object) -> None:
        if not inspect.isawaitable(value):
            self._end(Returned(value))
        elif self._report is not None:
            self._await(lambda: value)
            self._close_unawaited(value)
        else:
            discard(value)

    def raised(self, error: BaseException) -> None:
        self._end(Raised(error))

    def _close_unawaited(self, value: object) -> None:
        """A task that is cancelled before it begins leaves its coroutine as it is; Python complains about those."""
        if self._task is not None:
            self._task.add_done_callback(lambda _: discard(value))

    def _expire(self) -> None:
        self._timed_out = True
        self.call.stop_flag()
        if self._task is not None:
            self._task.cancel()
        self._end(self._late())
