"""Looking until something is so, instead of sleeping; and looking at the tables past the library."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import psycopg
import pymysql
import pytest

T = TypeVar("T")
LOOK_EVERY: Final = 0.01
MYSQL_LOCKS_WAITED_FOR: Final = "show global status like 'Innodb_row_lock_current_waits'"
_POSTGRES_LOCKS_WAITED_FOR: Final = (
    "select 'Lock', count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
)


def until(found: Callable[[], T], what: str, *, timeout: float = 30) -> T:
    """Return what `found` returns as soon as that is true. Fails, saying `what` was waited for, when it never is."""
    deadline = time.monotonic() + timeout
    while not (value := found()):
        if time.monotonic() > deadline:
            pytest.fail(f"waited {timeout:g} s for {what}")
        time.sleep(LOOK_EVERY)
    return value


async def until_awaited(
    found: Callable[[], Awaitable[T]], what: str, *, timeout: float = 30, every: float = LOOK_EVERY
) -> T:
    """The same in an event loop."""
    deadline = time.monotonic() + timeout
    while not (value := await found()):
        if time.monotonic() > deadline:
            pytest.fail(f"waited {timeout:g} s for {what}")
        await asyncio.sleep(every)
    return value


async def until_seen(found: Callable[[], T], what: str) -> T:
    """The same of what is seen without awaiting: a log record, a file."""

    async def look() -> T:
        return found()

    return await until_awaited(look, what)


def connect_mysql(url: str, *, autocommit: bool = True) -> pymysql.Connection[Any]:
    """Connect to the MySQL or MariaDB of a URL."""
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname or "",
        port=parts.port or 0,
        user=parts.username,
        password=parts.password or "",
        database=parts.path.removeprefix("/") or None,
        autocommit=autocommit,
    )


class Tables:
    """The tables of an app as they lie in the database, read and changed by hand: `Tables(url)("select ... {runs}")`."""

    def __init__(self, url: str, schema: str = "outlast") -> None:
        self._url = url
        self._prefix = f"{schema}." if url.startswith("postgres") else f"{schema}_"

    def __call__(self, statement: str, *arguments: object) -> list[tuple[Any, ...]]:
        """Execute one statement in a transaction of its own; `%s` stands for an argument, `{runs}` for a table."""
        names = ("runs", "journal", "waits", "signals", "workers", "migrations")
        text = statement.format(**{name: f"{self._prefix}{name}" for name in names})
        if self._url.startswith("sqlite"):
            path = self._url.removeprefix("sqlite:///")
            with contextlib.closing(sqlite3.connect(path, timeout=30)) as connection, connection:
                return connection.execute(text.replace("%s", "?"), arguments).fetchall()
        if not self._url.startswith("postgres"):
            return self._ask_mysql(text, arguments)
        with psycopg.connect(self._url) as server:
            found = server.execute(text.encode(), arguments)
            return found.fetchall() if found.description else []

    def _ask_mysql(self, statement: str, arguments: tuple[object, ...]) -> list[tuple[Any, ...]]:
        with contextlib.closing(connect_mysql(self._url)) as connection, connection.cursor() as cursor:
            cursor.execute(statement, arguments)
            return list(cursor.fetchall())

    def end_leases(self) -> None:
        """Let the leases of all workers run out now, as if their time had passed."""
        self("update {workers} set lease_until = 0")

    def waits_for_a_lock(self) -> bool:
        """Whether somebody on this server waits for somebody else's row."""
        is_postgres = self._url.startswith("postgres")
        ((_, number),) = self(_POSTGRES_LOCKS_WAITED_FOR if is_postgres else MYSQL_LOCKS_WAITED_FOR)
        return int(number) > 0

    def owner(self, run: str) -> str | None:
        """Who has the run."""
        found = self("select owner from {runs} where id = %s", run)
        return found[0][0] if found else None
