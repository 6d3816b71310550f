"""Publishing that stops before any of its statements, or before COMMIT, has done nothing; one that ends has done all."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from outlast.ports.operation import Op, Statement
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database
from support.programs.publishing import OrderDelivered, OrderPlaced, Thank, fulfil
from support.publications import publishing

EVENTS: dict[str, tuple[tuple[object, ...], tuple[object, ...]]] = {
    "a lone start, then a signal": ((OrderPlaced("7"), OrderDelivered("7", "p-1")), (fulfil,)),
    "two starts": ((OrderPlaced("7"),), (fulfil, Thank)),
    "one id twice": ((OrderPlaced("7"), OrderPlaced("7")), (fulfil,)),
    "everything": (
        (OrderPlaced("7"), OrderPlaced("8"), OrderDelivered("7", "p"), OrderDelivered("8", "q")),
        (fulfil, Thank),
    ),
    "what is there already": ((OrderPlaced("known"), OrderPlaced("7"), OrderDelivered("known", "r")), (fulfil, Thank)),
}


class Stopped(Exception):
    """The process ends here."""


def stopping(op: Op[Any], before: int, seen: list[bool]) -> Op[Any]:
    """Make so many of an op's statements; then the process is gone. `seen` tells whether that was the op's end."""
    with contextlib.closing(op):
        try:
            statement = next(op)
            for _ in range(before):
                statement = op.send((yield statement))
        except StopIteration:
            seen.append(True)
    raise Stopped


async def everything(database: SqlDatabase) -> list[Any]:
    tables = database._basis.tables

    def read() -> Op[list[Any]]:
        found: list[Any] = []
        for table in (tables.runs, tables.signals):
            rows = yield Statement(table.select(), span="read")
            found.append(sorted(tuple(row) for row in rows.rows))
        return found

    return await database.run(read)


@pytest.mark.parametrize("events, workflows", EVENTS.values(), ids=EVENTS.keys())
async def test_a_stop_before_any_statement_leaves_nothing_and_another_try_does_it_all(
    database_url: str, events: tuple[object, ...], workflows: tuple[object, ...]
) -> None:
    make = publishing(*events, workflows=workflows)
    database = open_database(database_url)
    await database.open()
    await database.migrate()
    await database.run(lambda: publishing(OrderPlaced("known"), OrderDelivered("known", "s"))(database.store))
    before = await everything(database)
    was_the_end: list[bool] = []
    statements = 0
    while not was_the_end:
        with pytest.raises(Stopped):
            await database.run(lambda: stopping(make(database.store), statements, was_the_end), repeatable=False)  # noqa: B023
        assert await everything(database) == before
        statements += 1

    await database.run(lambda: make(database.store), repeatable=False)

    assert statements > 1
    assert await everything(database) != before
    await database.close()
    database.close_blocking()
