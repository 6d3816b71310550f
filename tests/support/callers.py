"""A caller with a table and transactions of its own, by every road that `tx=` takes.

`async with road(url) as caller` makes the table `orders`; `async with caller.transaction() as tx` opens a transaction of the
road's kind, which commits at the end and rolls back when an error leaves it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg
from sqlalchemy import Connection, create_engine, make_url, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

TABLE = "create table if not exists orders (id varchar(40) primary key)"
INSERT = "insert into orders values ('{}')"
COUNT = "select count(*) from orders"


class Caller:
    """One road to the application's own table. `insert` writes a row of its own inside an open transaction."""

    is_blocking = False

    def __init__(
        self, transaction: Callable[[], AbstractAsyncContextManager[Any]], execute: Callable[..., Any]
    ) -> None:
        self.transaction = transaction
        self._execute = execute

    async def insert(self, tx: Any, order: str) -> None:
        await self._execute(tx, INSERT.format(order))


Road = Callable[[str], AbstractAsyncContextManager[Caller]]


def is_sqlite(url: str) -> bool:
    return url.startswith("sqlite")


def _awaiting_url(url: str) -> str:
    return (
        url.replace("sqlite:", "sqlite+aiosqlite:")
        if is_sqlite(url)
        else url.replace("postgresql:", "postgresql+asyncpg:")
    )


def _blocking_url(url: str) -> str:
    return url if is_sqlite(url) else url.replace("postgresql:", "postgresql+psycopg:")


@asynccontextmanager
async def session(url: str) -> AsyncGenerator[Caller, None]:
    engine = create_engine(_blocking_url(url))

    @asynccontextmanager
    async def transaction() -> AsyncGenerator[Session, None]:
        with Session(engine) as opened, opened.begin():
            yield opened

    async def execute(tx: Session, statement: str) -> None:
        tx.execute(text(statement))

    with engine.begin() as connection:
        connection.execute(text(TABLE))
    yield Caller(transaction, execute)
    engine.dispose()


@asynccontextmanager
async def connection(url: str) -> AsyncGenerator[Caller, None]:
    engine = create_engine(_blocking_url(url))

    @asynccontextmanager
    async def transaction() -> AsyncGenerator[Connection, None]:
        with engine.begin() as opened:
            yield opened

    async def execute(tx: Connection, statement: str) -> None:
        tx.execute(text(statement))

    with engine.begin() as opened:
        opened.execute(text(TABLE))
    yield Caller(transaction, execute)
    engine.dispose()


@asynccontextmanager
async def async_session(url: str) -> AsyncGenerator[Caller, None]:
    engine = create_async_engine(_awaiting_url(url))

    @asynccontextmanager
    async def transaction() -> AsyncGenerator[AsyncSession, None]:
        async with AsyncSession(engine) as opened, opened.begin():
            yield opened

    async def execute(tx: AsyncSession, statement: str) -> None:
        await tx.execute(text(statement))

    async with engine.begin() as made:
        await made.execute(text(TABLE))
    yield Caller(transaction, execute)
    await engine.dispose()


@asynccontextmanager
async def async_connection(url: str) -> AsyncGenerator[Caller, None]:
    engine = create_async_engine(_awaiting_url(url))

    @asynccontextmanager
    async def transaction() -> AsyncGenerator[AsyncConnection, None]:
        async with engine.begin() as opened:
            yield opened

    async def execute(tx: AsyncConnection, statement: str) -> None:
        await tx.execute(text(statement))

    async with engine.begin() as made:
        await made.execute(text(TABLE))
    yield Caller(transaction, execute)
    await engine.dispose()


@asynccontextmanager
async def asyncpg_connection(url: str) -> AsyncGenerator[Caller, None]:
    opened = await asyncpg.connect(url)

    @asynccontextmanager
    async def transaction() -> AsyncGenerator[asyncpg.Connection[Any], None]:
        async with opened.transaction():
            yield opened

    async def execute(tx: asyncpg.Connection[Any], statement: str) -> None:
        await tx.execute(statement)

    await opened.execute(TABLE)
    yield Caller(transaction, execute)
    await opened.close()


@asynccontextmanager
async def sqlite3_connection(url: str) -> AsyncGenerator[Caller, None]:
    path = make_url(url).database
    assert path is not None
    opened = sqlite3.connect(path)

    @asynccontextmanager
    async def transaction() -> AsyncGenerator[sqlite3.Connection, None]:
        with opened:
            yield opened

    async def execute(tx: sqlite3.Connection, statement: str) -> None:
        tx.execute(statement)

    opened.execute(TABLE)
    opened.commit()
    yield Caller(transaction, execute)
    opened.close()


BLOCKING: dict[str, Road] = {"Session": session, "Connection": connection}
AWAITING: dict[str, Road] = {"AsyncSession": async_session, "AsyncConnection": async_connection}
DRIVERS: dict[str, Road] = {"asyncpg": asyncpg_connection, "sqlite3": sqlite3_connection}
ROADS: dict[str, Road] = {**BLOCKING, **AWAITING, **DRIVERS}
