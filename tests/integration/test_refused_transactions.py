"""What is no transaction of the caller's is refused before any statement, with a message that says what to pass."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import psycopg_pool
import pytest
from psycopg.rows import dict_row
from sqlalchemy import URL, make_url
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from outlast import Context, IsolationRefused, NotATransaction, Outlast, Signal, workflow
from support.callers import ROADS, awaiting_engine, blocking_engine

pytestmark = pytest.mark.every_database("mysql")
poked = Signal("poked", None)


@workflow("greet")
async def greet(ctx: Context, name: str) -> str:
    return f"Hello, {name}"


async def assert_refused(url: str, tx: object, saying: str) -> None:
    async with Outlast(url, workflows=[greet], worker=False) as app:
        with pytest.raises(NotATransaction) as refused:
            await app.start(greet, "Ada", tx=tx)

        assert saying in str(refused.value)
        assert (await app.list()).runs == ()


ROOTS: dict[str, tuple[Callable[[str], Any], str]] = {
    "an engine": (blocking_engine, "with engine.begin() as connection"),
    "an awaiting engine": (awaiting_engine, "async with engine.begin() as connection"),
    "a session factory": (lambda url: sessionmaker(blocking_engine(url)), "with make_session.begin() as session"),
    "an awaiting session factory": (
        lambda url: async_sessionmaker(awaiting_engine(url)),
        "async with make_session.begin() as session",
    ),
    "a registry without a session": (
        lambda url: scoped_session(sessionmaker(blocking_engine(url))),
        "no transaction to join",
    ),
    "an awaiting registry without a session": (
        lambda url: async_scoped_session(async_sessionmaker(awaiting_engine(url)), scopefunc=lambda: 1),
        "no transaction to join",
    ),
    "a class": (lambda _: Session, "a Session, AsyncSession, scoped_session"),
    "a URL": (lambda url: url, "an asyncpg connection; a Connection or AsyncConnection of psycopg 3"),
    "True": (lambda _: True, "tx= is a bool"),
}


@pytest.mark.parametrize("root", sorted(ROOTS))
async def test_a_root_handle_is_refused_with_what_to_pass(shared_database_url: str, root: str) -> None:
    make, saying = ROOTS[root]

    await assert_refused(shared_database_url, make(shared_database_url), saying)


@asynccontextmanager
async def _begun_session(url: str) -> AsyncGenerator[Any, None]:
    engine = blocking_engine(url)
    with Session(engine) as session, session.begin() as begun:
        yield begun
    engine.dispose()


@asynccontextmanager
async def _begun_awaiting_session(url: str) -> AsyncGenerator[Any, None]:
    engine = awaiting_engine(url)
    async with AsyncSession(engine) as session, session.begin() as begun:
        yield begun
    await engine.dispose()


@asynccontextmanager
async def _begun_connection(url: str) -> AsyncGenerator[Any, None]:
    engine = blocking_engine(url)
    with engine.connect() as connection, connection.begin() as begun:
        yield begun
    engine.dispose()


@asynccontextmanager
async def _begun_awaiting_connection(url: str) -> AsyncGenerator[Any, None]:
    engine = awaiting_engine(url)
    async with engine.connect() as connection, connection.begin() as begun:
        yield begun
    await engine.dispose()


BEGUN: dict[str, tuple[Callable[[str], AbstractAsyncContextManager[Any]], str]] = {
    "a session's": (_begun_session, "with session.begin(): ... tx=session"),
    "an awaiting session's": (_begun_awaiting_session, "async with session.begin(): ... tx=session"),
    "a connection's": (_begun_connection, "with connection.begin(): ... tx=connection"),
    "an awaiting connection's": (_begun_awaiting_connection, "async with connection.begin(): ... tx=connection"),
}


@pytest.mark.parametrize("begun", sorted(BEGUN))
async def test_what_begin_returns_is_refused_with_what_to_pass(shared_database_url: str, begun: str) -> None:
    opened, saying = BEGUN[begun]

    async with opened(shared_database_url) as handle:
        await assert_refused(shared_database_url, handle, saying)


async def test_asyncpgs_pool_idle_connection_and_transaction_are_refused(postgres_url: str) -> None:
    async with asyncpg.create_pool(postgres_url, min_size=1) as pool:
        await assert_refused(postgres_url, pool, "async with pool.acquire() as connection")
        async with pool.acquire() as connection:
            await assert_refused(postgres_url, connection, "async with connection.transaction()")
            await assert_refused(postgres_url, connection.transaction(), "Pass the connection that it is on")


async def test_psycopgs_pool_cursor_and_transaction_are_refused(postgres_url: str) -> None:
    with psycopg_pool.ConnectionPool(postgres_url, min_size=1) as pool, pool.connection() as connection:
        await assert_refused(postgres_url, pool, "with pool.connection() as connection")
        await assert_refused(postgres_url, connection.cursor(), "tx=cursor.connection")
        with connection.transaction() as begun:
            await assert_refused(postgres_url, begun, "tx=transaction.connection")


async def test_psycopgs_awaiting_pool_cursor_and_transaction_are_refused(postgres_url: str) -> None:
    async with psycopg_pool.AsyncConnectionPool(postgres_url, min_size=1) as pool, pool.connection() as connection:
        await assert_refused(postgres_url, pool, "async with pool.connection() as connection")
        await assert_refused(postgres_url, connection.cursor(), "tx=cursor.connection")
        async with connection.transaction() as begun:
            await assert_refused(postgres_url, begun, "tx=transaction.connection")


async def test_psycopg_in_autocommit_is_refused_until_a_transaction_is_open(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        await assert_refused(postgres_url, connection, "`with connection.transaction(): ...`")
        with connection.transaction():
            await assert_joined(postgres_url, connection)


async def test_awaiting_psycopg_in_autocommit_is_refused_until_a_transaction_is_open(postgres_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as connection:
        await assert_refused(postgres_url, connection, "`async with connection.transaction(): ...`")
        async with connection.transaction():
            await assert_joined(postgres_url, connection)


async def test_what_commits_each_statement_by_itself_is_refused(shared_database_url: str) -> None:
    options = {"isolation_level": "AUTOCOMMIT"}
    blocking = blocking_engine(shared_database_url).execution_options(**options)
    with blocking.begin() as connection, Session(blocking) as session:
        await assert_refused(shared_database_url, connection, "in AUTOCOMMIT mode")
        await assert_refused(shared_database_url, session, "in AUTOCOMMIT mode")
    blocking.dispose()

    awaiting = awaiting_engine(shared_database_url).execution_options(**options)
    async with awaiting.begin() as connection, AsyncSession(awaiting) as session:
        await assert_refused(shared_database_url, connection, "in AUTOCOMMIT mode")
        await assert_refused(shared_database_url, session, "in AUTOCOMMIT mode")
    await awaiting.dispose()


async def assert_joined(url: str, tx: object) -> None:
    async with Outlast(url, workflows=[greet], worker=False) as app:
        assert (await app.start(greet, "Ada", id="joined", tx=tx)).created
        assert await app.get("joined") is None


async def test_sqlite3_that_commits_by_itself_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/outlast.db"
    connection = sqlite3.connect(f"{tmp_path}/outlast.db", isolation_level=None)

    await assert_refused(url, connection, 'connection.execute("BEGIN IMMEDIATE")')
    await assert_refused(url, connection.cursor(), "tx=cursor.connection")
    connection.execute("begin immediate")
    await assert_joined(url, connection)

    connection.close()


async def test_aiosqlite_that_commits_by_itself_is_refused_until_a_transaction_is_open(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/outlast.db"
    async with aiosqlite.connect(f"{tmp_path}/outlast.db", isolation_level=None) as connection:
        await assert_refused(url, connection, 'await connection.execute("BEGIN IMMEDIATE")')
        await assert_refused(url, await connection.cursor(), "Pass the connection that it came from")

        async with Outlast(url, workflows=[greet], worker=False) as app:
            await connection.execute("begin immediate")
            await app.start(greet, "Ada", id="a", tx=connection)
            await connection.execute("commit")
            assert await app.get("a") is not None


async def test_a_connection_may_make_what_it_likes_of_its_rows(postgres_url: str, tmp_path: Path) -> None:
    """What a verb reads comes to it by position, whatever the caller's own rows are."""
    rows: Any = dict_row
    with psycopg.connect(postgres_url, row_factory=rows, cursor_factory=psycopg.ClientCursor) as connection:
        async with Outlast(postgres_url, workflows=[greet], worker=False):
            await assert_joined(postgres_url, connection)
    async with (
        Outlast(f"sqlite:///{tmp_path}/outlast.db", workflows=[greet], worker=False),
        aiosqlite.connect(f"{tmp_path}/outlast.db") as awaiting,
    ):
        untyped: Any = awaiting
        untyped.row_factory = lambda _cursor, _row: {}
        await assert_joined(f"sqlite:///{tmp_path}/outlast.db", awaiting)


