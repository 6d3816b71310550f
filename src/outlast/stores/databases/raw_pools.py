"""Pools of the application's own drivers: what they lead to, and the roads over them."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

from sqlalchemy import URL, make_url

from outlast.errors import InvalidArgument
from outlast.model.connections import Credentials, ProvideCredentials
from outlast.ports.database import MakeOp
from outlast.ports.operation import pump, pump_awaiting
from outlast.stores.databases import mysql_pool, psycopg_statements
from outlast.stores.databases.loaded import is_a
from outlast.stores.databases.peeking import first_statement
from outlast.stores.databases.roads import OutcomeUnknown
from outlast.stores.databases.wire import OpenTransaction, Wire
from outlast.stores.dialects.base import Dialect, Trouble

T = TypeVar("T")
Acquire: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]
_NO_URL: Final = (
    "This pool does not say where its connections lead, and outlast needs some of its own beside them. Give it the URL as "
    "its database, with connections=ConnectionOptions(credentials=...) where passwords change."
)
# What a pool of psycopg's passes on to its connections, but the server never hears of.
_LOCAL: Final = frozenset({"autocommit", "prepare_threshold", "context", "row_factory", "cursor_factory"})


@dataclass(frozen=True, slots=True)
class RawPool:
    """A pool of the application's, and where connections of ours lead to the same place. `more` is what has
    no form in a URL."""

    pool: Any
    url: URL
    is_blocking: bool = False
    credentials: ProvideCredentials | None = None
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])


def raw_pool(target: object) -> RawPool | None:
    """Recognise a pool; None for anything else. Raises InvalidArgument for one that does not say where it leads."""
    if is_a(target, "asyncpg.pool", "Pool"):
        return _of_asyncpg(target)
    if is_a(target, "psycopg_pool", "AsyncConnectionPool"):
        return RawPool(target, _url_of_psycopg(target))
    if is_a(target, "psycopg_pool", "ConnectionPool"):
        return RawPool(target, _url_of_psycopg(target), is_blocking=True)
    place = mysql_pool.place_of(target)
    if place is None:
        return None
    if place.url.host is None:
        raise InvalidArgument(_NO_URL)
    return RawPool(target, place.url, more={"tls": place.tls})


def acquired_from(pool: Any) -> Acquire:  # noqa: ANN401 - asyncpg's or psycopg's
    """Return what gives a connection of the pool's that begins no transaction by itself."""
    return pool.acquire if is_a(pool, "asyncpg.pool", "Pool") else lambda: _lent(pool)


class PoolRoad:
    """Awaiting callers over the application's pool, which belongs to the application's event loop."""

    def __init__(self, dialect: Dialect, acquire: Acquire, wire: Wire) -> None:
        self._dialect = dialect
        self._wire = wire
        self._acquire = acquire

    async def transact(self, make: MakeOp[T], *, timeout: float) -> T:
        may_be_committed = False
        try:
            async with asyncio.timeout(timeout), self._acquire() as connection:
                transaction = OpenTransaction(connection, self._wire)
                try:
                    value = await pump_awaiting(make(), transaction.execute)
                    await transaction.commit()
                except BaseException as error:
                    may_be_committed = transaction.may_be_committed
                    await self._clean_up(transaction, error)
                    raise
        except Exception as error:
            if may_be_committed and self._is_lost(error):
                raise OutcomeUnknown from error
            raise
        return value

    async def close(self) -> None:
        """Leave the pool to the application."""

    async def _clean_up(self, transaction: OpenTransaction, error: BaseException) -> None:
        if isinstance(error, Exception) and not self._is_lost(error) and self._dialect.absent(error) is None:
            await transaction.roll_back()
            return
        connection = transaction.connection
        end = getattr(connection, "terminate", None) or connection.pgconn.finish
        end()

    def _is_lost(self, error: BaseException) -> bool:
        return self._dialect.trouble(error) is Trouble.LOST


