"""A program in an environment that holds what outlast requires and nothing else."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder

EXTRAS = ("greenlet", "asyncpg", "psycopg", "aiosqlite", "pydantic", "attrs", "typer", "rich", "fastapi")


class Without(MetaPathFinder):
    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


sys.meta_path.insert(0, Without())

import asyncio  # noqa: E402 - after the way is closed

from outlast.stores.databases.opening import open_database  # noqa: E402
from outlast.testing.contract.desk import new_run  # noqa: E402


async def main() -> None:
    database = open_database("sqlite://")
    await database.open()
    await database.migrate()
    (outcome,) = await database.run(lambda: database.store.start([new_run("r")]))
    await database.close()
    print("created:", outcome.created, flush=True)


asyncio.run(main())
