"""A program that forks after it has used its database, in both colours: a server that preloads its application."""

from __future__ import annotations

import asyncio
import os
import sys

from outlast.errors import DatabaseUnavailable
from outlast.ports.store import RunFilter
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database
from outlast.testing.contract.desk import new_run


def main() -> None:
    database = open_database(sys.argv[1])
    database.migrate_blocking()
    asyncio.run(_use(database, "before"))
    child = os.fork()
    name = "parent" if child else "child"
    try:
        for n in range(100):
            database.run_blocking(lambda n=n: database.store.start([new_run(f"{name}-{n}")]))
        asyncio.run(_use(database, name))
    except DatabaseUnavailable as error:
        print(f"refused: {error}", flush=True)
        os._exit(0)
    if not child:
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0
    runs = database.run_blocking(lambda: database.store.list(RunFilter(limit=1_000)))
    counted = {name: sum(run.id.startswith(name) for run in runs) for name in ("child", "parent")}
    print(f"child: {counted['child']} runs, parent: {counted['parent']} runs", flush=True)
    database.close_blocking()


async def _use(database: SqlDatabase, name: str) -> None:
    for n in range(100, 200):
        await database.run(lambda n=n: database.store.start([new_run(f"{name}-{n}")]))


main()
