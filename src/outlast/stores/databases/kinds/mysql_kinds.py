"""Connections of the drivers for MySQL and MariaDB: PyMySQL's, asyncmy's, aiomysql's."""

from __future__ import annotations

from typing import Any, Final

from outlast.ports.operation import ExecuteAwaiting
from outlast.stores.databases.kinds.kind import (
    AwaitingTransaction,
    BlockingTransaction,
    Kind,
    Transaction,
    none_open,
    told,
)
from outlast.stores.databases.loaded import is_a, loaded_class
from outlast.stores.databases.mysql_statements import execute, execute_awaiting

IN_TRANSACTION: Final = 1
"""`SERVER_STATUS_IN_TRANS` of the protocol: what the server said of the connection with its last answer."""


def _pymysql(tx: object) -> Transaction | None:
    if not is_a(tx, "pymysql.connections", "Connection"):
        return None
    connection: Any = tx
    if commits_by_itself(connection):
        raise none_open(tx, "Begin one first: `connection.begin()`.")
    cursors = loaded_class("pymysql.cursors", "Cursor")
    return BlockingTransaction(told(tx), "mysql", tx, lambda: lambda statement: execute(connection, statement, cursors))


def _asyncmy(tx: object) -> Transaction | None:
    return _awaiting(tx, "asyncmy.connection", "asyncmy.cursors")


def _aiomysql(tx: object) -> Transaction | None:
    return _awaiting(tx, "aiomysql.connection", "aiomysql.cursors")


def _awaiting(tx: object, connections: str, cursors: str) -> Transaction | None:
    if not is_a(tx, connections, "Connection"):
        return None
    connection: Any = tx
    if commits_by_itself(connection):
        raise none_open(tx, "Begin one first: `await connection.begin()`.")
    plain = loaded_class(cursors, "Cursor")

    async def enter() -> ExecuteAwaiting:
        return lambda statement: execute_awaiting(connection, statement, plain)

    return AwaitingTransaction(told(tx), "mysql", tx, enter)


def commits_by_itself(connection: Any) -> bool:  # noqa: ANN401 - of any driver
    """Tell whether nobody begins a transaction. Without autocommit the server does, before the first statement."""
    if getattr(connection, "server_status", 0) & IN_TRANSACTION or getattr(connection, "in_transaction", False) is True:
        return False
    known = getattr(connection, "get_autocommit", None)
    # MySQL's own driver, below SQLAlchemy, has an attribute, for which it asks the server.
    return bool(connection.autocommit if known is None else known())


def _is_open(tx: object) -> bool | None:
    """Tell by what the server said with its last answer; a connection that is closed has no transaction, whatever it was."""
    connection: Any = tx
    if is_a(tx, "pymysql.connections", "Connection"):
        return bool(connection.open and connection.server_status & IN_TRANSACTION)
    if is_a(tx, "asyncmy.connection", "Connection"):
        return bool(connection.connected and connection.get_transaction_status())
    if is_a(tx, "aiomysql.connection", "Connection"):
        return bool(not connection.closed and connection.get_transaction_status())
    return None


PYMYSQL: Final = Kind(
    handles="a PyMySQL connection",
    recognise=_pymysql,
    roots={("pymysql.cursors", "Cursor"): "Pass the connection that it is on: `tx=cursor.connection`."},
    is_open=_is_open,
)
ASYNCMY: Final = Kind(
    handles="an asyncmy connection",
    recognise=_asyncmy,
    roots={
        ("asyncmy.pool", "Pool"): (
            "Pass a connection of that pool with a transaction open: `async with pool.acquire() as connection: "
            "await connection.begin(); ... tx=connection`."
        ),
        ("asyncmy.cursors", "Cursor"): "Pass the connection that it is on: `tx=cursor.connection`.",
    },
    is_open=_is_open,
)
AIOMYSQL: Final = Kind(
    handles="an aiomysql connection",
    recognise=_aiomysql,
    roots={
        ("aiomysql.pool", "Pool"): (
            "Pass a connection of that pool with a transaction open: `async with pool.acquire() as connection: "
            "await connection.begin(); ... tx=connection`."
        ),
        ("aiomysql.cursors", "Cursor"): "Pass the connection that it is on: `tx=cursor.connection`.",
    },
    is_open=_is_open,
)
