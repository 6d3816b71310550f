"""How many runs may be claimed ahead: before there are free slots for them.

Where turns are over in no time (timers, signals, runs of short steps) all slots would be empty while a claim is on its way
to the database and back. So the next runs are asked for meanwhile, as many as should find a slot by the time they are here,
going by how many runs left theirs a moment ago. Where runs stay, nobody leaves, and nothing is claimed ahead that other
workers could begin now.
"""

from __future__ import annotations

from math import exp
from typing import Final

_MOMENT: Final = 0.02
"""Seconds after which a slot that became free counts for a third (1/e): a claim and its runs take less."""

_SHARE: Final = 0.5
"""Of those that left in about a moment, the share that will leave while a claim is under way."""

_FEWEST: Final = 16
"""Whoever gives a worker fewer slots means them: it may share a resource with others, or its runs are long."""

_SOBER: Final = 10.0
"""Seconds without claiming ahead, after runs that were waited in vain for a slot."""


class Turnover:
    """Count the slots that become free. Times are seconds of a monotonic clock."""

    __slots__ = ("_at", "_level", "_most", "_not_before")

    def __init__(self, concurrency: int) -> None:
        self._most = concurrency if concurrency >= _FEWEST else 0
        self._level = 0.0
        self._at = 0.0
        self._not_before = 0.0

    def left(self, now: float) -> None:
        """A run has left its slot."""
        self._level = self._decayed(now) + 1
        self._at = now

    def disappointed(self, now: float) -> None:
        """Runs that were claimed ahead found no slot for long."""
        self._not_before = now + _SOBER

    def ahead(self, now: float) -> int:
        """Return how many runs may be claimed beyond the free slots."""
        return min(self._most, int(self._decayed(now) * _SHARE)) if now >= self._not_before else 0

    def _decayed(self, now: float) -> float:
        return self._level * exp((self._at - now) / _MOMENT) if self._level else 0.0
