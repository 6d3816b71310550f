"""A caller with a table and transactions of its own, by every road that `tx=` takes.

`async with ROADS[name](url) as caller` makes the table `orders`; `async with caller.transaction() as tx` opens a transaction
of the road's kind, which commits at the end and rolls back when an error leaves it; `async with caller.savepoint(tx)` does
the same inside it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import aiomysql  # type: ignore[import-untyped]  # it has no types
import aiosqlite
import asyncmy
import asyncpg
import psycopg
import sqlmodel
import sqlmodel.ext.asyncio.session
from sqlalchemy import URL, Connection, Engine, create_engine, make_url, text
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from support.probing import connect_mysql

TABLE = "create table if not exists orders (id varchar(40) primary key)"
INSERT = "insert into orders values ('{}')"

BLOCKING_DRIVERS = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
AWAITING_DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "postgresql": "postgresql+asyncpg",
    "mysql": "mysql+asyncmy",
    "mariadb": "mariadb+aiomysql",
}
"""SQLAlchemy's drivers for each database, as the beginning of a URL."""

Transaction = Callable[[], AbstractAsyncContextManager[Any]]
Savepoint = Callable[[Any], AbstractAsyncContextManager[Any]]
Execute = Callable[[Any, str], Awaitable[object]]


class Caller:
    """One road to the application's own table. `insert` writes a row of its own inside an open transaction."""

    def __init__(self, transaction: Transaction, savepoint: Savepoint, execute: Execute) -> None:
        self.transaction = transaction
        self.savepoint = savepoint
        self._execute = execute

    async def insert(self, tx: Any, order: str) -> None:
        await self.say(tx, INSERT.format(order))

    async def say(self, tx: Any, statement: str) -> None:
        await self._execute(tx, statement)


Open = Callable[[str], AbstractAsyncContextManager[Caller]]


@dataclass(frozen=True)
class Road:
    """A kind of handle, and the databases on which there is one."""

    open: Open
    databases: tuple[str, ...]
    is_blocking: bool = False

    def __call__(self, url: str) -> AbstractAsyncContextManager[Caller]:
        return self.open(url)


def kind_of(url: str) -> str:
    """The database behind a URL, as in `Road.databases`."""
    return make_url(url).get_backend_name()


def blocking_engine(url: str) -> Engine:
    return create_engine(blocking_url(url))


def blocking_url(url: str) -> URL:
    """The URL with a driver for blocking code."""
    return make_url(url).set(drivername=BLOCKING_DRIVERS[kind_of(url)])


def awaiting_engine(url: str) -> AsyncEngine:
    return create_async_engine(make_url(url).set(drivername=AWAITING_DRIVERS[kind_of(url)]))


def as_awaiting(manager: AbstractContextManager[Any]) -> AbstractAsyncContextManager[Any]:
    @asynccontextmanager
    async def entered() -> AsyncGenerator[Any, None]:
        with manager as value:
            yield value

    return entered()


# SQLAlchemy and SQLModel, blocking.


def _over_engine(
    begun: Callable[[Engine], AbstractContextManager[Any]],
    connection_of: Callable[[Any], Connection] = lambda session: session.connection(),
) -> Open:
    @asynccontextmanager
    async def opened(url: str) -> AsyncGenerator[Caller, None]:
        engine = blocking_engine(url)
        with engine.begin() as connection:
            connection.execute(text(TABLE))

        async def execute(tx: Any, statement: str) -> None:
            connection_of(tx).execute(text(statement))

        yield Caller(lambda: as_awaiting(begun(engine)), lambda tx: as_awaiting(tx.begin_nested()), execute)
        engine.dispose()

    return opened


@contextmanager
def _session(engine: Engine) -> Generator[Session, None, None]:
    with Session(engine) as session, session.begin():
        yield session


@contextmanager
def _sqlmodel_session(engine: Engine) -> Generator[sqlmodel.Session, None, None]:
    with sqlmodel.Session(engine) as session, session.begin():
        yield session


@contextmanager
def _scoped_session(engine: Engine) -> Generator[scoped_session[Session], None, None]:
    registry = scoped_session(sessionmaker(engine))
    try:
        with registry.begin():
            yield registry
    finally:
        registry.remove()


