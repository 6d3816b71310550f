"""Statements on single runs: read one, read how far some are, ask one to stop. All go by the key, `id`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import BigInteger, Text, Update, and_, bindparam, case, literal, or_, select, update

from outlast.model.failures import decode_failure
from outlast.model.ids import RunId
from outlast.model.run import Status, Stop, StopKind
from outlast.ports.operation import Op, Statement
from outlast.ports.store import Outcome, RunDetails, StopOutcome, StoredRun
from outlast.stores.basis import Basis
from outlast.stores.journal import Journal
from outlast.stores.tables import RUN_COLUMNS, Query

MOST_COUNTED: Final = 2**31 - 2
"""The turns and lapses of a damaged row are counted anew: one more than a column holds would fail the claim of every run."""

_STOPS: Final = frozenset(str(kind) for kind in StopKind)
_STATUSES: Final = {status.value: status for status in Status}
_OPEN: Final = tuple(str(status) for status in (Status.PENDING, Status.RUNNING, Status.SUSPENDED))


class Runs:
    """Reads of single runs, and stop requests."""

    def __init__(self, basis: Basis, journal: Journal) -> None:
        self._basis = basis
        self._journal = journal
        runs, waits = basis.tables.runs, basis.tables.waits
        # Waits stay in the table until the next park or end; they mean something only while the run is parked.
        parked = and_(waits.c.run_id == runs.c.id, runs.c.owner.is_(None), runs.c.ready == 0)
        self._one: Query = (
            select(*(runs.c[name] for name in RUN_COLUMNS), waits.c.topic)
            .select_from(runs.outerjoin(waits, parked))
            .where(runs.c.id == bindparam("run_id", type_=Text))
            .order_by(waits.c.position)
        )
        self._outcomes: Query = select(
            runs.c.id, runs.c.status, runs.c.output, runs.c.error, runs.c.workflow, runs.c.version, runs.c.held,
            runs.c.finished_at,
        ).where(basis.dialect.is_among(runs.c.id, "run_ids"))  # fmt: skip
        self._waiting_for: Query = (
            select(runs.c.id, waits.c.topic)
            .select_from(runs.join(waits, parked))
            .where(basis.dialect.is_among(runs.c.id, "run_ids"))
            .order_by(runs.c.id, waits.c.position)
        )
        self._request_stop = _request_stop(basis)
        self._stopping = _stopping(basis)

    def get(self, run_id: RunId, *, journal: bool) -> Op[RunDetails | None]:
        found = yield Statement(self._one, {"run_id": run_id}, span="read" if journal else "alone")
        if not found.rows:
            return None
        records = (yield from self._journal.of_runs([run_id])) if journal else {}
        waiting_for = tuple(row[-1] for row in found.rows if row[-1] is not None)
        return RunDetails(stored_run(found.rows[0]), records.get(run_id, ()), waiting_for)

    def outcomes(self, run_ids: Sequence[RunId]) -> Op[Mapping[RunId, Outcome]]:
        wanted = self._basis.dialect.listed(run_ids)
        found = yield Statement(self._outcomes, {"run_ids": wanted}, span="alone")
        return {
            RunId(row[0]): Outcome(
                status_of(row[1]),
                output=row[2],
                error=row[3],
                workflow=row[4],
                version=row[5],
                held=row[6],
                finished_at=row[7],
            )
            for row in found.rows
        }

    def waiting_for(self, run_ids: Sequence[RunId]) -> Op[Mapping[RunId, tuple[str, ...]]]:
        wanted = self._basis.dialect.listed(run_ids)
        found = yield Statement(self._waiting_for, {"run_ids": wanted}, span="alone")
        topics: dict[RunId, tuple[str, ...]] = {}
        for run_id, topic in found.rows:
            topics[run_id] = (*topics.get(run_id, ()), topic)
        return topics

    def request_stop(self, run_id: RunId, kind: StopKind, failure: str) -> Op[StopOutcome | None]:
        # One conditional write: of two cancels one matches no row, and so does one that comes after the end.
        wanted = {"run_id": run_id, "kind": str(kind), "reason": failure}
        asked = yield Statement(self._request_stop, wanted)
        accepted = asked.affected == 1
        found = yield Statement(self._stopping, {"run_id": run_id, "accepted": int(accepted)})
        if not found.rows:
            return None
        return StopOutcome(status_of(found.rows[0][0]), accepted)


def _request_stop(basis: Basis) -> Update:
    runs, now = basis.tables.runs, basis.now
    kind = bindparam("kind", type_=Text)
    compensating = runs.c.status == str(Status.COMPENSATING)
    is_open = or_(*(runs.c.status == status for status in _OPEN))
    cancel = and_(kind == str(StopKind.CANCEL), is_open, runs.c.stop_kind.is_(None))
    terminate = and_(
        kind == str(StopKind.TERMINATE),
        or_(is_open, compensating),
        or_(runs.c.stop_kind.is_(None), runs.c.stop_kind == str(StopKind.CANCEL)),
    )
    # A parked run becomes claimable. A run with a worker does not: the worker is told, or learns it with its renewal; and
    # should the worker be about to park it, that write sees `stop_unseen` and leaves it claimable.
    # Held by tests/race/test_stop.py.
    parked = and_(runs.c.owner.is_(None), runs.c.ready == 0)
    return (
        update(runs)
        .where(runs.c.id == bindparam("run_id", type_=Text), or_(cancel, terminate))
        # In this order: MySQL sets one column after the other, and looks at what it has set. Held by
        # tests/unit/stores/test_statements.py.
        .ordered_values(
            ("stop_kind", kind),
            ("stop_reason", bindparam("reason", type_=Text)),
            ("stop_at", now),
            ("stop_unseen", 1),
            ("due_at", case((parked, now), else_=runs.c.due_at)),
            ("ready", case((runs.c.owner.is_(None), 1), else_=runs.c.ready)),
            ("updated_at", now),
        )
    )


def _stopping(basis: Basis) -> Query:
    runs = basis.tables.runs
    what = case((runs.c.owner.is_(None), literal("ready", Text)), else_=literal("stop", Text))
    told = case((bindparam("accepted", type_=BigInteger) == 1, basis.dialect.notice(basis.tables, what)))
    return select(runs.c.status, told).where(runs.c.id == bindparam("run_id", type_=Text))


def stored_run(row: Sequence[Any]) -> StoredRun:
    """Read a row of `RUN_COLUMNS`."""
    return StoredRun(
        id=RunId(row[0]),
        workflow=row[1],
        version=row[2],
        status=status_of(row[3]),
        priority=row[4],
        input=row[5],
        output=row[6],
        error=row[7],
        custom_status=row[8],
        held=row[9],
        stop=stop_of(row[10], row[11], row[12]),
        owner=row[13],
        due_at=row[14],
        deadline_at=row[15],
        turns=row[16],
        lapses=row[17],
        created_at=row[18],
        started_at=row[19],
        updated_at=row[20],
        finished_at=row[21],
        unknown_status=None if row[3] in _STATUSES else row[3],
    )


def status_of(text: str) -> Status:
    """Read a status. One that we do not know must not hide the run, nor those that were read with it."""
    return _STATUSES.get(text, Status.UNKNOWN)


def stop_of(kind: str | None, reason: str | None, at: int | None) -> Stop | None:
    """Read a stop request from its three columns; one of a kind that we do not know is none, as it asks for nothing."""
    if kind is None or reason is None or at is None or kind not in _STOPS:
        return None
    return Stop(StopKind(kind), decode_failure(reason), at)
