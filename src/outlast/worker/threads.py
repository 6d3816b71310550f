"""A bounded pool of threads for plain step functions.

The threads are daemons: a step that never returns must not keep the process from ending, which the standard library's
executor would let it do. All bookkeeping happens on the event loop, so a thread counts as busy from the moment it was given
a job until the loop has heard that it returned, whatever became of the attempt meanwhile. Held by
tests/unit/worker/test_steps.py.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol, TypeAlias


class Job(Protocol):
    """What a thread is to do. `work` runs on the thread, the rest on the event loop."""

    def started(self) -> None:
        """A thread takes the job now."""
        ...

    def work(self) -> object:
        """Do it."""
        ...

    def returned(self, value: object) -> None:
        """The work returned."""
        ...

    def raised(self, error: BaseException) -> None:
        """The work raised."""
        ...


Around: TypeAlias = "Callable[[Callable[[], object]], object]"


def called(work: Callable[[], object]) -> object:
    """Do a job with nothing around it."""
    return work()


_Inbox: TypeAlias = "SimpleQueue[Job | None]"


class Threads:
    """Run jobs, at most `most` at once, in the order they were given."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context,
        most: int,
        *,
        may_begin: Callable[[], bool] = lambda: True,
        around: Around = called,
    ) -> None:
        """While it may not, no job begins; when it may again, call `dispatch`."""
        self._loop = loop
        self._context = context
        self._most = most
        self._around = around
        self._may_begin = may_begin
        self._idle: list[_Inbox] = []
        self._all: list[_Inbox] = []
        self._waiting: deque[Job] = deque()

    @property
    def busy(self) -> int:
        """How many threads have not returned from their job."""
        return len(self._all) - len(self._idle)

    def run(self, job: Job) -> None:
        """Give a job to a thread, now or when one has returned."""
        self._waiting.append(job)
        try:
            self.dispatch()
        except RuntimeError as error:  # The system refuses another thread.
            if not self._all and self.withdraw(job):
                self._loop.call_soon(job.raised, error, context=self._context)

    def withdraw(self, job: Job) -> bool:
        """Take back a job that no thread has begun; False when one has."""
        try:
            self._waiting.remove(job)
        except ValueError:
            return False
        return True

    def close(self) -> None:
        """Let the threads end: idle ones now, busy ones after their job. Jobs that wait are dropped."""
        self._waiting.clear()
        for inbox in self._all:
            inbox.put(None)
        self._all.clear()
        self._idle.clear()

    def dispatch(self) -> None:
        """Give what waits to the threads that have nothing to do."""
        while self._waiting and (self._idle or len(self._all) < self._most) and self._may_begin():
            inbox = self._idle.pop() if self._idle else self._hire()
            job = self._waiting.popleft()
            inbox.put(job)
            job.started()

    def _hire(self) -> _Inbox:
        inbox: _Inbox = SimpleQueue()
        name = f"outlast-step-{len(self._all) + 1}"
        Thread(target=self._serve, args=(inbox,), name=name, daemon=True).start()
        self._all.append(inbox)
        return inbox

    def _serve(self, inbox: _Inbox) -> None:
        while (job := inbox.get()) is not None:
            try:
                report: Callable[[Any], None] = job.returned
                outcome: object = self._around(job.work)
            except BaseException as error:
                report, outcome = job.raised, error
            try:
                self._loop.call_soon_threadsafe(self._end, inbox, report, outcome, context=self._context)
            except RuntimeError:
                return  # The loop is closed: the worker is gone, and with it whoever would want the outcome.
            del job, report, outcome  # An idle thread must not keep the last step's values alive.

    def _end(self, inbox: _Inbox, report: Callable[[Any], None], outcome: object) -> None:
        if inbox in self._all:
            self._idle.append(inbox)
            self.dispatch()
        report(outcome)
