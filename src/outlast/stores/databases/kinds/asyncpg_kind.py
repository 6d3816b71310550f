"""asyncpg's connections, from a pool or not."""

from __future__ import annotations

from typing import Any, Final

from outlast.ports.operation import ExecuteAwaiting
from outlast.stores.databases.asyncpg_road import execute
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

    return AwaitingTransaction(told(tx), "postgresql", enter)


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
)
