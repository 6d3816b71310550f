"""MySQL and MariaDB: a connection that was switched to another database of the server, as for each tenant by USE."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import aiomysql  # type: ignore[import-untyped]  # it has no types
import asyncmy
import pytest
from sqlalchemy import URL, Engine, create_engine, make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from outlast import Context, DatabaseUnavailable, NotATransaction, Outlast, Signal, workflow
from support.callers import AWAITING_DRIVERS, BLOCKING_DRIVERS, ROADS
from tools.mysql import PrivateMySQL

poked = Signal("poked", None)


@workflow("greet")
async def greet(ctx: Context, name: str) -> str:
    return f"Hello, {name}"


@pytest.fixture
def tenant(mysqlish: PrivateMySQL) -> Iterator[str]:
    """The name of another database on the server, without tables of outlast."""
    url = mysqlish.create_database()
    yield url.rpartition("/")[2]
    mysqlish.drop_database(url)


@pytest.mark.parametrize("road", ["Session", "AsyncSession", "Connection", "PyMySQL", "asyncmy", "aiomysql"])
async def test_a_transaction_whose_connection_was_switched_is_refused_with_the_database_it_is_on(
    mysqlish_url: str, tenant: str, road: str
) -> None:
    """What it comes from was known to lead to the app's database, so the server's word on a missing table came through."""
    app = Outlast(mysqlish_url, workflows=[greet], worker=False)
    async with app, ROADS[road](mysqlish_url) as caller:
        async with caller.transaction() as tx:
            await app.start(greet, "Ada", id="before", tx=tx)

        async with caller.transaction() as tx:
            await caller.say(tx, f"use {tenant}")
            for call in (app.start(greet, "Ada", tx=tx), app.signal(poked, tx=tx), app.cancel("before", tx=tx)):
                with pytest.raises(
                    NotATransaction, match=f"It is on {tenant}, the app on .* switch it back"
                ) as refused:
                    await call
            assert mysqlish_url.rpartition("/")[2] in str(refused.value)
            await caller.say(tx, f"use {mysqlish_url.rpartition('/')[2]}")
            await app.start(greet, "Ada", id="after", tx=tx)

        assert {run.id for run in (await app.list()).runs} == {"before", "after"}


@asynccontextmanager
async def _engine(url: URL) -> AsyncIterator[Engine]:
    engine = create_engine(url.set(drivername=BLOCKING_DRIVERS[url.get_backend_name()]), pool_size=1, max_overflow=0)
    yield engine
    engine.dispose()


@asynccontextmanager
async def _awaiting_engine(url: URL) -> AsyncIterator[AsyncEngine]:
    driver = AWAITING_DRIVERS[url.get_backend_name()]
    engine = create_async_engine(url.set(drivername=driver), pool_size=1, max_overflow=0)
    yield engine
    await engine.dispose()


def _pool(driver: Any) -> Callable[[URL], AbstractAsyncContextManager[Any]]:
    def opened(url: URL) -> AbstractAsyncContextManager[Any]:
        pool: AbstractAsyncContextManager[Any] = driver.create_pool(
            host=url.host,
            port=url.port,
            user=url.username,
            password=url.password or "",
            db=url.database,
            minsize=1,
            maxsize=1,
        )
        return pool

    return opened


async def _switch(target: Any, name: str) -> None:
    """Take a connection, switch it, and give it back like that."""
    match target:
        case Engine():
            with target.connect() as connection:
                connection.execute(text(f"use {name}"))
        case AsyncEngine():
            async with target.connect() as awaiting:
                await awaiting.execute(text(f"use {name}"))
        case _:
            async with target.acquire() as connection, connection.cursor() as cursor:
                await cursor.execute(f"use {name}")


TARGETS: dict[str, Callable[[URL], AbstractAsyncContextManager[Any]]] = {
    "an Engine": _engine,
    "an AsyncEngine": _awaiting_engine,
    "a pool of asyncmy": _pool(asyncmy),
    "a pool of aiomysql": _pool(aiomysql),
}


@pytest.mark.parametrize("kind", TARGETS)
async def test_a_connection_that_came_back_switched_is_told_of_and_not_used_again(
    mysqlish_url: str, tenant: str, kind: str
) -> None:
    """The server's word on a missing table came through from whichever verb the pool lent that connection."""
    async with TARGETS[kind](make_url(mysqlish_url)) as target, Outlast(target, workflows=[greet], worker=False) as app:
        await _switch(target, tenant)

        missing = rf"no table {tenant}\.outlast_\w+; the app's database is .*{mysqlish_url.rpartition('/')[2]}\. .*USE"
        with pytest.raises(DatabaseUnavailable, match=missing):
            await app.start(greet, "Ada")
        assert (await app.start(greet, "Ada", id="again")).created

        await _switch(target, tenant)
        with pytest.raises(DatabaseUnavailable, match=missing):
            await app.list()
        assert [run.id for run in (await app.list()).runs] == ["again"]
