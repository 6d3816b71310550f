"""The renewal of the lease, from a thread of its own that a blocked application loop cannot stop.

The thread has its own event loop and its own way to the database. It hands back what it learns through the application's
loop: the stop requests of the worker's runs, the database's time, and the loss of the lease. It also notices when the
application's loop does not answer, and tells whose step has it. Held by tests/unit/worker/test_heartbeat.py and
tests/e2e/test_worker_lapses.py.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from outlast.errors import DatabaseUnavailable, LeaseLost
from outlast.model.durations import Duration, parse_duration
from outlast.ports.database import Database
from outlast.ports.store import Lease, Renewal
from outlast.worker.databasetime import monotonic

logger: Final = logging.getLogger("outlast.worker")

_BLOCKED: Final = 1.0
"""Seconds without an answer after which a loop counts as blocked, and between two looks at it."""


@dataclass(frozen=True, slots=True)
class Renewed:
    """A renewal, and when it was asked for and answered by the monotonic clock."""

    renewal: Renewal
    sent: int
    received: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Who hears what the thread learns. The first two are called on the application's loop, the last on the thread."""

    renewed: Callable[[Lease, Renewed], None]
    lost: Callable[[Lease], None]
    who_blocks: Callable[[], str | None]


class Heartbeat:
    """Renew one lease at a time, at a third of its length, from `start` to `stop`."""

    def __init__(
        self,
        database: Database,
        lease: Duration,
        *,
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context,
        listeners: Listeners,
    ) -> None:
        self._database = database
        self._context = context
        self._seconds = parse_duration(lease, what="lease").total_seconds()
        self._loop = loop
        self._listeners = listeners
        self._lease: Lease | None = None
        self._thread: threading.Thread | None = None
        self._thread_loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._ended: asyncio.Future[None] = loop.create_future()

    def hold(self, lease: Lease | None) -> None:
        """Renew this lease from now on, none when None. The first renewal comes within a third of its length."""
        self._lease = lease
        if self._thread is None and lease is not None:
            self._thread = threading.Thread(target=self._run, name="outlast-heartbeat", daemon=True)
            self._thread.start()

    async def stop(self) -> None:
        """End the thread, after the renewal in flight."""
        self._lease = None
        if self._thread is None:
            self._thread_loop.close()
            return
        with suppress(RuntimeError):  # It ended by itself.
            self._thread_loop.call_soon_threadsafe(self._stopping.set)
        await self._ended
        self._thread.join()

    # On the thread.

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._thread_loop) as runner:
                runner.run(self._main())
        except Exception:
            logger.exception("The renewal of the lease ended; the lease will run out.")
        finally:
            self._tell(self._ended.set_result, None)

    async def _main(self) -> None:
        watching = asyncio.create_task(self._watch())
        try:
            await self._renew_until(self._stopping)
        finally:
            watching.cancel()
            await self._database.close()

    async def _renew_until(self, stopping: asyncio.Event) -> None:
        while not await _happens(stopping, self._seconds / 3):
            if self._loop.is_closed():
                return  # Nobody stopped the worker, but it is gone: its runs must not stay leased to it.
            lease = self._lease
            while lease is not None and not await self._renew(lease):
                if await _happens(stopping, min(1.0, self._seconds / 10)):
                    return

    async def _renew(self, lease: Lease) -> bool:
        """Renew once; False when it is to be tried again soon."""
        store, lease_us = self._database.store, int(self._seconds * 1_000_000)
        sent = monotonic()
        try:
            renewal = await self._database.run(
                lambda: store.renew(lease, lease_us=lease_us), patience=max(1.0, self._seconds / 3)
            )
        except LeaseLost:
            if self._lease is lease:
                self._lease = None
            self._tell(self._listeners.lost, lease)
            return True
        except DatabaseUnavailable as error:
            logger.warning("The lease could not be renewed; trying again: %s", error)
            return self._lease is not lease
        except Exception:
            logger.exception("The lease could not be renewed; trying again.")
            return self._lease is not lease
        self._tell(self._listeners.renewed, lease, Renewed(renewal, sent, monotonic()))
        return True

    async def _watch(self) -> None:
        """Ask the application's loop for an answer now and then, and say who keeps it from answering."""
        while True:
            await asyncio.sleep(_BLOCKED)
            answer = asyncio.Event()
            self._tell(self._answer, answer)
            if not await _happens(answer, _BLOCKED):
                culprit = self._listeners.who_blocks()
                logger.warning(
                    "The event loop has not answered for %g s: it is blocked by %s. Blocking calls belong in a plain "
                    "(not async) step function, which runs on a thread.", _BLOCKED, culprit or "code outside of any step",
                )  # fmt: skip
                await answer.wait()

    def _answer(self, answer: asyncio.Event) -> None:
        """Answer the thread, from the application's loop."""
        with suppress(RuntimeError):  # The thread has ended meanwhile.
            self._thread_loop.call_soon_threadsafe(answer.set)

    def _tell(self, hear: Callable[..., object], *facts: object) -> None:
        with suppress(RuntimeError):  # The application's loop is closed: nobody wants to know any more.
            self._loop.call_soon_threadsafe(hear, *facts, context=self._context)


async def _happens(event: asyncio.Event, within: float) -> bool:
    """Wait for an event; say whether it came in time."""
    try:
        async with asyncio.timeout(within):
            await event.wait()
    except TimeoutError:
        return False
    return True
