"""Where `now` comes from. In production the database's own clock decides; a test may put a clock of its own in its place."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """A clock that replaces the database's everywhere: due times, deadlines, leases, what workflows see."""

    def now(self) -> int:
        """Return the present instant in microseconds since the epoch. It MUST never go back."""
        ...
