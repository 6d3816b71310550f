"""Stopping an operation before any of its statements, as if the process had gone, and seeing that nothing was done."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from outlast.ports.operation import Op, Statement
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.sql import SqlStore


class Stopped(Exception):
    """The process ends here."""


async def assert_all_or_nothing(database: SqlDatabase, make: Callable[[SqlStore], Op[Any]]) -> int:
    """Stop the operation before each of its statements and before COMMIT, then let it end; return how many stops there
    were."""
    before = await _everything(database)
    was_the_end: list[bool] = []
    stops = 0
    while not was_the_end:
        with pytest.raises(Stopped):
            await database.run(lambda: _stopping(make(database.store), stops, was_the_end), repeatable=False)  # noqa: B023
        assert await _everything(database) == before
        stops += 1

    assert await database.run(lambda: make(database.store), repeatable=False) is not None

    assert await _everything(database) != before
    return stops


def _stopping(op: Op[Any], before: int, seen: list[bool]) -> Op[Any]:
    """Make so many of an op's statements; then the process is gone. `seen` tells whether that was the op's end.

    A statement that commits by itself has no place to stop but before it.
    """
    with contextlib.closing(op):
        try:
            statement = next(op)
            if statement.span == "alone":
                seen.append(True)
                before = 0
            for _ in range(before):
                statement = op.send((yield statement))
        except StopIteration:
            seen.append(True)
    raise Stopped


async def _everything(database: SqlDatabase) -> list[Any]:
    tables = database._basis.tables  # pyright: ignore[reportPrivateUsage]  reading all is no verb

    def read() -> Op[list[Any]]:
        found: list[Any] = []
        for table in (tables.runs, tables.journal, tables.waits, tables.signals, tables.workers):
            rows = yield Statement(table.select(), span="read")
            found.append(sorted(tuple(row) for row in rows.rows))
        return found

    return await database.run(read)
