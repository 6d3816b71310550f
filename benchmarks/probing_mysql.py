"""The harness's look into MySQL and MariaDB, and what these servers counted."""

from __future__ import annotations

from typing import Any, ClassVar, Self
from urllib.parse import unquote, urlsplit

import asyncmy

from benchmarks.probing import Probe


class MySQLProbe(Probe):
    """On MySQL and MariaDB, whose statements carry no mark that a counter could see: so they are counted here."""

    sent: ClassVar[int] = 0
    """Statements of this process's probes so far."""

    async def __aenter__(self) -> Self:
        self._connection = await asyncmy.connect(**arguments_of(self.database), autocommit=True)
        await self.execute("set session sql_mode = concat(@@sql_mode, ',ANSI')")
        depth = "max_recursive_iterations" if self.database.startswith("mariadb") else "cte_max_recursion_depth"
        await self.execute(f"set session {depth} = 1000000")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.ensure_closed()

    async def execute(self, sql: str) -> None:
        await self.rows(sql)

    async def rows(self, sql: str) -> list[Any]:
        MySQLProbe.sent += 1
        async with self._connection.cursor() as cursor:
            await cursor.execute(sql)
            return list(await cursor.fetchall()) if cursor.description is not None else []

    async def column(self, sql: str) -> list[Any]:
        return [row[0] for row in await self.rows(sql)]

    async def columns(self, table: str) -> list[str]:
        return await self.column(
            "select column_name from information_schema.columns where extra not like '%auto_increment%' "
            f"and table_schema = database() and table_name = '{table}' order by ordinal_position"
        )

    async def freeze_statistics(self) -> None:
        await self.analyze()
        for table in await self._tables():
            await self.execute(f"alter table {table} stats_auto_recalc = 0")

    async def analyze(self) -> None:
        await self.execute(f"analyze table {', '.join(await self._tables())}")

    async def _tables(self) -> list[str]:
        return await self.column("select table_name from information_schema.tables where table_schema = database()")


class MySQLCounters:
    """Of the whole server, which has no other user: transactions of InnoDB that wrote, statements, bytes of the redo log."""

    def __init__(self, database: str) -> None:
        self._probe = MySQLProbe(database)

    async def open(self) -> None:
        await self._probe.__aenter__()
        await self._probe.execute("set global innodb_monitor_enable = 'trx_rw_commits'")

    async def close(self) -> None:
        await self._probe.__aexit__()

    async def read(self) -> dict[str, int]:
        names = "variable_name in ('Questions', 'Innodb_os_log_written')"
        status = {
            name.lower(): int(value) for name, value in await self._probe.rows(f"show global status where {names}")
        }
        commits = await self._probe.count(
            "select count from information_schema.innodb_metrics where name = 'trx_rw_commits'"
        )
        return {
            "commits": commits,
            "wal_bytes": status["innodb_os_log_written"],
            "statements": status["questions"] - MySQLProbe.sent,
        }


def arguments_of(database: str) -> dict[str, Any]:
    """A URL as asyncmy takes it."""
    parts = urlsplit(database)
    return {
        "host": parts.hostname,
        "port": parts.port,
        "user": parts.username,
        "password": unquote(parts.password or ""),
        "database": parts.path.removeprefix("/") or None,
    }
