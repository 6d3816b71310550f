"""PostgreSQL connections of the application's that do not speak UTF-8, and databases that do not keep it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import psycopg_pool
import pytest
from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.ext.asyncio import create_async_engine

from outlast import Context, DatabaseUnavailable, NotATransaction, Outlast, RunFailed, transactional_step, workflow
from outlast.stores.databases.opening import open_database
from tools.postgres import PrivatePostgres

AWKWARD = "\u00e9 \u0141 \U0001f600"
MENDED = r"needs UTF8: .* \?client_encoding=utf8 to the engine's URL"


@workflow("say")
async def say(ctx: Context, text: str) -> str:
    return await ctx.step("return", lambda s: text)


Opened = Callable[[str, str], AbstractAsyncContextManager[Any]]


def _saying(engine: Engine, encoding: str) -> None:
    """Have each connection told its encoding once it is made: SQLAlchemy itself makes none of psycopg's with SQL_ASCII."""

    @event.listens_for(engine, "connect")
    def _say(connection: Any, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute(f"set client_encoding = '{encoding}'")
        cursor.close()
        connection.commit()


def engine_over(driver: str) -> Opened:
    @asynccontextmanager
    async def opened(url: str, encoding: str) -> AsyncIterator[Any]:
        engine = create_engine(make_url(url).set(drivername=f"postgresql+{driver}"))
        _saying(engine, encoding)
        yield engine
        engine.dispose()

    return opened


def awaiting_engine_over(driver: str) -> Opened:
    @asynccontextmanager
    async def opened(url: str, encoding: str) -> AsyncIterator[Any]:
        engine = create_async_engine(make_url(url).set(drivername=f"postgresql+{driver}"))
        _saying(engine.sync_engine, encoding)
        yield engine
        await engine.dispose()

    return opened


@asynccontextmanager
async def pool_of_psycopg(url: str, encoding: str) -> AsyncIterator[Any]:
    kwargs = {"client_encoding": encoding}
    async with psycopg_pool.AsyncConnectionPool(url, min_size=1, max_size=2, kwargs=kwargs) as pool:
        yield pool


@asynccontextmanager
async def blocking_pool(url: str, encoding: str) -> AsyncIterator[Any]:
    kwargs = {"client_encoding": encoding}
    with psycopg_pool.ConnectionPool(url, min_size=1, max_size=2, kwargs=kwargs) as pool:
        yield pool


@asynccontextmanager
async def pool_of_asyncpg(url: str, encoding: str) -> AsyncIterator[Any]:
    settings = {"client_encoding": encoding}
    async with asyncpg.create_pool(url, min_size=1, max_size=2, server_settings=settings) as pool:
        yield pool


OPENED: dict[str, Opened] = {
    **{f"an engine over {driver}": engine_over(driver) for driver in ("psycopg", "psycopg2", "pg8000")},
    # asyncpg goes on in UTF-8 whatever it is told, and so the server takes each text for another one.
    **{f"an awaiting engine over {driver}": awaiting_engine_over(driver) for driver in ("psycopg", "asyncpg")},
    "a pool of psycopg": pool_of_psycopg,
    "a blocking pool of psycopg": blocking_pool,
    "a pool of asyncpg": pool_of_asyncpg,
}


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
@pytest.mark.parametrize("kind", OPENED)
async def test_connections_that_do_not_speak_utf8_are_refused_at_the_start(
    postgres_url: str, kind: str, encoding: str
) -> None:
    """They opened. The first step that returned an emoji was done again and again, or its result was stored as another."""
    async with OPENED[kind](postgres_url, encoding) as target:
        database = open_database(target)

        with pytest.raises(DatabaseUnavailable, match=rf"one whose client_encoding is {encoding}, .*{MENDED}"):
            await database.open()

        await database.close()


@pytest.mark.parametrize("spoken", ["UTF8", "UNICODE", "utf-8"])
async def test_every_name_of_utf8_will_do(postgres_url: str, spoken: str) -> None:
    async with OPENED["an engine over psycopg"](postgres_url, spoken) as engine:
        await assert_carries(Outlast(engine, workflows=[say], worker=False))


async def test_an_engine_that_says_its_encoding_goes_before_what_the_database_says(postgres_url: str) -> None:
    """As the error has it: what the database has set holds for a connection that says nothing."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"alter database {postgres_url.rpartition('/')[2]} set client_encoding = 'LATIN1'".encode())
    url = make_url(postgres_url).set(drivername="postgresql+psycopg")
    silent, told = create_engine(url), create_engine(f"{url.render_as_string(False)}?client_encoding=utf8")

    with pytest.raises(DatabaseUnavailable, match="client_encoding is LATIN1"):
        await open_database(silent).open()
    await assert_carries(Outlast(told, workflows=[say], worker=False))

    silent.dispose()
    told.dispose()


@pytest.mark.parametrize("kind", OPENED)
async def test_a_database_that_does_not_keep_utf8_is_refused_whatever_leads_there(
    postgres: PrivatePostgres, postgres_url: str, kind: str
) -> None:
    name = f"{postgres_url.rpartition('/')[2]}_latin"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(
            f"create database {name} template template0 encoding 'LATIN1' lc_collate 'C' lc_ctype 'C'".encode()
        )
    url = postgres.url(name)
    async with OPENED[kind](url, "UTF8") as target:
        database = open_database(target)

        with pytest.raises(DatabaseUnavailable, match=r"This database's encoding is LATIN1, .* ENCODING 'UTF8'"):
            await database.open()

        await database.close()
    postgres.drop_database(url)


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_a_transaction_on_a_connection_that_does_not_speak_utf8_is_refused(
    postgres_url: str, encoding: str
) -> None:
    async with Outlast(postgres_url, workflows=[say], worker=False) as app:
        with psycopg.connect(postgres_url, client_encoding=encoding) as blocking:
            with pytest.raises(NotATransaction, match=rf"a connection whose client_encoding is {encoding}, .*{MENDED}"):
                await app.start(say, AWKWARD, tx=blocking)
            assert blocking.execute("select 1").fetchone() == (1,), "the transaction goes on"

        awaiting = await asyncpg.connect(postgres_url)
        async with awaiting.transaction():
            await awaiting.execute(f"set local client_encoding = '{encoding}'")
            with pytest.raises(NotATransaction, match=f"client_encoding is {encoding}"):
                await app.start(say, AWKWARD, tx=awaiting)
        await awaiting.close()

        assert (await app.list()).runs == ()


async def test_a_transactional_step_whose_connection_cannot_send_its_result_says_so(postgres_url: str) -> None:
    """It said that the connection was not on the app's database."""

    @transactional_step(retry=False)
    def note(connection: object, text: str) -> str:
        return text

    @workflow("noting")
    async def noting(ctx: Context, text: str) -> str:
        return await note(text)

    async with OPENED["an engine over psycopg"](postgres_url, "LATIN1") as engine:
        app = Outlast(postgres_url, workflows=[noting], worker=False, transactions=engine)
        async with app:
            run = await app.start(noting, AWKWARD)
            await app.drain()
            with pytest.raises(RunFailed, match=r"cannot send every text .* \?client_encoding=utf8"):
                await run.result(timeout="0s")


async def test_tables_are_not_looked_for_on_a_connection_that_misreads_their_names(postgres_url: str) -> None:
    """psycopg reads bytes under SQL_ASCII: the tables were taken for missing, and making them failed in words of SQL."""
    async with Outlast(postgres_url, worker=False):
        pass
    async with OPENED["an engine over psycopg"](postgres_url, "SQL_ASCII") as engine:
        with pytest.raises(DatabaseUnavailable, match="client_encoding is SQL_ASCII"):
            await Outlast(engine).migrate()


async def assert_carries(app: Outlast) -> None:
    async with app:
        run = await app.start(say, AWKWARD)
        await app.drain()
        assert await run.result(timeout="0s") == AWKWARD
        await asyncio.to_thread(app.blocking.close)
