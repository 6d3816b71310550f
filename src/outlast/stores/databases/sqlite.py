"""SQLite files and memory: a writing and a reading connection for each process, and threads for awaiting callers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from outlast.errors import DatabaseUnavailable
from outlast.ports.clock import Clock
from outlast.ports.database import MakeOp, Notice
from outlast.ports.transactions import Transactions
from outlast.stores.basis import make_basis
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.peeking import first_span
from outlast.stores.databases.sqlite_connection import SQLiteConnection
from outlast.stores.dialects.sqlite import SQLite

T = TypeVar("T")
LOOK_EVERY: Final = 0.02
"""Seconds between two looks at whether another process has written. A look costs some microseconds and no lock."""


class SQLiteFile:
    """The connections of one process to one file, or to one database in memory.

    Reads go over a connection of their own: while a write waits for another process or for a caller's open transaction,
    a caller inside that very transaction can still read. A database in memory has one connection, which is the database.

    A connection must not be used on both sides of a fork; the child makes its own and leaves the inherited ones alone, since
    closing them would give up the parent's locks.
    """

    def __init__(self, path: str | None) -> None:
        self.path = path
        self._pid = os.getpid()
        self._abandoned: list[SQLiteConnection] = []
        self._connect()

    def _connect(self) -> None:
        self._writer = SQLiteConnection(self.path)
        self._reader = self._writer if self.path is None else SQLiteConnection(self.path, reads_only=True)
        self._given = self._writer if self.path is None else SQLiteConnection(self.path)

    def transact(self, make: MakeOp[T]) -> T:
        span, made = first_span(make)
        return self.connection(reads=span != "write").transact(made)

    def connection(self, *, reads: bool) -> SQLiteConnection:
        if self._pid != os.getpid():
            if self.path is None:
                raise DatabaseUnavailable(
                    "A database in memory belongs to the process that made it; after a fork make a new one, or use a file."
                )
            self._abandoned += [self._writer, self._reader, self._given]
            self._connect()
            self._pid = os.getpid()  # last: another thread goes by it
        return self._reader if reads else self._writer

    def can_write(self) -> bool:
        """Tell whether nobody has the file's write lock now. Does not wait."""
        if self.path is None:
            return True
        try:
            with contextlib.closing(sqlite3.connect(self.path, timeout=0, isolation_level=None)) as probe:
                probe.execute("BEGIN EXCLUSIVE")  # Before the file keeps a log of writes, a reader is in the way too.
                probe.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return False
        return True

    def is_absent(self) -> bool:
        """Tell whether a connection would make the file. Where it could not, connecting says why."""
        if self.path is None:
            return False
        place = Path(self.path).absolute()
        return not place.exists() and place.parent.is_dir()

    @contextlib.contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """Give a connection with a transaction open to the application: one of its own, where there can be more than one."""
        self.connection(reads=False)  # After a fork, make new ones.
        with self._given.transaction() as connection:
            yield connection

    def close(self) -> None:
        if self._pid == os.getpid():
            for connection in (self._reader, self._given, self._writer):
                connection.close()


class ThreadedRoad:
    """Runs whole ops of awaiting callers on threads: one for what writes, one for what only reads."""

    def __init__(self, file: SQLiteFile, *, closes: bool) -> None:
        self._file = file
        self._closes = closes
        self._pid = os.getpid()
        self._threads: dict[bool, ThreadPoolExecutor] = {}
        self._lock = threading.Lock()

    async def transact(self, make: MakeOp[T], *, timeout: float) -> T:
        # A thread cannot be interrupted; SQLite's own waits are bounded.
        del timeout
        span, made = first_span(make)
        reads = span != "write"
        connection = self._file.connection(reads=reads)
        if self._pid != os.getpid():
            self._begin_anew()
        with self._lock:  # A thread that is asked does what it was asked, whoever closes this road on another loop.
            working = self._thread(reads).submit(connection.transact, made)
        return await asyncio.wrap_future(working)

    async def close(self) -> None:
        if self._pid != os.getpid():
            self._begin_anew()
        with self._lock:
            threads, self._threads = self._threads, {}
        for thread in threads.values():
            # Waits for the operation in flight, without holding up the loop.
            await asyncio.get_running_loop().run_in_executor(thread, _nothing)
            thread.shutdown(wait=False)
        if self._closes:
            self._file.close()

    def _begin_anew(self) -> None:
        """After a fork: the threads are the parent's, and one of them may have had the lock."""
        self._threads, self._lock = {}, threading.Lock()
        self._pid = os.getpid()

    def _thread(self, reads: bool) -> ThreadPoolExecutor:
        if reads not in self._threads:
            self._threads[reads] = ThreadPoolExecutor(max_workers=1, thread_name_prefix="outlast-sqlite")
        return self._threads[reads]


class FileTransactions:
    """Transactions on connections to the file; they are closed with it."""

    def __init__(self, file: SQLiteFile) -> None:
        self.transactions: Transactions = Transactions(blocking=file.transaction, is_sure=True)

    async def close(self) -> None: ...

    def close_blocking(self) -> None: ...


class ChangeWatch:
    """Looks at the file's change counter, and says "ready" and "stop" when another process has written."""

    def __init__(self, file: SQLiteFile) -> None:
        self._file = file
        self._watching: asyncio.TimerHandle | None = None
        self._seen: int | None = None

    async def listen(self, notice: Notice) -> None:
        if self._file.path is not None:
            await self.close()
            self._look(asyncio.get_running_loop(), notice)

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    def _look(self, loop: asyncio.AbstractEventLoop, notice: Notice) -> None:
        changes = self._file.connection(reads=False).changes_by_others()
        if changes is not None:
            if self._seen is not None and changes != self._seen:
                notice("ready")
                notice("stop")
            self._seen = changes
        self._watching = loop.call_later(LOOK_EVERY, self._look, loop, notice)


def sqlite_database(path: str | None, *, prefix: str, clock: Clock | None) -> SqlDatabase:
    """Return the database in a file, or in memory for None."""
    basis = make_basis(prefix, SQLite, clock)

    def over(file: SQLiteFile, *, closes: bool) -> SqlDatabase:
        return SqlDatabase(
            basis,
            ThreadedRoad(file, closes=closes),
            file,
            listener=ChangeWatch(file),
            separate=lambda: over(SQLiteFile(path), closes=True) if path is not None else over(file, closes=False),
            is_lasting=path is not None,
            own=FileTransactions(file),
            can_write=file.can_write,
            is_absent=file.is_absent,
        )

    return over(SQLiteFile(path), closes=True)


def _nothing() -> None:
    """Do nothing, after everything that was to be done before."""