class BlockingPoolRoad:
    """Blocking callers over the application's pool of psycopg."""

    def __init__(self, dialect: Dialect, pool: object, wire: Wire) -> None:
        self._dialect = dialect
        self._pool: Any = pool
        self._begin = wire.begin

    def transact(self, make: MakeOp[T]) -> T:
        first, made = first_statement(make)
        begin = self._begin["write" if first is None else first.span]
        may_be_committed = begin is None
        try:
            with _lent_blocking(self._pool) as connection:
                if begin is not None:
                    connection.execute(begin)
                value = pump(made(), lambda statement: psycopg_statements.execute(connection, statement))
                may_be_committed = True
                if begin is not None:
                    connection.execute("COMMIT")
        except Exception as error:
            if may_be_committed and self._dialect.trouble(error) is Trouble.LOST:
                raise OutcomeUnknown from error
            raise
        return value

    def close(self) -> None:
        """Leave the pool to the application."""


@asynccontextmanager
async def _lent(pool: Any) -> AsyncGenerator[Any]:  # noqa: ANN401 - psycopg's
    """Give a connection that begins no transaction by itself. What is left open is rolled back as the pool takes it back."""
    async with pool.connection() as connection:
        usual = connection.autocommit
        await connection.set_autocommit(True)
        try:
            yield connection
        finally:
            if not connection.closed:
                await connection.rollback()
                await connection.set_autocommit(usual)


@contextmanager
def _lent_blocking(pool: Any) -> Generator[Any]:  # noqa: ANN401 - psycopg's
    with pool.connection() as connection:
        usual = connection.autocommit
        connection.autocommit = True
        try:
            yield connection
        finally:
            if not connection.closed:
                connection.rollback()
                connection.autocommit = usual


def _url_of_psycopg(pool: Any) -> URL:  # noqa: ANN401 - psycopg's, of either colour
    if callable(pool.conninfo) or callable(pool.kwargs):
        raise InvalidArgument(_NO_URL)
    keywords: dict[str, Any] = pool.kwargs or {}
    server = {name: value for name, value in keywords.items() if name not in _LOCAL}
    said: dict[str, Any] = importlib.import_module("psycopg.conninfo").conninfo_to_dict(pool.conninfo, **server)
    port = said.pop("port", None)
    return URL.create(
        "postgresql+psycopg",
        username=said.pop("user", None),
        password=said.pop("password", None),
        host=said.pop("host", None),
        port=int(port) if port is not None else None,
        database=said.pop("dbname", None),
        query={name: str(value) for name, value in said.items()},
    )


def _of_asyncpg(pool: Any) -> RawPool:  # noqa: ANN401 - asyncpg's
    # It has no public word for them; in a version that calls them otherwise this is said and not guessed.
    arguments: list[Any] | None = getattr(pool, "_connect_args", None)
    keywords: dict[str, Any] | None = getattr(pool, "_connect_kwargs", None)
    if arguments is None or keywords is None:
        raise InvalidArgument(_NO_URL)
    said = dict(keywords)
    dsn = arguments[0] if arguments else said.pop("dsn", None)
    url = make_url(dsn.replace("postgres://", "postgresql://", 1)) if dsn else URL.create("postgresql")
    password = said.pop("password", None)
    url = url.set(
        drivername="postgresql+asyncpg",
        username=said.pop("user", None) or url.username,
        password=password if isinstance(password, str) else url.password,
        host=said.pop("host", None) or url.host,
        port=said.pop("port", None) or url.port,
        database=said.pop("database", None) or url.database,
    )
    more = {name: said[name] for name in ("ssl", "direct_tls", "passfile", "krbsrvname", "gsslib") if said.get(name)}
    return RawPool(pool, url, credentials=_asked_by(password) if callable(password) else None, more=more)


def _asked_by(password: Callable[[], Any]) -> ProvideCredentials:
    """Return a function for what asyncpg takes instead of a password: one that returns it, awaited or not."""

    async def provide() -> Credentials:
        given = password()
        return Credentials(password=await given if hasattr(given, "__await__") else given)

    return provide
