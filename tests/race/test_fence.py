"""A worker's write against whoever ends its lease: one of the two, never both, in every order of their statements."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from outlast.errors import LeaseLost
from outlast.model.ids import RunId, WorkerId
from outlast.model.run import Status
from outlast.ports.operation import Op
from outlast.ports.store import Batch, ClaimRequest, Lease, RunWrite, Wait
from outlast.stores.sql import SqlStore
from outlast.testing.contract.desk import finished, kept, new_run, parked, showing, step
from outlast.testing.contract.verbs import reaping
from support.interleaving import Answer, Arena, Failed, MakeOp, arena_over

OLD, NEW = Lease(WorkerId("old"), 1), Lease(WorkerId("new"), 1)


@asynccontextmanager
async def _arena(url: str) -> AsyncIterator[Arena]:
    async with arena_over(url) as arena:
        yield arena
        assert arena.schedules > 1


async def _an_expired_worker_with_a_run(arena: Arena) -> None:
    await arena.do(lambda store: store.register(OLD.worker, lease_us=0, host=""))
    await arena.do(lambda store: store.register(NEW.worker, lease_us=1_000_000, host=""))
    await arena.do(lambda store: store.flush(OLD, Batch(starts=(new_run("r"),))))


@pytest.mark.parametrize(
    "write",
    [finished("r"), kept("r", progressed=True), parked("r", Wait("t", 0)), parked("r", due_at=2**60)],
    ids=["an end", "progress", "a park on a signal", "a park on a time"],
)
async def test_a_flush_and_the_end_of_its_lease_never_both_happen(shared_database_url: str, write: RunWrite) -> None:
    batch = Batch(starts=(new_run("new run"),), records=((RunId("r"), step(0, "s")),), writes=(write,))

    async with _arena(shared_database_url) as arena:

        async def then(reaped: Answer, flushed: Answer) -> None:
            details = await arena.do(lambda store: store.get(RunId("r"), journal=True))
            started = await arena.do(lambda store: store.get(RunId("new run"), journal=False))
            if isinstance(flushed, Failed):
                assert isinstance(flushed.error, LeaseLost)
                assert (details.run.owner, details.run.lapses, details.journal) == (None, 1, ())
                assert (started, reaped) == (None, 1)
            else:
                assert len(details.journal) == 1
                assert details.run.status == write.status
                # What the flush left with the worker is given back by whoever came after it.
                assert started.run.owner is None
                assert reaped == (2 if write.keep else 1)

        await arena.every_interleaving(
            reaping,
            lambda store: store.flush(OLD, batch),
            given=lambda: _an_expired_worker_with_a_run(arena),
            then=then,
        )


async def test_a_claim_and_the_end_of_its_lease_leave_no_run_with_a_worker_that_is_gone(
    shared_database_url: str,
) -> None:
    async with _arena(shared_database_url) as arena:

        async def given() -> None:
            await _an_expired_worker_with_a_run(arena)
            await arena.do(lambda store: store.start([new_run("waiting")]))

        async def then(reaped: Answer, claimed: Answer) -> None:
            details = await arena.do(lambda store: store.get(RunId("waiting"), journal=False))
            assert details.run.owner is None
            assert (reaped, details.run.lapses) == ((1, 0) if isinstance(claimed, Failed) else (2, 1))

        await arena.every_interleaving(
            reaping,
            lambda store: store.claim(ClaimRequest(OLD, 5, (("work", 1),), {})),
            given=given,
            then=then,
        )


async def test_a_late_renewal_and_the_end_of_its_lease_never_both_happen(shared_database_url: str) -> None:
    async with _arena(shared_database_url) as arena:

        async def then(reaped: Answer, renewed: Answer) -> None:
            details = await arena.do(lambda store: store.get(RunId("r"), journal=False))
            if isinstance(renewed, Failed):
                assert isinstance(renewed.error, LeaseLost)
                assert (reaped, details.run.owner) == (1, None)
            else:
                assert (reaped, details.run.owner) == (0, OLD.worker)

        await arena.every_interleaving(
            reaping,
            lambda store: store.renew(OLD, lease_us=1_000_000),
            given=lambda: _an_expired_worker_with_a_run(arena),
            then=then,
        )


async def test_two_reapers_count_one_lapse(shared_database_url: str) -> None:
    async with _arena(shared_database_url) as arena:

        async def then(first: Answer, second: Answer) -> None:
            details = await arena.do(lambda store: store.get(RunId("r"), journal=False))
            assert sorted([first, second]) == [0, 1]
            assert (details.run.lapses, details.run.owner) == (1, None)

        await arena.every_interleaving(
            reaping,
            reaping,
            given=lambda: _an_expired_worker_with_a_run(arena),
            then=then,
        )


async def test_a_reaper_takes_no_run_from_the_worker_that_has_it_next(shared_database_url: str) -> None:
    """The second reaper may have read who owned the run before the first one gave it to a worker it does not know."""
    next_worker = Lease(WorkerId("next"), 1)

    def reap_and_claim(store: SqlStore) -> Op[list[str]]:
        yield from store.reap()
        yield from store.register(next_worker.worker, lease_us=1_000_000, host="")
        claim = yield from store.claim(ClaimRequest(next_worker, 5, (("work", 1),), {}))
        return [run.id for run in claim.runs]

    async with _arena(shared_database_url) as arena:

        async def then(claimed: Answer, reaped: Answer) -> None:
            details = await arena.do(lambda store: store.get(RunId("r"), journal=False))
            assert details.run.lapses == 1
            if claimed == ["r"]:
                assert (details.run.owner, reaped in (0, 1)) == (next_worker.worker, True)

        await arena.every_interleaving(
            reap_and_claim,
            reaping,
            given=lambda: _an_expired_worker_with_a_run(arena),
            then=then,
        )


@pytest.mark.parametrize(
    "giving",
    [lambda store: store.retire(OLD), lambda store: store.disown(OLD, [])],
    ids=["retire", "disown"],
)
async def test_a_flush_and_its_own_workers_farewell_lose_nothing(shared_database_url: str, giving: MakeOp) -> None:
    async with _arena(shared_database_url) as arena:

        async def then(given: Answer, flushed: Answer) -> None:
            details = await arena.do(lambda store: store.get(RunId("r"), journal=True))
            if isinstance(flushed, Failed) or flushed.lost:
                assert (given, details.run.status, details.journal) == (1, Status.RUNNING, ())
            else:
                assert (given, details.run.status, len(details.journal)) == (0, Status.COMPLETED, 1)
            assert (details.run.owner, details.run.lapses) == (None, 0)

        await arena.every_interleaving(
            giving,
            lambda store: store.flush(OLD, Batch(records=((RunId("r"), step(0, "s")),), writes=(finished("r"),))),
            given=lambda: _an_expired_worker_with_a_run(arena),
            then=then,
        )


async def test_a_run_that_its_worker_gives_back_is_not_written_by_it_any_more(shared_database_url: str) -> None:
    """A worker that stops gives a run back on one connection while a step of it is recorded on another, under the same
    lease. Whoever has the run then makes the step again: no record of it may come after all."""
    batch = Batch(records=((RunId("r"), step(0, "s")),), writes=(showing("r", '"recorded"'),))

    async with _arena(shared_database_url) as arena:

        async def given() -> None:
            await _an_expired_worker_with_a_run(arena)
            await arena.do(lambda store: store.renew(OLD, lease_us=1_000_000))

        async def then(given_back: Answer, recorded: Answer) -> None:
            details = await arena.do(lambda store: store.get(RunId("r"), journal=True))
            assert (given_back.lost, details.run.owner) == ((), None)
            if recorded.lost:
                assert (details.run.custom_status, details.journal) == (None, ())
            else:
                assert (details.run.custom_status, len(details.journal)) == ('"recorded"', 1)

        await arena.every_interleaving(
            lambda store: store.flush(OLD, Batch(writes=(parked("r", due_at=0),))),
            lambda store: store.flush(OLD, batch),
            given=given,
            then=then,
        )
