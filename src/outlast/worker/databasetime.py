"""The database's time, told by this process's monotonic clock between two of its answers."""

from __future__ import annotations

from time import monotonic_ns
from typing import Final

from outlast.ports.clock import Clock

_QUICK: Final = 50_000
"""Microseconds within which an answer counts as quick."""

_CLOCK_WAS_SET: Final = 1_000_000
"""A step back that is larger than this is the database's clock having been set, not an answer having been slow."""

_TEST_CLOCK_LOOK: Final = 0.02
"""Seconds between two looks at a test clock, which does not say when it is moved."""


def monotonic() -> int:
    """Return this process's monotonic clock in microseconds."""
    return monotonic_ns() // 1000


class DatabaseTime:
    """Tell the database's time without asking it. Never ahead of the database, so that what is due here is due there.

    An answer that carried the time `t` and was received at monotonic time `m` proves that at `m` the database's clock
    showed `t` or later. The largest such difference is the best known; a quick answer may also lower it, which follows two
    clocks that drift apart and a database's clock that was set back. With a test clock all of this is that clock.
    """

    __slots__ = ("_clock", "_last", "_offset")

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        self._offset: int | None = None
        self._last = 0

    @property
    def is_manual(self) -> bool:
        """True when a test clock stands in for the database's."""
        return self._clock is not None

    def observe(self, database_now: int, *, sent: int, received: int) -> None:
        """Learn from an answer: the time it carried, and when it was asked for and received (`monotonic`)."""
        offset = database_now - received
        if self._offset is None or offset > self._offset or received - sent <= _QUICK:
            self._offset = offset

    def now(self) -> int:
        """Return the database's time in microseconds; before the first answer 0, when nothing is due yet."""
        if self._clock is not None:
            return self._clock.now()
        if self._offset is None:
            return 0
        at = monotonic_ns() // 1000 + self._offset  # often called: not by way of `monotonic`
        if at < self._last < at + _CLOCK_WAS_SET:
            return self._last
        self._last = at
        return at

    def seconds_until(self, at: int) -> float:
        """Return how long to wait, in real seconds, until it may be `at`; 0 when it is already."""
        left = at - self.now()
        if left <= 0:
            return 0.0
        return _TEST_CLOCK_LOOK if self._clock is not None else left / 1_000_000
