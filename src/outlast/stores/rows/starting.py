"""Start runs row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, Insert, Integer, ScalarSelect, Select, Text, bindparam, func, select

from outlast.model.ids import RunId, WorkerId
from outlast.model.run import Status
from outlast.ports.operation import Op, Statement
from outlast.ports.store import NewRun, StartOutcome
from outlast.stores.basis import Basis
from outlast.stores.runs import status_of
from outlast.stores.tables import Query


class StartByRow:
    """Insert each run unless its id is taken; read those that were there."""

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        self._inserts = RunInserts(basis, leased=False)
        # By itself: inside of the insert MySQL would lock the newest signal, and have every sender wait.
        self._present: Query = select(basis.now, signal_cursor(basis))
        locked = basis.dialect.lock_at_once(_named(basis))
        self._present_if_free: Query | None = (
            None if locked is None else self._present.add_columns(locked.scalar_subquery())
        )
        self._existing: Query = existing_runs(basis)

    def start(
        self,
        runs: Sequence[NewRun],
        *,
        together: bool,  # noqa: ARG002 -- always is
        waits: bool,
    ) -> Op[tuple[StartOutcome, ...]]:
        if waits or self._present_if_free is None:
            found = yield Statement(self._present)
        else:
            found = yield Statement(self._present_if_free, {"ids": self._basis.dialect.listed(run.id for run in runs)})
        now, cursor = found.rows[0][:2]
        created = yield from self._inserts.insert(runs, now, cursor)
        if len(created) == len(runs):
            return tuple(created_run(run, now) for run in runs)
        found = yield Statement(self._existing, {"ids": self._basis.dialect.listed(run.id for run in runs)})
        return in_order(runs, created, {row[0]: row for row in found.rows})


class RunInserts:
    """Inserts of runs whose ids are free: ready for any worker, or owned by one from the first moment."""

    def __init__(self, basis: Basis, *, leased: bool) -> None:
        runs = basis.tables.runs
        self._basis = basis
        self._insert = _insert_run(basis, leased=leased)
        inserted = basis.dialect.inserted(runs)
        named = basis.dialect.is_among(runs.c.id, "ids")
        self._inserted: Query | None = None if inserted is None else select(runs.c.id).where(named, inserted)

    def insert(
        self, runs: Sequence[NewRun], now: int, cursor: int, *, worker: WorkerId | None = None
    ) -> Op[set[RunId]]:
        """Insert them and return the ids that were free. `cursor` is the `signal_cursor` of their start."""
        # By id, so that two calls that start the same runs never wait for each other in a circle. Of an id that is named
        # twice the first counts.
        by_id = {run.id: run for run in reversed(runs)}
        params = [_params(by_id[run_id], now, cursor, worker) for run_id in sorted(by_id)]
        if self._inserted is None:
            return (yield from self._insert_singly(params))
        if not params:
            return set()
        made = yield Statement(self._insert, params)
        if made.affected == len(params):
            return set(by_id)
        found = yield Statement(self._inserted, {"ids": self._basis.dialect.listed(by_id)})
        return {RunId(row[0]) for row in found.rows}

    def _insert_singly(self, params: Sequence[dict[str, Any]]) -> Op[set[RunId]]:
        created: set[RunId] = set()
        for run in params:
            made = yield Statement(self._insert, run)
            if made.affected == 1:
                created.add(run["id"])
        return created


def _insert_run(basis: Basis, *, leased: bool) -> Insert:
    """Nothing but parameters stands among its values: only then the drivers for MySQL send many rows at once."""
    runs, now = basis.tables.runs, bindparam("at", type_=BigInteger)
    return basis.dialect.insert_if_absent(runs).values(
        id=bindparam("id", type_=Text),
        workflow=bindparam("workflow", type_=Text),
        version=bindparam("version", type_=Integer),
        status=str(Status.RUNNING if leased else Status.PENDING),
        priority=bindparam("priority", type_=Integer),
        input=bindparam("input", type_=Text),
        owner=bindparam("worker", type_=Text),
        ready=0 if leased else 1,
        due_at=None if leased else now,
        deadline_at=bindparam("deadline_at", type_=BigInteger),
        stop_unseen=0,
        signal_cursor=bindparam("cursor", type_=BigInteger),
        turns=1 if leased else 0,
        lapses=0,
        created_at=now,
        started_at=now if leased else None,
        updated_at=now,
    )


def _params(run: NewRun, now: int, cursor: int, worker: WorkerId | None) -> dict[str, Any]:
    return {
        "id": run.id,
        "workflow": run.workflow,
        "version": run.version,
        "priority": run.priority,
        "input": run.input,
        "deadline_at": None if run.timeout is None else now + run.timeout,
        "cursor": cursor,
        "worker": worker,
        "at": now,
    }


def signal_cursor(basis: Basis) -> ScalarSelect[int]:
    """Return the highest signal id there is. Ids are never used again, so it never goes back."""
    return select(func.coalesce(func.max(basis.tables.signals.c.id), 0)).scalar_subquery()


def _named(basis: Basis) -> Select[int]:
    runs = basis.tables.runs
    return select(func.count()).select_from(runs).where(basis.dialect.is_among(runs.c.id, "ids"))


def existing_runs(basis: Basis) -> Query:
    """Return the statement that reads what `StartOutcome` tells, by the key."""
    runs = basis.tables.runs
    return select(runs.c.id, runs.c.workflow, runs.c.version, runs.c.input, runs.c.status, runs.c.created_at).where(
        basis.dialect.is_among(runs.c.id, "ids")
    )


def created_run(run: NewRun, at: int) -> StartOutcome:
    """Report a run that this start has created."""
    return StartOutcome(
        id=run.id,
        workflow=run.workflow,
        version=run.version,
        input=run.input,
        status=Status.PENDING,
        created=True,
        created_at=at,
    )


def in_order(runs: Sequence[NewRun], created: set[RunId], rows: dict[str, Sequence[Any]]) -> tuple[StartOutcome, ...]:
    """Report each run as its row says. An id that occurs twice was created by its first occurrence only."""
    outcomes: list[StartOutcome] = []
    left = set(created)
    for run in runs:
        _, workflow, version, stored, status, created_at = rows[run.id]
        outcomes.append(
            StartOutcome(
                id=run.id,
                workflow=workflow,
                version=version,
                input=stored,
                status=status_of(status),
                created=run.id in left,
                created_at=created_at,
            )
        )
        left.discard(run.id)
    return tuple(outcomes)
