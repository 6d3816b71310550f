"""One SQLite connection, for one thread at a time."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from outlast.errors import DatabaseUnavailable
from outlast.ports.database import MakeOp
from outlast.ports.operation import Result, Span, Statement, pump
from outlast.stores.databases.compiling import FOR_SQLITE

T = TypeVar("T")
BUSY_TIMEOUT: Final = 5.0
"""Seconds for which SQLite itself waits for another process's write. Whoever called may go on waiting by trying again."""

LOOK_EVERY: Final = 0.02
"""Seconds between two looks at whether the file is still there. A look costs some microseconds."""

_OF_THE_SESSION: Final = """
    select name from temp.sqlite_master union all select name from pragma_database_list where seq > 1 limit 1
"""
"""Tables that go with their connection, and further files that were attached to it."""

_BEGIN: Final[dict[Span, str | None]] = {"write": "BEGIN IMMEDIATE", "read": "BEGIN", "alone": None}


class SQLiteConnection:
    """A connection that is made on first use, and the lock that gives it to one thread at a time.

    A writing transaction begins IMMEDIATE: a transaction that reads first and writes later would be refused at once, without
    waiting, if another process wrote in between.
    """

    def __init__(self, path: str | None, *, reads_only: bool = False) -> None:
        self._path = path
        self._reads_only = reads_only
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[Path, tuple[int, int] | None] | None = None
        """Where the file is, wherever the process goes, and which file it was when it was opened."""
        self._looked_at = 0.0

    def transact(self, make: MakeOp[T]) -> T:
        """Run an op as one transaction."""
        self._take()
        try:
            connection = self._connected()
            try:
                value = pump(make(), _Transaction(connection).execute)
                if connection.in_transaction:
                    connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        finally:
            self._lock.release()
        return value

    @contextlib.contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """Give the connection away, with a transaction open that may write."""
        self._take()
        try:
            connection = self._connected()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                if connection.in_transaction:
                    connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                self._take_back(connection)
        finally:
            self._lock.release()

    def _take_back(self, connection: sqlite3.Connection) -> None:
        """Leave nothing of the application's behind. A database in memory is this connection, and keeps its tables."""
        connection.row_factory, connection.text_factory, connection.isolation_level = None, str, None
        if self._path is not None and connection.execute(_OF_THE_SESSION).fetchone() is not None:
            connection.close()
            self._connection = None

    def _take(self) -> None:
        # Who has it may be a function of the application's that waits for what waits here. As with a file, patience ends.
        if not self._lock.acquire(timeout=BUSY_TIMEOUT):
            busy = sqlite3.OperationalError("another transaction of this process has the connection")
            busy.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise busy

    def changes_by_others(self) -> int | None:
        """Return a number that changes whenever another connection has committed; None when it cannot be told now."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            row = self._connected().execute("PRAGMA data_version").fetchone()
        except (sqlite3.Error, DatabaseUnavailable):
            return None
        finally:
            self._lock.release()
        number: int = row[0]
        return number

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _connected(self) -> sqlite3.Connection:
        if self._connection is not None:
            self._check_file()
        else:
            connection = self._connect()
            try:
                self._set_up(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
            if self._path is not None:
                place = Path(self._path).absolute()
                self._file = place, _identity(place)
        return self._connection

    def _check_file(self) -> None:
        """Refuse to go on in a file that is at its place no more: it goes with the last connection to it, and all that was
        written to it since. Held by tests/faults/test_sqlite_files.py."""
        if self._file is None or time.monotonic() - self._looked_at < LOOK_EVERY:
            return
        place, opened = self._file
        found = _identity(place)
        if found != opened:
            what = "deleted" if found is None else "replaced by another"
            raise DatabaseUnavailable(
                f"The SQLite file {str(place)!r} was {what} while it was in use. Nothing more is written to it, and what "
                "was written since then is lost. Put the file back, or close the app in every process and open it again."
            )
        self._looked_at = time.monotonic()

    def _connect(self) -> sqlite3.Connection:
        if self._path is None:
            return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        try:
            _check_place(Path(self._path).absolute())
        except OSError as error:
            raise DatabaseUnavailable(f"The SQLite file {self._path!r} cannot be reached: {error}") from error
        return sqlite3.connect(self._path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)

    def _set_up(self, connection: sqlite3.Connection) -> None:
        if self._path is not None:
            # Readers and the writer do not stop each other; each commit is on the disk before it is acknowledged.
            with contextlib.suppress(sqlite3.OperationalError) if self._reads_only else contextlib.nullcontext():
                # In a new file, while a caller's transaction is open, this has to wait; who only reads can do without.
                connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
        if self._reads_only:
            connection.execute("PRAGMA query_only=ON")


def _check_place(path: Path) -> None:
    """Refuse what SQLite would only call unable to open, as it calls what waiting mends."""
    if not path.parent.is_dir():
        raise DatabaseUnavailable(
            f"The SQLite file {str(path)!r} cannot be made: there is no folder {str(path.parent)!r}."
        )
    if path.is_dir():
        raise DatabaseUnavailable(
            f"{str(path)!r} is a folder. Name a file in the database's URL: sqlite:///{path}/outlast.db"
        )
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        raise DatabaseUnavailable(
            f"The SQLite file {str(path)!r} cannot be opened to be read and written: this process has no permission."
        )


def _identity(place: Path) -> tuple[int, int] | None:
    """Tell which file is at a place; None when there is none."""
    try:
        found = place.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


class _Transaction:
    """Begins as the op's first statement asks for, then executes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._has_begun = False

    def execute(self, statement: Statement) -> Result:
        if not self._has_begun:
            self._has_begun = True
            if (begin := _BEGIN[statement.span]) is not None:
                self._connection.execute(begin)
        return execute(self._connection, statement)


def execute(connection: sqlite3.Connection, statement: Statement) -> Result:
    """Execute one statement on a raw connection, ours or a caller's."""
    compiled = FOR_SQLITE.compiled(statement.sql)
    with contextlib.closing(connection.cursor()) as cursor:
        # The caller's connection may make something else of its rows.
        cursor.row_factory = None
        params = statement.params
        if not isinstance(params, Mapping):
            cursor.executemany(compiled.text, compiled.rows_of_arguments(params))
            return Result(affected=cursor.rowcount)
        cursor.execute(compiled.text, compiled.arguments(params))
        rows: list[Any] = cursor.fetchall() if cursor.description is not None else []
        return Result(rows if connection.text_factory is str else as_texts(rows), cursor.rowcount)


def as_texts(rows: list[Any]) -> list[tuple[Any, ...]]:
    """Return rows as they are with the usual `text_factory`. Nothing that we store is made of bytes."""
    return [
        tuple([bytes(each).decode() if isinstance(each, bytes | bytearray) else each for each in row]) for row in rows
    ]
