"""A step's own transaction against whoever could make it write for a run that is not its worker's any more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import text

from outlast.errors import LeaseLost
from outlast.model.ids import RunId, WorkerId
from outlast.model.run import StopKind
from outlast.ports.operation import Op, Statement
from outlast.ports.store import Batch, FlushOutcome, Lease, RunWrite
from outlast.stores.sql import SqlStore
from outlast.testing.contract.desk import kept, new_run, parked, step
from outlast.testing.contract.verbs import reaping
from support.interleaving import Answer, Arena, Failed, arena_over

OLD = Lease(WorkerId("old"), 1)
BATCH = Batch(
    records=((RunId("r"), step(0, "before")), (RunId("r"), step(1, "pay"))), writes=(kept("r", progressed=True),)
)


@asynccontextmanager
async def _arena(url: str) -> AsyncIterator[Arena]:
    async with arena_over(url) as arena:
        await arena.do(_saying("create table if not exists payments (id varchar(9))"))
        yield arena
        assert arena.schedules > 1


def _saying(statement: str) -> Callable[[SqlStore], Op[None]]:
    def say(_: SqlStore) -> Op[None]:
        yield Statement(text(statement))

    return say


def _paid(_: SqlStore) -> Op[int]:
    found = yield Statement(text("select count(*) from payments"), span="read")
    count: int = found.rows[0][0]
    return count


class _RolledBack(Exception):
    """The application's transaction is not committed: its run is somebody else's."""


def paying(store: SqlStore) -> Op[FlushOutcome]:
    """What happens in the step's transaction, the application's part and ours."""
    yield Statement(text("insert into payments values ('r')"))
    yield Statement(text("savepoint outlast_step"))
    yield Statement(text("release savepoint outlast_step"))
    outcome = yield from store.flush(OLD, BATCH)
    if outcome.lost:
        raise _RolledBack
    return outcome


async def _given(arena: Arena, *others: str, lease_us: int = 0) -> None:
    await arena.do(_saying("delete from payments"))
    await arena.do(lambda store: store.register(OLD.worker, lease_us=lease_us, host=""))
    await arena.do(lambda store: store.flush(OLD, Batch(starts=tuple(new_run(name) for name in ("r", *others)))))


async def _what_was_paid_is_recorded(arena: Arena, paid: Answer) -> Any:
    details = await arena.do(lambda store: store.get(RunId("r"), journal=True))
    rows = await arena.do(_paid)
    names = [record.name for record in details.journal]
    if isinstance(paid, Failed):
        assert (rows, "pay" in names) == (0, False)
    else:
        assert (rows, names) == (1, ["before", "pay"])
    return details


async def test_a_step_is_committed_before_its_lease_ends_or_not_at_all(shared_database_url: str) -> None:
    async with _arena(shared_database_url) as arena:

        async def then(reaped: Answer, paid: Answer) -> None:
            details = await _what_was_paid_is_recorded(arena, paid)
            assert reaped == 1
            assert (details.run.owner, details.run.lapses) == (None, 1)
            if isinstance(paid, Failed):
                assert isinstance(paid.error, LeaseLost)

        await arena.every_interleaving(reaping, paying, given=lambda: _given(arena), then=then)


@pytest.mark.parametrize(
    "write",
    [parked("r", due_at=0), RunWrite(id=RunId("r"), status=kept("r").status, keep=False)],
    ids=["due", "waiting"],
)
async def test_a_step_is_committed_before_its_run_is_given_back_or_not_at_all(
    shared_database_url: str, write: RunWrite
) -> None:
    """A shutdown that could not wait gives the run back under the same lease, which the step's proof would not notice."""
    async with _arena(shared_database_url) as arena:

        async def then(given: Answer, paid: Answer) -> None:
            details = await _what_was_paid_is_recorded(arena, paid)
            assert given.lost == ()
            assert details.run.owner is None
            if isinstance(paid, Failed):
                assert isinstance(paid.error, _RolledBack)

        await arena.every_interleaving(
            lambda store: store.flush(OLD, Batch(writes=(write,))),
            paying,
            given=lambda: _given(arena, lease_us=1_000_000),
            then=then,
        )


async def test_what_a_flush_has_under_way_is_written_once(shared_database_url: str) -> None:
    """The step takes along what its run had given to the flusher, since its own record comes after that."""
    async with _arena(shared_database_url) as arena:

        async def then(flushed: Answer, paid: Answer) -> None:
            await _what_was_paid_is_recorded(arena, paid)
            assert not isinstance(paid, Failed)
            assert flushed.lost == ()

        await arena.every_interleaving(
            lambda store: store.flush(OLD, Batch(records=BATCH.records[:1], writes=(kept("r"),))),
            paying,
            given=lambda: _given(arena, lease_us=1_000_000),
            then=then,
        )


async def test_a_step_that_cancels_a_run_of_its_own_worker_may_meet_the_end_of_its_lease(
    shared_database_url: str,
) -> None:
    """It has that run's row and wants the worker's; who ends the lease has the worker's and wants that run's. The database,
    or the patience of who ends the lease, breaks the circle: one of the two did nothing, and tries again."""

    def paying_and_cancelling(store: SqlStore) -> Op[FlushOutcome]:
        yield from store.request_stop(RunId("other"), StopKind.CANCEL, '{"type":"t"}')
        return (yield from paying(store))

    async with _arena(shared_database_url) as arena:

        async def then(reaped: Answer, paid: Answer) -> None:
            await _what_was_paid_is_recorded(arena, paid)
            other = await arena.do(lambda store: store.get(RunId("other"), journal=False))
            assert (other.run.stop is None) == isinstance(paid, Failed)
            assert not (isinstance(reaped, Failed) and isinstance(paid, Failed))
            if not isinstance(reaped, Failed):
                assert (reaped, other.run.owner) == (2, None)

        await arena.every_interleaving(reaping, paying_and_cancelling, given=lambda: _given(arena, "other"), then=then)
