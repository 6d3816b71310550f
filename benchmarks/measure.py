"""What a section of work costs: CPU of process trees, latencies, and PostgreSQL's own counters."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import asyncpg

TICKS: Final = os.sysconf("SC_CLK_TCK")
PROBE: Final = "bench_probe"
"""A name in every statement of the harness itself, so that the statement count leaves them out."""


def process_tree_cpu(root: int) -> float:
    """CPU seconds of a process, of its live descendants and of the children they have waited for."""
    children: dict[int, list[int]] = {}
    spent: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (stat := _process(folder)):
            parent, seconds = stat
            children.setdefault(parent, []).append(int(folder.name))
            spent[int(folder.name)] = seconds
    total, todo = 0.0, [root]
    while todo:
        pid = todo.pop()
        total += spent.get(pid, 0.0)
        todo += children.get(pid, [])
    return total


def _process(folder: Path) -> tuple[int, float] | None:
    try:
        text = (folder / "stat").read_text()
    except OSError:  # it ended between the listing and the read
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return int(fields[1]), sum(map(int, fields[11:15])) / TICKS


def machine_cpu() -> float:
    """CPU seconds that everything on this machine has used since it booted (interrupts and stolen time included)."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[:8])
    return (user + nice + system + irq + softirq + steal) / TICKS


def percentile(values: Sequence[float], percent: float) -> float:
    """The value at the nearest rank."""
    ordered = sorted(values)
    return ordered[round(percent / 100 * (len(ordered) - 1))]


def latencies(seconds: Sequence[float]) -> dict[str, float]:
    """Milliseconds at the usual percentiles."""
    ms = [value * 1000 for value in seconds]
    return {
        "p50_ms": round(percentile(ms, 50), 3),
        "p95_ms": round(percentile(ms, 95), 3),
        "max_ms": round(max(ms), 3),
        "mean_ms": round(statistics.mean(ms), 3),
    }


class Probe:
    """The harness's own look into a system's database: counts, copies of rows, statistics."""

    def __init__(self, database: str) -> None:
        self.database = database
        self.is_sqlite = database.startswith("sqlite")
        self._connection: Any = None

    async def __aenter__(self) -> Self:
        if self.is_sqlite:
            path = self.database.removeprefix("sqlite:///")
            self._connection = sqlite3.connect(path, timeout=60, isolation_level=None)
        else:
            self._connection = await asyncpg.connect(self.database)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.is_sqlite:
            self._connection.close()
        else:
            await self._connection.close()

    async def execute(self, sql: str) -> None:
        if self.is_sqlite:
            self._connection.execute(sql)
        else:
            await self._connection.execute(f"/* {PROBE} */ {sql}", timeout=600)

    async def column(self, sql: str) -> list[Any]:
        """The first column of the answer."""
        if self.is_sqlite:
            return [row[0] for row in self._connection.execute(sql)]
        return [row[0] for row in await self._connection.fetch(f"/* {PROBE} */ {sql}")]

    async def count(self, sql: str) -> int:
        return int((await self.column(sql))[0])

    async def until(self, sql: str, expected: int, *, period: float = 0.05, within: float = 240) -> None:
        """Return when the count has reached what is expected; raise when it does not within the time."""
        deadline = time.monotonic() + within
        while (found := await self.count(sql)) < expected:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{found} of {expected} after {within} s: {sql}")
            await asyncio.sleep(period)

    async def columns(self, table: str) -> list[str]:
        """Names of the columns of `schema.table` (PostgreSQL) or `table` (SQLite) that an insert may name."""
        if self.is_sqlite:
            return await self.column(f"select name from pragma_table_info('{table}')")
        schema, name = table.split(".")
        return await self.column(
            "select column_name from information_schema.columns where is_generated = 'NEVER' and is_identity = 'NO' "
            f"and table_schema = '{schema}' and table_name = '{name}' order by ordinal_position"
        )

    async def clone(self, table: str, where: str, copies: int, changed: dict[str, str]) -> None:
        """Copy the rows found; `changed` gives the SQL of columns that differ, `s` the row, `g` the copy's number."""
        columns = await self.columns(table)
        names = ", ".join(f'"{name}"' for name in columns)
        values = ", ".join(changed.get(name, f's."{name}"') for name in columns)
        if self.is_sqlite:
            numbers = f"with recursive n(g) as (select 1 union all select g + 1 from n where g < {copies})"
            await self.execute(
                f"insert into {table} ({names}) {numbers} select {values} from {table} s, n where {where}"
            )
        else:
            series = f"generate_series(1, {copies}) g"
            await self.execute(f"insert into {table} ({names}) select {values} from {table} s, {series} where {where}")

    async def freeze_statistics(self) -> None:
        """Gather statistics now and keep the server from gathering them again by itself."""
        await self.analyze()
        if not self.is_sqlite:
            tables = await self.column(
                "select format('%I.%I', schemaname, tablename) from pg_tables "
                "where schemaname not in ('pg_catalog', 'information_schema')"
            )
            for table in tables:
                await self.execute(f"alter table {table} set (autovacuum_enabled = false)")

    async def analyze(self) -> None:
        await self.execute("analyze" if self.is_sqlite else "vacuum analyze")


