"""What is said of an error in the application's transaction: trouble with the database stays that, and is tried again."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine
from typing import Any

import psycopg
import pytest
from django.db.transaction import TransactionManagementError
from sqlalchemy import text
from sqlalchemy.exc import PendingRollbackError

from outlast.errors import LeaseLost, NotATransaction, OutlastError, TransactionAborted, TransactionEnded
from outlast.ports.operation import Op, Result, Statement
from outlast.stores.basis import make_basis
from outlast.stores.databases import marking
from outlast.stores.dialects.postgresql import PostgreSQL

BASIS = make_basis("outlast", PostgreSQL, None)
LOST = psycopg.OperationalError("server closed the connection unexpectedly")
BUSY = psycopg.errors.SerializationFailure("could not serialize access")
NO_TABLE = psycopg.errors.UndefinedTable("no such table")
NO_MARK = psycopg.errors.InvalidSavepointSpecification("no such savepoint")
GIVEN_UP = psycopg.errors.InFailedSqlTransaction("ignored until the end of the transaction")
OURS = LeaseLost("taken over")


class Transaction:
    """The application's, in which one of our statements fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: str, error: Exception) -> None:
        self._fails = fails
        self._error = error
        monkeypatch.setattr(marking, "join_blocking", self._join)
        monkeypatch.setattr(marking, "join", self._join_awaiting)

    def _join(self, tx: object, make: Callable[[], Op[Any]], basis: object, *, read_committed: bool) -> Any:
        assert not read_committed
        op, answer = make(), Result()
        try:
            statement = next(op)
            while True:
                if str(statement.sql).startswith(self._fails):
                    raise self._error
                statement = op.send(answer)
        except StopIteration as end:
            return end.value

    async def _join_awaiting(self, *arguments: Any, **options: Any) -> Any:
        return self._join(*arguments, **options)

    def mark(self) -> None:
        marking.mark_blocking(self, BASIS)

    async def mark_awaiting(self) -> None:
        await marking.mark(self, BASIS)

    def write(self) -> None:
        marking.join_marked_blocking(self, _writing, BASIS)

    async def write_awaiting(self) -> None:
        await marking.join_marked(self, _writing, BASIS)


def _writing() -> Op[None]:
    yield Statement(text("insert"))


async def raised(verb: Callable[[], Coroutine[Any, Any, None] | None]) -> Exception | None:
    try:
        made = verb()
        if made is not None:
            await made
    except Exception as error:  # noqa: BLE001  whatever it becomes
        return error
    return None


@pytest.mark.parametrize("verb", ["mark", "mark_awaiting"])
@pytest.mark.parametrize("error, becomes", [(LOST, None), (BUSY, None), (OURS, None), (NO_TABLE, NotATransaction)])
async def test_a_transaction_that_cannot_be_marked(
    verb: str, error: Exception, becomes: type[OutlastError] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await raised(getattr(Transaction(monkeypatch, "savepoint", error), verb))

    assert found is error if becomes is None else type(found) is becomes


@pytest.mark.parametrize("verb", ["write", "write_awaiting"])
@pytest.mark.parametrize(
    "fails, error, becomes",
    [
        ("release", LOST, None),
        ("release", BUSY, None),
        ("release", NO_MARK, TransactionEnded),
        ("release", sqlite3.OperationalError("no such savepoint"), TransactionEnded),
        ("release", GIVEN_UP, TransactionAborted),
        ("release", PendingRollbackError("a flush before it failed"), TransactionAborted),
        ("release", TransactionManagementError("a statement before it failed"), TransactionAborted),
        ("insert", LOST, None),
        ("insert", BUSY, None),
        ("insert", OURS, None),
        ("insert", NO_TABLE, NotATransaction),
    ],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "__name__", type(value).__name__),
)
async def test_a_record_that_cannot_be_written(
    verb: str, fails: str, error: Exception, becomes: type[OutlastError] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await raised(getattr(Transaction(monkeypatch, fails, error), verb))

    assert found is error if becomes is None else type(found) is becomes
