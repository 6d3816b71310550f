"""The store contract over an application's own pool that is awaited."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

from outlast.ports.clock import Clock
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database
from outlast.testing import ManualClock
from outlast.testing.contract.desk import _AwaitingDesk  # pyright: ignore[reportPrivateUsage]  its own contract is tried
from outlast.testing.store_contract import Case


def carry(case: Case, pool: AbstractAsyncContextManager[Any]) -> None:
    """Try a case of the contract over a pool, on a loop of its own."""
    clock = ManualClock()
    with asyncio.Runner() as runner:
        entered = runner.run(_entered(pool))

        def opened(now: Clock | None) -> SqlDatabase:
            return open_database(entered, clock=now)

        database = opened(clock)
        runner.run(migrated(database))
        case.script(_AwaitingDesk(database, opened, clock, runner))
        runner.run(_left(database, pool))


async def migrated(database: SqlDatabase) -> None:
    await database.open()
    await database.migrate()


async def _entered(pool: AbstractAsyncContextManager[Any]) -> Any:
    return await pool.__aenter__()


async def _left(database: SqlDatabase, pool: AbstractAsyncContextManager[Any]) -> None:
    await database.close()
    await pool.__aexit__(None, None, None)
