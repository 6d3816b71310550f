"""What a database server counted: write transactions, statements, bytes of its log."""

from __future__ import annotations

import importlib
from typing import Any, Protocol
from urllib.parse import urlsplit

import asyncpg

from benchmarks.probing import PROBE


class Counters(Protocol):
    """Nothing that the harness itself does is counted."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def read(self) -> dict[str, int]: ...


class PostgresCounters:
    """Of one database: write transactions by xid, statements, bytes of WAL."""

    def __init__(self, database: str) -> None:
        parts = urlsplit(database)
        self._database = parts.path.removeprefix("/")
        self._maintenance = parts._replace(path="/postgres").geturl()
        self._connection: Any = None

    async def open(self) -> None:
        self._connection = await asyncpg.connect(self._maintenance)
        # Every section starts with clean buffers: none pays for the one before it.
        await self._connection.execute("checkpoint")

    async def close(self) -> None:
        await self._connection.close()

    async def read(self) -> dict[str, int]:
        """Connected to another database: nothing that these counters run is counted."""
        xid, lsn, calls = await self._connection.fetchrow(
            "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint, (pg_current_wal_lsn() - '0/0')::bigint, "
            "(select coalesce(sum(calls), 0)::bigint from pg_stat_statements "
            "where dbid = (select oid from pg_database where datname = $1) and query not like $2)",
            self._database,
            f"%{PROBE}%",
        )
        return {"commits": xid, "wal_bytes": lsn, "statements": calls}


def counters_of(database: str) -> Counters:
    """Counters of the server behind a URL."""
    if urlsplit(database).scheme in {"mysql", "mariadb"}:
        found: Counters = importlib.import_module("benchmarks.probing_mysql").MySQLCounters(database)
        return found
    return PostgresCounters(database)
