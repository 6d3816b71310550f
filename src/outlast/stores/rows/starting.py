"""Start runs row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Insert, Integer, ScalarSelect, Text, bindparam, func, select

from outlast.model.ids import RunId
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
        self._insert = insert_run(basis, basis.now, bindparam("cursor", type_=BigInteger), leased=False)
        # By itself: inside of the insert MySQL would lock the newest signal, and have every sender wait.
        self._cursor: Query = select(signal_cursor(basis))
        self._existing: Query = existing_runs(basis)

    def start(self, runs: Sequence[NewRun], *, together: bool) -> Op[tuple[StartOutcome, ...]]:  # noqa: ARG002 -- always is
        created: set[RunId] = set()
        found = yield Statement(self._cursor)
        cursor: int = found.rows[0][0]
        # By id, so that two calls that start the same runs never wait for each other in a circle.
        for run in sorted(runs, key=lambda run: run.id):
            made = yield Statement(self._insert, {**new_run_params(run), "cursor": cursor})
            if made.affected == 1:
                created.add(run.id)
        found = yield Statement(self._existing, {"ids": self._basis.dialect.listed(run.id for run in runs)})
        return in_order(runs, created, {row[0]: row for row in found.rows})


def insert_run(basis: Basis, now: ColumnElement[int], cursor: ColumnElement[int], *, leased: bool) -> Insert:
    """Return the insert of one run: ready for any worker, or owned by parameter `worker` from the first moment. `cursor` is
    the `signal_cursor` of its start."""
    runs = basis.tables.runs
    return basis.dialect.insert_if_absent(runs).values(
        id=bindparam("id", type_=Text),
        workflow=bindparam("workflow", type_=Text),
        version=bindparam("version", type_=Integer),
        status=str(Status.RUNNING if leased else Status.PENDING),
        priority=bindparam("priority", type_=Integer),
        input=bindparam("input", type_=Text),
        owner=bindparam("worker", type_=Text) if leased else None,
        ready=0 if leased else 1,
        due_at=None if leased else now,
        deadline_at=now + bindparam("timeout", type_=BigInteger),
        stop_unseen=0,
        signal_cursor=cursor,
        turns=1 if leased else 0,
        lapses=0,
        created_at=now,
        started_at=now if leased else None,
        updated_at=now,
    )


def signal_cursor(basis: Basis) -> ScalarSelect[int]:
    """Return the highest signal id there is. Ids are never used again, so it never goes back."""
    return select(func.coalesce(func.max(basis.tables.signals.c.id), 0)).scalar_subquery()


def new_run_params(run: NewRun) -> dict[str, object]:
    """Return the parameters of `insert_run`."""
    return {
        "id": run.id,
        "workflow": run.workflow,
        "version": run.version,
        "priority": run.priority,
        "input": run.input,
        "timeout": run.timeout,
    }


def existing_runs(basis: Basis) -> Query:
    """Return the statement that reads what `StartOutcome` tells, by the key."""
    runs = basis.tables.runs
    return select(runs.c.id, runs.c.workflow, runs.c.version, runs.c.input, runs.c.status, runs.c.created_at).where(
        basis.dialect.is_among(runs.c.id, "ids")
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
