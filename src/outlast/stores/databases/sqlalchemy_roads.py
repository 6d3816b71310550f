"""Roads over SQLAlchemy engines: the application's own, and ours for blocking callers on PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from sqlalchemy import Connection, Engine, Pool, text
from sqlalchemy.sql.selectable import SelectBase

from outlast.ports.database import MakeOp
from outlast.ports.operation import Result, Span, Statement, pump, pump_awaiting
from outlast.stores.databases.mysql_statements import MOST, is_long, refuse_oversized
from outlast.stores.databases.peeking import first_statement
from outlast.stores.databases.roads import BlockingRoad, OutcomeUnknown
from outlast.stores.dialects.base import Dialect, Trouble

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

T = TypeVar("T")
# Set for each transaction, so that an engine made for another isolation serves as well.
_ISOLATION: Final[dict[Span, str]] = {
    "write": "READ COMMITTED",
    "read": "REPEATABLE READ",
    "alone": "AUTOCOMMIT",
    "session": "AUTOCOMMIT",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What begins a transaction that writes, on connections that were made without limits of ours; and what ends it where
    the limits would else outlast the transaction."""

    begin: Statement
    end: Statement | None = None


class EngineRoad:
    """Blocking callers of any thread. After a fork the child's connections are its own; the parent's stay untouched.

    Who closes it does not wait for what other threads do, and they close their connections when they are done.
    Held by tests/contract/test_threads.py.
    """

    def __init__(
        self, dialect: Dialect, make_engine: Callable[[], Engine], *, disposes: bool, limits: Limits | None = None
    ) -> None:
        self._dialect = dialect
        self._make_engine = make_engine
        self._disposes = disposes
        self._limits = limits
        self._engine: Engine | None = None
        self._pid = os.getpid()

    def transact(self, make: MakeOp[T]) -> T:
        first, made = first_statement(make)
        span = _span(first, self._limits)
        may_be_committed = span == "alone"
        engine = self._engine_here()
        pool = engine.pool
        try:
            with engine.connect() as raw:
                try:
                    connection = raw.execution_options(isolation_level=_ISOLATION[span])
                    if span == "session":
                        connection.detach()
                    with _limited(connection, self._limits if span == "write" else None):
                        value = pump(made(), lambda statement: execute(connection, statement))
                        may_be_committed = True
                        connection.commit()
                except Exception as error:
                    if self._dialect.trouble(error) is Trouble.LOST or self._dialect.absent(error) is not None:
                        # SQLAlchemy does not know each driver's word for it, or that the connection was switched to another
                        # database, and its pool would lend the connection again.
                        raw.invalidate(error)
                    raise
        except Exception as error:
            if may_be_committed and self._dialect.trouble(error) is Trouble.LOST:
                raise OutcomeUnknown from error
            raise
        finally:
            if engine is not self._engine:
                _end(engine, pool)
        return value

    @contextlib.contextmanager
    def begin(self) -> Generator[Connection]:
        """Begin a transaction of the application's."""
        engine = self._engine_here()
        pool = engine.pool
        try:
            with engine.begin() as connection:
                yield connection
        finally:
            if engine is not self._engine:
                _end(engine, pool)

    def close(self) -> None:
        if self._disposes and self._engine is not None and self._pid == os.getpid():
            engine, self._engine = self._engine, None
            engine.dispose()

    def _engine_here(self) -> Engine:
        if self._engine is None:
            self._engine = self._make_engine()
            self._pid = os.getpid()
        elif self._pid != os.getpid():
            self._engine.dispose(close=False)
            self._pid = os.getpid()
        return self._engine


def _end(engine: Engine, pool: Pool) -> None:
    """Close what came back to an engine that was closed meanwhile: to the pool of then, or to the one it has got since."""
    pool.dispose()
    engine.dispose()