# SQLAlchemy and SQLModel, awaiting.


async def _connection_of_session(session: Any) -> AsyncConnection:
    connection: AsyncConnection = await session.connection()
    return connection


async def _itself(connection: AsyncConnection) -> AsyncConnection:
    return connection


def _over_async_engine(
    begun: Callable[[AsyncEngine], AbstractAsyncContextManager[Any]],
    connection_of: Callable[[Any], Awaitable[AsyncConnection]] = _connection_of_session,
) -> Open:
    @asynccontextmanager
    async def opened(url: str) -> AsyncGenerator[Caller, None]:
        engine = awaiting_engine(url)
        async with engine.begin() as connection:
            await connection.execute(text(TABLE))

        async def execute(tx: Any, statement: str) -> None:
            await (await connection_of(tx)).execute(text(statement))

        yield Caller(lambda: begun(engine), lambda tx: tx.begin_nested(), execute)
        await engine.dispose()

    return opened


@asynccontextmanager
async def _async_session(engine: AsyncEngine) -> AsyncGenerator[AsyncSession, None]:
    async with AsyncSession(engine) as session, session.begin():
        yield session


@asynccontextmanager
async def _sqlmodel_async_session(engine: AsyncEngine) -> AsyncGenerator[AsyncSession, None]:
    async with sqlmodel.ext.asyncio.session.AsyncSession(engine) as session, session.begin():
        yield session


@asynccontextmanager
async def _async_scoped_session(engine: AsyncEngine) -> AsyncGenerator[async_scoped_session[AsyncSession], None]:
    registry = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
    try:
        async with registry.begin():
            yield registry
    finally:
        await registry.remove()


# Drivers.


@asynccontextmanager
async def _asyncpg(url: str) -> AsyncGenerator[Caller, None]:
    opened = await asyncpg.connect(url)

    @asynccontextmanager
    async def transaction() -> AsyncGenerator[Any, None]:
        async with opened.transaction():
            yield opened

    await opened.execute(TABLE)
    yield Caller(transaction, lambda tx: tx.transaction(), lambda tx, statement: tx.execute(statement))
    await opened.close()


@asynccontextmanager
async def _psycopg(url: str) -> AsyncGenerator[Caller, None]:
    with psycopg.connect(url) as opened:

        @asynccontextmanager
        async def transaction() -> AsyncGenerator[Any, None]:
            with opened.transaction():
                yield opened

        async def execute(tx: Any, statement: str) -> None:
            tx.execute(statement)

        opened.execute(TABLE)
        opened.commit()
        yield Caller(transaction, lambda tx: as_awaiting(tx.transaction()), execute)


@asynccontextmanager
async def _psycopg_awaiting(url: str) -> AsyncGenerator[Caller, None]:
    async with await psycopg.AsyncConnection.connect(url) as opened:

        @asynccontextmanager
        async def transaction() -> AsyncGenerator[Any, None]:
            async with opened.transaction():
                yield opened

        await opened.execute(TABLE)
        await opened.commit()
        yield Caller(transaction, lambda tx: tx.transaction(), lambda tx, statement: tx.execute(statement))


@asynccontextmanager
async def _sqlite3(url: str) -> AsyncGenerator[Caller, None]:
    opened = sqlite3.connect(make_url(url).database or "")

    @asynccontextmanager
    async def transaction() -> AsyncGenerator[sqlite3.Connection, None]:
        with opened:
            yield opened

    async def execute(tx: sqlite3.Connection, statement: str) -> None:
        tx.execute(statement)

    opened.execute(TABLE)
    opened.commit()
    yield Caller(transaction, lambda tx: _named_savepoint(lambda statement: execute(tx, statement)), execute)
    opened.close()


@asynccontextmanager
async def _aiosqlite(url: str) -> AsyncGenerator[Caller, None]:
    async with aiosqlite.connect(make_url(url).database or "") as opened:

        @asynccontextmanager
        async def transaction() -> AsyncGenerator[aiosqlite.Connection, None]:
            try:
                yield opened
            except BaseException:
                await opened.rollback()
                raise
            await opened.commit()

        await opened.execute(TABLE)
        await opened.commit()
        yield Caller(
            transaction,
            lambda tx: _named_savepoint(tx.execute),
            lambda tx, statement: tx.execute(statement),
        )


