"""One database on several event loops: each has connections of its own, and whoever closes the database ends no other's."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from outlast.ports.operation import Op
from outlast.ports.store import RunFilter
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database

DRIVERS = {"asyncpg": "postgres_url", "psycopg": "postgres_url", "asyncmy": "mysql_url"}


class Watched:
    """A database, and every connection that its road has made."""

    def __init__(self, url: str) -> None:
        self.database = open_database(url)
        self.made: list[Any] = []
        road: Any = self.database._road
        pools = road._pools
        connect = pools._connect

        async def connect_and_tell() -> Any:
            self.made.append(await connect())
            return self.made[-1]

        pools._connect = connect_and_tell

    async def ask(self) -> None:
        await self.database.run(lambda: self.database.store.list(RunFilter()))

    def are_closed(self) -> list[bool]:
        return [connection.is_closed() for connection in self.made]


@pytest.fixture(params=DRIVERS)
def watched(request: pytest.FixtureRequest) -> Iterator[Watched]:
    url: str = request.getfixturevalue(DRIVERS[request.param])
    if request.param == "psycopg":
        url = url.replace("postgresql://", "postgresql+psycopg://")
    watched = Watched(url)
    asyncio.run(_migrate(watched.database))
    watched.made.clear()
    yield watched
    watched.database.close_blocking()


async def _migrate(database: SqlDatabase) -> None:
    await database.open()
    await database.migrate()
    await database.close()


def test_a_loop_closes_its_connections_when_another_closed_the_database_meanwhile(watched: Watched) -> None:
    """The other loop's pool was forgotten, and what came back to it was closed by luck: when its loop ended first, never."""
    begun: list[None] = []
    closed = threading.Event()

    def close() -> None:
        asyncio.run(watched.database.close())
        closed.set()

    closing = threading.Thread(target=close)

    def op() -> Op[None]:
        look = partial(watched.database.store.list, RunFilter())
        yield from look()
        begun.append(None)
        while len(begun) < 2:
            yield from look()
        if not closed.is_set():
            closing.start()
            closed.wait()
        yield from look()
        yield from look()

    async def main() -> None:
        await asyncio.gather(watched.database.run(op), watched.database.run(op))
        gc.collect()  # as it may happen at any time

    asyncio.run(main())
    closing.join()

    assert watched.are_closed() == [True, True]


def test_a_loop_that_has_ended_is_not_kept(watched: Watched) -> None:
    """A pool refers to its loop: a program that ran each call in a loop of its own kept them all."""

    async def ask() -> weakref.ref[asyncio.AbstractEventLoop]:
        await watched.ask()
        return weakref.ref(asyncio.get_running_loop())

    first, _ = asyncio.run(ask()), asyncio.run(ask())

    assert watched.are_closed() == [True, True]
    watched.made.clear()
    gc.collect()
    assert first() is None


def test_an_operation_goes_on_while_another_loop_closes_the_database(watched: Watched) -> None:
    """And the loop that has it goes on as well, with the connections that it had."""

    async def main() -> None:
        await watched.ask()
        await asyncio.to_thread(lambda: asyncio.run(watched.database.close()))
        await watched.ask()
        await watched.ask()

    asyncio.run(main())

    assert watched.are_closed() == [True, True]
