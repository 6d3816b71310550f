"""The threads that the code of plain workflows runs on, so that it may compute or block without holding up the loop.

A run's code stands still in a greenlet while the run waits, and a greenlet belongs to the thread that began it. So each
execution keeps to one thread from its first turn on, whose other executions wait meanwhile; a run that waits holds none.
The threads are daemons, as those of steps are: code that never returns must not keep the process from ending.
Held by tests/unit/worker/test_bodies.py and tests/e2e/test_plain_threads.py.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import ctypes
import logging
import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread, current_thread
from time import monotonic
from typing import Final, Protocol

from outlast.engine.decision import Finished, Held, Progress, StepCall
from outlast.model.journal import Record
from outlast.model.run import Stop
from outlast.model.signal import StoredSignal
from outlast.worker.drivable import Drivable

logger: Final = logging.getLogger("outlast.worker")

_MOST: Final = 4
"""Threads of one worker. Code that computes gains nothing by more of them; with one, code that blocks would hold up all
other plain workflows."""


_GRACE: Final = 1.0
"""Seconds in which code that still runs has to end when the process does."""


class _ProcessEnds(KeyboardInterrupt):
    """Raised in code that still runs when the process ends. Of this base, because no task keeps it as its outcome."""


class Drive:
    """One passage of a run's code on its thread, from one rest to the next."""

    __slots__ = ("_then", "is_wanted")

    def __init__(self, then: Callable[[Drive, Progress | BaseException], None]) -> None:
        """`then` is told what came of it, from a plain callback of the loop."""
        self._then = then
        self.is_wanted: bool = True
        """False when nobody listens any more: then code that has not begun does not begin."""

    def ended(self, outcome: Progress | BaseException | None) -> None:
        """Tell what came of it. On the loop."""
        if self.is_wanted and outcome is not None:
            self._then(self, outcome)


class Driven(Drivable, Protocol):
    """What is driven on a thread. `run` is not called on the loop; while a drive is under way nothing is, but `close`
    and `recorded_meanwhile`."""

    def drive(self, drive: Drive, /) -> None:
        """Have the code go on. Raises RuntimeError when the system gives no thread."""
        ...

    def recorded_meanwhile(self) -> tuple[Record, ...]:
        """Return what is recorded by now of what the drive will answer."""
        ...


class Recording(Drivable, Protocol):
    """The engine's `Execution`."""

    def recorded_meanwhile(self) -> tuple[Record, ...]: ...


