"""Runs that nobody gets on with: held ones are tried when a worker begins, which may have the code they wait for; and of
those whose workflow no worker has somebody is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Final

from outlast.errors import DatabaseUnavailable
from outlast.model.durations import format_duration
from outlast.ports.store import Unclaimed
from outlast.worker.workplace import LONGEST_HOLD, Workplace

logger: Final = logging.getLogger("outlast.worker")

_PATIENCE: Final = 5.0
_PAUSE: Final = 1.0
"""Seconds between two groups of held runs, each as large as there are free slots."""

FIRST_LOOK: Final = 10.0
"""Seconds from the start to the first look for runs that nobody takes. Another process, which has their workflow, may be
about to start too; but a workflow that was forgotten or is misspelt is told while somebody looks on."""

LOOK_EVERY: Final = 300.0
"""Seconds between two such looks. A run is told of when it has been due since the look before: in the midst of work another
process may have much to do."""


class Neglected:
    """A worker's care for such runs, from its start to its stop."""

    def __init__(self, place: Workplace, free: Callable[[], int]) -> None:
        """`free` tells how many more runs may begin."""
        self._place = place
        self._free = free
        self._workflows = tuple(place.workflows)

    async def run(self) -> None:
        """Try held runs, then look now and then for others that nobody takes."""
        await self._surviving(self.retry_held)
        pause = FIRST_LOOK
        while not self._place.is_stopping:
            await asyncio.sleep(pause)
            await self._surviving(partial(self.tell_of_unclaimed, timedelta(seconds=pause)))
            pause = LOOK_EVERY

    async def retry_held(self) -> None:
        """Have the held runs tried that were not tried since now, as many at once as there are free slots.

        So each of them is tried once for each worker that starts, and by the one that started: the others are not told.
        """
        place, store, since = self._place, self._place.database.store, self._place.time.now()
        while not place.is_stopping:
            limit = self._free()
            if limit > 0:
                retried = await place.database.run(
                    lambda: store.retry_held(self._workflows, before=since, within=LONGEST_HOLD, limit=limit),  # noqa: B023
                    patience=_PATIENCE,
                )
                if not retried:
                    return
                place.look()
            await asyncio.sleep(_PAUSE)

    async def tell_of_unclaimed(self, overdue: timedelta) -> None:
        """Warn of each workflow that has runs which have been due for so long."""
        store, overdue_us = self._place.database.store, overdue // timedelta(microseconds=1)
        found = await self._place.database.run(
            lambda: store.unclaimed(self._workflows, overdue=overdue_us), patience=_PATIENCE
        )
        for each in found:
            self._warn(each, overdue)

    def _warn(self, unclaimed: Unclaimed, overdue: timedelta) -> None:
        known = ", ".join(f"{name} version {version}" for name, version in self._workflows) or "none"
        logger.warning(
            "At least %d runs of workflow %r version %d have been due for over %s, and no worker takes them: it is "
            "not registered here (registered: %s), and no other worker has one of them. Add it to Outlast(workflows=[...]) "
            "of a worker; or look at them with app.list(workflow=%r, version=%d), and terminate them.",
            unclaimed.runs, unclaimed.workflow, unclaimed.version, format_duration(overdue), known, unclaimed.workflow,
            unclaimed.version,
        )  # fmt: skip

    async def _surviving(self, care: Callable[[], Awaitable[None]]) -> None:
        try:
            await care()
        except DatabaseUnavailable as error:
            logger.debug("Runs that nobody gets on with were not looked at: %s", error)
        except Exception:
            logger.exception("Runs that nobody gets on with could not be looked at.")
