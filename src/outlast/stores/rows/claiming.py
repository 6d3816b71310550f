"""Statements that take due runs, one after the other in one transaction.

Ready runs come from the partial index on (priority, due_at, id) where ready = 1; parked runs that are due from the one on
(due_at) of parked runs that have a due time. Both hold live runs only, so a claim costs the same with any history behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Integer,
    Label,
    Text,
    Update,
    and_,
    bindparam,
    case,
    func,
    literal,
    or_,
    select,
    update,
)

from outlast.model.run import Status
from outlast.model.signal import StoredSignal
from outlast.ports.operation import Op, Statement
from outlast.ports.store import Claim, ClaimRequest
from outlast.stores.basis import Basis
from outlast.stores.claiming import (
    CLAIMED_COLUMNS,
    KNOWN,
    NOTHING_READ,
    TURNS,
    Read,
    claimed,
    pair_of,
    pairs_of,
    read_records,
)
from outlast.stores.journal import Journal
from outlast.stores.rows.news import News
from outlast.stores.runs import MOST_COUNTED
from outlast.stores.tables import Query, has_state, is_ready, is_unready
from outlast.stores.waits import PER_WAIT, counts
from outlast.stores.workers import fence, lease_lost, leased

PROMOTED_AT_ONCE: Final = 1_000
"""Parked runs that become ready in one claim; with more of them due, the next claim goes on."""


class ClaimByRow:
    """Look, promote what is due, take what is ready, read what a turn needs."""

    def __init__(self, basis: Basis, journal: Journal) -> None:
        self._basis = basis
        self._journal = journal
        runs, dialect = basis.tables.runs, basis.dialect
        self._look = _look(basis)
        due = and_(is_unready(runs), runs.c.due_at <= basis.now, runs.c.owner.is_(None))
        name = basis.tables.name
        parked = select(runs.c.id).where(due).order_by(runs.c.due_at).limit(PROMOTED_AT_ONCE)
        self._due: Query = dialect.by_index(dialect.claim_lock(parked), runs, f"{name}_runs_sleeping")
        named = dialect.is_among(runs.c.id, "run_ids")
        self._promote: Update = update(runs).where(named, has_state(runs, 0)).values(ready=1)
        known = or_(*(runs.c.status == status for status in KNOWN))
        claimable = and_(is_ready(runs), dialect.is_among(pair_of(runs), "workflows"), known)
        ready: Query = (
            select(*(_turns(basis) if name == "turns" else runs.c[name] for name in CLAIMED_COLUMNS))
            .where(claimable)
            .order_by(runs.c.priority, runs.c.due_at, runs.c.id)
            .limit(bindparam("limit", type_=Integer))
        )
        self._ready: Query = dialect.by_index(dialect.claim_lock(ready), runs, f"{name}_runs_ready")
        self._take = _take(basis)
        self._signals = _signals(basis)
        self._news = News(basis)
        self._told: Query = select(dialect.notice(basis.tables, literal("ready", Text)))
        left = [dialect.by_index(select(runs.c.id).where(claimable).limit(1), runs, f"{name}_runs_ready")]
        left += [dialect.by_index(select(runs.c.id).where(due).limit(1), runs, f"{name}_runs_sleeping")]
        self._left: Query = select(func.coalesce(*(each.scalar_subquery() for each in left)))

    def claim(self, request: ClaimRequest) -> Op[Claim]:
        looked = yield Statement(self._look, leased(request.lease))
        if not looked.rows:
            raise lease_lost(request.lease)
        now, next_due, first_due = looked.rows[0]
        promoted = (yield from self._promote_due()) if first_due is not None else ()
        if len(promoted) == PROMOTED_AT_ONCE:
            next_due = first_due
        rows = yield from self._take_ready(request, now)
        passed_by = False
        if not self._basis.dialect.has_notices:
            passed_by = len(rows) < request.limit and (yield from self._has_passed_by(request))
        elif not {row[0] for row in rows}.issuperset(promoted):
            # Whoever looked meanwhile has passed them by, since they were locked here. Held by tests/race/test_claim.py.
            yield Statement(self._told)
        records = yield from read_records(self._journal, rows, request)
        read = yield from self._read_waits(rows)
        runs = tuple([claimed(row, now, records, read.get(row[0], NOTHING_READ)) for row in rows])
        return Claim(runs, now, next_due, passed_by)

    def _promote_due(self) -> Op[Sequence[str]]:
        due = yield Statement(self._due)
        run_ids = [row[0] for row in due.rows]
        if run_ids:
            yield Statement(self._promote, {"run_ids": self._basis.dialect.listed(run_ids)})
        return run_ids

    def _take_ready(self, request: ClaimRequest, now: int) -> Op[Sequence[Sequence[Any]]]:
        dialect = self._basis.dialect
        workflows = dialect.listed(pairs_of(request.workflows))
        ready = yield Statement(self._ready, {"workflows": workflows, "limit": request.limit})
        if not ready.rows:
            return ()
        run_ids = dialect.listed(row[0] for row in ready.rows)
        taken = yield Statement(self._take, {"run_ids": run_ids, "worker": request.lease.worker, "at": now})
        # The rows are locked, or the file is; a difference would mean two owners.
        assert taken.affected == len(ready.rows)
        return ready.rows

    def _has_passed_by(self, request: ClaimRequest) -> Op[bool]:
        """Tell whether more could have been taken or made ready, had others not locked it.

        Worker A knows that a run is due, and looks. Worker B of another application has the row: it makes ready whatever is
        due, and InnoDB locks what it reads until it has seen that the row is not wanted. So A passes by, B leaves the run,
        and A would not look again. Held by tests/race/test_claim.py.
        """
        left = yield Statement(self._left, {"workflows": self._basis.dialect.listed(pairs_of(request.workflows))})
        return left.rows[0][0] is not None

    def _read_waits(self, rows: Sequence[Sequence[Any]]) -> Op[dict[str, Read]]:
        """Return, for each run that was parked with waits, their topics and the signals that they may take, by id."""
        begun = [row[0] for row in rows if row[TURNS] > 0]
        if not begun:
            return {}
        topics: dict[str, set[str]] = {}
        signals: dict[str, dict[int, StoredSignal]] = {}
        for run_id, topic, signal in (yield from self._read_signals(begun)):
            topics.setdefault(run_id, set()).add(topic)
            if signal is not None:
                # Two waits of one run may name one topic.
                signals.setdefault(run_id, {})[signal.id] = signal
        return {
            run_id: (frozenset(named), tuple(one for _, one in sorted(signals.get(run_id, {}).items())))
            for run_id, named in topics.items()
        }

    def _read_signals(self, run_ids: Sequence[str]) -> Op[list[tuple[str, str, StoredSignal | None]]]:
        """Return each wait of these runs with each of its signals, and with none."""
        if not self._basis.dialect.has_ranges_in_joins:
            waits = yield from self._news.waits(run_ids)
            read = yield from self._news.signals(waits)
            alone = [(wait.run_id, wait.topic, None) for wait in waits]
            return [*alone, *((wait.run_id, wait.topic, signal) for wait, signal in read)]
        found = yield Statement(self._signals, {"run_ids": self._basis.dialect.listed(run_ids)})
        return [
            (run_id, topic, None if signal_id is None else StoredSignal(signal_id, topic, payload, created_at))
            for run_id, topic, signal_id, payload, created_at in found.rows
        ]


def _look(basis: Basis) -> Query:
    """Prove the lease; read the time, when the next parked run is due, and whether one is due already."""
    runs, now = basis.tables.runs, basis.now
    parked = is_unready(runs)
    next_due = select(func.min(runs.c.due_at)).where(parked, runs.c.due_at > now).scalar_subquery()
    first_due = select(func.min(runs.c.due_at)).where(parked, runs.c.due_at <= now).scalar_subquery()
    return fence(basis, now, next_due, first_due)


def _turns(basis: Basis) -> Label[int]:
    turns = basis.tables.runs.c.turns
    return case((turns.between(0, literal(MOST_COUNTED, BigInteger)), turns), else_=1).label("turns")


def _take(basis: Basis) -> Update:
    runs, at = basis.tables.runs, bindparam("at", type_=BigInteger)
    compensating = str(Status.COMPENSATING)
    return (
        update(runs)
        .where(basis.dialect.is_among(runs.c.id, "run_ids"), has_state(runs, 1))
        .values(
            owner=bindparam("worker", type_=Text),
            status=case((runs.c.status == compensating, compensating), else_=str(Status.RUNNING)),
            ready=0,
            due_at=None,
            stop_unseen=0,
            turns=_turns(basis) + 1,
            started_at=func.coalesce(runs.c.started_at, at),
            updated_at=at,
        )
    )


def _signals(basis: Basis) -> Query:
    waits, signals = basis.tables.waits, basis.tables.signals
    earlier = signals.alias("earlier")
    # The id of the last signal that this wait is given now; the search ends there.
    last = (
        select(earlier.c.id)
        .where(earlier.c.topic == waits.c.topic, earlier.c.id > waits.c.after_id)
        .order_by(earlier.c.id)
        .limit(1)
        .offset(PER_WAIT - 1)
        .correlate(waits)
        .scalar_subquery()
    )
    up_to = func.coalesce(last, literal(2**63 - 1, BigInteger))
    return (
        select(waits.c.run_id, waits.c.topic, signals.c.id, signals.c.payload, signals.c.created_at)
        .select_from(waits.outerjoin(signals, and_(counts(signals, waits), signals.c.id <= up_to)))
        .where(basis.dialect.is_among(waits.c.run_id, "run_ids"))
    )
