"""The look for due runs: when to look, and how many to take.

A look is due at once when somebody says that there may be work, when a parked run is due, and otherwise after the poll
interval. What is said during a look is remembered: the next one follows at once. One that passed runs by is soon repeated.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final

from outlast.errors import DatabaseUnavailable, LeaseLost
from outlast.ports.store import Claim, ClaimRequest
from outlast.worker.databasetime import monotonic
from outlast.worker.tenure import Tenure
from outlast.worker.workplace import Workplace

logger: Final = logging.getLogger("outlast.worker")

_PATIENCE: Final = 5.0
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0

_AGAIN: Final = 0.005
"""Seconds to the next look after one that passed runs by since others had locked them; each time twice as many, up to the
poll."""

_LULL: Final = 0.004
"""Seconds a look waits, when all slots were taken and more runs are due, for further slots to become free."""


class Claims:
    """Take due runs for a tenure, one claim at a time."""

    def __init__(self, place: Workplace) -> None:
        self._place = place
        self._workflows = tuple(place.workflows)
        self._lock = asyncio.Lock()
        self.passed_by: bool = False
        """The last claim left runs that others had locked."""

    @property
    def is_claiming(self) -> bool:
        """True while runs may be on their way here."""
        return self._lock.locked()

    async def claim(self, tenure: Tenure, limit: int) -> int:
        """Claim once and have the turns begun; return how many. Raises LeaseLost and DatabaseUnavailable."""
        async with self._lock:
            if tenure.owns_strays:
                await self._hand_back_strays(tenure)
            if tenure.given_up:
                await self._give_back(tenure)
            if limit <= 0 or not self._workflows:
                return 0
            with self._place.parked.kept():
                claim = await self._ask(tenure, limit)
                if tenure.is_over or self._place.is_stopping:
                    return 0  # They are handed back with everything else.
                tenure.take(claim.runs)
            self.passed_by = claim.passed_by
            if claim.next_due is not None:
                self._place.look_at(claim.next_due)
            return len(claim.runs)

    async def _ask(self, tenure: Tenure, limit: int) -> Claim:
        place, store = self._place, self._place.database.store
        request = ClaimRequest(tenure.lease, limit, self._workflows, place.parked.turns)
        sent = monotonic()
        try:
            claim = await place.database.run(lambda: store.claim(request), repeatable=False, patience=_PATIENCE)
        except BaseException:
            # Whether the claim took effect is not known, not even after a cancellation. Held by
            # tests/e2e/test_worker_outages.py.
            tenure.owns_strays = True
            raise
        place.time.observe(claim.now, sent=sent, received=monotonic())
        return claim

    async def _hand_back_strays(self, tenure: Tenure) -> None:
        """While the flag is set no start begins here, so that all that is owned and has a place is listed."""
        store, lease, held = self._place.database.store, tenure.lease, tenure.held
        await self._place.database.run(lambda: store.disown(lease, held), patience=_PATIENCE)
        tenure.owns_strays = False

    async def _give_back(self, tenure: Tenure) -> None:
        """What others have locked meanwhile is given back with a later claim: nothing else waits for that."""
        store, lease, run_ids = self._place.database.store, tenure.lease, frozenset(tenure.given_up)
        given = await self._place.database.run(lambda: store.give_back(lease, run_ids), patience=_PATIENCE)
        tenure.given_up.difference_update(given)


class Looking:
    """The loop that looks, from the worker's start to its stop. Survives every error, with growing pauses."""

    def __init__(
        self, place: Workplace, claims: Claims, tenure: Callable[[], Awaitable[Tenure]], *, poll: float
    ) -> None:
        self._place = place
        self._claims = claims
        self._tenure = tenure
        self._poll = poll
        self._enough = max(1, place.concurrency // 4)
        self._woken: asyncio.Future[None] | None = None
        self._due_at = 0
        self._due: asyncio.TimerHandle | None = None
        self._lull: asyncio.TimerHandle | None = None
        self._stopped: asyncio.Future[None] = place.loop.create_future()
        self._is_kicked = False
        self._is_hungry = False
        self._again = 0.0
        self.has_backlog: bool = False
        """More runs were due than could be taken."""
        self._room: Callable[[], int] = lambda: 0

    def kick(self) -> None:
        """Look now; after the look in flight, if there is one. On the worker's loop only."""
        self._is_kicked = True
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def look_at(self, at: int) -> None:
        """Look at this time at the latest."""
        if self._due is not None:
            if at >= self._due_at:
                return
            self._due.cancel()
        self._due_at = at
        self._due = self._place.call_at(at, self._due_over)

    def slot_freed(self) -> None:
        """Look now when runs were left for want of a slot. Slots that become free together are filled together."""
        if not self._is_hungry or self._is_kicked:
            return
        if self._room() >= self._enough:
            self.kick()
        elif self._lull is None:
            self._lull = self._place.call_later(_LULL, self._lull_over)

    async def run(self) -> None:
        """Look until the worker stops."""
        pause = 0.0
        while not self._place.is_stopping:
            self._is_kicked = False
            try:
                await self._look()
                pause = 0.0
                await self._rest()
            except Exception as error:
                # After a lost lease the next tenure begins with the next look, at once: but not in a circle, when leases
                # are too short to be kept.
                pause = min(max(pause * 2, _FIRST_PAUSE), _LONGEST_PAUSE)
                _log(error, is_first=pause == _FIRST_PAUSE)
                if pause > _FIRST_PAUSE or not isinstance(error, LeaseLost):
                    await asyncio.wait([self._stopped], timeout=pause * random.uniform(0.75, 1.25))

    def stop(self) -> None:
        """Look no more; the look in flight goes on to its end."""
        if not self._stopped.done():
            self._stopped.set_result(None)
        self.kick()
        for timer in (self._due, self._lull):
            if timer is not None:
                timer.cancel()

    async def _look(self) -> None:
        tenure = await self._tenure()
        self._room = lambda: tenure.room
        wanted = min(tenure.room, self._place.concurrency)
        self.has_backlog = await self._claim(tenure, wanted) >= wanted > 0
        self._is_hungry = self.has_backlog or wanted <= 0
        if self.has_backlog and tenure.room >= self._enough:
            self.kick()
        # A caller's open transaction may have them for long, another worker for a moment.
        self._again = min(max(self._again * 2, _AGAIN), self._poll) if self._claims.passed_by else 0.0

    async def _claim(self, tenure: Tenure, wanted: int) -> int:
        try:
            return await self._claims.claim(tenure, wanted)
        except LeaseLost:
            self._place.loop.call_soon(tenure.lose, context=self._place.context)
            await asyncio.sleep(0)
            raise

    async def _rest(self) -> None:
        if self._is_kicked or self._place.is_stopping:
            return
        self._woken = self._place.loop.create_future()
        timer = self._place.call_later(self._again or self._poll, self.kick)
        try:
            await self._woken
        finally:
            timer.cancel()
            self._woken = None

    def _due_over(self) -> None:
        if self._place.time.seconds_until(self._due_at) > 0:
            # A test clock that was not moved yet, or a timer that was early by a hair.
            self._due = self._place.call_at(self._due_at, self._due_over)
        else:
            self._due = None
            self.kick()

    def _lull_over(self) -> None:
        self._lull = None
        self.kick()


def _log(error: Exception, *, is_first: bool) -> None:
    if isinstance(error, LeaseLost):
        return  # The tenure tells of it.
    if not isinstance(error, DatabaseUnavailable):
        logger.error("Looking for due runs failed; trying again.", exc_info=error)
    elif is_first:
        logger.warning("The database does not answer; no runs are taken until it does: %s", error)
