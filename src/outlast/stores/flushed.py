"""Tell whether a flush was written, when its answer was lost. Goes by the keys of journal and runs."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Integer, Text, bindparam, select

from outlast.model.run import TERMINAL
from outlast.ports.operation import Op, Statement
from outlast.ports.store import Batch, Lease
from outlast.stores.basis import Basis
from outlast.stores.tables import Query
from outlast.stores.workers import fence, lease_lost, leased


class Flushed:
    """A flush is all or nothing, so any one trace of it proves the whole."""

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        journal, runs = basis.tables.journal, basis.tables.runs
        # Alone: the flush may have reached the server and be waiting there, for a lock of somebody else's.
        self._fence: Query = fence(basis, basis.now, alone=True)
        self._recorded: Query = select(journal.c.seq).where(
            journal.c.run_id == bindparam("run_id", type_=Text), journal.c.seq == bindparam("seq", type_=Integer)
        )
        self._owned: Query = select(runs.c.id).where(
            basis.dialect.is_among(runs.c.id, "run_ids"), runs.c.owner == bindparam("worker", type_=Text)
        )

    def flushed(self, lease: Lease, batch: Batch) -> Op[bool]:
        # With the lease still held, nobody but this worker can have written what is found. Without it a record of that
        # place might be the next owner's.
        proven = yield Statement(self._fence, leased(lease))
        if not proven.rows:
            raise lease_lost(lease)
        for run_id, record in batch.records[:1]:
            found = yield Statement(self._recorded, {"run_id": run_id, "seq": record.seq})
            return bool(found.rows)
        released = [write.id for write in batch.writes if not write.keep or write.status in TERMINAL]
        if released:
            return (yield from self._own(lease, released)) < len(released)
        # What is left are starts, and writes that keep their runs and are the same written once or twice.
        return bool(batch.starts) and (yield from self._own(lease, [run.id for run in batch.starts])) > 0

    def _own(self, lease: Lease, run_ids: list[Any]) -> Op[int]:
        found = yield Statement(self._owned, {"run_ids": self._basis.dialect.listed(run_ids), "worker": lease.worker})
        return len(found.rows)
