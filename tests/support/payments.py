"""An application's own table of payments, and every way in which it may give its transactions to steps.

`async with source_on(url, name) as source`: `source.database` and `source.option` are for `Outlast(database,
transactions=...)`; `source.pay(tx, ...)` writes a row through what a step was given, in the source's colour.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from typing import Any

import aiomysql  # type: ignore[import-untyped]  # it has no types
import aiosqlite
import asyncmy
import asyncpg
import psycopg
import psycopg_pool
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker
from sqlalchemy.orm import scoped_session, sessionmaker

from support.callers import awaiting_engine, blocking_engine, kind_of
from support.probing import Tables, connect_mysql

TABLE = "create table if not exists payments (id varchar(40) primary key, paid_by varchar(80))"
Execute = Callable[[Any, str], Any]


@dataclass(frozen=True)
class Source:
    """Where transactions come from, and how a statement is sent in one."""

    database: object
    option: object
    is_blocking: bool
    execute: Execute
    """Sends a statement in a step's transaction; gives something to await, if the source is awaited."""
    commit: Callable[[Any], Any]
    """What a function does that commits by itself."""

    def pay(self, tx: Any, payment: str, paid_by: str = "") -> Any:
        return self.execute(tx, f"insert into payments values ('{payment}', '{paid_by}')")

    def step(self, *acts: Callable[..., Any], result: object = "paid") -> Callable[..., Any]:
        """A step's function, in the source's colour, that does each of the acts with the transaction and its context."""

        def blocking(tx: Any, s: Any) -> object:
            for act in acts:
                act(tx, s)
            return result

        async def awaiting(tx: Any, s: Any) -> object:
            for act in acts:
                done = act(tx, s)
                if isinstance(done, Awaitable):
                    await done
            return result

        return blocking if self.is_blocking else awaiting


Open = Callable[[str], AbstractAsyncContextManager[Source]]


def _with_begin(execute: Callable[[Any, str], Any], commit: Callable[[Any], Any]) -> dict[str, Any]:
    return {"execute": execute, "commit": commit}


SQLALCHEMY = _with_begin(lambda tx, sql: tx.execute(text(sql)), lambda tx: tx.commit())


@asynccontextmanager
async def _own_blocking(url: str) -> AsyncGenerator[Source]:
    words = {"sqlite": _SQLITE3, "postgresql": SQLALCHEMY, "mysql": _PYMYSQL, "mariadb": _PYMYSQL}
    yield Source(url, None, True, **words[kind_of(url)])


@asynccontextmanager
async def _own_awaiting(url: str) -> AsyncGenerator[Source]:
    yield Source(url, None, False, **(_ASYNCPG if kind_of(url) == "postgresql" else _ASYNCMY))


@asynccontextmanager
async def _engine(url: str) -> AsyncGenerator[Source]:
    engine = blocking_engine(url)
    yield Source(engine, None, True, **SQLALCHEMY)
    engine.dispose()


@asynccontextmanager
async def _async_engine(url: str) -> AsyncGenerator[Source]:
    engine = awaiting_engine(url)
    yield Source(engine, None, False, **SQLALCHEMY)
    await engine.dispose()


@asynccontextmanager
async def _sessionmaker(url: str) -> AsyncGenerator[Source]:
    engine = blocking_engine(url)
    yield Source(url, sessionmaker(engine).begin, True, **SQLALCHEMY)
    engine.dispose()


@asynccontextmanager
async def _async_sessionmaker(url: str) -> AsyncGenerator[Source]:
    engine = awaiting_engine(url)
    yield Source(url, async_sessionmaker(engine), False, **SQLALCHEMY)
    await engine.dispose()


@asynccontextmanager
async def _scoped_session(url: str) -> AsyncGenerator[Source]:
    engine = blocking_engine(url)
    registry = scoped_session(sessionmaker(engine))

    @contextmanager
    def transaction() -> Generator[Any]:
        try:
            with registry.begin():
                yield registry
        finally:
            registry.remove()

    yield Source(url, transaction, True, **SQLALCHEMY)
    engine.dispose()


@asynccontextmanager
async def _async_scoped_session(url: str) -> AsyncGenerator[Source]:
    engine = awaiting_engine(url)
    registry = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)

    @asynccontextmanager
    async def transaction() -> AsyncGenerator[Any]:
        try:
            async with registry.begin():
                yield registry
        finally:
            await registry.remove()

    yield Source(url, transaction, False, **SQLALCHEMY)
    await engine.dispose()


_ASYNCPG = _with_begin(lambda tx, sql: tx.execute(sql), lambda tx: tx.execute("commit"))


@asynccontextmanager
async def _asyncpg_pool(url: str) -> AsyncGenerator[Source]:
    async with asyncpg.create_pool(url, min_size=1, max_size=4) as pool:
        yield Source(url, pool, False, **_ASYNCPG)


_PSYCOPG = _with_begin(lambda tx, sql: tx.execute(sql), lambda tx: tx.execute("commit"))


@asynccontextmanager
async def _psycopg_pool(url: str) -> AsyncGenerator[Source]:
    with psycopg_pool.ConnectionPool(url, min_size=1, max_size=4) as pool:
        yield Source(url, pool, True, **_PSYCOPG)


