"""Statements on workers' leases. Workers go by their key, their runs by the index on `owner` (owned runs only)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Delete,
    Integer,
    Text,
    Update,
    bindparam,
    case,
    delete,
    literal,
    or_,
    select,
    update,
)

from outlast.errors import LeaseLost
from outlast.model.ids import RunId, WorkerId
from outlast.ports.operation import Op, Statement
from outlast.ports.store import Lease, Reaped, Renewal
from outlast.stores.basis import Basis
from outlast.stores.runs import MOST_COUNTED, stop_of
from outlast.stores.tables import Query

QUICK_LAPSES: Final = 3
"""Workers that may die one after the other with a run before its next try is put off."""

_PAUSES: Final = {QUICK_LAPSES + 1: 10_000_000, QUICK_LAPSES + 2: 60_000_000}
_LONGEST_PAUSE: Final = 300_000_000
"""Microseconds. Code that ends its process would else end one after the other, with all that they do for others."""


class Workers:
    """Leases: made, renewed, given up, taken over."""

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        dialect, runs, workers, now = basis.dialect, basis.tables.runs, basis.tables.workers, basis.now
        until = now + bindparam("lease_us", type_=BigInteger)
        self._register = dialect.insert_if_absent(workers).values(
            id=bindparam("worker", type_=Text),
            epoch=literal(1, Integer),
            lease_until=until,
            started_at=now,
            host=bindparam("host", type_=Text),
        )
        self._renew: Update = update(workers).where(is_leased(basis)).values(lease_until=until)
        self._stops: Query = (
            select(now, runs.c.id, runs.c.stop_kind, runs.c.stop_reason, runs.c.stop_at)
            .select_from(workers.outerjoin(runs, (runs.c.owner == workers.c.id) & runs.c.stop_kind.is_not(None)))
            .where(is_leased(basis))
        )
        self._proven: Query = fence(basis, now, alone=True)
        self._end: Delete = delete(workers).where(is_leased(basis))
        over = (
            select(workers.c.id)
            .where(workers.c.lease_until <= now, workers.c.id != bindparam("spared", type_=Text))
            .order_by(workers.c.id)
        )
        # Who locks without looking first waits on MySQL for each row that is read, those of the living with it.
        self._late: Query = over.add_columns(workers.c.lease_until, now)
        over = over.where(dialect.is_among(workers.c.id, "late"))
        self._over: Query = over.with_for_update()
        self._over_and_free: Query = over.with_for_update(skip_locked=True)
        self._forget: Delete = delete(workers).where(dialect.is_among(workers.c.id, "owners"))
        self._orphans: Query = (
            select(runs.c.owner)
            .where(runs.c.owner.is_not(None), ~select(workers.c.id).where(workers.c.id == runs.c.owner).exists())
            .distinct()
        )
        # By an expression: there is an index of all runs in the order of their ids, and no planner shall take it for this.
        owned = dialect.is_among(runs.c.owner, "owners")
        in_order = select(runs.c.id).where(owned).order_by(runs.c.id.concat(""))
        self._owned: Query = in_order.with_for_update()
        self._owned_and_free: Query = in_order.with_for_update(skip_locked=True)
        self._hand_back = _hand_back(basis, owned)
        self._told: Query = select(dialect.notice(basis.tables, literal("ready", Text)))

    def register(self, worker: WorkerId, *, lease_us: int, host: str) -> Op[Lease]:
        # Ids are new for each process start, so an existing row is this call's own, written before its answer was lost.
        yield Statement(self._register, {"worker": worker, "lease_us": lease_us, "host": host})
        return Lease(worker, epoch=1)

    def renew(self, lease: Lease, *, lease_us: int) -> Op[Renewal]:
        renewed = yield Statement(self._renew, {**leased(lease), "lease_us": lease_us})
        if renewed.affected != 1:
            raise lease_lost(lease)
        found = yield Statement(self._stops, leased(lease))
        stops = [(RunId(row[1]), stop_of(row[2], row[3], row[4])) for row in found.rows if row[1] is not None]
        return Renewal(found.rows[0][0], tuple((run_id, stop) for run_id, stop in stops if stop is not None))

    def retire(self, lease: Lease) -> Op[int]:
        ended = yield Statement(self._end, leased(lease))
        if ended.affected != 1:
            raise lease_lost(lease)
        given = yield from self._give([lease.worker], lapses=0)
        # Also of the runs that were given back one by one before. Held by tests/crash/test_processes_stopping.py.
        yield Statement(self._told)
        return given

    def disown(self, lease: Lease, held: Sequence[RunId]) -> Op[int]:
        # The claim whose answer was lost may still be on its way to its COMMIT; alone, this waits for it.
        # Held by tests/faults/test_late_messages.py.
        proven = yield Statement(self._proven, leased(lease))
        if not proven.rows:
            raise lease_lost(lease)
        return (yield from self._give([lease.worker], lapses=0, held=held))

    def give_back(self, lease: Lease, run_ids: Collection[RunId]) -> Op[tuple[RunId, ...]]:
        proven = yield Statement(self._proven, leased(lease))
        if not proven.rows:
            raise lease_lost(lease)
        dialect, owners = self._basis.dialect, self._basis.dialect.listed([lease.worker])
        free = yield Statement(self._owned_and_free, {"owners": owners})
        given = tuple([RunId(row[0]) for row in free.rows if row[0] in run_ids])
        if given:
            yield Statement(self._hand_back, {"owners": owners, "run_ids": dialect.listed(given), "lapsed": 0})
            yield Statement(self._told)
        return given

    def reap(self, sparing: WorkerId | None, *, waits: bool) -> Op[Reaped]:
        # The lock waits for flushes in flight: they hold the row shared. Once it is ours they are committed, and the next
        # one finds no row. A worker that renewed meanwhile no longer matches and is left out. On SQLite the transaction
        # itself excludes others. Held by tests/race/test_fence.py.
        late = yield Statement(self._late, {"spared": sparing or ""})
        ended = (yield from self._lock_over(late.rows, sparing, waits=waits)) if late.rows else []
        if ended:
            yield Statement(self._forget, {"owners": self._basis.dialect.listed(ended)})
        # Owners are named, not "whoever has no row": a run may change hands while its row's lock is waited for, and its
        # new owner's row may be younger than what this statement sees. A worker's id is never used again.
        orphans = yield Statement(self._orphans)
        owners = sorted({*ended, *(row[0] for row in orphans.rows)}, key=str)
        # A run that is left is found by a later call, which sees that its owner has no row.
        given = (yield from self._give(owners, lapses=1, waits=waits)) if owners else 0
        over_for: dict[str, int] = {worker: at - until for worker, until, at in late.rows}
        return Reaped(given, tuple([(WorkerId(owner), over_for.get(owner)) for owner in owners]))

    def _lock_over(self, late: Sequence[Sequence[Any]], sparing: WorkerId | None, *, waits: bool) -> Op[list[str]]:
        params = {"spared": sparing or "", "late": self._basis.dialect.listed(row[0] for row in late)}
        over = yield Statement(self._over if waits else self._over_and_free, params)
        return [row[0] for row in over.rows]

    def _give(self, owners: Sequence[str], *, lapses: int, held: Sequence[RunId] = (), waits: bool = True) -> Op[int]:
        """Make the owners' runs claimable, but for those in `held`."""
        dialect = self._basis.dialect
        # Rows are locked by id before they are changed, as everyone does; a sender may be waking some of them.
        owned = yield Statement(self._owned if waits else self._owned_and_free, {"owners": dialect.listed(owners)})
        kept = set(held)
        run_ids = [row[0] for row in owned.rows if row[0] not in kept]
        if not run_ids:
            return 0
        given = yield Statement(
            self._hand_back, {"owners": dialect.listed(owners), "run_ids": dialect.listed(run_ids), "lapsed": lapses}
        )
        yield Statement(self._told)
        return given.affected


