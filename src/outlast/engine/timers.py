"""Deadlines: sleeps, timers that asyncio sets, and the heap in which they wait."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Final, Generic, Protocol, TypeVar

from outlast.engine.eventloop import WorkflowLoop
from outlast.engine.replaying import Journal
from outlast.engine.runtime import RunTime
from outlast.errors import InvalidDuration
from outlast.model.durations import LONGEST
from outlast.model.journal import Kind, Phase, Record

LATEST: Final = 253_402_300_799_000_000
"""The end of the year 9999, after which neither Python nor the databases have dates."""


_order: Final = count()
"""Of several that are due at one time the first added is first. One for all runs: it would be an object of each."""


class Dated(Protocol):
    """Something that waits for a time."""

    @property
    def is_live(self) -> bool:
        """False once nobody waits for it."""
        ...


D = TypeVar("D", bound=Dated)


class Deadlines(Generic[D]):
    """What waits for a time, the earliest first. What is dropped meanwhile is skipped."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, D]] = []

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, due: int, item: D) -> None:
        heappush(self._heap, (due, next(_order), item))

    def earliest(self) -> tuple[int, D] | None:
        while self._heap and not self._heap[0][2].is_live:
            heappop(self._heap)
        return (self._heap[0][0], self._heap[0][2]) if self._heap else None

    def pop(self) -> None:
        heappop(self._heap)


class Timer:
    """A sleep, or a timer that asyncio set. `fire` tells the code."""

    __slots__ = ("fire", "is_live", "kind", "name")

    def __init__(self, kind: Kind, name: str, fire: Callable[[], object]) -> None:
        self.kind: Kind = kind
        self.name: str = name
        self.fire: Callable[[], object] = fire
        self.is_live: bool = True

    def answer(self, record: Record) -> bool:  # noqa: ARG002  the record says no more than that the time has come
        was_live, self.is_live = self.is_live, False
        if was_live:
            self.fire()
        return was_live

    def drop(self) -> None:
        """Nobody waits for it any more. What it would have told is let go of: it names the timers, and they name it."""
        self.is_live = False
        self.fire = _nobody


class Timers:
    """The sleeps and timers of one run."""

    def __init__(self, journal: Journal, time: RunTime, loop: WorkflowLoop) -> None:
        self._journal = journal
        self._time = time
        self._loop = loop
        self._deadlines: Deadlines[Timer] = Deadlines()
        self._count = 0
        self._handles: dict[int, tuple[asyncio.TimerHandle, Timer]] = {}

    def ask_sleep(self, name: str, *, delay: int | None, until: int | None) -> asyncio.Future[None]:
        """Wait for so many microseconds, or until an instant."""
        future: asyncio.Future[None] = self._loop.create_future()
        timer = Timer(Kind.SLEEP, name, lambda: _wake(future))
        self._open(timer, until=until, delay=delay)
        return future

    def start_timer(self, handle: asyncio.TimerHandle, delay: float | None) -> None:
        """Make a handle ready after so many seconds, or at the time of its `when`."""
        seconds = handle.when() if delay is None else delay
        if not math.isfinite(seconds) or (delay is not None and delay > LONGEST.total_seconds()):
            raise InvalidDuration(f"A timer can be set for at most 100 years; {seconds!r} s is not such a time.")

        def fire() -> None:
            del self._handles[id(handle)]
            self._loop.make_ready(handle)

        timer = Timer(Kind.TIMER, f"$timer:{self._count}", fire)
        if delay is None:
            self._open(timer, until=round(seconds * 1e6))
        else:
            self._open(timer, delay=math.ceil(delay * 1e6))
        self._count += 1
        self._handles[id(handle)] = (handle, timer)

    def drop_timer(self, handle: asyncio.TimerHandle) -> None:
        """The handle is not to run any more."""
        _, timer = self._handles.pop(id(handle), (None, None))
        if timer is not None:
            timer.drop()

    def drop(self) -> None:
        """None of them is to tell the code any more."""
        for _, timer in self._handles.values():
            timer.drop()

    @property
    def has_live(self) -> bool:
        """Whether the code waits for any of them."""
        return bool(self._deadlines) and self._deadlines.earliest() is not None

    @property
    def next_due(self) -> int | None:
        """When the next of them is due."""
        earliest = self._deadlines.earliest()
        return None if earliest is None else earliest[0]

    def fire_next(self) -> bool:
        """Record that the time of the next one has come, and tell the code."""
        earliest = self._deadlines.earliest()
        assert earliest is not None
        _, timer = earliest
        self._deadlines.pop()
        self._journal.add(timer.kind, Phase.DONE, timer.name, at=self._time.now())
        self._journal.answered(timer.name)
        timer.is_live = False
        timer.fire()
        return True

    def _open(self, timer: Timer, *, until: int | None = None, delay: int | None = None) -> None:
        recorded = self._journal.look_up_reached(timer.kind, timer.name)
        if recorded is None:
            now = self._time.now()
            due = min(until if until is not None else now + (delay or 0), LATEST)
            self._journal.add(timer.kind, Phase.OPEN, timer.name, at=now, due_at=due)
        else:
            due = recorded.first.due_at or 0
        self._journal.expect(timer.name, timer)
        if recorded is None or recorded.final is None:
            self._deadlines.add(due, timer)


def _nobody() -> None:
    """Stands for the code that does not wait any more."""


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
