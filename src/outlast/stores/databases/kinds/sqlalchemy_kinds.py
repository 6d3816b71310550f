"""SQLAlchemy's sessions and connections, SQLModel's with them, and the registries that hold a thread's or task's session."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, Engine, MetaData, Table, TwoPhaseTransaction, insert
from sqlalchemy.exc import UnboundExecutionError

from outlast.errors import NotATransaction
from outlast.ports.operation import Execute, ExecuteAwaiting
from outlast.stores.databases.kinds.kind import AwaitingTransaction, BlockingTransaction, Kind, Transaction, told
from outlast.stores.databases.kinds.mysql_kinds import commits_by_itself
from outlast.stores.databases.kinds.session_commits import after_session_commit
from outlast.stores.databases.loaded import is_a
from outlast.stores.databases.sqlalchemy_roads import execute, execute_awaiting

# Looked up, not imported: it asks for greenlet, and whoever has no awaiting engine needs neither.
_ASYNCIO: Final = "sqlalchemy.ext.asyncio"
_WRITE: Final = insert(Table("runs", MetaData()))
"""What a session is asked with which connection it sends a write on."""


def _session(tx: object) -> Transaction | None:
    is_registry = is_a(tx, "sqlalchemy.orm", "scoped_session")
    if is_registry or is_a(tx, "sqlalchemy.orm", "Session"):
        session: Any = _registered(tx) if is_registry else tx
        bind = _bind_of(session, session)

        def enter() -> Execute:
            return _entered(session.connection(bind_arguments={"bind": bind}), told(tx))

        return BlockingTransaction(told(tx), bind.dialect.name, bind.engine, enter)
    is_registry = is_a(tx, _ASYNCIO, "async_scoped_session")
    if is_registry or is_a(tx, _ASYNCIO, "AsyncSession"):
        awaiting: Any = _registered(tx) if is_registry else tx
        awaited_bind = _bind_of(awaiting.sync_session, awaiting)

        async def enter_awaiting() -> ExecuteAwaiting:
            connection = await awaiting.connection(bind_arguments={"bind": awaited_bind})
            return _entered_awaiting(connection, told(tx))

        return AwaitingTransaction(told(tx), awaited_bind.dialect.name, awaited_bind.engine, enter_awaiting)
    return None


def _connection(tx: object) -> Transaction | None:
    connection: Any = tx
    if is_a(tx, "sqlalchemy", "Connection"):
        return BlockingTransaction(
            told(tx), connection.dialect.name, connection.engine, lambda: _entered(connection, told(tx))
        )
    if is_a(tx, _ASYNCIO, "AsyncConnection"):

        async def enter() -> ExecuteAwaiting:
            return _entered_awaiting(connection, told(tx))

        return AwaitingTransaction(told(tx), connection.dialect.name, connection.engine, enter)
    return None


def _is_open(tx: object) -> bool | None:
    connection: Any = tx
    if is_a(tx, "sqlalchemy", "Connection") or is_a(tx, _ASYNCIO, "AsyncConnection"):
        return not connection.closed and bool(connection.in_transaction())
    return None


def _registered(tx: object) -> object:
    """Return the session that a registry has here. One that it would make now has no statement of the caller's in it."""
    scoped: Any = tx
    if not scoped.registry.has():
        raise NotATransaction(
            f"tx= is {told(tx)} that holds no session here, so there is no transaction to join. "
            "Do your own work with it first, on the same thread or task, or pass a session: `tx=registry()`."
        )
    session: object = scoped()
    return session


def _bind_of(session: Any, given: object) -> Engine | Connection:  # noqa: ANN401 - a Session, of whatever class
    """Return what a session sends a write of outlast's to. One that routes chooses by the statement, or by whether it is
    flushing: a connection for reads would be another transaction than that of the caller's rows."""
    is_flushing = session._flushing  # noqa: SLF001 - SQLAlchemy's documentation has those who route look at it
    session._flushing = True  # noqa: SLF001
    try:
        bind: Engine | Connection = session.get_bind(clause=_WRITE)
    except UnboundExecutionError as error:
        raise NotATransaction(
            f"tx= is {told(given)} that is bound to no one database. Pass its connection to the one that holds "
            "outlast's tables, such as `session.connection(bind_arguments={...})`."
        ) from error
    finally:
        session._flushing = is_flushing  # noqa: SLF001
    return bind