class PostgresMeter:
    """Server-side counters of one database: write transactions (by xid), statements, bytes of WAL."""

    def __init__(self, database: str) -> None:
        parts = urlsplit(database)
        self._database = parts.path.removeprefix("/")
        self._maintenance = parts._replace(path="/postgres").geturl()
        self._connection: Any = None

    async def open(self) -> None:
        self._connection = await asyncpg.connect(self._maintenance)

    async def close(self) -> None:
        await self._connection.close()

    async def checkpoint(self) -> None:
        """Start every section with clean buffers: no section pays for the one before it."""
        await self._connection.execute("checkpoint")

    async def read(self) -> dict[str, int]:
        """Connected to another database: nothing that the meter runs is counted."""
        xid, lsn, calls = await self._connection.fetchrow(
            "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint, (pg_current_wal_lsn() - '0/0')::bigint, "
            "(select coalesce(sum(calls), 0)::bigint from pg_stat_statements "
            "where dbid = (select oid from pg_database where datname = $1) and query not like $2)",
            self._database,
            f"%{PROBE}%",
        )
        return {"commits": xid, "wal_bytes": lsn, "statements": calls}


@dataclass(slots=True)
class Meter:
    """CPU and database counters between `start` and `stop`, for all processes that do the work."""

    database: str
    postmaster: int | None
    workers: list[int] = field(default_factory=list)
    _postgres: PostgresMeter | None = None
    _before: dict[str, float] = field(default_factory=dict)

    async def start(self) -> None:
        if self.postmaster is not None:
            self._postgres = PostgresMeter(self.database)
            await self._postgres.open()
            await self._postgres.checkpoint()
        self._before = await self._read()

    async def stop(self, runs: int) -> dict[str, float]:
        """Figures for each run, and the share of the machine that other work took meanwhile."""
        after = await self._read()
        spent = {name: after[name] - self._before[name] for name in after}
        ours = spent["client"] + spent["workers"] + spent["server"]
        capacity = spent["clock"] * (os.cpu_count() or 1)
        figures = {
            "cpu_ms": round(ours / runs * 1000, 3),
            "client_cpu_ms": round(spent["client"] / runs * 1000, 3),
            "workers_cpu_ms": round(spent["workers"] / runs * 1000, 3),
            "server_cpu_ms": round(spent["server"] / runs * 1000, 3),
            "other_load": round(max(0.0, spent["machine"] - ours) / capacity, 3) if capacity else 0.0,
        }
        if self._postgres is not None:
            figures["commits"] = round(spent["commits"] / runs, 3)
            figures["statements"] = round(spent["statements"] / runs, 3)
            figures["wal_kb"] = round(spent["wal_bytes"] / runs / 1000, 3)
            await self._postgres.close()
        return figures

    async def _read(self) -> dict[str, float]:
        own = os.times()
        figures = {
            "clock": time.perf_counter(),
            "client": own.user + own.system,
            "workers": sum(process_tree_cpu(pid) for pid in self.workers),
            "server": process_tree_cpu(self.postmaster) if self.postmaster else 0.0,
            "machine": machine_cpu(),
        }
        if self._postgres is not None:
            figures.update(await self._postgres.read())
        return figures
