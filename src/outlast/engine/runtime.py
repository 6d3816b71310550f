"""The time of one run: it never goes back, and what the code sees of it is recorded."""

from __future__ import annotations

from collections.abc import Callable

from outlast.engine.replaying import Journal
from outlast.model.journal import Kind, Phase, Record


class RunTime:
    """Tell a run's time in microseconds. It began at `started_at`, and lived until `since` at least."""

    def __init__(self, now: Callable[[], int], journal: Journal, *, started_at: int, since: int) -> None:
        self._now = now
        self._journal = journal
        self._latest = since
        self._shown = started_at
        self._seen: int | None = None
        self.delivery: int = -1
        """The number of the last delivery."""

    def now(self) -> int:
        """Return the present, not recorded. It is never before anything that the run knows to have happened."""
        at = self._now()
        self._latest = max(self._latest, at)
        return self._latest

    def observe(self, at: int) -> None:
        """Learn that something happened at this time. A worker's clock may be behind the database's."""
        self._latest = max(self._latest, at)

    def begin_delivery(self) -> None:
        """Until the code comes to rest again, time stands still for it."""
        self._seen = None
        self.delivery += 1

    def seen(self) -> int:
        """Return the time as the code sees it: recorded, and one and the same between two deliveries.

        A look at the clock does nothing, so code may get or lose one: asyncio itself looks more often in some versions of
        Python than in others. Readings are told apart by the delivery they belong to, and one that is missing in the past
        is the time at which that delivery was recorded.
        """
        if self._seen is None:
            self._seen = self._shown = max(self._shown, self._reading(f"$now:{self.delivery}"))
        return self._seen

    def _reading(self, name: str) -> int:
        recorded = self._journal.readings.get(name)
        if recorded is not None:
            return self._read(recorded)
        if self._journal.is_behind:
            return self._journal.delivered_at
        at = self.now()
        self._journal.add(Kind.NOW, Phase.DONE, name, at=at, payload=str(at))
        return at

    def _read(self, record: Record) -> int:
        try:
            return int(record.payload or "")
        except ValueError as error:
            raise self._journal.unreadable(record, str(error)) from error
