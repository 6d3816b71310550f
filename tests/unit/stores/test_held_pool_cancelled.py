"""A caller that goes away while its connection is being made: the driver is not cut short, and no connection is lost."""

from __future__ import annotations

import asyncio

from outlast.stores.databases.held_pool import HeldPool


class Connection:
    """A connection that tells whether it was broken."""

    def __init__(self) -> None:
        self.is_broken = False

    def is_closed(self) -> bool:
        return self.is_broken

    def terminate(self) -> None:
        self.is_broken = True

    async def close(self, *, timeout: float | None = None) -> None:
        self.is_broken = True


class Driver:
    """Connects when it is told to."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.made: list[Connection] = []

    async def connect(self) -> Connection:
        self.asked.set()
        await self.answer
        self.made.append(Connection())
        return self.made[-1]


async def cancelled_take(driver: Driver, pool: HeldPool[Connection]) -> None:
    call = asyncio.create_task(pool.take())
    await driver.asked.wait()
    call.cancel()
    await asyncio.wait([call])
    assert call.cancelled()


async def test_a_connection_whose_caller_went_away_serves_the_next_one() -> None:
    """asyncpg that is cut short while it connects leaves a future behind, of which asyncio complains in the log."""
    driver = Driver()
    pool = HeldPool(driver.connect, limit=1)
    await cancelled_take(driver, pool)

    waiting = asyncio.create_task(pool.take())
    driver.answer.set_result(None)

    assert await waiting is driver.made[0]
    assert len(driver.made) == 1


async def test_one_that_cannot_be_made_gives_its_place_back() -> None:
    driver = Driver()
    pool = HeldPool(driver.connect, limit=1)
    await cancelled_take(driver, pool)

    driver.answer.set_exception(ConnectionError())
    await asyncio.sleep(0)
    driver.answer = asyncio.get_running_loop().create_future()
    driver.answer.set_result(None)

    assert await pool.take() is driver.made[0]


async def test_one_that_is_made_after_the_pool_closed_is_broken_off() -> None:
    driver = Driver()
    pool = HeldPool(driver.connect, limit=1)
    await cancelled_take(driver, pool)

    await pool.close()
    driver.answer.set_result(None)
    for _ in range(3):
        await asyncio.sleep(0)

    assert driver.made[0].is_broken
