"""A pool that closes: by whoever closes it, who may go away meanwhile, or with its loop."""

from __future__ import annotations

import asyncio
import gc

import pytest

from outlast.errors import DatabaseUnavailable
from outlast.stores.databases.held_pool import HeldPool


class Connection:
    """A connection that takes leave when the server lets it."""

    server_hears = True

    def __init__(self) -> None:
        self.said: list[str] = []

    def is_closed(self) -> bool:
        return self.said != []

    def terminate(self) -> None:
        if not self.said:
            self.said.append("nothing")

    async def close(self, *, timeout: float | None = None) -> None:
        await asyncio.sleep(0)
        if not self.server_hears:
            await asyncio.get_running_loop().create_future()
        self.said.append("goodbye")


class Deaf(Connection):
    server_hears = False


async def pool_of(*connections: Connection) -> HeldPool[Connection]:
    """A pool with these, which were all in use at once."""
    left = list(connections)

    async def connect() -> Connection:
        return left.pop(0)

    pool = HeldPool(connect, limit=len(connections))
    for connection in [await pool.take() for _ in connections]:
        pool.give(connection)
    return pool


async def test_every_connection_takes_leave() -> None:
    connections = [Connection(), Connection()]
    pool = await pool_of(*connections)

    await pool.close()

    assert [one.said for one in connections] == [["goodbye"], ["goodbye"]]
    with pytest.raises(DatabaseUnavailable):
        await pool.take()


async def test_none_stays_open_when_whoever_closes_goes_away() -> None:
    connections = [Deaf(), Connection()]
    pool = await pool_of(*connections)

    closing = asyncio.create_task(pool.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])

    assert [one.said for one in connections] == [["nothing"], ["nothing"]]


def test_they_take_leave_when_the_loop_ends() -> None:
    connections = [Connection(), Connection()]
    kept: list[HeldPool[Connection]] = []

    async def main() -> None:
        kept.append(await pool_of(*connections))

    asyncio.run(main())

    assert [one.said for one in connections] == [["goodbye"], ["goodbye"]]


async def test_a_closed_pool_leaves_its_loop_nothing_to_do() -> None:
    """What is left of it may be collected when the loop has ended, where nothing can be done any more."""
    pool = await pool_of(Connection())
    await pool.close()
    tasks = asyncio.all_tasks()

    del pool
    gc.collect()
    await asyncio.sleep(0)

    assert asyncio.all_tasks() == tasks