class AsyncEngineRoad:
    """Awaiting callers over the application's AsyncEngine, which belongs to the application's event loop."""

    def __init__(self, dialect: Dialect, engine: AsyncEngine, *, limits: Limits) -> None:
        self._dialect = dialect
        self._engine = engine
        self._limits = limits

    async def transact(self, make: MakeOp[T], *, timeout: float) -> T:
        first, made = first_statement(make)
        span = _span(first, self._limits)
        may_be_committed = span == "alone"
        try:
            async with asyncio.timeout(timeout), self._engine.connect() as raw:
                try:
                    connection = await raw.execution_options(isolation_level=_ISOLATION[span])
                    if span == "session":
                        await connection.run_sync(Connection.detach)
                    async with _limited_awaiting(connection, self._limits if span == "write" else None):
                        value = await pump_awaiting(made(), lambda statement: execute_awaiting(connection, statement))
                        may_be_committed = True
                        await connection.commit()
                except Exception as error:
                    if self._dialect.absent(error) is not None:
                        await raw.invalidate(error)
                    raise
        except Exception as error:
            if may_be_committed and self._dialect.trouble(error) is Trouble.LOST:
                raise OutcomeUnknown from error
            raise
        return value

    async def close(self) -> None:
        """Leave the engine to the application."""


class OnThreads:
    """Awaiting callers over a blocking road: whole ops on the loop's threads."""

    def __init__(self, road: BlockingRoad) -> None:
        self._road = road

    async def transact(self, make: MakeOp[T], *, timeout: float) -> T:
        async with asyncio.timeout(timeout):
            return await asyncio.to_thread(self._road.transact, make)

    async def close(self) -> None:
        """Leave the road to whoever has its blocking side."""


@contextlib.contextmanager
def _limited(connection: Connection, limits: Limits | None) -> Generator[None]:
    """Limit a transaction, and let go of a connection that cannot be given back as it was."""
    if limits is not None:
        execute(connection, limits.begin)
    try:
        yield
    finally:
        if limits is not None and limits.end is not None and not connection.invalidated:
            try:
                connection.rollback()
                execute(connection, limits.end)
            except Exception:  # noqa: BLE001 - what happened to the transaction is what the caller hears
                connection.invalidate()


@contextlib.asynccontextmanager
async def _limited_awaiting(connection: AsyncConnection, limits: Limits | None) -> AsyncGenerator[None]:
    """The same, awaiting."""
    if limits is not None:
        await execute_awaiting(connection, limits.begin)
    try:
        yield
    finally:
        if limits is not None and limits.end is not None and not connection.invalidated:
            try:
                await connection.rollback()
                await execute_awaiting(connection, limits.end)
            except Exception:  # noqa: BLE001 - what happened to the transaction is what the caller hears
                await connection.invalidate()


def _span(first: Statement | None, limits: Limits | None) -> Span:
    """Return what is put around an op. Limits last as long as a transaction, so a statement that writes alone gets one."""
    if first is None:
        return "alone"
    if first.span == "session":
        return "session"
    is_alone = first.span == "alone" and (limits is None or isinstance(first.sql, SelectBase))
    return "alone" if is_alone else "read" if first.span == "read" else "write"


def execute(connection: Connection, statement: Statement) -> Result:
    """Execute one statement on an SQLAlchemy connection, ours or a caller's."""
    if connection.dialect.name in _MYSQL and is_long(statement):
        refuse_oversized(statement, connection.execute(_MOST).scalar_one())
    result = connection.execute(statement.sql, statement.params or None, execution_options=_untranslated(connection))
    if result.returns_rows:
        return Result(result.fetchall(), result.rowcount)
    return Result(affected=result.rowcount)


async def execute_awaiting(connection: AsyncConnection, statement: Statement) -> Result:
    """Execute one statement on an awaiting SQLAlchemy connection."""
    if connection.dialect.name in _MYSQL and is_long(statement):
        refuse_oversized(statement, (await connection.execute(_MOST)).scalar_one())
    options = _untranslated(connection.sync_connection)
    result = await connection.execute(statement.sql, statement.params or None, execution_options=options)
    if result.returns_rows:
        return Result(result.fetchall(), result.rowcount)
    return Result(affected=result.rowcount)


def _untranslated(connection: Connection | None) -> dict[str, None] | None:
    """Return what has our statements find our tables on a connection that reads other schemas into names: a caller's who
    has one for each tenant."""
    is_translated = connection is not None and connection.get_execution_options().get("schema_translate_map")
    return {"schema_translate_map": None} if is_translated else None


_MYSQL: Final = frozenset({"mysql", "mariadb"})
_MOST: Final = text(MOST)
