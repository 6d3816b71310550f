"""What both ways to claim share: which runs, which columns, and how a row becomes a claimed run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from sqlalchemy import ColumnElement, FromClause, Text, cast, literal

from outlast.model.ids import RunId
from outlast.model.journal import Record
from outlast.model.run import LIVE, Status
from outlast.model.signal import StoredSignal
from outlast.ports.operation import Op
from outlast.ports.store import ClaimedRun, ClaimRequest
from outlast.stores.journal import Journal
from outlast.stores.runs import stop_of

CLAIMED_COLUMNS: Final = (
    "id",
    "workflow",
    "version",
    "status",
    "input",
    "custom_status",
    "created_at",
    "started_at",
    "deadline_at",
    "signal_cursor",
    "turns",
    "lapses",
    "stop_kind",
    "stop_reason",
    "stop_at",
)
TURNS: Final = CLAIMED_COLUMNS.index("turns")

KNOWN: Final = tuple(sorted(str(status) for status in LIVE))
"""A row with another status was not written by us; it must not stop the claim of the others."""

Records: TypeAlias = dict[str, tuple[Record, ...]]
Read: TypeAlias = tuple[frozenset[str], tuple[StoredSignal, ...]]
"""The topics that a run was last parked with, and the signals that it may take, by id."""

NOTHING_READ: Final[Read] = (frozenset(), ())


def pairs_of(workflows: Iterable[tuple[str, int]]) -> list[str]:
    """Return one text for each workflow, so that any number of registered ones is one parameter."""
    return [f"{workflow}@{version}" for workflow, version in workflows]


def pair_of(runs: FromClause) -> ColumnElement[str]:
    """Return that text of a row."""
    return runs.c.workflow + literal("@", Text) + cast(runs.c.version, Text)


def read_records(journal: Journal, rows: Sequence[Sequence[Any]], request: ClaimRequest) -> Op[Records]:
    """Read the journals of the runs that the worker does not hold in memory as they are. `turns` as before the claim."""
    wanted = {row[0]: row[TURNS] for row in rows if request.cached.get(row[0]) != row[TURNS]}
    # A run that no worker had before has recorded nothing.
    begun = [run_id for run_id, turns in wanted.items() if turns > 0]
    found = (yield from journal.of_runs(begun)) if begun else {}
    return {run_id: found.get(run_id, ()) for run_id in wanted}


def claimed(row: Sequence[Any], now: int, records: Records, read: Read) -> ClaimedRun:
    """Return the run of a row with these columns. `turns` as before the claim."""
    run_id, status = RunId(row[0]), Status(row[3])
    topics, signals = read
    return ClaimedRun(
        id=run_id,
        workflow=row[1],
        version=row[2],
        status=status if status is Status.COMPENSATING else Status.RUNNING,
        input=row[4],
        custom_status=row[5],
        created_at=row[6],
        started_at=now if row[7] is None else row[7],
        deadline_at=row[8],
        signal_cursor=row[9],
        turns=row[TURNS] + 1,
        # SQLite keeps whatever is put into a column.
        lapses=row[11] if isinstance(row[11], int) else 0,
        stop=stop_of(row[12], row[13], row[14]),
        records=records.get(run_id),
        signals=signals,
        topics=topics,
        read_at=now,
    )
