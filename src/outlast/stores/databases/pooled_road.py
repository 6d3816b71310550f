"""Awaiting callers over connections of ours: raw ones of asyncpg, psycopg or asyncmy, held open by their loops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, TypeVar

from outlast.ports.database import MakeOp
from outlast.ports.operation import pump_awaiting
from outlast.stores.databases.held_pool import HeldPool
from outlast.stores.databases.loop_pools import LoopPools
from outlast.stores.databases.roads import OutcomeUnknown
from outlast.stores.databases.wire import Link, OpenTransaction, Wire
from outlast.stores.dialects.base import Dialect, Trouble

logger: Final = logging.getLogger("outlast.stores")

T = TypeVar("T")


class PooledRoad:
    """One road for any number of loops and threads. What differs between drivers is the wire's."""

    def __init__(self, dialect: Dialect, connect: Callable[[], Awaitable[Link]], wire: Wire, *, limit: int) -> None:
        self._dialect = dialect
        self._wire = wire
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
        if transaction.span == "session":
            pool.drop(transaction.connection)
        else:
            pool.give(transaction.connection)
        return value

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Any]:
        """Give a connection of the driver's away, with a transaction open."""
        pool = self._pools.here()
        connection = await pool.take()
        is_clean = False
        try:
            try:
                async with connection.transaction():
                    yield self._wire.given(connection)
            except Exception as error:
                is_clean = not self._is_lost(error)
                raise
            is_clean = True
        finally:
            await _take_back(pool, connection, is_clean=is_clean)

    async def close(self) -> None:
        await self._pools.close()

    async def _clean_up(self, pool: HeldPool[Link], transaction: OpenTransaction, error: BaseException) -> None:
        """Leave no transaction open behind an error: roll back where the connection can be trusted, else end it."""
        connection = transaction.connection
        if connection.is_closed():
            pool.drop_idle()
            pool.drop(connection)
            return
        if not isinstance(error, Exception) or self._is_lost(error) or transaction.span == "session":
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


async def _take_back(pool: HeldPool[Link], connection: Link, *, is_clean: bool) -> None:
    """Take back what the application had: as it was given, or not at all."""
    if is_clean and not connection.is_closed() and not connection.is_in_transaction():
        try:
            await connection.reset()
        except Exception:
            logger.debug("A connection could not be cleaned up.", exc_info=True)
        except BaseException:
            pool.drop(connection)
            raise
        else:
            pool.give(connection)
            return
    pool.drop(connection)
