"""The standard library's connections to SQLite, and aiosqlite's."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any, Final

from outlast.ports.operation import ExecuteAwaiting, Result, Statement
from outlast.stores.databases import sqlite_connection
from outlast.stores.databases.compiling import FOR_SQLITE
from outlast.stores.databases.kinds.kind import (
    AwaitingTransaction,
    BlockingTransaction,
    Kind,
    Transaction,
    none_open,
    told,
)
from outlast.stores.databases.loaded import is_a

_BY_ISOLATION_LEVEL: Final = -1
"""`sqlite3.LEGACY_TRANSACTION_CONTROL`, which Python 3.11 does not know yet."""


def _sqlite3(tx: object) -> Transaction | None:
    if not isinstance(tx, sqlite3.Connection):
        return None
    if _commits_by_itself(tx) and not tx.in_transaction:
        raise none_open(tx, 'Begin one first: connection.execute("BEGIN IMMEDIATE").')
    return BlockingTransaction(
        told(tx), "sqlite", tx, lambda: lambda statement: sqlite_connection.execute(tx, statement)
    )


def _aiosqlite(tx: object) -> Transaction | None:
    if not is_a(tx, "aiosqlite", "Connection"):
        return None
    connection: Any = tx
    if _commits_by_itself(connection) and not connection.in_transaction:
        raise none_open(tx, 'Begin one first: await connection.execute("BEGIN IMMEDIATE").')

    async def enter() -> ExecuteAwaiting:
        return lambda statement: _execute(connection, statement)

    return AwaitingTransaction(told(tx), "sqlite", tx, enter)


def _commits_by_itself(connection: Any) -> bool:  # noqa: ANN401 - of either library
    """Tell whether the driver begins no transaction: no isolation level, or from Python 3.12 on autocommit=True."""
    autocommit = getattr(connection, "autocommit", _BY_ISOLATION_LEVEL)
    if autocommit == _BY_ISOLATION_LEVEL:
        return connection.isolation_level is None
    return bool(autocommit)


async def _execute(connection: Any, statement: Statement) -> Result:  # noqa: ANN401 - aiosqlite's
    compiled = FOR_SQLITE.compiled(statement.sql)
    params = statement.params
    async with connection.cursor() as cursor:
        # The caller's connection may make something else of its rows.
        cursor.row_factory = None
        if not isinstance(params, Mapping):
            await cursor.executemany(compiled.text, compiled.rows_of_arguments(params))
            return Result(affected=cursor.rowcount)
        await cursor.execute(compiled.text, compiled.arguments(params))
        rows: list[Any] = await cursor.fetchall() if cursor.description is not None else []
        return Result(rows if connection.text_factory is str else sqlite_connection.as_texts(rows), cursor.rowcount)


SQLITE3: Final = Kind(
    handles="a sqlite3 connection",
    recognise=_sqlite3,
    roots={("sqlite3", "Cursor"): "Pass the connection that it is on: `tx=cursor.connection`."},
)
AIOSQLITE: Final = Kind(
    handles="an aiosqlite connection",
    recognise=_aiosqlite,
    roots={("aiosqlite", "Cursor"): "Pass the connection that it came from."},
)
