"""Claimed runs on their way to their turns: begun in the order of the claim, as slots allow.

Runs may be claimed ahead of free slots, as `turnover` tells; those that find none soon are given up, so that others may have
them.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final, Protocol

from outlast.model.ids import RunId
from outlast.ports.store import ClaimedRun
from outlast.worker.drivable import Drivable
from outlast.worker.flusher import Flusher
from outlast.worker.workplace import Workplace

_LONGEST_WAIT: Final = 0.2
"""Seconds that runs wait for a slot before they are given up."""

_SLICE: Final = 0.001
"""Seconds in which runs are begun before the loop serves others: a replay may be long, and the next claim has to pass."""

_TOGETHER: Final = 0.01
"""Seconds in which runs are begun before what they have to write goes out, all of it in one batch."""


class Host(Protocol):
    """Who has the slots and gives the turns. All of it is called from plain callbacks of the loop."""

    @property
    def slots(self) -> int:
        """How many runs may begin."""
        ...

    def begin(self, run: ClaimedRun, kept: Drivable | None) -> None:
        """Begin the run's turn, with the execution that was kept in memory."""
        ...

    def give_up(self, runs: list[ClaimedRun]) -> None:
        """Have others take these: they found no slot."""
        ...


class Beginning:
    """A queue of claimed runs that empties itself."""

    def __init__(self, host: Host, place: Workplace, flusher: Flusher) -> None:
        self._host = host
        self._place = place
        self._flusher = flusher
        self._queue: deque[tuple[ClaimedRun, Drivable | None]] = deque()
        self._is_due = False
        self._since: float | None = None
        self._impatience: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[RunId]:
        return (run.id for run, _ in self._queue)

    def add(self, runs: Iterable[ClaimedRun]) -> None:
        """Put runs at the end."""
        for run in runs:
            # Taken from memory now, before others that park meanwhile push it out. Held by
            # tests/unit/worker/test_claiming.py.
            kept = self._place.parked.take(run.id) if run.records is None else None
            self._queue.append((run, kept))
        self.go_on()

    def go_on(self) -> None:
        """Begin what can begin, in the next pass of the loop: slots have become free, or the worker stops."""
        if self._queue and not self._is_due:
            self._is_due = True
            self._place.loop.call_soon(self._begin, context=self._place.context)

    def forget(self) -> None:
        """Let go of all of them; whoever calls sees to it that they are handed back."""
        if self._impatience is not None:
            self._impatience.cancel()
            self._impatience = None
        while self._queue:
            _, kept = self._queue.popleft()
            if kept is not None:
                kept.close()

    def _begin(self) -> None:
        self._is_due = False
        if self._place.is_stopping:
            self.forget()  # Retiring hands them back.
            self._place.slot_freed()
        if self._since is None:
            self._since = time.monotonic()
            self._flusher.hold()
        is_cut = False
        try:
            is_cut = self._begin_slice(self._since + _TOGETHER)
        finally:
            if not is_cut:
                self._since = None
                self._flusher.release()
        if self._host.slots > 0:
            self.go_on()
        elif self._queue and self._impatience is None:
            self._impatience = self._place.call_later(_LONGEST_WAIT, partial(self._waited, self._queue[0][0]))

    def _begin_slice(self, together: float) -> bool:
        """Begin a few; return whether more can begin that should write in the same batch."""
        until = time.monotonic() + _SLICE
        while self._queue and self._host.slots > 0:
            self._host.begin(*self._queue.popleft())
            if time.monotonic() > until:
                return time.monotonic() < together and bool(self._queue) and self._host.slots > 0
        return False

    def _waited(self, first: ClaimedRun) -> None:
        self._impatience = None
        if self._queue and self._queue[0][0] is first and not self._is_due:
            runs = [run for run, _ in self._queue]
            self.forget()
            self._host.give_up(runs)
        else:
            self.go_on()
