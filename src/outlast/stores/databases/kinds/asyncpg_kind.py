"""asyncpg's connections, from a pool or not."""

from __future__ import annotations

from typing import Any, Final

from outlast.ports.operation import ExecuteAwaiting
from outlast.stores.databases.asyncpg_statements import execute
from outlast.stores.databases.kinds.kind import AwaitingTransaction, Kind, Transaction, none_open, told
from outlast.stores.databases.loaded import is_a


def _connection(tx: object) -> Transaction | None:
    if not (is_a(tx, "asyncpg", "Connection") or is_a(tx, "asyncpg.pool", "PoolConnectionProxy")):
        return None
    connection: Any = tx
    if not connection.is_in_transaction():
        raise none_open(tx, "Wrap the call: `async with connection.transaction(): ...`.")

    async def enter() -> ExecuteAwaiting:
        return lambda statement: execute(connection, statement)

    # The proxy is new each time.
    source = connection._con if is_a(tx, "asyncpg.pool", "PoolConnectionProxy") else connection  # noqa: SLF001
    return AwaitingTransaction(told(tx), "postgresql", source, enter)


def _is_open(tx: object) -> bool | None:
    connection: Any = tx
    if is_a(tx, "asyncpg.pool", "PoolConnectionProxy"):
        # Without one it is back in its pool.
        connection = connection._con  # noqa: SLF001 - every public word of it raises then
        return connection is not None and bool(connection.is_in_transaction())
    if is_a(tx, "asyncpg", "Connection"):
        return not connection.is_closed() and bool(connection.is_in_transaction())
    return None


ASYNCPG: Final = Kind(
    handles="an asyncpg connection",
    recognise=_connection,
    roots={
        ("asyncpg.pool", "Pool"): (
            "Pass a connection of that pool with a transaction open: `async with pool.acquire() as connection, "
            "connection.transaction(): ... tx=connection`."
        ),
        ("asyncpg.transaction", "Transaction"): (
            "Pass the connection that it is on: `async with connection.transaction(): ... tx=connection`."
        ),
    },
    is_open=_is_open,
)
