"""The renewal of the lease from a thread of its own."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from outlast.errors import DatabaseUnavailable, Failure, LeaseLost
from outlast.model.ids import RunId, WorkerId
from outlast.model.run import Stop, StopKind
from outlast.ports.store import Lease, Renewal
from outlast.worker import heartbeat as module
from outlast.worker.heartbeat import Heartbeat, Listeners, Renewed
from support.worker_fakes import LEASE, FakeDatabase, passes

CANCEL = Stop(StopKind.CANCEL, Failure(type="x", message="m"), 5)


class Renewals:
    """A database that counts renewals, answers them by script, and can be waited for from any thread."""

    def __init__(self, *script: object) -> None:
        self._script = list(script)
        self.count = Counter[Lease]()
        self.news = threading.Condition()
        self.threads: set[str] = set()
        self.is_closed = False
        self.database = FakeDatabase(renew=self._renew)
        self.database.close = self._close  # type: ignore[method-assign]

    def _renew(self, lease: Lease) -> object:
        with self.news:
            self.count[lease] += 1
            self.threads.add(threading.current_thread().name)
            self.news.notify_all()
        return self._script.pop(0) if self._script else Renewal(1, ())

    async def _close(self) -> None:
        self.is_closed = True

    def wait_for(self, count: int, lease: Lease = LEASE) -> bool:
        """Wait on this very thread, which blocks its loop, until there were so many renewals."""
        with self.news:
            return self.news.wait_for(lambda: self.count[lease] >= count, 30)


class Beating:
    def __init__(self, renewals: Renewals) -> None:
        self.renewed: asyncio.Queue[Renewed] = asyncio.Queue()
        self.lost: asyncio.Queue[Lease] = asyncio.Queue()
        self.culprit: str | None = None
        self.heartbeat = Heartbeat(
            renewals.database,  # type: ignore[arg-type]  # the part of it that is used
            "30ms",
            loop=asyncio.get_running_loop(),
            context=contextvars.Context(),
            listeners=Listeners(
                renewed=lambda _, renewed: self.renewed.put_nowait(renewed),
                lost=self.lost.put_nowait,
                who_blocks=lambda: self.culprit,
            ),
        )


@asynccontextmanager
async def beating(renewals: Renewals) -> AsyncIterator[Beating]:
    made = Beating(renewals)
    made.heartbeat.hold(LEASE)
    try:
        yield made
    finally:
        await made.heartbeat.stop()


async def test_a_blocked_loop_does_not_stop_the_renewal() -> None:
    """Incident F002: a step that hogged the loop stopped the renewal, and another worker took the job."""
    renewals = Renewals()
    async with beating(renewals):
        assert renewals.wait_for(3), "this loop is blocked meanwhile"
    assert renewals.threads == {"outlast-heartbeat"}


async def test_what_it_learns_is_handed_to_the_loop() -> None:
    renewals = Renewals(Renewal(77, ((RunId("r1"), CANCEL),)))
    async with beating(renewals) as b:
        renewed = await b.renewed.get()
    assert renewed.renewal.now == 77
    assert renewed.renewal.stops == (("r1", CANCEL),)
    assert renewed.sent <= renewed.received


async def test_a_lost_lease_is_told_and_not_renewed_any_more() -> None:
    renewals = Renewals(LeaseLost("taken over"))
    async with beating(renewals) as b:
        assert await b.lost.get() == LEASE
        fresh = Lease(WorkerId("w-2"), 1)
        b.heartbeat.hold(fresh)
        await asyncio.to_thread(renewals.wait_for, 2, fresh)
    assert renewals.count[LEASE] == 1


@pytest.mark.parametrize("error", [DatabaseUnavailable("gone"), RuntimeError("unexpected")])
async def test_a_renewal_that_fails_is_tried_again_soon(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    renewals = Renewals(error, error)
    async with beating(renewals) as b:
        await b.renewed.get()
    assert renewals.count[LEASE] >= 3
    assert "could not be renewed" in caplog.text
    assert b.lost.empty(), "only the database knows whether the lease is over"


async def test_nothing_is_renewed_while_no_lease_is_held() -> None:
    renewals = Renewals()
    async with beating(renewals) as b:
        await b.renewed.get()
        b.heartbeat.hold(None)
        seen = renewals.count[LEASE]
        other = Lease(WorkerId("w-2"), 1)
        b.heartbeat.hold(other)
        await asyncio.to_thread(renewals.wait_for, 2, other)
    assert renewals.count[LEASE] <= seen + 1


async def test_it_ends_with_its_thread_and_its_way_to_the_database() -> None:
    renewals = Renewals()
    async with beating(renewals):
        pass
    assert renewals.is_closed
    assert "outlast-heartbeat" not in {thread.name for thread in threading.enumerate()}


async def test_it_may_be_stopped_before_it_began() -> None:
    b = Beating(Renewals())
    b.heartbeat.hold(None)
    await b.heartbeat.stop()


def test_it_ends_when_its_application_is_gone() -> None:
    """The loop was closed without a stop; a lease that is renewed for ever would keep the runs from everybody."""
    renewals = Renewals()

    async def main() -> None:
        Beating(renewals).heartbeat.hold(LEASE)
        assert renewals.wait_for(1)

    asyncio.run(main())
    for thread in threading.enumerate():
        if thread.name == "outlast-heartbeat":
            thread.join(30)
            assert not thread.is_alive()
    assert renewals.is_closed


async def test_a_blocked_loop_is_told_of_with_the_step_that_blocks_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_BLOCKED", 0.01)
    caplog.set_level(logging.WARNING)
    async with beating(Renewals()) as b:
        b.culprit = "step 'a' of run 'r1'"
        block_until(lambda: "blocked by step 'a' of run 'r1'" in caplog.text)
    assert caplog.text.count("blocked by") == 1, "once for each time"


async def test_a_loop_that_answers_is_not_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_BLOCKED", 5)
    async with beating(Renewals()) as b:
        await b.renewed.get()
        await passes()
    assert "blocked" not in caplog.text


def block_until(is_so: Callable[[], bool]) -> None:
    """Block this thread, and the loop on it, until something is so."""
    limit = time.monotonic() + 30
    pause = threading.Event()
    while not is_so():
        assert time.monotonic() < limit
        pause.wait(0.001)
