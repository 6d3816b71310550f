"""SQLite: one writer at a time, host clock, no row locks."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable
from typing import Any, ClassVar, Final

from sqlalchemy import BigInteger, ColumnElement, Insert, Table, bindparam, false, func, null, select, text, update
from sqlalchemy.dialects.sqlite import insert

from outlast.errors import DatabaseUnavailable
from outlast.ports.operation import Op, Statement
from outlast.stores.dialects.base import Dialect, Trouble, unwrapped
from outlast.stores.tables import Query, Tables

_OLDEST: Final = (3, 35)
_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_WHEREABOUTS: Final = text("select file from pragma_database_list where name = 'main'")
_TABLES = text("select name from sqlite_master where type = 'table'")
_AWAY: Final = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL)

_REFUSED: Final = {
    sqlite3.SQLITE_NOTADB: (
        "The file is no SQLite database. Name another one in the database's URL, or move this one away to begin anew."
    ),
    sqlite3.SQLITE_CORRUPT: "The SQLite file is damaged. Put a backup in its place, or try `.recover` of sqlite3's shell.",
    sqlite3.SQLITE_READONLY: (
        "The SQLite file cannot be written to. Whoever uses it needs to write to the file and to its folder, where SQLite "
        "keeps its log (-wal, -shm)."
    ),
}
"""What no waiting mends."""


def host_now() -> int:
    """Return this host's clock in microseconds. All processes on one SQLite file share it."""
    return time.time_ns() // 1000


class SQLite(Dialect):
    name: ClassVar[str] = "sqlite"
    has_schemas: ClassVar[bool] = False
    has_arrays: ClassVar[bool] = False
    in_the_way: ClassVar[str] = (
        "Another transaction holds the SQLite file's one write lock. If it is yours, around this call, pass it as tx=, or "
        "end it first. It was in the way"
    )

    def now(self) -> ColumnElement[int]:
        # SQLite's own clock has milliseconds at best; this is evaluated when the statement is executed.
        return bindparam("now", callable_=host_now, type_=BigInteger)

    def insert_if_absent(self, table: Table) -> Insert:
        return insert(table).on_conflict_do_nothing()

    def is_among(self, column: ColumnElement[str], name: str) -> ColumnElement[bool]:
        values = func.json_each(bindparam(name)).table_valued("value")
        return column.in_(select(values.c.value))

    def listed(self, values: Iterable[str]) -> object:
        # A column holds whatever was put there: what is no text is no id of ours, and is found nowhere.
        return json.dumps(list(values), ensure_ascii=False, default=repr)

    def claim_lock(self, select: Query) -> Query:
        # A writing transaction has the file to itself from its beginning.
        return select

    def topic_locks(self, tables: Tables, topics: Iterable[str], *, shared: bool) -> Statement | None:
        return None

    def write_lock(self, tables: Tables) -> Statement | None:
        # Changes no row, but begins to write. Held by tests/race/test_joined_time.py.
        return Statement(update(tables.workers).values(epoch=tables.workers.c.epoch).where(false()))

    def notice(self, tables: Tables, what: ColumnElement[str]) -> ColumnElement[Any]:
        return null()

    def isolation(self) -> Statement | None:
        return None

    def check_server(self) -> Op[None]:
        found = yield Statement(select(func.sqlite_version()), span="alone")
        version: str = found.rows[0][0]
        if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
            raise DatabaseUnavailable(f"SQLite {version} is too old; outlast needs 3.35 or newer.")

    def migration_lock(self, name: str) -> Statement | None:
        return None

    def schema_present(self, name: str) -> Statement | None:
        return None

    def tables_present(self, tables: Tables) -> Statement:
        return Statement(_TABLES)

    def whereabouts(self) -> Statement:
        return Statement(_WHEREABOUTS)

    def refusal(self, error: BaseException) -> str | None:
        for part in unwrapped(error):
            if isinstance(part, sqlite3.Error):
                told = _REFUSED.get(getattr(part, "sqlite_errorcode", -1) & 0xFF)
                if told is not None:
                    return f"{told} ({part})"
        return None

    def is_conflict(self, error: BaseException) -> bool:
        return self.trouble(error) is Trouble.BUSY

    def trouble(self, error: BaseException) -> Trouble | None:
        for part in unwrapped(error):
            if isinstance(part, sqlite3.Error):
                code = getattr(part, "sqlite_errorcode", -1) & 0xFF
                if code in _BUSY:
                    return Trouble.BUSY
                if code in _AWAY:
                    return Trouble.LOST
        return None
