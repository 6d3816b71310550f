"""How a process ends itself with SIGKILL at a chosen place: no cleaning up, no farewell, as when the power goes. Or freezes
with SIGSTOP, as a machine does that is suspended, until somebody continues it."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final

import asyncmy.connection
import asyncpg
import pymysql.connections

from outlast.stores.databases import connector
from outlast.stores.databases.sqlite_connection import SQLiteConnection

_chosen: str | None = None
_COUNTED: Final = ("begin", "commit", "with", "insert", "update", "delete")
_QUERY: Final = 3
"""What MySQL and MariaDB call the command that carries a statement."""


def die_at(point: str | None) -> None:
    """End this process when it passes a point of that name."""
    global _chosen  # noqa: PLW0603 -- a process has one end
    _chosen = point


def point(name: str) -> None:
    """A place in a program at which a test may want the process to die."""
    if name == _chosen:
        _die()


def die_before_statement(number: int) -> None:
    """End this process before it sends its n-th statement to a database, on any connection and thread.

    BEGIN and COMMIT count. What only reads or sets the connection up does not: to die before it is to die after what came
    before it.
    """
    sent = itertools.count(1)

    def act(statement: str) -> None:
        if not statement.startswith(("select", "pragma", "listen", "set")) and next(sent) == number:
            _die()

    async def act_and_send(send: Callable[[], Awaitable[object]], statement: str) -> object:
        act(statement)
        return await send()

    _wrap_asyncpg(act_and_send)
    _wrap_mysql(act)
    _trace_sqlite(act)


def freeze_before_statement(number: int) -> None:
    """Freeze this process before its n-th statement that writes, or that begins or ends a transaction.

    On SQLite, where nobody could write beside an open transaction, before its n-th transaction. On PostgreSQL only when no
    other statement is half-way: its server ends what stands idle in a transaction, but not what it is about to hear the
    rest of, as when a statement is prepared.
    """
    sent = itertools.count(1)
    in_flight = 0
    is_closing = False

    async def freeze_and_send(send: Callable[[], Awaitable[object]], statement: str) -> object:
        nonlocal in_flight, is_closing
        if statement.startswith(_COUNTED) and next(sent) == number:
            is_closing = True
            while in_flight:  # noqa: ASYNC110 -- a program of the tests, which has no event for it
                await asyncio.sleep(0.001)
            _freeze()
            is_closing = False
        while is_closing:  # noqa: ASYNC110 -- the same
            await asyncio.sleep(0.001)
        in_flight += 1
        try:
            return await send()
        finally:
            in_flight -= 1

    def act(statement: str) -> None:
        if statement.startswith("begin") and next(sent) == number:
            _freeze()

    def act_on_mysql(statement: str) -> None:
        if statement.startswith((*_COUNTED, "start transaction")) and next(sent) == number:
            _freeze()

    _wrap_asyncpg(freeze_and_send)
    _wrap_mysql(act_on_mysql)
    _trace_sqlite(act)


def keep_no_locks_for_long() -> None:
    """Have the server end the sessions of this process soon when it stands still: what they have locked is free then.

    On PostgreSQL after half a second; MySQL and MariaDB count whole ones.
    """
    module: Any = connector
    module.SETTINGS = {**connector.SETTINGS, "idle_in_transaction_session_timeout": "500ms"}
    _change_mysql(lambda statement: re.sub(r"(wait_timeout|idle_transaction_timeout) = \d+", r"\1 = 1", statement))


# The drivers are untyped here, since they are changed under the library's feet.


def _wrap_asyncpg(wrapper: Callable[[Callable[[], Awaitable[object]], str], Awaitable[object]]) -> None:
    driver: Any = asyncpg.Connection

    def wrapped(method: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        async def call(self: object, statement: str, *arguments: object, **options: object) -> object:
            return await wrapper(lambda: method(self, statement, *arguments, **options), statement.lstrip().lower())

        return call

    for name in ("execute", "executemany", "fetch"):
        setattr(driver, name, wrapped(getattr(driver, name)))


def _wrap_mysql(act: Callable[[str], None]) -> None:
    def see(statement: str) -> str:
        act(statement.lstrip().lower())
        return statement

    _change_mysql(see)


def _change_mysql(change: Callable[[str], str]) -> None:
    """Here a statement is one message, whoever sends it: our own roads, SQLAlchemy or the application with a bare driver."""
    awaiting: Any = asyncmy.connection.Connection
    blocking: Any = pymysql.connections.Connection
    send, send_blocking = awaiting._execute_command, blocking._execute_command

    def changed(command: int, statement: str | bytes) -> str | bytes:
        if command != _QUERY:
            return statement
        text = statement if isinstance(statement, str) else statement.decode(errors="surrogateescape")
        return change(text).encode(errors="surrogateescape")

    async def sent(self: object, command: int, statement: str | bytes) -> None:
        await send(self, command, changed(command, statement))

    def sent_blocking(self: object, command: int, statement: str | bytes) -> None:
        send_blocking(self, command, changed(command, statement))

    awaiting._execute_command, blocking._execute_command = sent, sent_blocking


def _trace_sqlite(act: Callable[[str], None]) -> None:
    driver: Any = SQLiteConnection
    connect: Callable[[object], sqlite3.Connection] = driver._connect

    def connected(self: object) -> sqlite3.Connection:
        connection = connect(self)
        connection.set_trace_callback(lambda statement: act(statement.lower()))
        return connection

    driver._connect = connected


def _freeze() -> None:
    print("freezes")
    # To this thread, which then does not get out of the call. One to the process stops this thread a little later.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
