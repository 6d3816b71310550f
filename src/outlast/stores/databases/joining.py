"""Run an op inside the caller's own transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection

from outlast.errors import IsolationRefused, NotATransaction
from outlast.ports.database import MakeOp
from outlast.ports.operation import Execute, ExecuteAwaiting, Op, pump, pump_awaiting
from outlast.stores.basis import Basis
from outlast.stores.databases import asyncpg_road, sqlalchemy_roads, sqlite_connection
from outlast.stores.databases.transactions import Transaction, recognise

T = TypeVar("T")


async def join(tx: object, make: MakeOp[T], basis: Basis, *, read_committed: bool) -> T:
    """Run an op in the transaction behind `tx`. Blocking transactions are taken too; each of their statements holds the loop
    for as long as the database needs, as the caller's own statements on it do."""
    transaction = recognise(tx, basis.dialect)
    op = _checked(make, basis, read_committed=read_committed)
    connection = transaction.connection
    match transaction.road:
        case "asyncpg":
            return await pump_awaiting(op, _awaiting(asyncpg_road.execute, connection))
        case "sqlalchemy-awaiting":
            if transaction.is_session:
                connection = await connection.connection()
            _refuse_autocommit(transaction, connection.sync_connection)
            return await pump_awaiting(op, _awaiting(sqlalchemy_roads.execute_awaiting, connection))
        case _:
            return pump(op, _blocking(transaction))


def join_blocking(tx: object, make: MakeOp[T], basis: Basis, *, read_committed: bool) -> T:
    """Run an op in the blocking transaction behind `tx`."""
    transaction = recognise(tx, basis.dialect)
    if transaction.is_awaiting:
        raise NotATransaction(
            f"tx= is {transaction.what}, which has to be awaited; a blocking call cannot do that. "
            "Use `await app.<verb>(...)`, or pass a Session or a Connection."
        )
    return pump(_checked(make, basis, read_committed=read_committed), _blocking(transaction))


def _checked(make: MakeOp[T], basis: Basis, *, read_committed: bool) -> Op[T]:
    look = basis.dialect.isolation() if read_committed else None
    if look is not None:
        found = yield look
        isolation: str = found.rows[0][0]
        if isolation != "read committed":
            raise IsolationRefused(
                f"The transaction given as tx= is {isolation!r}. It may not see a run that began to wait after the "
                "transaction's first statement, so the signal could miss it. Use READ COMMITTED, or send the signal in "
                "another transaction."
            )
    lock = basis.dialect.write_lock(basis.tables)
    if lock is not None:
        yield lock
    return (yield from make())


def _blocking(transaction: Transaction) -> Execute:
    connection = transaction.connection
    if transaction.road == "sqlite3":
        return lambda statement: sqlite_connection.execute(connection, statement)
    if transaction.is_session:
        connection = connection.connection()
    _refuse_autocommit(transaction, connection)
    return lambda statement: sqlalchemy_roads.execute(connection, statement)


def _awaiting(execute: Callable[..., Any], connection: object) -> ExecuteAwaiting:
    return lambda statement: execute(connection, statement)


def _refuse_autocommit(transaction: Transaction, connection: Connection) -> None:
    """Refuse an SQLAlchemy connection whose statements commit by themselves."""
    driver: object = connection.connection.dbapi_connection
    if getattr(driver, "autocommit", False) is True or _is_sqlite_autocommit(driver):
        raise NotATransaction(
            f"tx= is {transaction.what} in AUTOCOMMIT mode: each statement would commit by itself. "
            "Use one with an isolation level that has transactions."
        )


def _is_sqlite_autocommit(driver: object) -> bool:
    return getattr(driver, "isolation_level", "") is None and getattr(driver, "in_transaction", True) is False
