"""The application's own pool of asyncpg's or psycopg's connections as the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import psycopg
import psycopg_pool
import pytest
from psycopg.rows import dict_row
from sqlalchemy import text

from outlast import Context, InvalidArgument, Outlast, StepContext, WorkerOptions, step, transactional_step, workflow
from outlast.ports.operation import Op, Statement
from outlast.stores.databases.opening import open_database
from outlast.testing.contract.desk import new_run
from outlast.testing.store_contract import Case
from support.every_statement import EVERY_STATEMENT
from support.pools_tried import carry


@step
async def double(s: StepContext, number: int) -> int:
    return 2 * number


@transactional_step
async def note(connection: Any, number: int) -> int:
    await connection.execute(f"insert into notes values ({number})")
    return number


@workflow("doubling")
async def doubling(ctx: Context, number: int) -> int:
    return await note(await double(number))


@asynccontextmanager
async def of_asyncpg(url: str) -> AsyncIterator[Any]:
    async with asyncpg.create_pool(url, min_size=1, max_size=4) as pool:
        yield pool


@asynccontextmanager
async def of_psycopg(url: str) -> AsyncIterator[Any]:
    async with psycopg_pool.AsyncConnectionPool(url, min_size=1, max_size=4) as pool:
        yield pool


@asynccontextmanager
async def of_blocking_psycopg(url: str) -> AsyncIterator[Any]:
    with psycopg_pool.ConnectionPool(url, min_size=1, max_size=4) as pool:
        yield pool


Opened = Callable[[str], AbstractAsyncContextManager[Any]]
AWAITING: dict[str, Opened] = {"asyncpg": of_asyncpg, "psycopg": of_psycopg}
POOLS: dict[str, Opened] = {**AWAITING, "blocking psycopg": of_blocking_psycopg}


@pytest.mark.parametrize("kind", AWAITING)
@pytest.mark.parametrize("case", EVERY_STATEMENT, ids=str)
def test_an_awaiting_pool_carries_every_statement(case: Case, kind: str, postgres_url: str) -> None:
    carry(case, AWAITING[kind](postgres_url))


@pytest.mark.parametrize("case", EVERY_STATEMENT, ids=str)
def test_a_blocking_pool_carries_every_statement(case: Case, postgres_url: str) -> None:
    with psycopg_pool.ConnectionPool(postgres_url, min_size=1, max_size=4) as pool:
        case.check(lambda clock: open_database(pool, clock=clock), "blocking")


@pytest.mark.parametrize("kind", POOLS)
async def test_runs_execute_over_a_pool_and_their_work_is_heard_of(kind: str, postgres_url: str) -> None:
    """Its own look is an hour away, and the run comes from another app: only the notice can have brought it."""
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("create table notes (number int)")
    async with (
        POOLS[kind](postgres_url) as pool,
        Outlast(pool, workflows=[doubling], worker=WorkerOptions(poll="1h", lease="2s")),
        Outlast(postgres_url, workflows=[doubling], worker=False) as client,
    ):
        assert await client.start_and_wait(doubling, 4, timeout="20s") == 8
    with psycopg.connect(postgres_url) as admin:
        assert admin.execute("select number from notes").fetchall() == [(8,)]


@pytest.mark.parametrize("kind", POOLS)
async def test_both_colours_are_there_whatever_the_pools_is(kind: str, postgres_url: str) -> None:
    async with POOLS[kind](postgres_url) as pool:
        app = Outlast(pool, workflows=[doubling], worker=False)
        async with app:
            await app.start(doubling, 1, id="awaited")
            await asyncio.to_thread(app.blocking.start, doubling, 1, id="blocking")
            assert {run.id for run in (await app.list()).runs} == {"awaited", "blocking"}
            await asyncio.to_thread(app.blocking.close)


@pytest.mark.parametrize("kind", POOLS)
async def test_a_pool_gets_its_connections_back_as_they_were(kind: str, postgres_url: str) -> None:
    def raising() -> Op[None]:
        yield Statement(text("select 1"))
        raise LookupError

    async with POOLS[kind](postgres_url) as pool:
        database = open_database(pool)
        await database.open()
        await database.migrate()
        for number in range(8):
            await database.run(lambda number=number: database.store.start([new_run(f"r{number}")]))
            with pytest.raises(LookupError):
                await database.run(raising)
        await database.close()

        for _ in range(8):
            assert await shown(kind, pool) == ("on", "0", 0)


async def shown(kind: str, pool: Any) -> tuple[object, ...]:
    """What is set on a connection of the pool, and whether the pool's connection has a transaction open by itself."""
    asked = "select current_setting('enable_seqscan'), current_setting('lock_timeout')"
    match kind:
        case "asyncpg":
            async with pool.acquire() as connection:
                return (*await connection.fetchrow(asked), int(connection.is_in_transaction()))
        case "psycopg":
            async with pool.connection() as connection:
                assert connection.autocommit is False
                is_open = connection.info.transaction_status
                return (*await (await connection.execute(asked)).fetchone(), is_open)
        case _:
            with pool.connection() as connection:
                assert connection.autocommit is False
                is_open = connection.info.transaction_status
                return (*connection.execute(asked).fetchone(), is_open)


@pytest.mark.parametrize("kind", AWAITING)
async def test_a_cancelled_caller_gives_its_connection_back(kind: str, postgres_url: str) -> None:
    async with AWAITING[kind](postgres_url) as pool:
        database = open_database(pool)
        await database.open()
        await database.migrate()
        for _ in range(6):
            reached = asyncio.Event()

            def hanging(reached: asyncio.Event = reached) -> Op[None]:
                yield Statement(text("select 1"))
                reached.set()
                yield Statement(text("select pg_sleep(60)"))

            caller = asyncio.ensure_future(database.run(hanging))
            await reached.wait()
            caller.cancel()
            with pytest.raises(asyncio.CancelledError):
                await caller

        # There are four: each of them came back, or another in its place.
        assert (await database.run(lambda: database.store.start([new_run("r")])))[0].created
        await database.close()


async def test_what_a_pool_was_told_beside_a_url_leads_to_the_same_place(postgres_url: str) -> None:
    parts = urlsplit(postgres_url)

    async def password() -> str:
        return parts.password or ""

    async with (
        asyncpg.create_pool(
            host=parts.hostname,
            port=parts.port,
            user=parts.username,
            password=password,
            database=parts.path[1:],
            min_size=1,
        ) as pool,
        Outlast(pool, workflows=[doubling], worker=False) as app,
    ):
        await asyncio.to_thread(app.blocking.start, doubling, 1, id="a")
        assert await app.get("a") is not None
        await asyncio.to_thread(app.blocking.close)

    keywords: dict[str, Any] = {"password": parts.password, "autocommit": True, "row_factory": dict_row}
    told = f"host={parts.hostname} port={parts.port} user={parts.username} dbname={parts.path[1:]}"
    async with (
        psycopg_pool.AsyncConnectionPool(told, kwargs=keywords, min_size=1) as psycopgs,
        Outlast(psycopgs, workflows=[doubling], worker=False) as app,
    ):
        await asyncio.to_thread(app.blocking.start, doubling, 1, id="b")
        assert await app.get("b") is not None
        await asyncio.to_thread(app.blocking.close)


def test_a_pool_that_does_not_say_where_it_leads_is_refused_with_what_to_pass() -> None:
    pool = psycopg_pool.AsyncConnectionPool(lambda: "host=somewhere", open=False)

    with pytest.raises(InvalidArgument, match="Give it the URL"):
        Outlast(pool)
