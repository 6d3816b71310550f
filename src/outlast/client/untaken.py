"""A word in the log for who waits in silence for a run that no worker takes."""

from __future__ import annotations

import logging
import time
from typing import Final

from outlast.model.ids import RunId
from outlast.model.run import Status
from outlast.ports.store import Outcome

logger: Final = logging.getLogger("outlast.client")

PATIENCE: Final = 10.0
"""Seconds of waiting before the word: by then a worker that is there and has room has taken the run."""
QUIET: Final = 60.0
"""Seconds between two words, whoever waits: where workers are behind, all waiting callers could say the same."""


class Untaken:
    """Tells of runs that are waited for and not taken. One for each app; safe from any thread."""

    def __init__(self) -> None:
        self._quiet_until = 0.0

    def look(self, run_id: RunId, outcome: Outcome, waited: float) -> None:
        """Say it when the run is still pending after so many seconds of waiting."""
        if waited < PATIENCE or outcome.status is not Status.PENDING or time.monotonic() < self._quiet_until:
            return
        self._quiet_until = time.monotonic() + QUIET
        logger.warning(
            "No worker has taken run %r yet, whose result has been awaited for %d s: is one running that registers its "
            "workflow, %r version %d?",
            run_id, waited, outcome.workflow, outcome.version,
        )  # fmt: skip