def _entered(connection: Connection, what: str) -> Execute:
    _refuse_unfit(connection, what)
    return lambda statement: execute(connection, statement)


def _entered_awaiting(connection: Any, what: str) -> ExecuteAwaiting:  # noqa: ANN401 - an AsyncConnection
    _refuse_unfit(connection.sync_connection, what)
    return lambda statement: execute_awaiting(connection, statement)


def _refuse_unfit(connection: Connection, what: str) -> None:
    _refuse_autocommit(connection, what)
    if connection.dialect.name == "postgresql" and isinstance(connection.get_transaction(), TwoPhaseTransaction):
        raise NotATransaction(
            f"tx= is {what} that commits in two phases. PostgreSQL prepares no transaction that has sent a NOTIFY, as "
            "outlast's verbs do. Use a session without twophase=True, or connection.begin() and not begin_twophase()."
        )


def _refuse_autocommit(connection: Connection, what: str) -> None:
    driver: object = connection.connection.dbapi_connection
    is_mysql = connection.dialect.name in {"mysql", "mariadb"}
    if is_mysql and commits_by_itself(connection.connection.driver_connection):
        driver = None
    # SQLAlchemy's wrapper of aiosqlite does not tell whether a transaction is open, aiosqlite's own connection does.
    is_sqlite = connection.dialect.name == "sqlite" and _is_sqlite_autocommit(connection.connection.driver_connection)
    if driver is None or getattr(driver, "autocommit", False) is True or is_sqlite:
        raise NotATransaction(
            f"tx= is {what} in AUTOCOMMIT mode: each statement would commit by itself. "
            "Use one with an isolation level that has transactions."
        )


def _is_sqlite_autocommit(driver: object) -> bool:
    return getattr(driver, "isolation_level", "") is None and getattr(driver, "in_transaction", True) is False


SQLALCHEMY_SESSION: Final = Kind(
    handles="a Session, AsyncSession, scoped_session or async_scoped_session of SQLAlchemy or SQLModel",
    recognise=_session,
    roots={
        ("sqlalchemy.orm", "sessionmaker"): (
            "Pass a session of it: `with make_session.begin() as session: ... tx=session`."
        ),
        (_ASYNCIO, "async_sessionmaker"): (
            "Pass a session of it: `async with make_session.begin() as session: ... tx=session`."
        ),
        ("flask_sqlalchemy", "SQLAlchemy"): "Pass its session: `tx=db.session`.",
        ("sqlalchemy.orm", "SessionTransaction"): (
            "Pass the session that it belongs to: `with session.begin(): ... tx=session`."
        ),
        (_ASYNCIO, "AsyncSessionTransaction"): (
            "Pass the session that it belongs to: `async with session.begin(): ... tx=session`."
        ),
    },
    after_commit=after_session_commit,
)
SQLALCHEMY_CONNECTION: Final = Kind(
    handles="a Connection or AsyncConnection of SQLAlchemy",
    recognise=_connection,
    roots={
        ("sqlalchemy", "Engine"): (
            "Pass a connection of that engine: `with engine.begin() as connection: ... tx=connection`."
        ),
        (_ASYNCIO, "AsyncEngine"): (
            "Pass a connection of that engine: `async with engine.begin() as connection: ... tx=connection`."
        ),
        ("sqlalchemy", "Transaction"): (
            "Pass the connection that it is on: `with connection.begin(): ... tx=connection`."
        ),
        (_ASYNCIO, "AsyncTransaction"): (
            "Pass the connection that it is on: `async with connection.begin(): ... tx=connection`."
        ),
    },
    is_open=_is_open,
)
