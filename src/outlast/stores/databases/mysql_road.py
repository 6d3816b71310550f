"""Awaiting callers on MySQL and MariaDB: raw asyncmy, statements compiled once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, TypeVar

from outlast.ports.database import MakeOp
from outlast.ports.operation import Result, Span, Statement, pump_awaiting
from outlast.stores.databases.held_pool import HeldPool
from outlast.stores.databases.loop_pools import LoopPools
from outlast.stores.databases.mysql_link import MySQLLink
from outlast.stores.databases.roads import OutcomeUnknown
from outlast.stores.dialects.base import Dialect, Trouble

logger = logging.getLogger("outlast.stores")

T = TypeVar("T")
Connect = Callable[[], Awaitable[MySQLLink]]

_BEGIN: Final[dict[Span, tuple[str, ...]]] = {
    # The session's isolation is READ COMMITTED.
    "write": ("START TRANSACTION",),
    "read": ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION READ ONLY"),
    "alone": (),
    "session": (),
}


class MySQLRoad:
    def __init__(self, dialect: Dialect, connect: Connect, *, limit: int) -> None:
        self._dialect = dialect
        self._pools = LoopPools(connect, limit)

    async def transact(self, make: MakeOp[T], *, timeout: float) -> T:
        pool = self._pools.here()
        transaction: _Transaction | None = None
        try:
            async with asyncio.timeout(timeout):
                transaction = _Transaction(await pool.take())
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
            pool.drop(transaction.link)
        else:
            pool.give(transaction.link)
        return value

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Any]:
        """Give a connection away, with a transaction open."""
        pool = self._pools.here()
        link = await pool.take()
        is_clean = False
        try:
            try:
                async with link.transaction() as connection:
                    yield connection
            except Exception as error:
                is_clean = not self._is_lost(error)
                raise
            is_clean = True
        finally:
            await _take_back(pool, link, is_clean=is_clean)

    async def close(self) -> None:
        await self._pools.close()

    async def _clean_up(self, pool: HeldPool[MySQLLink], transaction: _Transaction, error: BaseException) -> None:
        """Leave no transaction open behind an error: roll back where the connection can be trusted, else end it."""
        link = transaction.link
        if (
            not isinstance(error, Exception)
            or self._is_lost(error)
            or link.is_closed()
            or transaction.span == "session"
        ):
            if link.is_closed():
                pool.drop_idle()
            pool.drop(link)
            return
        try:
            await transaction.roll_back()
        except BaseException:
            pool.drop(link)
            raise
        pool.give(link)

    def _is_lost(self, error: BaseException) -> bool:
        return self._dialect.trouble(error) is Trouble.LOST


async def _take_back(pool: HeldPool[MySQLLink], link: MySQLLink, *, is_clean: bool) -> None:
    """Take back what the application had: as it was given, or not at all."""
    if is_clean and not link.is_closed() and not link.is_in_transaction():
        try:
            await link.reset()
        except Exception:
            logger.debug("A connection could not be cleaned up.", exc_info=True)
        else:
            pool.give(link)
            return
    pool.drop(link)


class _Transaction:
    """Begins as the op's first statement asks for."""

    def __init__(self, link: MySQLLink) -> None:
        self.link = link
        self.may_be_committed = False
        self.span: Span | None = None

    async def execute(self, statement: Statement) -> Result:
        if self.span is None:
            self.span = statement.span
            begin = _BEGIN[statement.span]
            if begin:
                await self.link.say(*begin)
            else:
                self.may_be_committed = True
        return await self.link.execute(statement)

    async def commit(self) -> None:
        if self._is_open:
            self.may_be_committed = True
            await self.link.say("COMMIT")

    async def roll_back(self) -> None:
        if self._is_open:
            await self.link.say("ROLLBACK")

    @property
    def _is_open(self) -> bool:
        return self.span in ("write", "read")
