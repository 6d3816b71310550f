"""Waiting for a run's end: told by the worker of this process, or found by looking.

The waiting belongs to its caller alone. When the caller goes away nothing of it stays behind, and the run never knows.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from outlast.client.access import Access
from outlast.client.grouping import Grouped
from outlast.client.standing import waits_for
from outlast.client.untaken import Untaken
from outlast.errors import AppClosed, ResultTimeout, RunNotFound
from outlast.model.failures import decode_failure
from outlast.model.ids import RunId
from outlast.model.run import Run, Status
from outlast.ports.local import LocalWorker
from outlast.ports.store import Outcome

FIRST_PAUSE: Final = 0.025
LONGEST_PAUSE: Final = 1.0
_PARKED: Final = (Status.SUSPENDED, Status.COMPENSATING)


class Waiters:
    """Those who wait for a run's end on one loop, until they are told that the app closes."""

    def __init__(self) -> None:
        self.is_closed: bool = False
        self._pausing: set[asyncio.Future[None]] = set()

    def close(self) -> None:
        """Have all of them raise AppClosed: at once, or when the look under way has been answered."""
        self.is_closed = True
        for news in self._pausing:
            if not news.done():
                news.set_result(None)

    async def pause(self, told: asyncio.Future[Outcome], seconds: float) -> None:
        """Return when the end is told, the time is over or the app closes.

        One future and one timer: asyncio.wait does the same for any set of futures, at several times the cost.
        """
        loop = asyncio.get_running_loop()
        news: asyncio.Future[None] = loop.create_future()
        has_come = partial(_set, news)
        told.add_done_callback(has_come)
        timer = loop.call_later(seconds, has_come)
        self._pausing.add(news)
        try:
            await news
        finally:
            self._pausing.discard(news)
            timer.cancel()
            told.remove_done_callback(has_come)


async def ending(
    run_id: RunId,
    look: Grouped[RunId, Outcome | None],
    worker: LocalWorker | None,
    timeout: timedelta | None,
    *,
    waiters: Waiters,
    untaken: Untaken,
) -> Outcome:
    """Return how the run ended, as soon as that is known. Raises RunNotFound, AppClosed, and ResultTimeout in real time.

    The time limit counts after a look, so a run that has ended never times out.
    """
    loop = asyncio.get_running_loop()
    begun = loop.time()
    limit = None if timeout is None else begun + timeout.total_seconds()
    # Watch before the first look: what is recorded between the two is then seen by one of them.
    told: asyncio.Future[Outcome] = worker.watch(run_id) if worker else loop.create_future()
    outcome: Outcome | None = None
    try:
        for pause in pauses():
            if not (worker and worker.holds(run_id)):
                outcome = await look.ask(run_id)
                if outcome is None:
                    raise RunNotFound(run_id)
                if outcome.status.is_terminal:
                    return outcome
                untaken.look(run_id, outcome, loop.time() - begun)
            now = loop.time()
            if limit is not None and timeout is not None and now >= limit:
                if outcome is None:
                    await asyncio.sleep(0)  # Who asks again and again must not keep the worker from going on.
                raise _timed_out(run_id, timeout, outcome)
            if not waiters.is_closed:
                await waiters.pause(told, _until_next_look(now, pause, limit))
            if told.done() and not told.cancelled():
                return told.result()
            if waiters.is_closed:
                raise AppClosed(run_id)
    finally:
        told.cancel()
    raise AssertionError("the pauses never end")


def ending_blocking(
    run_id: RunId, look: Callable[[RunId], Outcome | None], access: Access, timeout: timedelta | None
) -> Outcome:
    """The same on a thread without a loop. The worker of this process, if any, cuts a pause short."""
    begun = time.monotonic()
    limit = None if timeout is None else begun + timeout.total_seconds()
    told = threading.Event()
    outcome: Outcome | None = None
    with access.watching(run_id, told):
        for pause in pauses():
            try:
                outcome = look(run_id)
            except AppClosed as closed:
                raise closed if outcome is None else AppClosed(run_id) from None
            if outcome is None:
                raise RunNotFound(run_id)
            if outcome.status.is_terminal:
                return outcome
            now = time.monotonic()
            access.untaken.look(run_id, outcome, now - begun)
            if limit is not None and timeout is not None and now >= limit:
                raise _timed_out(run_id, timeout, outcome)
            told.wait(pause if limit is None else min(pause, limit - now))
            told.clear()
    raise AssertionError("the pauses never end")


def pauses() -> Iterator[float]:
    """Yield the pauses between two looks, in seconds: 25 ms, doubling to 1 s."""
    pause = FIRST_PAUSE
    while True:
        yield pause
        pause = min(pause * 2, LONGEST_PAUSE)


def _timed_out(run_id: RunId, timeout: timedelta, outcome: Outcome | None) -> ResultTimeout:
    if outcome is None:
        return ResultTimeout(run_id, timeout)
    held = None if outcome.held is None else decode_failure(outcome.held)
    return ResultTimeout(run_id, timeout, outcome.status, held)


def asks_why(late: ResultTimeout) -> bool:
    """Say whether what the run waits for is worth a look: not of who only looks how it stands, without any waiting."""
    return late.status in _PARKED and late.held is None and bool(late.timeout)


def explained(late: ResultTimeout, run: Run | None, now: datetime) -> ResultTimeout:
    """Return the error that says what the run, read when the time was over, waits for; the same one if that is not known."""
    found = "" if run is None or run.status not in _PARKED else waits_for(run, now)
    return ResultTimeout(late.run_id, late.timeout, run.status, None, found) if run and found else late


def _until_next_look(now: float, pause: float, limit: float | None) -> float:
    """Wait for the next whole multiple of the pause: all who wait for equally long look together, in one operation."""
    rest = pause - now % pause
    return rest if limit is None else min(rest, limit - now)


def _set(news: asyncio.Future[None], *_: object) -> None:
    if not news.done():
        news.set_result(None)
