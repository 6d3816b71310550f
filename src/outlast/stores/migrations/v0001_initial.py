"""Version 1: runs, their journals and waits, signals, workers.

Frozen: later versions change these tables by steps of their own. Keys are compared byte by byte on every database: case,
accents and trailing blanks count.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import BigInteger, Column, Identity, Index, Integer, MetaData, SmallInteger, Table, Text, text
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement

# Ordered by bytes, as Python orders text: locks are taken in that order on both sides.
_KEY = Text().with_variant(Text(collation="C"), "postgresql")
_COUNTED = BigInteger().with_variant(Integer(), "sqlite")


def statements(name: str, *, schemas: bool) -> Sequence[ExecutableDDLElement]:
    """Return what makes the tables of the installation `name`."""
    metadata = MetaData(schema=name if schemas else None)
    prefix = "" if schemas else f"{name}_"
    tables = [
        _runs(metadata, prefix),
        _journal(metadata, prefix),
        _waits(metadata, prefix),
        _signals(metadata, prefix),
        _workers(metadata, prefix),
    ]
    made: list[ExecutableDDLElement] = [CreateTable(table) for table in tables]
    for table in tables:
        made += [CreateIndex(index) for index in sorted(table.indexes, key=lambda index: str(index.name))]
    return made


def _runs(metadata: MetaData, prefix: str) -> Table:
    runs = Table(
        f"{prefix}runs",
        metadata,
        Column("id", _KEY, primary_key=True),
        Column("workflow", _KEY, nullable=False),
        Column("version", Integer, nullable=False),
        Column("status", _KEY, nullable=False),
        Column("priority", Integer, nullable=False),
        Column("input", Text, nullable=False),
        Column("output", Text),
        Column("error", Text),
        Column("custom_status", Text),
        Column("held", Text),
        Column("owner", _KEY),
        Column("ready", SmallInteger, nullable=False),
        Column("due_at", BigInteger),
        Column("deadline_at", BigInteger),
        Column("stop_kind", Text),
        Column("stop_reason", Text),
        Column("stop_at", BigInteger),
        Column("stop_unseen", SmallInteger, nullable=False),
        Column("signal_cursor", BigInteger, nullable=False),
        Column("turns", Integer, nullable=False),
        Column("lapses", Integer, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("started_at", BigInteger),
        Column("updated_at", BigInteger, nullable=False),
        Column("finished_at", BigInteger),
    )
    # The first three hold live runs only: what is on every worker's path never grows with history.
    _partial(f"{prefix}runs_ready", "ready = 1", runs.c.priority, runs.c.due_at, runs.c.id)
    _partial(f"{prefix}runs_sleeping", "due_at is not null and ready = 0", runs.c.due_at)
    _partial(f"{prefix}runs_owned", "owner is not null", runs.c.owner)
    Index(f"{prefix}runs_created", runs.c.created_at, runs.c.id)
    Index(f"{prefix}runs_status", runs.c.status, runs.c.created_at, runs.c.id)
    return runs


def _partial(name: str, where: str, *columns: Column[object]) -> None:
    Index(name, *columns, postgresql_where=text(where), sqlite_where=text(where))


def _journal(metadata: MetaData, prefix: str) -> Table:
    return Table(
        f"{prefix}journal",
        metadata,
        Column("run_id", _KEY, primary_key=True),
        Column("seq", Integer, primary_key=True, autoincrement=False),
        Column("kind", Text, nullable=False),
        Column("phase", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("due_at", BigInteger),
        Column("payload", Text),
        Column("recorded_at", BigInteger, nullable=False),
    )


def _waits(metadata: MetaData, prefix: str) -> Table:
    waits = Table(
        f"{prefix}waits",
        metadata,
        Column("run_id", _KEY, primary_key=True),
        Column("position", Integer, primary_key=True, autoincrement=False),
        Column("topic", _KEY, nullable=False),
        Column("after_id", BigInteger, nullable=False),
        Column("after_at", BigInteger),
    )
    Index(f"{prefix}waits_topic", waits.c.topic)
    return waits


def _signals(metadata: MetaData, prefix: str) -> Table:
    signals = Table(
        f"{prefix}signals",
        metadata,
        # Never used again, also after the newest was deleted: a run's cursor is one of these.
        Column("id", _COUNTED, Identity(), primary_key=True),
        Column("topic", _KEY, nullable=False),
        Column("name", _KEY, nullable=False),
        Column("dedupe_id", _KEY, nullable=False),
        Column("payload", Text, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    Index(f"{prefix}signals_topic", signals.c.topic, signals.c.id)
    Index(f"{prefix}signals_dedupe", signals.c.name, signals.c.dedupe_id, unique=True)
    return signals


def _workers(metadata: MetaData, prefix: str) -> Table:
    return Table(
        f"{prefix}workers",
        metadata,
        Column("id", _KEY, primary_key=True),
        Column("epoch", Integer, nullable=False),
        Column("lease_until", BigInteger, nullable=False),
        Column("started_at", BigInteger, nullable=False),
        Column("host", Text, nullable=False),
    )
