"""Awaiting callers on PostgreSQL: raw asyncpg, statements compiled and prepared once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import TextClause
from sqlalchemy.sql.selectable import SelectBase

from outlast.ports.database import MakeOp
from outlast.ports.operation import Result, Statement, pump_awaiting
from outlast.stores.databases.compiling import FOR_POSTGRESQL
from outlast.stores.databases.held_pool import HeldPool
from outlast.stores.databases.loop_pools import LoopPools
from outlast.stores.databases.roads import OutcomeUnknown
from outlast.stores.databases.wire import BEGIN, OpenTransaction, Wire
from outlast.stores.dialects.base import Dialect, Trouble

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

logger = logging.getLogger("outlast.stores")

T = TypeVar("T")
Connect = Callable[[], "Awaitable[Connection]"]


class AsyncpgRoad:
    """It carries psycopg's connections as well, with the wire for them."""

    def __init__(self, dialect: Dialect, connect: Connect, *, limit: int, wire: Wire | None = None) -> None:
        self._dialect = dialect
        self._wire = ASYNCPG if wire is None else wire
        self._pools = LoopPools(connect, limit)

    async def transact(self, make: MakeOp[T], *, timeout: float) -> T:
        pool = self._pools.here()
        transaction: OpenTransaction | None = None
        try:
            async with asyncio.timeout(timeout):
                transaction = OpenTransaction(await pool.take(), self._wire)
                value = await pump_awaiting(make(), transaction.execute)
                await transaction.commit()
        except BaseException as error:
            if transaction is None:
                raise
            await self._clean_up(pool, transaction, error)
            if transaction.may_be_committed and self._is_lost(error):
                raise OutcomeUnknown from error
            raise
        pool.give(transaction.connection)
        return value

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Connection]:
        """Give a connection away, with a transaction open."""
        pool = self._pools.here()
        connection = await pool.take()
        is_clean = False
        try:
            try:
                async with connection.transaction():
                    yield connection
            except Exception as error:
                is_clean = not self._is_lost(error)
                raise
            is_clean = True
        finally:
            await _take_back(pool, connection, is_clean=is_clean)

    async def close(self) -> None:
        await self._pools.close()

    async def _clean_up(self, pool: HeldPool[Connection], transaction: OpenTransaction, error: BaseException) -> None:
        """Leave no transaction open behind an error: roll back where the connection can be trusted, else end it."""
        connection = transaction.connection
        if not isinstance(error, Exception) or self._is_lost(error) or connection.is_closed():
            if connection.is_closed():
                pool.drop_idle()
            pool.drop(connection)
            return
        try:
            await transaction.roll_back()
        except BaseException:
            pool.drop(connection)
            raise
        pool.give(connection)

    def _is_lost(self, error: BaseException) -> bool:
        return self._dialect.trouble(error) is Trouble.LOST


async def _take_back(pool: HeldPool[Connection], connection: Connection, *, is_clean: bool) -> None:
    """Take back what the application had: as it was given, or not at all."""
    if is_clean and not connection.is_closed() and not connection.is_in_transaction():
        try:
            await connection.reset()
        except Exception:
            logger.debug("A connection could not be cleaned up.", exc_info=True)
        else:
            pool.give(connection)
            return
    pool.drop(connection)


async def execute(connection: Connection, statement: Statement) -> Result:
    """Execute one statement on a raw connection, ours or a caller's."""
    compiled = FOR_POSTGRESQL.compiled(statement.sql)
    params = statement.params
    if not isinstance(params, Mapping):
        await connection.executemany(compiled.text, compiled.rows_of_arguments(params))
        return Result()
    arguments = compiled.arguments(params)
    if isinstance(statement.sql, SelectBase | TextClause):
        rows: list[Any] = await connection.fetch(compiled.text, *arguments)
        return Result(rows)
    return Result(affected=_affected(await connection.execute(compiled.text, *arguments)))


ASYNCPG: Final = Wire(execute, BEGIN)


def _affected(status: str) -> int:
    """Read the count from a command's tag, such as `INSERT 0 1` or `UPDATE 3`."""
    count = status.rpartition(" ")[2]
    return int(count) if count.isdigit() else -1