def _hand_back(basis: Basis, owned: ColumnElement[bool]) -> Update:
    runs = basis.tables.runs
    lapsed = bindparam("lapsed", type_=Integer)
    # Those of a damaged row are counted anew.
    lapses = case((runs.c.lapses.between(0, literal(MOST_COUNTED, BigInteger)), runs.c.lapses + lapsed), else_=lapsed)
    may_go_on = or_(lapsed == 0, lapses <= QUICK_LAPSES)
    pause = case(*((lapses == count, us) for count, us in _PAUSES.items()), else_=_LONGEST_PAUSE)
    return (
        update(runs)
        .where(basis.dialect.is_among(runs.c.id, "run_ids"), owned)
        .values(
            owner=None,
            ready=case((may_go_on, 1), else_=0),
            due_at=basis.now + case((may_go_on, 0), else_=pause),
            lapses=lapses,
            updated_at=basis.now,
        )
    )


def is_leased(basis: Basis) -> ColumnElement[bool]:
    """Return "this worker still has this epoch"; its parameters are those of `leased`."""
    workers = basis.tables.workers
    # In an update SQLAlchemy keeps the names of columns to itself, so neither parameter is named as one.
    return (workers.c.id == bindparam("worker", type_=Text)) & (
        workers.c.epoch == bindparam("lease_epoch", type_=Integer)
    )


def leased(lease: Lease) -> dict[str, object]:
    """Return the parameters of `is_leased`."""
    return {"worker": lease.worker, "lease_epoch": lease.epoch}


def fence(basis: Basis, *columns: ColumnElement[Any], alone: bool = False) -> Query:
    """Return the proof of a lease: a row exactly while it holds, locked so that nobody ends it before we commit.

    The lock is shared and does not conflict with a renewal, which is an ordinary update of columns outside the key; ending
    a lease locks the row for update or deletes it, and therefore waits. Held by tests/race/test_fence.py.

    `alone` takes the lock of those who end leases: it waits for the same worker's writes that are still under way, which
    is what a worker wants that has lost an answer and asks what became of its work.
    """
    workers = basis.tables.workers
    proof = select(*columns).select_from(workers).where(is_leased(basis))
    return proof.with_for_update() if alone else proof.with_for_update(read=True, key_share=True)


def lease_lost(lease: Lease) -> LeaseLost:
    """Return the error of a worker whose lease was taken over."""
    return LeaseLost(
        f"The lease of worker {lease.worker!r} was taken over. Nothing of this write was recorded; its runs go on with "
        "another worker, and this one registers again under a new id."
    )