@asynccontextmanager
async def _psycopg_awaiting_pool(url: str) -> AsyncGenerator[Source]:
    async with psycopg_pool.AsyncConnectionPool(url, min_size=1, max_size=4) as pool:
        yield Source(url, pool, False, **_PSYCOPG)


@asynccontextmanager
async def _psycopg(url: str) -> AsyncGenerator[Source]:
    yield Source(url, lambda: psycopg.connect(url), True, **_PSYCOPG)


@asynccontextmanager
async def _psycopg_awaiting(url: str) -> AsyncGenerator[Source]:
    @asynccontextmanager
    async def transaction() -> AsyncGenerator[Any]:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            yield connection

    yield Source(url, transaction, False, **_PSYCOPG)


_SQLITE3 = _with_begin(lambda tx, sql: tx.execute(sql), lambda tx: tx.execute("commit"))


@asynccontextmanager
async def _sqlite3(url: str) -> AsyncGenerator[Source]:
    @contextmanager
    def transaction() -> Generator[sqlite3.Connection]:
        with closing(sqlite3.connect(make_url(url).database or "")) as connection, connection:
            yield connection

    yield Source(url, transaction, True, **_SQLITE3)


@asynccontextmanager
async def _aiosqlite(url: str) -> AsyncGenerator[Source]:
    @asynccontextmanager
    async def transaction() -> AsyncGenerator[aiosqlite.Connection]:
        async with aiosqlite.connect(make_url(url).database or "") as connection:
            yield connection
            await connection.commit()

    yield Source(url, transaction, False, **_SQLITE3)


def _execute_pymysql(tx: Any, sql: str) -> object:
    with tx.cursor() as cursor:
        return cursor.execute(sql)


async def _execute_asyncmy(tx: Any, sql: str) -> object:
    async with tx.cursor() as cursor:
        return await cursor.execute(sql)


_PYMYSQL = _with_begin(_execute_pymysql, lambda tx: tx.commit())
_ASYNCMY = _with_begin(_execute_asyncmy, lambda tx: tx.commit())


@asynccontextmanager
async def _pymysql(url: str) -> AsyncGenerator[Source]:
    @contextmanager
    def transaction() -> Generator[Any]:
        with connect_mysql(url, autocommit=False) as connection:
            yield connection
            connection.commit()

    yield Source(url, transaction, True, **_PYMYSQL)


@asynccontextmanager
async def _asyncmy(url: str) -> AsyncGenerator[Source]:
    yield Source(url, _connecting(asyncmy, url), False, **_ASYNCMY)


@asynccontextmanager
async def _aiomysql(url: str) -> AsyncGenerator[Source]:
    yield Source(url, _connecting(aiomysql, url), False, **_ASYNCMY)


def _connecting(driver: Any, url: str) -> Callable[[], Any]:
    parts = make_url(url)

    @asynccontextmanager
    async def transaction() -> AsyncGenerator[Any]:
        async with driver.connect(
            host=parts.host, port=parts.port, user=parts.username, password=parts.password, db=parts.database
        ) as connection:
            yield connection
            await connection.commit()

    return transaction


SOURCES: dict[str, dict[str, Open]] = {
    "sqlite": {
        "sqlite3 of ours": _own_blocking,
        "Engine": _engine,
        "AsyncEngine": _async_engine,
        "sessionmaker": _sessionmaker,
        "async_sessionmaker": _async_sessionmaker,
        "scoped_session": _scoped_session,
        "async_scoped_session": _async_scoped_session,
        "sqlite3": _sqlite3,
        "aiosqlite": _aiosqlite,
    },
    "postgresql": {
        "psycopg of ours": _own_blocking,
        "asyncpg of ours": _own_awaiting,
        "Engine": _engine,
        "AsyncEngine": _async_engine,
        "sessionmaker": _sessionmaker,
        "async_sessionmaker": _async_sessionmaker,
        "scoped_session": _scoped_session,
        "async_scoped_session": _async_scoped_session,
        "asyncpg pool": _asyncpg_pool,
        "psycopg pool": _psycopg_pool,
        "psycopg awaited pool": _psycopg_awaiting_pool,
        "psycopg": _psycopg,
        "psycopg awaited": _psycopg_awaiting,
    },
    # The two servers are one kind of database to us, so what is between us and them is shared out.
    "mysql": {
        "PyMySQL of ours": _own_blocking,
        "asyncmy of ours": _own_awaiting,
        "Engine": _engine,
        "async_sessionmaker": _async_sessionmaker,
        "PyMySQL": _pymysql,
        "asyncmy": _asyncmy,
    },
    "mariadb": {
        "PyMySQL of ours": _own_blocking,
        "asyncmy of ours": _own_awaiting,
        "AsyncEngine": _async_engine,
        "sessionmaker": _sessionmaker,
        "async_scoped_session": _async_scoped_session,
        "aiomysql": _aiomysql,
    },
}
"""By database, by name."""


@asynccontextmanager
async def source_on(url: str, name: str) -> AsyncGenerator[Source]:
    """A source, and the table of payments there."""
    make_table(url)
    async with SOURCES[kind_of(url)][name](url) as source:
        yield source


def make_table(url: str) -> None:
    engine = blocking_engine(url)
    with engine.begin() as connection:
        connection.execute(text(TABLE))
    engine.dispose()


def payments(url: str) -> list[tuple[Any, ...]]:
    """What is paid, in order."""
    return Tables(url)("select id, paid_by from payments order by id")
