"""The harness's own look into a system's database: counts, copies of rows, statistics."""

from __future__ import annotations

import abc
import asyncio
import importlib
import sqlite3
import time
from typing import Any, Final, Self
from urllib.parse import urlsplit

import asyncpg

PROBE: Final = "bench_probe"
"""A name in every statement of the harness itself, so that the statement count leaves them out."""


class Probe(abc.ABC):
    """`async with probe_of(url) as probe`."""

    def __init__(self, database: str) -> None:
        self.database = database
        self._connection: Any = None

    @abc.abstractmethod
    async def __aenter__(self) -> Self: ...

    @abc.abstractmethod
    async def __aexit__(self, *_: object) -> None: ...

    @abc.abstractmethod
    async def execute(self, sql: str) -> None: ...

    @abc.abstractmethod
    async def column(self, sql: str) -> list[Any]:
        """The first column of the answer."""

    @abc.abstractmethod
    async def columns(self, table: str) -> list[str]:
        """Names of the columns of `table` (on PostgreSQL `schema.table`) that an insert may name."""

    async def count(self, sql: str) -> int:
        return int((await self.column(sql))[0])

    async def until(self, sql: str, expected: int, *, period: float = 0.05, within: float = 240) -> None:
        """Return when the count has reached what is expected; raise when it does not within the time."""
        deadline = time.monotonic() + within
        while (found := await self.count(sql)) < expected:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{found} of {expected} after {within} s: {sql}")
            await asyncio.sleep(period)

    async def clone(self, table: str, where: str, copies: int, changed: dict[str, str]) -> None:
        """Copy the rows found; `changed` gives the SQL of columns that differ, `s` the row, `g` the copy's number."""
        columns = await self.columns(table)
        names = ", ".join(f'"{name}"' for name in columns)
        values = ", ".join(changed.get(name, f's."{name}"') for name in columns)
        numbers = f"with recursive n(g) as (select 1 union all select g + 1 from n where g < {copies})"
        await self.execute(f"insert into {table} ({names}) {numbers} select {values} from {table} s, n where {where}")

    @abc.abstractmethod
    async def freeze_statistics(self) -> None:
        """Gather statistics now and keep the server from gathering them again by itself."""

    @abc.abstractmethod
    async def analyze(self) -> None: ...


class SQLiteProbe(Probe):
    async def __aenter__(self) -> Self:
        path = self.database.removeprefix("sqlite:///")
        self._connection = sqlite3.connect(path, timeout=60, isolation_level=None)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._connection.close()

    async def execute(self, sql: str) -> None:
        self._connection.execute(sql)

    async def column(self, sql: str) -> list[Any]:
        return [row[0] for row in self._connection.execute(sql)]

    async def columns(self, table: str) -> list[str]:
        return await self.column(f"select name from pragma_table_info('{table}')")

    async def freeze_statistics(self) -> None:
        await self.analyze()

    async def analyze(self) -> None:
        await self.execute("analyze")


class PostgresProbe(Probe):
    async def __aenter__(self) -> Self:
        self._connection = await asyncpg.connect(self.database)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()

    async def execute(self, sql: str) -> None:
        await self._connection.execute(f"/* {PROBE} */ {sql}", timeout=600)

    async def column(self, sql: str) -> list[Any]:
        return [row[0] for row in await self._connection.fetch(f"/* {PROBE} */ {sql}")]

    async def columns(self, table: str) -> list[str]:
        schema, name = table.split(".")
        return await self.column(
            "select column_name from information_schema.columns where is_generated = 'NEVER' and is_identity = 'NO' "
            f"and table_schema = '{schema}' and table_name = '{name}' order by ordinal_position"
        )

    async def freeze_statistics(self) -> None:
        await self.analyze()
        tables = await self.column(
            "select format('%I.%I', schemaname, tablename) from pg_tables "
            "where schemaname not in ('pg_catalog', 'information_schema')"
        )
        for table in tables:
            await self.execute(f"alter table {table} set (autovacuum_enabled = false)")

    async def analyze(self) -> None:
        await self.execute("vacuum analyze")


def probe_of(database: str) -> Probe:
    """A probe for the database behind a URL."""
    scheme = urlsplit(database).scheme
    if scheme in {"mysql", "mariadb"}:
        # Its driver is not among what the peers are measured with.
        found: Probe = importlib.import_module("benchmarks.probing_mysql").MySQLProbe(database)
        return found
    return SQLiteProbe(database) if scheme == "sqlite" else PostgresProbe(database)
