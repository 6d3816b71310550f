"""What a caller may pass as `tx=`, recognised without importing a library that the caller does not use."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any, Final, Literal

from outlast.errors import NotATransaction
from outlast.stores.databases.loaded import is_a, loaded_class
from outlast.stores.dialects.base import Dialect

JoinRoad = Literal["sqlalchemy", "sqlalchemy-awaiting", "asyncpg", "sqlite3"]


@dataclass(frozen=True, slots=True)
class Transaction:
    """A caller's handle: on which road its statements go, and what it is, for messages."""

    road: JoinRoad
    connection: Any
    what: str
    is_session: bool = False

    @property
    def is_awaiting(self) -> bool:
        return self.road in ("sqlalchemy-awaiting", "asyncpg")


_FORMS: Final = (
    "Pass what your own statements in that transaction go through: a Session, AsyncSession, Connection or "
    "AsyncConnection of SQLAlchemy, an asyncpg connection, or a sqlite3 connection."
)


def recognise(tx: object, dialect: Dialect) -> Transaction:
    """Return the transaction behind `tx`. Raises NotATransaction when it is none, or is on another kind of database."""
    what = _what(tx)
    transaction = (
        _sqlalchemy_session(tx, what) or _sqlalchemy_connection(tx, what) or _asyncpg(tx, what) or _sqlite3(tx, what)
    )
    if transaction is None:
        raise NotATransaction(f"tx= is {what}, which is no transaction. {_hint(tx)}")
    kind = _kind(transaction)
    if kind is not None and kind != dialect.name:
        raise NotATransaction(
            f"tx= is {what} on {kind}, but this app's database is {dialect.name}; one transaction cannot span both."
        )
    return transaction


def _sqlalchemy_session(tx: object, what: str) -> Transaction | None:
    if is_a(tx, "sqlalchemy.orm", "Session") or is_a(tx, "sqlalchemy.orm", "scoped_session"):
        return Transaction("sqlalchemy", tx, what, is_session=True)
    module = "sqlalchemy.ext.asyncio"
    if is_a(tx, module, "AsyncSession") or is_a(tx, module, "async_scoped_session"):
        return Transaction("sqlalchemy-awaiting", tx, what, is_session=True)
    return None


def _sqlalchemy_connection(tx: object, what: str) -> Transaction | None:
    if is_a(tx, "sqlalchemy", "Connection"):
        return Transaction("sqlalchemy", tx, what)
    if is_a(tx, "sqlalchemy.ext.asyncio", "AsyncConnection"):
        return Transaction("sqlalchemy-awaiting", tx, what)
    return None


def _asyncpg(tx: object, what: str) -> Transaction | None:
    if not (is_a(tx, "asyncpg", "Connection") or is_a(tx, "asyncpg.pool", "PoolConnectionProxy")):
        return None
    connection: Any = tx
    if not connection.is_in_transaction():
        raise NotATransaction(
            f"tx= is {what} without an open transaction, so each statement would commit by itself. "
            "Wrap the call: `async with connection.transaction(): ...`."
        )
    return Transaction("asyncpg", tx, what)


def _sqlite3(tx: object, what: str) -> Transaction | None:
    if not isinstance(tx, sqlite3.Connection):
        return None
    # With an isolation level, or with autocommit=False from 3.12 on, the driver begins a transaction by itself.
    autocommits = tx.isolation_level is None or getattr(tx, "autocommit", -1) is True
    if autocommits and getattr(tx, "autocommit", -1) is not False and not tx.in_transaction:
        raise NotATransaction(
            f"tx= is {what} without an open transaction, so each statement would commit by itself. "
            'Begin one first: connection.execute("BEGIN IMMEDIATE").'
        )
    return Transaction("sqlite3", tx, what)


def _kind(transaction: Transaction) -> str | None:
    """Return the kind of database behind a handle; None when only its first statement can tell."""
    match transaction.road:
        case "asyncpg":
            return "postgresql"
        case "sqlite3":
            return "sqlite"
        case _:
            return _sqlalchemy_kind(transaction)


def _sqlalchemy_kind(transaction: Transaction) -> str | None:
    handle = transaction.connection
    if not transaction.is_session:
        name: str = handle.dialect.name
        return name
    unbound = loaded_class("sqlalchemy.exc", "UnboundExecutionError")
    try:
        bind = handle.get_bind()
    except BaseException as error:
        if unbound is not None and isinstance(error, unbound):
            raise NotATransaction(
                f"tx= is {transaction.what} that is bound to no one database. Pass its connection to the one that holds "
                "outlast's tables, such as `session.connection(bind_arguments={...})`."
            ) from error
        raise
    bound: str = bind.dialect.name
    return bound


def _hint(tx: object) -> str:
    """Return what to pass instead of a root handle."""
    module = "sqlalchemy.ext.asyncio"
    if is_a(tx, "sqlalchemy", "Engine"):
        return "Pass a connection of that engine: `with engine.begin() as connection: ... tx=connection`."
    if is_a(tx, module, "AsyncEngine"):
        return "Pass a connection of that engine: `async with engine.begin() as connection: ... tx=connection`."
    if is_a(tx, "sqlalchemy.orm", "sessionmaker"):
        return "Pass a session of it: `with make_session.begin() as session: ... tx=session`."
    if is_a(tx, module, "async_sessionmaker"):
        return "Pass a session of it: `async with make_session.begin() as session: ... tx=session`."
    if is_a(tx, "asyncpg.pool", "Pool"):
        return (
            "Pass a connection of that pool with a transaction open: `async with pool.acquire() as connection, "
            "connection.transaction(): ... tx=connection`."
        )
    return _FORMS


def _what(tx: object) -> str:
    kind = type(tx)
    package = kind.__module__.partition(".")[0]
    return (
        "None" if tx is None else f"a {package}.{kind.__qualname__}" if package != "builtins" else f"a {kind.__name__}"
    )
