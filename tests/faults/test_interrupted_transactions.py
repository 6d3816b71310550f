"""Transactional steps that something comes upon while they are inside of their transaction.

Whatever it is: the rows are there exactly when the entry is.
"""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from typing import Any

import pytest

from outlast import (
    Context,
    Failure,
    Outlast,
    Retry,
    RunCancelled,
    RunId,
    StepContext,
    StopKind,
    WorkerOptions,
    workflow,
)
from outlast.model.run import Stop
from support.payment_places import ON_SERVERS, PLACES, Place, in_places
from support.payments import TABLE, Source, payments
from support.probing import Tables, until, until_awaited


class Gate:
    """A function that stands still until the test lets it go on."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self, tx: Any, s: StepContext) -> Any:
        if s.attempt > 1 or self.reached.is_set():
            return None
        self.reached.set()
        if self._source.is_blocking:
            assert self.opened.wait(30)
            return None
        return self._awaited()

    async def _awaited(self) -> None:
        await asyncio.to_thread(self.opened.wait, 30)


@in_places(*PLACES)
async def test_an_attempt_beyond_its_timeout_does_not_commit_when_it_returns(place: Place) -> None:
    hangs = asyncio.Event()
    later = threading.Event()

    def blocking(_: Any, s: StepContext) -> None:
        while s.attempt == 1 and not s.stop_requested:
            later.wait(0.01)

    async def awaiting(_: Any, s: StepContext) -> None:
        if s.attempt == 1:
            await hangs.wait()

    retry = Retry(attempts=50, delay="1ms")
    shop = place.shop(blocking if place.source.is_blocking else awaiting, timeout="300ms", retry=retry)
    async with place.app(shop) as app:
        assert await app.start_and_wait(shop, id="o-1", wait="20s") == "paid"

    # The second, unless that was too slow as well.
    last = place.attempts[-1]
    assert last > 1
    assert payments(place.url) == [("o-1", f"attempt {last}")]
    retried = [("o-1", "pay", "retry", attempt) for attempt in range(1, last)]
    assert place.recorded() == [*retried, ("o-1", "pay", "done", last)]


@in_places(*PLACES)
async def test_a_step_that_is_aborted_rolls_back_where_it_can_be_interrupted(place: Place) -> None:
    """A coroutine can be. A thread goes on, and what it then commits is recorded."""
    reached, later, hangs = threading.Event(), threading.Event(), asyncio.Event()

    def blocking(_: Any, s: StepContext) -> None:
        reached.set()
        while not s.stop_requested:
            later.wait(0.01)

    async def awaiting(_: Any, s: StepContext) -> None:
        reached.set()
        await hangs.wait()

    shop = place.shop(blocking if place.source.is_blocking else awaiting, on_cancel="abort")
    async with place.app(shop) as app:
        run = await app.start(shop, id="o-1")
        await asyncio.to_thread(reached.wait, 30)
        if place.url.startswith("sqlite"):
            # The request cannot be written while the step has the file. It is told as a renewal would tell of it.
            stop = Stop(StopKind.CANCEL, Failure(type="x", message="no longer wanted"), time.time_ns() // 1000)
            shift = app._worker._shift
            assert shift is not None
            assert shift.tenure is not None
            shift.call(partial(shift.tenure.request_stop, RunId("o-1"), stop))
        else:
            await app.cancel("o-1")
        with pytest.raises(RunCancelled):
            await run.result(timeout="20s")

    assert len(payments(place.url)) == (1 if place.source.is_blocking else 0)
    assert ("done" in {row[2] for row in place.recorded() if row[1] == "pay"}) == place.source.is_blocking


async def test_a_database_in_memory_is_the_steps_alone_while_it_has_it() -> None:
    """It is one connection. Others wait for it and go on; and the step itself reaches it by its transaction alone."""
    reached, opened = threading.Event(), threading.Event()
    seen: list[Any] = []

    @workflow("shop")
    async def shop(ctx: Context, name: str) -> int:
        def pay(db: Any) -> int:
            db.execute(TABLE)
            db.execute("insert into payments values (?, 'memory')", (name,))
            if name == "slow":
                app.blocking.start(shop, "started", id="started", tx=db)
                reached.set()
                assert opened.wait(30)
            count: int = db.execute("select count(*) from payments").fetchone()[0]
            db.row_factory = lambda _, row: seen.append(row)
            return count

        return await ctx.transaction("pay", pay)

    async with Outlast("sqlite://", workflows=[shop], worker=WorkerOptions(poll="1h")) as app:
        slow = await app.start(shop, "slow")
        await asyncio.to_thread(reached.wait, 30)
        quick = asyncio.ensure_future(app.start_and_wait(shop, "quick", wait="20s"))
        await asyncio.sleep(0)
        opened.set()

        assert await slow.result(timeout="20s") == 1
        assert sorted([await quick, await app.result("started", timeout="20s")]) == [2, 3]
    assert seen == []


@in_places(*ON_SERVERS)
async def test_other_runs_go_on_while_one_is_inside_its_transaction(place: Place) -> None:
    gate = Gate(place.source)
    shop = place.shop(gate)
    async with place.app(shop) as app:
        slow = await app.start(shop, id="slow")
        await asyncio.to_thread(gate.reached.wait, 30)

        assert await app.start_and_wait(shop, id="quick", wait="20s") == "paid"
        assert payments(place.url) == [("quick", "attempt 1")]

        gate.opened.set()
        assert await slow.result(timeout="20s") == "paid"


@in_places("sqlite, sessionmaker", "sqlite, async_sessionmaker")
async def test_on_sqlite_others_wait_for_it_longer_than_the_lease_and_then_go_on(place: Place) -> None:
    """A file has one writer. Nobody can end the lease of a worker whose step is that writer, so none of it is lost."""
    gate = Gate(place.source)
    shop = place.shop(gate)
    other = place.app(shop, poll="20ms")
    async with place.app(shop, lease="1s") as app, other:
        slow = await app.start(shop, id="slow")
        await asyncio.to_thread(gate.reached.wait, 30)
        quick = [asyncio.ensure_future(app.start_and_wait(shop, id=f"o-{number}")) for number in range(3)]
        await until_awaited(lambda: asyncio.to_thread(_lease_is_over, place.url), "the lease to be over")

        gate.opened.set()

        assert await slow.result(timeout="30s") == "paid"
        assert await asyncio.gather(*quick) == ["paid"] * 3

    assert len(payments(place.url)) == 4
    assert ("slow", "attempt 1") in payments(place.url)


def _lease_is_over(url: str) -> bool:
    (until_us,) = Tables(url)("select min(lease_until) from {workers}")[0]
    return bool(until_us < time.time_ns() // 1000)


@in_places(*PLACES)
async def test_a_worker_that_stops_takes_the_transaction_back_and_another_does_it(place: Place) -> None:
    gate = Gate(place.source)
    shop = place.shop(gate)
    app = place.app(shop, shutdown_timeout="0s")
    async with app:
        run = await app.start(shop, id="o-1")
        await asyncio.to_thread(gate.reached.wait, 30)
        if place.url.startswith("sqlite"):
            gate.opened.set()  # Nobody can take the run back while the file is held.
    gate.opened.set()

    async with place.app(shop) as other:
        assert await other.result(run.id, timeout="20s") == "paid"

    assert len(payments(place.url)) == 1
    assert [row[:3] for row in place.recorded()] == [("o-1", "pay", "done")]


@in_places(*ON_SERVERS)
async def test_a_step_whose_run_was_taken_over_inside_of_it_rolls_back(place: Place) -> None:
    """Incident: a worker that was away for longer than its lease comes back in the middle of a transaction."""
    gate = Gate(place.source)
    shop = place.shop(first=gate)
    other = place.app(shop, poll="20ms")
    async with place.app(shop, lease="1h", poll="1h") as app:
        await app.start(shop, id="o-1")
        await asyncio.to_thread(gate.reached.wait, 30)
        await asyncio.to_thread(Tables(place.url).end_leases)
        async with other:
            assert await other.result("o-1", timeout="20s") == "paid"
            journal = await asyncio.to_thread(place.recorded)

            gate.opened.set()
            await asyncio.to_thread(until, lambda: _workers(place.url) == 2, "the zombie to register again")

    assert payments(place.url) == [("o-1", "attempt 2")]
    assert place.recorded() == journal


@in_places(*ON_SERVERS)
async def test_a_lease_that_ends_unnoticed_before_the_commit_takes_the_rows_with_it(place: Place) -> None:
    """Nobody told the worker: it finds out by the proof in the step's own transaction."""

    def end_the_lease(_: Any, s: StepContext) -> None:
        if len(place.attempts) == 1:
            Tables(place.url)("update {workers} set epoch = epoch + 1")

    shop = place.shop(end_the_lease)
    async with place.app(shop, lease="1h") as app:
        run = await app.start(shop, id="o-1")
        # Under its next name it has no lapsed lease to end: what it held has an owner that is somebody else's.
        await asyncio.to_thread(until, lambda: _workers(place.url) == 2, "the worker to register again")
        assert payments(place.url) == []
        assert place.recorded() == []

        await asyncio.to_thread(Tables(place.url), "update {workers} set lease_until = 0 where epoch > 1")
        assert await run.result(timeout="30s") == "paid"

    assert len(payments(place.url)) == 1
    assert [row[:3] for row in place.recorded()] == [("o-1", "pay", "done")]


def _workers(url: str) -> int:
    return len(Tables(url)("select id from {workers}"))
