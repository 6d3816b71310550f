"""One database in several threads: who closes it in one ends nothing in another, and nothing stays open."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from outlast.ports.operation import Op
from outlast.ports.store import RunFilter
from outlast.stores.databases import sqlite
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database


class Watched:
    """A database, and every connection that was made for its blocking callers."""

    def __init__(self, url: str) -> None:
        self.database = open_database(url)
        self.database.migrate_blocking()
        self.database.close_blocking()
        self.made: list[Any] = []
        road: Any = self.database._blocking_road
        self._make: Callable[[], Engine] = road._make_engine
        road._make_engine = self._watched

    def _watched(self) -> Engine:
        engine = self._make()
        event.listen(engine, "connect", lambda connection, record: self.made.append(connection))
        return engine

    def are_open(self) -> list[bool]:
        # psycopg's and PyMySQL's.
        return [connection.open if hasattr(connection, "open") else not connection.closed for connection in self.made]


@pytest.fixture(params=["postgres_url", "mysql_url"])
def watched(request: pytest.FixtureRequest) -> Watched:
    return Watched(request.getfixturevalue(request.param))


def test_a_connection_in_use_while_another_thread_closes_is_closed_after_it(watched: Watched) -> None:
    """It went back to a pool that was closed already, and stayed open for as long as Python kept it."""
    inside, closed = threading.Event(), threading.Event()

    def op() -> Op[None]:
        yield from watched.database.store.list(RunFilter())
        inside.set()
        closed.wait()
        yield from watched.database.store.list(RunFilter())

    def close() -> None:
        inside.wait()
        watched.database.close_blocking()
        closed.set()

    closing = threading.Thread(target=close)
    closing.start()
    watched.database.run_blocking(op)
    closing.join()

    assert watched.are_open() == [False]


def test_threads_that_come_first_at_once_leave_no_connection_behind(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two found that there was no engine, and each made one."""
    both = threading.Barrier(2)
    make = watched._watched

    def make_together() -> Engine:
        both.wait()
        return make()

    monkeypatch.setattr(watched.database._blocking_road, "_make_engine", make_together)

    def look() -> None:
        watched.database.run_blocking(lambda: watched.database.store.list(RunFilter()))

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    watched.database.close_blocking()

    assert watched.are_open() == [False, False]


class HeldUp(ThreadPoolExecutor):
    """A thread that is about to be asked when another thread runs `closing`."""

    closing: threading.Thread | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        closing, HeldUp.closing = HeldUp.closing, None
        if closing is not None:
            closing.start()
            closing.join(0.5)  # It may have to wait until the thread was asked.
        return super().submit(fn, *args, **kwargs)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlDatabase]:
    monkeypatch.setattr(sqlite, "ThreadPoolExecutor", HeldUp)
    database = open_database(f"sqlite:///{tmp_path}/outlast.db")
    asyncio.run(database.migrate())
    yield database
    database.close_blocking()


def test_a_file_that_is_closed_by_another_loop_still_answers_who_asks(file: SqlDatabase) -> None:
    """The thread that was to do it had been ended by the other loop's close: RuntimeError, out of a plain call."""
    HeldUp.closing = closing = threading.Thread(target=lambda: asyncio.run(file.close()))

    found = asyncio.run(file.run(lambda: file.store.list(RunFilter())))

    assert found == ()
    closing.join()
