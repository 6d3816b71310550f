"""What a client may ask of the worker in its own process, if there is one. The two know each other only through this."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from outlast.model.ids import RunId
from outlast.ports.store import NewRun, Outcome, StartOutcome


class LocalWorker(Protocol):
    """The worker of this process. Its methods are called on its own event loop, but for `wake`."""

    def offer(self, run: NewRun) -> Awaitable[StartOutcome | None] | None:
        """Start a run that is leased to this worker from the first moment, in its next flush.

        None when it has no free slot, does not register the workflow, is stopping, or runs on another loop: start it by
        the store then; also when the answer is None, since another transaction was in the way. An id that is taken comes
        back with `created` False and nothing written.
        """
        ...

    def watch(self, run_id: RunId) -> asyncio.Future[Outcome]:
        """Return a future that is set when this process records the run's end. It may never be: poll beside it, and
        cancel it when it is no longer wanted."""
        ...

    def holds(self, run_id: RunId) -> bool:
        """Say whether the run has a turn here now: then nobody else records its end, and `watch` tells."""
        ...

    def wake(self) -> None:
        """Look for due runs now. Safe from any thread."""
        ...

    def stop_requested(self, run_id: RunId) -> None:
        """Look for stop requests of this run now, if it runs here."""
        ...
