"""Statements on runs that nobody gets on with: those whose workflow no worker has, and those that are held.

Both read at most so many rows from the front of the indexes that claims read, whatever else waits there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import (
    BigInteger,
    Integer,
    Update,
    bindparam,
    func,
    select,
    union_all,
    update,
)

from outlast.ports.operation import Op, Statement
from outlast.ports.store import Unclaimed
from outlast.stores.basis import Basis
from outlast.stores.claiming import pair_of, pairs_of
from outlast.stores.tables import Query, is_ready, is_unready

MOST_READ: Final = 1_000
"""Rows that are read of each index: what nobody takes stays and gathers at the front."""

MOST_HELD: Final = 10_000
"""Parked runs among which held ones are looked for: those that are due next."""


class Neglected:
    """Tell of runs that nobody here takes; have held runs tried again."""

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        runs, dialect = basis.tables.runs, basis.dialect
        self._unclaimed = _unclaimed(basis)
        self._held = _held(basis)
        named = dialect.is_among(runs.c.id, "run_ids")
        is_held = named & (runs.c.ready == 0) & runs.c.owner.is_(None) & runs.c.held.is_not(None)
        self._free: Query = dialect.claim_lock(select(runs.c.id).where(is_held).order_by(runs.c.id))
        self._retry: Update = update(runs).where(is_held).values(due_at=basis.now)

    def unclaimed(self, workflows: Sequence[tuple[str, int]], *, overdue: int) -> Op[tuple[Unclaimed, ...]]:
        params = {"workflows": self._basis.dialect.listed(pairs_of(workflows)), "overdue": overdue}
        found = yield Statement(self._unclaimed, params, span="alone")
        return tuple(Unclaimed(workflow, version, runs) for workflow, version, runs in found.rows)

    def retry_held(self, workflows: Sequence[tuple[str, int]], *, before: int, within: int, limit: int) -> Op[int]:
        listed = self._basis.dialect.listed
        params = {"workflows": listed(pairs_of(workflows)), "before": before, "within": within, "limit": limit}
        found = yield Statement(self._held, params)
        if not found.rows:
            return 0
        free = yield Statement(self._free, {"run_ids": listed(row[0] for row in found.rows)})
        # Nobody is told: others, which may still have the code that held them, need not be faster than who asked for this.
        retried = yield Statement(self._retry, {"run_ids": listed(row[0] for row in free.rows)})
        return retried.affected


def _unclaimed(basis: Basis) -> Query:
    runs = basis.tables.runs
    columns = (runs.c.workflow, runs.c.version, runs.c.due_at)
    ready = (
        select(*columns)
        .where(is_ready(runs))
        .order_by(runs.c.priority, runs.c.due_at, runs.c.id)
        .limit(MOST_READ)
        .subquery()
    )
    due = (
        select(*columns)
        .where(is_unready(runs), runs.c.due_at <= basis.now, runs.c.owner.is_(None))
        .order_by(runs.c.due_at)
        .limit(MOST_READ)
        .subquery()
    )
    found = union_all(select(ready), select(due)).subquery()
    overdue = found.c.due_at <= basis.now - bindparam("overdue", type_=BigInteger)
    counted = (
        select(found.c.workflow, found.c.version, func.count().label("runs"))
        .where(overdue, ~basis.dialect.is_among(pair_of(found), "workflows"))
        .group_by(found.c.workflow, found.c.version)
        .subquery()
    )
    # Where a worker has runs of this workflow, the others wait for their turn. The index of owned runs is small.
    owned = runs.alias("owned")
    has_worker = (
        select(owned.c.id)
        .where(owned.c.owner.is_not(None), owned.c.workflow == counted.c.workflow, owned.c.version == counted.c.version)
        .exists()
    )
    return select(counted).where(~has_worker).order_by(counted.c.workflow, counted.c.version)


def _held(basis: Basis) -> Query:
    runs = basis.tables.runs
    next_due = (
        select(runs.c.id, runs.c.workflow, runs.c.version, runs.c.held, runs.c.updated_at, runs.c.due_at)
        .where(
            is_unready(runs),
            runs.c.due_at > basis.now,
            runs.c.due_at <= basis.now + bindparam("within", type_=BigInteger),
            runs.c.owner.is_(None),
        )
        .order_by(runs.c.due_at)
        .limit(MOST_HELD)
        .subquery()
    )
    return (
        select(next_due.c.id)
        .where(
            next_due.c.held.is_not(None),
            next_due.c.updated_at < bindparam("before", type_=BigInteger),
            basis.dialect.is_among(pair_of(next_due), "workflows"),
        )
        .order_by(next_due.c.due_at)
        .limit(bindparam("limit", type_=Integer))
    )
