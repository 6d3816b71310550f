"""What begins a transaction on MySQL travels with its first statement: a round trip less for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import pytest
from sqlalchemy import bindparam, text

from outlast.ports.operation import Span, Statement
from outlast.stores.databases.mysql_link import WIRE, MySQLLink, Session
from outlast.stores.databases.wire import OpenTransaction


class Cursor:
    """One of the driver's, which notes what it sends and which results it goes past."""

    description = None
    rowcount = 1

    def __init__(self, sent: list[str]) -> None:
        self._sent = sent

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None: ...

    async def execute(self, query: str, arguments: Sequence[object] | None = None) -> None:
        self._sent.append(query if arguments is None else query.replace("%s", "{}").format(*arguments))

    async def executemany(self, query: str, rows: Sequence[Sequence[object]]) -> None:
        self._sent.append(f"{query} for {len(rows)}")

    async def nextset(self) -> None:
        self._sent.append("(next)")


class Connection:
    def __init__(self) -> None:
        self.sent: list[str] = []

    def cursor(self, _kind: object) -> Cursor:
        return Cursor(self.sent)


ONE = text("update t set a = :a").bindparams(bindparam("a"))
READ_ONLY = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION READ ONLY; update t set a = 1"


@pytest.mark.parametrize(
    "span, first",
    [
        ("write", ["START TRANSACTION; update t set a = 1", "(next)"]),
        ("read", [READ_ONLY, "(next)", "(next)"]),
        ("alone", ["update t set a = 1"]),
    ],
)
async def test_a_transaction_begins_with_its_first_statement(span: Span, first: list[str]) -> None:
    connection = Connection()
    transaction = OpenTransaction(MySQLLink(connection, None, Session((), 20), "shop"), WIRE)

    await transaction.execute(Statement(ONE, {"a": 1}, span=span))
    await transaction.execute(Statement(ONE, {"a": 2}))
    await transaction.commit()

    last = [] if span == "alone" else ["COMMIT"]
    assert connection.sent == [*first, "update t set a = 2", *last]


async def test_many_rows_go_after_the_beginning() -> None:
    """The driver sends them together, as a statement of its own making."""
    connection = Connection()
    transaction = OpenTransaction(MySQLLink(connection, None, Session((), 20), "shop"), WIRE)

    await transaction.execute(Statement(ONE, [{"a": 1}, {"a": 2}]))
    await transaction.roll_back()

    assert connection.sent == ["START TRANSACTION", "update t set a = %s for 2", "ROLLBACK"]
