"""The time of one run: it never goes back, and what the code sees of it is recorded."""

from __future__ import annotations

from collections.abc import Callable

from outlast.engine.replaying import Journal
from outlast.model.journal import Kind, Phase, Record


class RunTime:
    """Tell a run's time in microseconds."""

    def __init__(self, now: Callable[[], int], journal: Journal, since: int) -> None:
        self._now = now
        self._journal = journal
        self._latest = since
        self._seen: int | None = None
        self._count = 0

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

    def seen(self) -> int:
        """Return the time as the code sees it: recorded, and one and the same between two deliveries."""
        if self._seen is None:
            name = f"$now:{self._count}"
            recorded = self._journal.look_up_reached(Kind.NOW, name)
            self._count += 1
            if recorded is None:
                self._seen = at = self.now()
                self._journal.add(Kind.NOW, Phase.DONE, name, at=at, payload=str(at))
            else:
                self._seen = self._read(recorded.first)
                self.observe(self._seen)
        return self._seen

    def _read(self, record: Record) -> int:
        try:
            return int(record.payload or "")
        except ValueError as error:
            raise self._journal.unreadable(record, str(error)) from error
