"""A clock that stands still until a test moves it."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from outlast.errors import InvalidArgument
from outlast.model.durations import Duration, parse_duration
from outlast.model.times import to_datetime, to_instant


class ManualClock:
    """Give a test the say over time: deadlines, retries, sleeps and leases, on every store.

    Pass it as `Outlast(clock=...)`. It never moves by itself and never goes back. The timeouts of a step's attempt and of
    `result(timeout=...)` are about this process, not about the run, and stay real time. Safe from any thread.

    >>> from outlast.testing import ManualClock
    >>> clock = ManualClock()
    >>> clock.advance("1h30m")
    datetime.datetime(2026, 1, 1, 1, 30, tzinfo=datetime.timezone.utc)

    Versionadded: 0.1
    """

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._lock = threading.Lock()
        self._at = to_instant(start, what="ManualClock(start)")

    def __repr__(self) -> str:
        return f"ManualClock({self.time.isoformat()})"

    def now(self) -> int:
        """Return the present instant in microseconds since the epoch."""
        return self._at

    @property
    def time(self) -> datetime:
        """The present instant as an aware UTC datetime."""
        return to_datetime(self._at)

    def advance(self, duration: Duration) -> datetime:
        """Move forward by a duration, such as "3d" or `timedelta(hours=1)`, and return the new time."""
        step = parse_duration(duration, what="ManualClock.advance(...)") // timedelta(microseconds=1)
        with self._lock:
            self._at += step
            return to_datetime(self._at)

    def set(self, at: datetime) -> datetime:
        """Move forward to an aware datetime and return it in UTC. One in the past is refused: time does not go back."""
        target = to_instant(at, what="ManualClock.set(...)")
        with self._lock:
            if target < self._at:
                raise InvalidArgument(f"A clock never goes back: it is {to_datetime(self._at)}, after {at}.")
            self._at = target
            return to_datetime(target)
