"""The tables, as statements see them. Their types, keys and indexes stand in `outlast.stores.migrations`.

Columns are text, integers and nothing else, so that a raw driver needs no conversion. `_at` and `_until` are microseconds
since the epoch, UTC.

**Lock order.** Everyone takes locks in this order and, within one kind, in ascending order of the key:

    1. topics     exclusive by a sender, shared by a flush that registers waits
    2. workers    shared by a worker's own writes (the fence), exclusive by whoever ends the lease
    3. runs       by id; a claim skips what is locked, so it never waits here

A started run's id (an insert that waits for another insert of the same id) comes with 3. Held by tests/race.

A transaction of the application's may hold any of them in its own order, and a step in one takes 2 at its very end: on MySQL
and MariaDB after its run, for which it may wait long. Whoever waits for it has a limit to its patience, gives up what it has
and tries again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Integer,
    MetaData,
    Select,
    SmallInteger,
    Table,
    Text,
    func,
    literal_column,
)

Query: TypeAlias = "Select[*tuple[Any, ...]]"
"""A select of any columns."""

RUN_COLUMNS: Final = (
    "id",
    "workflow",
    "version",
    "status",
    "priority",
    "input",
    "output",
    "error",
    "custom_status",
    "held",
    "stop_kind",
    "stop_reason",
    "stop_at",
    "owner",
    "due_at",
    "deadline_at",
    "turns",
    "lapses",
    "created_at",
    "started_at",
    "updated_at",
    "finished_at",
)
"""The columns of `StoredRun`, in the order in which every statement that reads whole runs selects them."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one installation: a schema where the database has schemas, else names with a prefix."""

    name: str
    runs: Table
    journal: Table
    waits: Table
    signals: Table
    workers: Table
    migrations: Table

    @property
    def all(self) -> tuple[Table, ...]:
        return (self.runs, self.journal, self.waits, self.signals, self.workers, self.migrations)


def make_tables(name: str, *, schemas: bool) -> Tables:
    """Return the tables of the installation `name`."""
    metadata = MetaData(schema=name if schemas else None)
    prefix = "" if schemas else f"{name}_"
    return Tables(
        name=name,
        runs=_runs(metadata, prefix),
        journal=_journal(metadata, prefix),
        waits=_waits(metadata, prefix),
        signals=_signals(metadata, prefix),
        workers=_workers(metadata, prefix),
        migrations=_migrations(metadata, prefix),
    )


def is_ready(runs: Table) -> ColumnElement[bool]:
    """Return "any worker may claim it now", for reading the index of ready runs.

    A literal, which the planner can match with the index's condition. Where rows are found by another key, the state is
    compared with a parameter instead (`runs.c.ready == 1`), so that no planner takes this index for it.
    """
    return runs.c.ready == literal_column("1", SmallInteger)


def is_unready(runs: Table) -> ColumnElement[bool]:
    """Return "parked, with a worker, or over", for reading the index of sleeping runs."""
    return runs.c.ready == literal_column("0", SmallInteger)


def has_no_worker(runs: Table) -> ColumnElement[bool]:
    """Return "it is parked or ready", for a row that is found by another key: in a form that no index serves.

    MySQL locks what it reads, entries of an index too. Whoever came to a row by another index than its id would hold
    that entry while it waits for the row, and the one who has the row may have to change the entry.
    """
    return func.coalesce(runs.c.owner, "") == ""


def has_state(runs: Table, ready: int) -> ColumnElement[bool]:
    """Return "it is ready" (1) or not (0), in a form that no index serves."""
    return runs.c.ready + 0 == ready


def _runs(metadata: MetaData, prefix: str) -> Table:
    return Table(
        f"{prefix}runs",
        metadata,
        Column("id", Text, primary_key=True),
        Column("workflow", Text),
        Column("version", Integer),
        Column("status", Text),
        Column("priority", Integer),
        Column("input", Text),
        Column("output", Text),
        Column("error", Text),
        Column("custom_status", Text),
        # Why a parked run is held back, as a stored failure.
        Column("held", Text),
        # The worker that has the run; none while it is parked, waiting for a worker or over.
        Column("owner", Text),
        # 1: any worker may claim it now; then owner is null.
        Column("ready", SmallInteger),
        Column("due_at", BigInteger),
        Column("deadline_at", BigInteger),
        Column("stop_kind", Text),
        Column("stop_reason", Text),
        Column("stop_at", BigInteger),
        # 1: the stop request came after the last claim, so no turn has begun with it. Parking such a run makes it ready.
        Column("stop_unseen", SmallInteger),
        Column("signal_cursor", BigInteger),
        Column("turns", Integer),
        Column("lapses", Integer),
        Column("created_at", BigInteger),
        Column("started_at", BigInteger),
        Column("updated_at", BigInteger),
        Column("finished_at", BigInteger),
    )


def _journal(metadata: MetaData, prefix: str) -> Table:
    return Table(
        f"{prefix}journal",
        metadata,
        Column("run_id", Text, primary_key=True),
        Column("seq", Integer, primary_key=True),
        Column("kind", Text),
        Column("phase", Text),
        Column("name", Text),
        Column("attempt", Integer),
        Column("due_at", BigInteger),
        Column("payload", Text),
        Column("recorded_at", BigInteger),
    )


def _waits(metadata: MetaData, prefix: str) -> Table:
    return Table(
        f"{prefix}waits",
        metadata,
        Column("run_id", Text, primary_key=True),
        Column("position", Integer, primary_key=True),
        Column("topic", Text),
        Column("after_id", BigInteger),
        Column("after_at", BigInteger),
    )


def _signals(metadata: MetaData, prefix: str) -> Table:
    return Table(
        f"{prefix}signals",
        metadata,
        Column("id", BigInteger, primary_key=True),
        Column("topic", Text),
        Column("name", Text),
        Column("dedupe_id", Text),
        Column("payload", Text),
        Column("created_at", BigInteger),
    )


def _workers(metadata: MetaData, prefix: str) -> Table:
    return Table(
        f"{prefix}workers",
        metadata,
        Column("id", Text, primary_key=True),
        Column("epoch", Integer),
        Column("lease_until", BigInteger),
        Column("started_at", BigInteger),
        Column("host", Text),
    )


def _migrations(metadata: MetaData, prefix: str) -> Table:
    return Table(
        f"{prefix}migrations",
        metadata,
        Column("version", Integer, primary_key=True),
        Column("name", Text),
        Column("applied_at", BigInteger),
    )
