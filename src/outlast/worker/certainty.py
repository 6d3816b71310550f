"""Whether this worker's lease surely holds at this moment, by its own clock.

A process that was stopped and goes on (a suspended machine, SIGSTOP) finds answers waiting in its sockets, and would begin
the next step before it hears that its lease is over. So whoever is about to begin something looks here first, and waits for
the next renewal when the lease may be over. Held by tests/unit/worker/test_certainty.py and, with processes that are paused,
tests/crash/test_processes_paused.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic_ns


class Certainty:
    """Until when the lease surely holds: as long as a lease lasts, from when the last renewal was asked for."""

    def __init__(self, *, is_needed: bool = True) -> None:
        """Where a test clock decides about leases it is not needed."""
        self._until = 0 if is_needed else None
        self._waiting: set[asyncio.Future[None]] = set()
        self.tell: Callable[[], None] = _nobody
        """Called when it is given again."""

    @property
    def is_given(self) -> bool:
        """True when the lease holds, whatever became of this process a moment ago."""
        return self._until is None or monotonic_ns() // 1000 < self._until

    def extend(self, until: int) -> None:
        """The lease was renewed: it holds until then by the monotonic clock, in microseconds. On the worker's loop."""
        if self._until is None or until <= self._until:
            return
        self._until = until
        for change in self._waiting:
            if not change.done():
                change.set_result(None)
        self.tell()

    async def given(self) -> None:
        """Return when it is given. On the worker's loop."""
        while not self.is_given:
            change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(change)
            try:
                await change
            finally:
                self._waiting.discard(change)


def _nobody() -> None:
    """Nobody wants to know."""