async def test_a_transaction_on_another_kind_of_database_is_refused(postgres_url: str, tmp_path: Path) -> None:
    for road in ("sqlite3", "aiosqlite", "Session", "AsyncSession", "AsyncConnection"):
        async with ROADS[road](f"sqlite:///{tmp_path}/other.db") as caller, caller.transaction() as tx:
            await assert_refused(postgres_url, tx, "this app's database is postgresql")


def test_a_blocking_verb_refuses_a_transaction_that_has_to_be_awaited(shared_database_url: str) -> None:
    app = Outlast(shared_database_url, workflows=[greet])
    app.blocking.migrate()
    engine = awaiting_engine(shared_database_url)

    with pytest.raises(NotATransaction, match="await"):
        app.blocking.start(greet, "Ada", tx=AsyncSession(engine))

    app.blocking.close()


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_a_signal_refuses_a_transaction_that_could_miss_a_waiting_run(postgres_url: str, level: str) -> None:
    url: URL = make_url(postgres_url).set(drivername="postgresql+asyncpg")
    engine = create_async_engine(url, isolation_level=level)
    async with Outlast(postgres_url, workflows=[greet], worker=False) as app:
        async with engine.connect() as connection:
            with pytest.raises(IsolationRefused, match="READ COMMITTED"):
                await app.signal(poked, tx=connection)
        async with engine.begin() as connection:
            await app.start(greet, "Ada", id="a", tx=connection)

        assert await app.get("a") is not None
    await engine.dispose()
