"""Write a worker's batch row by row: one transaction, each kind of row as one call to the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    Delete,
    Insert,
    Text,
    bindparam,
    delete,
    select,
)

from outlast.model.ids import RunId
from outlast.model.run import TERMINAL
from outlast.ports.operation import Op, Statement
from outlast.ports.store import Batch, FlushOutcome, Lease, NewRun, RunWrite
from outlast.stores.basis import Basis
from outlast.stores.journal import Journal, record_params
from outlast.stores.rows.news import News
from outlast.stores.rows.starting import RunInserts, signal_cursor
from outlast.stores.rows.writing import Writes
from outlast.stores.tables import Query
from outlast.stores.waits import counts
from outlast.stores.workers import fence, lease_lost, leased


class FlushByRow:
    """Fence, then records, waits, run writes and starts."""

    def __init__(self, basis: Basis, journal: Journal) -> None:
        self._basis = basis
        self._journal = journal
        runs, waits, dialect = basis.tables.runs, basis.tables.waits, basis.dialect
        self._prove: Query = fence(basis, basis.now, signal_cursor(basis))
        owner = runs.c.owner == bindparam("worker", type_=Text)
        # Locked: the same worker may give a run back at this moment, on another connection. Who saw it as its own would else
        # write into the journal of whoever has it then. Held by tests/race/test_fence.py.
        owned = select(runs.c.id, runs.c.turns).where(dialect.is_among(runs.c.id, "run_ids"), owner)
        self._owned: Query = owned.with_for_update()
        self._unwait: Delete = delete(waits).where(dialect.is_among(waits.c.run_id, "run_ids"))
        self._wait: Insert = (
            waits.insert()
            .values(
                {
                    name: bindparam(name, type_=waits.c[name].type)
                    for name in ("run_id", "position", "topic", "after_id", "after_at")
                }
            )
            .inline()
        )
        self._awaited = _awaited(basis)
        self._news = News(basis)
        self._writes = Writes(basis)
        self._ready: Query = select(runs.c.id).where(dialect.is_among(runs.c.id, "run_ids"), runs.c.ready == 1)
        self._inserts = RunInserts(basis, leased=True)

    def flush(self, lease: Lease, batch: Batch) -> Op[FlushOutcome]:
        yield from self._lock_topics(batch)
        owned: Mapping[str, int] = {}
        if batch.is_joined:
            # A caller may have the run's row, and nothing of ours limits this wait. With the worker's row locked meanwhile
            # the renewal would stand behind this one, and the flushes of all other runs behind the renewal.
            # Held by tests/faults/test_callers_transactions.py.
            owned = yield from self._own(lease, batch)
        proven = yield Statement(self._prove, leased(lease))
        if not proven.rows:
            raise lease_lost(lease)
        now, cursor = proven.rows[0]
        if not batch.is_joined:
            owned = yield from self._own(lease, batch)
        records = [(run_id, record) for run_id, record in batch.records if run_id in owned]
        if records:
            yield Statement(self._journal.insert, record_params(records, now))
        writes = [write for write in batch.writes if write.id in owned]
        if begun := [
            write.id for write in writes if owned[write.id] != 1 and (not write.keep or write.status in TERMINAL)
        ]:
            # In its first turn a run has not been parked yet, so there are no waits of it.
            yield Statement(self._unwait, {"run_ids": self._basis.dialect.listed(begun)})
        ready = yield from self._apply(lease, writes, now)
        started = yield from self._start_all(lease, batch.starts, now, cursor)
        lost = tuple(write.id for write in batch.writes if write.id not in owned)
        return FlushOutcome(started, now, cursor, lost, ready)

    def _lock_topics(self, batch: Batch) -> Op[None]:
        topics = (wait.topic for write in batch.writes if not write.keep for wait in write.waits)
        locks = self._basis.dialect.topic_locks(self._basis.tables, topics, shared=True)
        if locks is not None:
            yield locks

    def _own(self, lease: Lease, batch: Batch) -> Op[Mapping[str, int]]:
        """Return which of the batch's runs are this worker's, and in the turn that writes, with that turn's number."""
        named = {run_id for run_id, _ in batch.records} | {write.id for write in batch.writes}
        if not named:
            return {}
        wanted = self._basis.dialect.listed(sorted(named))
        found = yield Statement(self._owned, {"run_ids": wanted, "worker": lease.worker})
        turns = {write.id: write.turns for write in batch.writes}
        return {run_id: now for run_id, now in found.rows if turns.get(run_id) in {None, now}}

    def _apply(self, lease: Lease, writes: Sequence[RunWrite], now: int) -> Op[tuple[RunId, ...]]:
        """Write the runs, and the waits of those that are parked; return the parked ones that are ready."""
        if not writes:
            return ()
        dialect = self._basis.dialect
        if waits := _wait_params(writes):
            yield Statement(self._wait, waits)
            waiting = sorted({wait["run_id"] for wait in waits})
            awaited = yield from self._await(waiting)
        else:
            awaited = set[str]()
        yield from self._writes.apply(lease, writes, awaited, now)
        parked = [write.id for write in writes if not write.keep and write.status not in TERMINAL]
        if not parked:
            return ()
        found = yield Statement(self._ready, {"run_ids": dialect.listed(parked)})
        return tuple(RunId(row[0]) for row in found.rows)

    def _await(self, run_ids: Sequence[str]) -> Op[set[str]]:
        """Tell which of these runs wait for a signal that is there already."""
        if not self._basis.dialect.has_ranges_in_joins:
            return (yield from self._news.awaited(run_ids))
        found = yield Statement(self._awaited, {"run_ids": self._basis.dialect.listed(run_ids)})
        return {row[0] for row in found.rows}

    def _start_all(self, lease: Lease, starts: Sequence[NewRun], now: int, cursor: int) -> Op[tuple[RunId, ...]]:
        """Create the runs whose ids are free."""
        created = yield from self._inserts.insert(starts, now, cursor, worker=lease.worker)
        return tuple(run.id for run in starts if run.id in created)


def _awaited(basis: Basis) -> Query:
    """Which of these runs wait for a signal that is there already. Their topics are locked, so none is on its way."""
    waits, signals = basis.tables.waits, basis.tables.signals
    there = select(signals.c.id).where(counts(signals, waits)).correlate(waits).exists()
    return select(waits.c.run_id).where(basis.dialect.is_among(waits.c.run_id, "run_ids"), there)


def _wait_params(writes: Sequence[RunWrite]) -> list[dict[str, Any]]:
    return [
        {
            "run_id": write.id,
            "position": position,
            "topic": wait.topic,
            "after_id": wait.after_id,
            "after_at": wait.after_at,
        }
        for write in writes
        if not write.keep and write.status not in TERMINAL
        for position, wait in enumerate(write.waits)
    ]