@asynccontextmanager
async def _named_savepoint(execute: Callable[[str], Awaitable[object]]) -> AsyncGenerator[None, None]:
    await execute("savepoint here")
    try:
        yield
    except BaseException:
        await execute("rollback to savepoint here")
        raise
    finally:
        await execute("release savepoint here")


@asynccontextmanager
async def _pymysql(url: str) -> AsyncGenerator[Caller, None]:
    opened = connect_mysql(url, autocommit=False)

    async def execute(tx: Any, statement: str) -> None:
        with tx.cursor() as cursor:
            cursor.execute(statement)

    @asynccontextmanager
    async def transaction() -> AsyncGenerator[Any, None]:
        try:
            yield opened
        except BaseException:
            opened.rollback()
            raise
        opened.commit()

    await execute(opened, TABLE)
    yield Caller(transaction, lambda tx: _named_savepoint(lambda statement: execute(tx, statement)), execute)
    opened.close()


def _over_mysql_driver(driver: Any) -> Open:
    @asynccontextmanager
    async def opened(url: str) -> AsyncGenerator[Caller, None]:
        parts = make_url(url)
        connection = await driver.connect(
            host=parts.host, port=parts.port, user=parts.username, password=parts.password, db=parts.database
        )

        async def execute(tx: Any, statement: str) -> None:
            async with tx.cursor() as cursor:
                await cursor.execute(statement)

        @asynccontextmanager
        async def transaction() -> AsyncGenerator[Any, None]:
            try:
                yield connection
            except BaseException:
                await connection.rollback()
                raise
            await connection.commit()

        await execute(connection, TABLE)
        yield Caller(transaction, lambda tx: _named_savepoint(lambda statement: execute(tx, statement)), execute)
        await connection.ensure_closed()

    return opened


_MYSQL = ("mysql", "mariadb")
_ALL = ("sqlite", "postgresql", *_MYSQL)
ROADS: dict[str, Road] = {
    "Session": Road(_over_engine(_session), _ALL, is_blocking=True),
    "scoped_session": Road(_over_engine(_scoped_session), _ALL, is_blocking=True),
    "SQLModel-Session": Road(_over_engine(_sqlmodel_session), _ALL, is_blocking=True),
    "Connection": Road(_over_engine(Engine.begin, lambda connection: connection), _ALL, is_blocking=True),
    "AsyncSession": Road(_over_async_engine(_async_session), _ALL),
    "async_scoped_session": Road(_over_async_engine(_async_scoped_session), _ALL),
    "SQLModel-AsyncSession": Road(_over_async_engine(_sqlmodel_async_session), _ALL),
    "AsyncConnection": Road(_over_async_engine(AsyncEngine.begin, _itself), _ALL),
    "asyncpg": Road(_asyncpg, ("postgresql",)),
    "psycopg": Road(_psycopg, ("postgresql",), is_blocking=True),
    "psycopg-awaiting": Road(_psycopg_awaiting, ("postgresql",)),
    "sqlite3": Road(_sqlite3, ("sqlite",), is_blocking=True),
    "aiosqlite": Road(_aiosqlite, ("sqlite",)),
    "PyMySQL": Road(_pymysql, _MYSQL, is_blocking=True),
    "asyncmy": Road(_over_mysql_driver(asyncmy), _MYSQL),
    "aiomysql": Road(_over_mysql_driver(aiomysql), _MYSQL),
}


@dataclass(frozen=True)
class Place:
    """A database and the road on which the caller's own transaction reaches it."""

    url: str
    road: str

    def caller(self) -> AbstractAsyncContextManager[Caller]:
        return ROADS[self.road](self.url)


def roads_on(database: str) -> list[str]:
    """The names of the roads to one database: 'sqlite', 'postgresql', ..."""
    return [name for name, road in ROADS.items() if database in road.databases]
