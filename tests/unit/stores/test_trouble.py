"""Which failures say nothing about the operation itself: one list a dialect."""

from __future__ import annotations

import sqlite3
import ssl
from types import ModuleType

import asyncmy.errors
import asyncpg
import psycopg
import pymysql
import pytest
from sqlalchemy.exc import DBAPIError

from outlast.errors import LeaseLost
from outlast.stores.dialects.base import Dialect, Trouble
from outlast.stores.dialects.mysql import MySQL
from outlast.stores.dialects.mysql import refused_for_good as refused_by_mysql
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
    "dialect, error, is_conflict",
    [
        (PostgreSQL(), asyncpg.SerializationError("x"), True),
        (PostgreSQL(), psycopg.errors.DeadlockDetected("x"), True),
        (PostgreSQL(), psycopg.errors.LockNotAvailable("x"), False),  # after the lock_timeout, or with NOWAIT
        (PostgreSQL(), asyncpg.QueryCanceledError("x"), False),
        (PostgreSQL(), psycopg.errors.InFailedSqlTransaction("x"), False),
        (PostgreSQL(), ValueError("40001"), False),
        (MySQL(), pymysql.OperationalError(1213, "x"), True),
        (MySQL(), asyncmy.errors.OperationalError(1205, "x"), True),
        (MySQL(), pymysql.OperationalError(1020, "x"), True),
        (MySQL(), pymysql.OperationalError(3101, "x"), True),
        (MySQL(), pymysql.OperationalError(3572, "x"), False),  # with NOWAIT
        (MySQL(), pymysql.OperationalError(3024, "x"), False),  # after the max_execution_time
        (MySQL(), ValueError(1213), False),
        (SQLite(), _sqlite(sqlite3.SQLITE_BUSY), True),
        (SQLite(), _sqlite(sqlite3.SQLITE_BUSY_SNAPSHOT), True),
        (SQLite(), _sqlite(sqlite3.SQLITE_FULL), False),
        (SQLite(), ValueError("database is locked"), False),
    ],
)
def test_a_conflict_with_others_is_told_from_what_was_asked_for(
    dialect: Dialect, error: Exception, is_conflict: bool
) -> None:
    assert dialect.is_conflict(error) is is_conflict
    assert dialect.is_conflict(_wrapped(error)) is is_conflict


@pytest.mark.parametrize("errors", [pymysql.err, asyncmy.errors], ids=["pymysql", "asyncmy"])
@pytest.mark.parametrize(
    "code, trouble",
    [
        (1213, BUSY),  # deadlock
        (1317, BUSY),  # query killed
        (1020, BUSY),  # changed since the snapshot
        (1205, HELD),  # lock wait timeout
        (1040, LOST),  # too many connections
        (1053, LOST),  # shutdown
        (1290, LOST),  # read-only by now
        (1927, LOST),  # connection killed, on MariaDB
        (2003, LOST),  # refused
        (2006, LOST),  # gone away
        (2013, LOST),  # lost during the query
        (4031, LOST),  # idle for too long
        (1062, None),  # duplicate key
        (1064, None),  # syntax
        (1045, None),  # wrong password
        (1406, None),  # too long
    ],
)
def test_mysql_tells_trouble_from_errors(errors: ModuleType, code: int, trouble: Trouble | None) -> None:
    error = errors.OperationalError(code, "it went wrong")

    assert MySQL().trouble(error) is trouble
    assert MySQL().trouble(_wrapped(error)) is trouble


def test_a_connection_to_mysql_that_was_closed_here_is_lost() -> None:
    assert MySQL().trouble(pymysql.InterfaceError(0, "")) is LOST
    assert MySQL().trouble(ConnectionResetError()) is LOST
    assert MySQL().trouble(ValueError(1213)) is None


@pytest.mark.parametrize(
    "code, said, told",
    [
        (1045, "Access denied", "refused the connection: Access denied"),
        (1049, "Unknown database", "refused the connection: Unknown"),
        (3159, "Connections using insecure transport are prohibited", "Add ssl=true"),
        (1142, "DELETE command denied", "Grant this role SELECT"),
        (2003, "Can't connect (Connection refused)", None),
        (2003, "Can't connect ([SSL: CERTIFICATE_VERIFY_FAILED] self-signed)", "ssl_ca="),
        (2026, "SSL is required but the server doesn't support it", "no TLS with this server"),
        (1040, "Too many connections", None),
        (1062, "Duplicate entry", None),
    ],
)
def test_mysqls_refusal_for_good_is_told_from_one_that_may_come(code: int, said: str, told: str | None) -> None:
    error = pymysql.OperationalError(code, said)

    refusal = MySQL().refusal(_wrapped(error))

    assert refusal == refused_by_mysql(error)
    assert refusal is None if told is None else refusal is not None and told in refusal


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
        (asyncpg.InsufficientPrivilegeError("permission denied for table runs"), "GRANT USAGE ON SCHEMA"),
        (
            asyncpg.InsufficientPrivilegeError('permission denied for database "x"'),
            "refused the connection: permission",
        ),
        (
            asyncpg.exceptions.ClientConfigurationError("`sslmode` parameter must be"),
            "asks for what cannot be: `sslmode`",
        ),
        (
            asyncpg.UndefinedObjectError('unrecognized configuration parameter "sslmod"'),
            'what cannot be: unrecognized configuration parameter "sslmod"',
        ),
        (asyncpg.UndefinedObjectError('type "sslmod" does not exist'), None),
        (psycopg.ProgrammingError('invalid connection option "sslmod"'), 'connection option "sslmod"'),
        (psycopg.OperationalError('invalid integer value "x" for connection option "keepalives"'), '"keepalives"'),
        (ssl.SSLCertVerificationError("certificate verify failed: unknown"), "no TLS with this server"),
        (ConnectionError('PostgreSQL server at "x:1" rejected SSL upgrade'), "no TLS with this server"),
        (ConnectionError("reset"), None),
        (FileNotFoundError(2, "No such file or directory"), None),
        (psycopg.errors.InsufficientPrivilege("permission denied for schema outlast"), "denied what outlast does"),
        (psycopg.OperationalError("SSL error: certificate verify failed"), "sslrootcert="),
        (psycopg.OperationalError("SSL SYSCALL error: EOF detected"), None),
        (psycopg.OperationalError('connection is bad: invalid sslmode value: "x"'), "invalid sslmode"),
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
