"""From what an application passes as `transactions=` to `Transactions`."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

from outlast.errors import InvalidArgument
from outlast.ports.transactions import Transactions
from outlast.stores.databases.loaded import is_a
from outlast.stores.databases.mysql_pool import begun

_ASYNCIO: Final = "sqlalchemy.ext.asyncio"
_BLOCKING: Final = (("sqlalchemy.orm", "sessionmaker"), ("sqlalchemy", "Engine"))
_AWAITING: Final = ((_ASYNCIO, "async_sessionmaker"), (_ASYNCIO, "AsyncEngine"))
_SESSIONS: Final = (
    ("sqlalchemy.orm", "Session"),
    ("sqlalchemy.orm", "scoped_session"),
    (_ASYNCIO, "AsyncSession"),
    (_ASYNCIO, "async_scoped_session"),
)


def transactions_of(option: object, target: object, own: Transactions) -> Transactions:
    """Return where the transactions of steps come from.

    option: what the application passed: an Engine, a sessionmaker, their awaiting twins, a driver's pool, or a function
        whose result is entered for a session or connection and commits at its end. None: the engine or pool that
        `target`, the app's database, may be, and `own` transactions where it is none, or for the other colour.
    """
    if option is None:
        engine = _known(target)
        if engine is None:
            return own
        return replace(engine, awaiting=engine.awaiting or own.awaiting, blocking=engine.blocking or own.blocking,
                       has_one_writer=own.has_one_writer)  # fmt: skip
    known = _known(option)
    if known is None:
        known = _made_by(option)
    return replace(known, has_one_writer=own.has_one_writer)


def _known(option: object) -> Transactions | None:
    """Recognise what is known to commit at its end, by itself or by its method `begin`."""
    source: Any = option
    if getattr(option, "__name__", None) == "begin":
        source = getattr(option, "__self__", option)
    if any(is_a(source, *name) for name in _BLOCKING):
        return Transactions(blocking=source.begin, is_sure=True)
    if any(is_a(source, *name) for name in _AWAITING):
        return Transactions(awaiting=source.begin, is_sure=True)
    pool: Any = option
    if is_a(option, "asyncpg.pool", "Pool"):
        return Transactions(awaiting=partial(_awaited, pool.acquire), is_sure=True)
    if is_a(option, "psycopg_pool", "AsyncConnectionPool"):
        return Transactions(awaiting=partial(_awaited, pool.connection), is_sure=True)
    if any(is_a(option, f"{module}.pool", "Pool") for module in ("asyncmy", "aiomysql")):
        return Transactions(awaiting=partial(begun, pool), is_sure=True)
    if is_a(option, "psycopg_pool", "ConnectionPool"):
        return Transactions(blocking=partial(_blocking, pool.connection), is_sure=True)
    return None


@asynccontextmanager
async def _awaited(acquire: Callable[[], AbstractAsyncContextManager[Any]]) -> AsyncGenerator[Any]:
    async with acquire() as connection, connection.transaction():
        yield connection


@contextmanager
def _blocking(acquire: Callable[[], AbstractContextManager[Any]]) -> Generator[Any]:
    with acquire() as connection, connection.transaction():
        yield connection


def _made_by(option: Any) -> Transactions:  # noqa: ANN401 - whatever an application may pass
    """Take a function of the application's. Unless it is a decorated generator only a call tells its colour."""
    if any(is_a(option, *name) for name in _SESSIONS):
        raise InvalidArgument(
            "transactions= is one session, but each step needs one of its own. Pass the sessionmaker that makes them."
        )
    if not callable(option):
        raise InvalidArgument(
            f"transactions= is {option!r}. Pass a sessionmaker or an Engine of SQLAlchemy, awaiting or not, a pool of "
            "asyncpg, psycopg, asyncmy or aiomysql, or a function whose result is entered with `with` or `async with`, "
            "gives a session or connection, and commits at its end."
        )
    begin: Any = option
    written = inspect.unwrap(begin)
    return Transactions(
        awaiting=None if inspect.isgeneratorfunction(written) else begin,
        blocking=None if inspect.isasyncgenfunction(written) else begin,
    )
