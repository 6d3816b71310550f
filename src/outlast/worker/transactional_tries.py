"""How often, and for how long, an attempt begins its transaction anew when others were in its way."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Final

FIRST_PAUSE: Final = 0.01
LONGEST_PAUSE: Final = 2.0
PATIENCE: Final = 60.0
"""Seconds since the first conflict after which an attempt without a timeout has failed."""


class Tries:
    """The tries of one attempt. Times are the loop's, in seconds."""

    __slots__ = ("_longest", "_timeout", "_until", "conflicts")

    def __init__(self, timeout: timedelta | None) -> None:
        """`timeout` is the step's: it is for all tries together."""
        self.conflicts: int = 0
        self._longest = FIRST_PAUSE
        self._timeout = timeout
        self._until: float | None = None

    def left(self, now: float) -> float | None:
        """Return how much of the timeout is left, which began when this was first asked; None without one."""
        if self._timeout is None:
            return None
        if self._until is None:
            self._until = now + self._timeout.total_seconds()
        return max(self._until - now, 0.0)

    def next_pause(self, now: float) -> float | None:
        """Return how long to wait before the next try; None when there was enough of them.

        At random, so that those who met do not meet again, and ever longer: then fewer of many are at it.
        """
        if self._timeout is None:
            if self._until is None:
                self._until = now + PATIENCE
            if now >= self._until:
                return None
        self.conflicts += 1
        longest, self._longest = self._longest, min(2 * self._longest, LONGEST_PAUSE)
        return random.uniform(0.0, longest)
