"""Which failures say nothing about the operation itself: one list a dialect."""

from __future__ import annotations

import sqlite3

import asyncpg
import psycopg
import pytest
from sqlalchemy.exc import DBAPIError

from outlast.errors import LeaseLost
from outlast.stores.dialects.base import Trouble
from outlast.stores.dialects.postgresql import PostgreSQL, refused_for_good
from outlast.stores.dialects.sqlite import SQLite

BUSY, HELD, LOST = Trouble.BUSY, Trouble.HELD, Trouble.LOST


def _sqlite(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("it went wrong")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    "error, trouble",
    [
        (asyncpg.SerializationError("x"), BUSY),
        (asyncpg.DeadlockDetectedError("x"), BUSY),
        (asyncpg.LockNotAvailableError("x"), HELD),
        (asyncpg.QueryCanceledError("x"), BUSY),
        (asyncpg.AdminShutdownError("x"), LOST),
        (asyncpg.CannotConnectNowError("x"), LOST),
        (asyncpg.TooManyConnectionsError("x"), LOST),
        (asyncpg.IdleInTransactionSessionTimeoutError("x"), LOST),
        (asyncpg.ConnectionDoesNotExistError("x"), LOST),
        (asyncpg.InterfaceError("connection is closed"), LOST),
        (psycopg.errors.SerializationFailure("x"), BUSY),
        (psycopg.errors.DeadlockDetected("x"), BUSY),
        (psycopg.OperationalError("server closed the connection unexpectedly"), LOST),
        (psycopg.errors.AdminShutdown("x"), LOST),
        (ConnectionRefusedError(), LOST),
        (ConnectionResetError(), LOST),
        (TimeoutError(), LOST),
        (asyncpg.UniqueViolationError("x"), None),
        (asyncpg.UndefinedTableError("x"), None),
        (asyncpg.InvalidPasswordError("x"), None),
        (asyncpg.DataError("x"), None),
        (psycopg.errors.UniqueViolation("x"), None),
        (LeaseLost("x"), None),
        (ValueError("x"), None),
    ],
    ids=lambda value: (
        f"{type(value).__module__}.{type(value).__name__}" if isinstance(value, Exception) else str(value)
    ),
)
def test_postgresql_tells_trouble_from_errors(error: Exception, trouble: Trouble | None) -> None:
    assert PostgreSQL().trouble(error) is trouble
    assert PostgreSQL().trouble(_wrapped(error)) is trouble


@pytest.mark.parametrize(
    "error, trouble",
    [
        (_sqlite(sqlite3.SQLITE_BUSY), BUSY),
        (_sqlite(sqlite3.SQLITE_BUSY_SNAPSHOT), BUSY),
        (_sqlite(sqlite3.SQLITE_LOCKED_SHAREDCACHE), BUSY),
        (_sqlite(sqlite3.SQLITE_IOERR_FSYNC), LOST),
        (_sqlite(sqlite3.SQLITE_FULL), LOST),
        (_sqlite(sqlite3.SQLITE_CANTOPEN), LOST),
        (_sqlite(sqlite3.SQLITE_CONSTRAINT_UNIQUE), None),
        (_sqlite(sqlite3.SQLITE_ERROR), None),
        (_sqlite(sqlite3.SQLITE_CORRUPT), None),
        (_sqlite(sqlite3.SQLITE_READONLY), None),
        (LeaseLost("x"), None),
    ],
    ids=str,
)
def test_sqlite_tells_trouble_from_errors(error: Exception, trouble: Trouble | None) -> None:
    assert SQLite().trouble(error) is trouble
    assert SQLite().trouble(_wrapped(error)) is trouble


def _wrapped(error: Exception) -> Exception:
    """Wrap an error as SQLAlchemy does."""
    return DBAPIError("select 1", {}, error)


@pytest.mark.parametrize(
    "error, told",
    [
        (asyncpg.InvalidPasswordError("password authentication failed"), "refused the connection: password"),
        (asyncpg.InvalidCatalogNameError('database "x" does not exist'), "refused the connection: database"),
        (asyncpg.ProtocolViolationError("unsupported startup parameter: enable_seqscan"), "PgBouncer"),
        (asyncpg.CannotConnectNowError("the database system is starting up"), None),
        (asyncpg.UndefinedTableError("x"), None),
        (
            psycopg.OperationalError('connection failed: FATAL:  password authentication failed for user "x"'),
            "password",
        ),
        (psycopg.OperationalError("connection failed: fe_sendauth: no password supplied"), "no password"),
        (psycopg.OperationalError('connection failed: FATAL:  database "x" does not exist'), "does not exist"),
        (psycopg.OperationalError('connection failed: FATAL:  no pg_hba.conf entry for host "::1"'), "pg_hba"),
        (psycopg.OperationalError("connection failed: Connection refused"), None),
        (psycopg.OperationalError("FATAL:  the database system is starting up"), None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_a_connection_that_is_refused_for_good_is_told_from_one_that_may_come(
    error: Exception, told: str | None
) -> None:
    refusal = refused_for_good(error)

    assert refusal is None if told is None else refusal is not None and told in refusal
    assert PostgreSQL().refusal(_wrapped(error)) == refusal


def test_an_error_that_only_speaks_of_a_refusal_is_none() -> None:
    broken = asyncpg.UniqueViolationError("Key (id)=(unsupported startup parameter) already exists.")

    assert PostgreSQL().refusal(_wrapped(broken)) is None
