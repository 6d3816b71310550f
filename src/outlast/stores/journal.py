"""Statements on the journal. All of them go by its key (run_id, seq)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import Insert, bindparam, select

from outlast.model.ids import RunId
from outlast.model.journal import Kind, Phase, Record
from outlast.ports.operation import Op, Params, Statement
from outlast.stores.basis import Basis
from outlast.stores.tables import Query

RECORD_COLUMNS: Final = ("seq", "kind", "phase", "name", "attempt", "due_at", "payload", "recorded_at")


class Journal:
    """Read records, and say how one is inserted."""

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        journal = basis.tables.journal
        columns = [journal.c.run_id, *(journal.c[name] for name in RECORD_COLUMNS)]
        ordered = select(*columns).order_by(journal.c.run_id, journal.c.seq)
        self._of_runs: Query = ordered.where(basis.dialect.is_among(journal.c.run_id, "run_ids"))
        self.insert: Insert = basis.dialect.insert_if_absent(journal).values(
            {name: bindparam(name, type_=journal.c[name].type) for name in ("run_id", *RECORD_COLUMNS)}
        )

    def of_runs(self, run_ids: Sequence[str]) -> Op[dict[str, tuple[Record, ...]]]:
        """Read the journals of these runs; a run without one has no key."""
        found = yield Statement(self._of_runs, {"run_ids": self._basis.dialect.listed(run_ids)})
        records: dict[str, list[Record]] = {}
        for row in found.rows:
            records.setdefault(row[0], []).append(_record(row))
        return {run_id: tuple(rows) for run_id, rows in records.items()}


def record_params(records: Iterable[tuple[RunId, Record]], now: int) -> list[Params]:
    """Return the parameters of `Journal.insert`. A record without a time is recorded now."""
    return [
        {
            "run_id": run_id,
            "seq": record.seq,
            "kind": str(record.kind),
            "phase": str(record.phase),
            "name": record.name,
            "attempt": record.attempt,
            "due_at": record.due_at,
            "payload": record.payload,
            "recorded_at": record.recorded_at or now,
        }
        for run_id, record in records
    ]


def _record(row: Sequence[Any]) -> Record:
    # A word that is not known here must stop its own run, not the claim of all.
    kind, phase = _KINDS.get(row[2], Kind.UNKNOWN), _PHASES.get(row[3], Phase.UNKNOWN)
    return Record(row[1], kind, phase, row[4], row[5], row[6], row[7], row[8])


_KINDS: Final = {kind.value: kind for kind in Kind}
_PHASES: Final = {phase.value: phase for phase in Phase}
