"""psycopg's connections, blocking and awaiting."""

from __future__ import annotations

from typing import Any, Final

from outlast.ports.operation import ExecuteAwaiting
from outlast.stores.databases import psycopg_statements
from outlast.stores.databases.kinds.kind import (
    AwaitingTransaction,
    BlockingTransaction,
    Kind,
    Transaction,
    none_open,
    told,
)
from outlast.stores.databases.loaded import is_a

_IDLE: Final = 0
"""What `TransactionStatus.IDLE` is: no transaction is open."""


def _connection(tx: object) -> Transaction | None:
    connection: Any = tx
    if is_a(tx, "psycopg", "Connection"):
        # Without autocommit psycopg itself begins one before the first statement.
        if connection.autocommit and connection.info.transaction_status == _IDLE:
            raise none_open(tx, "Wrap the call: `with connection.transaction(): ...`.")
        return BlockingTransaction(
            told(tx), "postgresql", tx, lambda: lambda statement: psycopg_statements.execute(connection, statement)
        )
    if is_a(tx, "psycopg", "AsyncConnection"):
        if connection.autocommit and connection.info.transaction_status == _IDLE:
            raise none_open(tx, "Wrap the call: `async with connection.transaction(): ...`.")

        async def enter() -> ExecuteAwaiting:
            return lambda statement: psycopg_statements.execute_awaiting(connection, statement)

        return AwaitingTransaction(told(tx), "postgresql", tx, enter)
    return None


def _is_open(tx: object) -> bool | None:
    connection: Any = tx
    if not is_a(tx, "psycopg", "Connection") and not is_a(tx, "psycopg", "AsyncConnection"):
        return None
    return not connection.closed and bool(connection.info.transaction_status != _IDLE)


PSYCOPG: Final = Kind(
    handles="a Connection or AsyncConnection of psycopg 3",
    recognise=_connection,
    roots={
        ("psycopg_pool", "ConnectionPool"): (
            "Pass a connection of that pool: `with pool.connection() as connection: ... tx=connection`."
        ),
        ("psycopg_pool", "AsyncConnectionPool"): (
            "Pass a connection of that pool: `async with pool.connection() as connection: ... tx=connection`."
        ),
        ("psycopg", "Cursor"): "Pass the connection that it is on: `tx=cursor.connection`.",
        ("psycopg", "AsyncCursor"): "Pass the connection that it is on: `tx=cursor.connection`.",
        ("psycopg", "Transaction"): "Pass the connection that it is on: `tx=transaction.connection`.",
        ("psycopg", "AsyncTransaction"): "Pass the connection that it is on: `tx=transaction.connection`.",
    },
    is_open=_is_open,
)
