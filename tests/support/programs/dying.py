"""How a process ends itself with SIGKILL at a chosen place: no cleaning up, no farewell, as when the power goes. Or freezes
with SIGSTOP, as a machine does that is suspended, until somebody continues it."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from outlast.stores.databases.sqlite_connection import SQLiteConnection

_chosen: str | None = None


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

    BEGIN and COMMIT count. What only reads does not: to die before it is to die after what came before it.
    """
    sent = itertools.count(1)

    def act(statement: str) -> None:
        if not statement.startswith(("select", "pragma", "listen")) and next(sent) == number:
            _die()

    async def act_and_send(send: Callable[[], Awaitable[object]], statement: str) -> object:
        act(statement)
        return await send()

    _wrap_asyncpg(act_and_send)
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
        counts = statement.startswith(("begin", "commit", "with", "insert", "update", "delete"))
        if counts and next(sent) == number:
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

    _wrap_asyncpg(freeze_and_send)
    _trace_sqlite(act)


# The two drivers are untyped here, since they are changed under the library's feet.


def _wrap_asyncpg(wrapper: Callable[[Callable[[], Awaitable[object]], str], Awaitable[object]]) -> None:
    driver: Any = asyncpg.Connection

    def wrapped(method: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        async def call(self: object, statement: str, *arguments: object, **options: object) -> object:
            return await wrapper(lambda: method(self, statement, *arguments, **options), statement.lstrip().lower())

        return call

    for name in ("execute", "executemany", "fetch"):
        setattr(driver, name, wrapped(getattr(driver, name)))


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