class Bodies:
    """The threads of one worker, begun when a plain workflow needs one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, context: contextvars.Context, *, most: int = _MOST) -> None:
        self.loop = loop
        self.context = context
        self._most = most
        self._threads: list[BodyThread] = []

    def thread(self) -> BodyThread:
        """Return the thread for an execution that has none yet: the one with the least to do."""
        least = min(self._threads, key=_busy, default=None)
        if least is not None and (not least.busy or len(self._threads) >= self._most):
            return least
        try:
            made = BodyThread(self.loop, self.context, f"outlast-workflow-{len(self._threads) + 1}")
        except RuntimeError:  # The system refuses another thread.
            if least is None:
                raise
            return least
        self._threads.append(made)
        return made

    async def end(self, seconds: float) -> None:
        """Let the threads end after what they were given. Those that run no code are waited for, `seconds` at most."""
        threads, self._threads = self._threads, []
        for thread in threads:
            thread.end()
        ending = [thread.ended for thread in threads if not thread.busy]
        if ending:
            await asyncio.wait(ending, timeout=seconds)


class BodyThread:
    """A thread, and what it is given in this order."""

    def __init__(self, loop: asyncio.AbstractEventLoop, context: contextvars.Context, name: str) -> None:
        self.busy: int = 0
        """Drives that have not come back."""
        self.ended: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._context = context
        self._inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = Thread(target=context.copy().run, args=(self._serve,), name=name, daemon=True)
        self._thread.start()

    def drive(self, drive: Drive, run: Callable[[], Progress], returned: Callable[[Progress], None]) -> None:
        """Call `run` here; then, on the loop, `returned` with what it returned, and end the drive."""
        self.busy += 1
        self._inbox.put(partial(self._drive, drive, run, returned))

    def give(self, job: Callable[[], None]) -> None:
        """Do this too, and tell nobody."""
        self._inbox.put(job)

    def end(self) -> None:
        """End after what was given until now."""
        self._inbox.put(None)

    def _serve(self) -> None:
        while (job := self._inbox.get()) is not None:
            try:
                job()
            except _ProcessEnds:
                return
            except BaseException:
                logger.exception("What a workflow left could not be put away.")
            del job  # An idle thread must not keep the last run alive.
        self._tell(self._ended)

    def _drive(self, drive: Drive, run: Callable[[], Progress], returned: Callable[[Progress], None]) -> None:
        outcome: Progress | BaseException | None = None
        if drive.is_wanted:
            thread = current_thread()
            _at_work.add(thread)
            try:
                outcome = run()
            except BaseException as error:
                outcome = error
            _at_work.discard(thread)
            if _ending:
                raise _ProcessEnds  # What the code made of that is no outcome.
        self._tell(self._driven, drive, outcome, returned)

    def _driven(
        self, drive: Drive, outcome: Progress | BaseException | None, returned: Callable[[Progress], None]
    ) -> None:
        self.busy -= 1
        if isinstance(outcome, Progress):
            returned(outcome)
        drive.ended(outcome)

    def _ended(self) -> None:
        self._thread.join()  # That was its last word.
        if not self.ended.done():
            self.ended.set_result(None)

    def _tell(self, hear: Callable[..., None], *facts: object) -> None:
        with suppress(RuntimeError):  # The loop is closed: the worker is gone, and with it whoever would want to know.
            self._loop.call_soon_threadsafe(hear, *facts, context=self._context)


class Body:
    """The execution of a plain workflow, which runs on a thread and is told of what happened on the loop."""

    __slots__ = ("_bodies", "_execution", "_is_closed", "_thread")

    def __init__(self, execution: Recording, bodies: Bodies) -> None:
        self._execution = execution
        self._bodies = bodies
        self._thread: BodyThread | None = None
        self._is_closed = False

    def drive(self, drive: Drive) -> None:
        if self._thread is None:
            self._thread = self._bodies.thread()
        self._thread.drive(drive, self._execution.run, self._returned)

    def recorded_meanwhile(self) -> tuple[Record, ...]:
        return self._execution.recorded_meanwhile()

    def _returned(self, progress: Progress) -> None:
        # An execution that is over has closed itself, there.
        self._is_closed = isinstance(progress.state, (Finished, Held))

    def close(self) -> None:
        """Drop the code where it stands: on its thread, after what that is doing."""
        if self._thread is None:
            self._execution.close()
        elif not self._is_closed:
            self._is_closed = True
            self._thread.give(self._execution.close)

    # What the execution is told, while its code is at rest.

    def resume(
        self,
        *,
        signals: Sequence[StoredSignal] = (),
        topics: Collection[str] | None = None,
        read_at: int | None = None,
        stop: Stop | None = None,
        lapses: int = 0,
    ) -> None:
        self._execution.resume(signals=signals, topics=topics, read_at=read_at, stop=stop, lapses=lapses)

    def run(self) -> Progress:
        return self._execution.run()

    def step_returned(self, call: StepCall, value: object) -> None:
        self._execution.step_returned(call, value)

    def step_raised(self, call: StepCall, error: BaseException) -> None:
        self._execution.step_raised(call, error)

    def step_settled(self, call: StepCall, value: object) -> Record:
        return self._execution.step_settled(call, value)

    def step_recorded(self, call: StepCall) -> None:
        self._execution.step_recorded(call)

    def step_given_back(self, call: StepCall) -> None:
        self._execution.step_given_back(call)

    def request_stop(self, stop: Stop) -> None:
        self._execution.request_stop(stop)


def _busy(thread: BodyThread) -> int:
    return thread.busy


_at_work: Final[set[Thread]] = set()
"""The threads of this process on which code runs at this moment."""

_ending: Final[list[Thread]] = []
"""Those of them that were told to end."""


@atexit.register
def _end_code() -> None:
    """End the code that still runs, if Python can.

    A daemon thread that asks for the interpreter afterwards is ended by the unwinding of its stack (Python 3.14 lets it hang
    instead), and what greenlet has there does not bear that: the process would end with a segmentation fault.
    """
    _ending.extend(_at_work)
    for thread in _ending:
        ident = ctypes.c_ulong(thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(_ProcessEnds))
    until = monotonic() + _GRACE
    for thread in _ending:
        thread.join(max(0.0, until - monotonic()))


os.register_at_fork(after_in_child=_at_work.clear)  # They are threads of the parent.
