"""How a process ends itself with SIGKILL at a chosen place: no cleaning up, no farewell, as when the power goes. Or freezes
with SIGSTOP, as a machine does that is suspended, until somebody continues it."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
import threading
from collections.abc import Callable
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
    _before_statement(number, _die, lambda statement: not statement.startswith(("select", "pragma", "listen")))


def freeze_before_statement(number: int, *, only_between_transactions: bool) -> None:
    """Freeze this process before its n-th statement; or before its n-th transaction, where an open one stops everybody."""
    _before_statement(
        number,
        _freeze,
        lambda statement: statement.startswith(
            "begin" if only_between_transactions else ("begin", "commit", "with", "insert", "update", "delete")
        ),
    )


def _before_statement(number: int, act: Callable[[], None], counts: Callable[[str], bool]) -> None:
    sent = itertools.count(1)

    def count(statement: str) -> None:
        if counts(statement.lower()) and next(sent) == number:
            act()

    # Untyped, since they are changed under the library's feet.
    asyncpg_connection: Any = asyncpg.Connection
    sqlite_connection: Any = SQLiteConnection
    for name in ("execute", "executemany", "fetch"):
        setattr(asyncpg_connection, name, _counted(getattr(asyncpg_connection, name), count))
    connect: Callable[[object], sqlite3.Connection] = sqlite_connection._connect

    def connected(self: object) -> sqlite3.Connection:
        connection = connect(self)
        connection.set_trace_callback(count)
        return connection

    sqlite_connection._connect = connected


def _counted(send: Callable[..., Any], count: Callable[[str], None]) -> Callable[..., Any]:
    async def counted(self: object, statement: str, *arguments: object, **options: object) -> object:
        count(statement.lstrip())
        return await send(self, statement, *arguments, **options)

    return counted


def _freeze() -> None:
    print("freezes")
    # To this thread, which then does not get out of the call. One to the process stops this thread a little later.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
