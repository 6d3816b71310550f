"""When an operation is tried again, and when it is not."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from outlast.errors import DatabaseBusy, DatabaseUnavailable, LeaseLost
from outlast.ports.database import MakeOp
from outlast.ports.operation import Op
from outlast.stores.basis import make_basis
from outlast.stores.databases import database as database_module
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.roads import OutcomeUnknown
from outlast.stores.dialects.base import Dialect
from outlast.stores.dialects.postgresql import PostgreSQL
from outlast.stores.dialects.sqlite import SQLite

T = TypeVar("T")


def _busy(code: int = sqlite3.SQLITE_BUSY) -> Exception:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = code
    return error


def _unknown() -> Exception:
    error = OutcomeUnknown()
    error.__cause__ = ConnectionResetError("gone")
    return error


class Road:
    """Both colours of a road on which each attempt goes as it was told beforehand."""

    def __init__(self, *outcomes: object) -> None:
        self.outcomes: list[Any] = list(outcomes)
        self.made = 0

    def blocking(self, make: MakeOp[T]) -> T:
        self.made += 1
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        done: T = outcome
        return done

    async def awaiting(self, make: MakeOp[T], *, timeout: float) -> T:
        assert timeout >= 0
        return self.blocking(make)


class _Awaiting:
    def __init__(self, road: Road) -> None:
        self.transact = road.awaiting

    async def close(self) -> None: ...


class _Blocking:
    def __init__(self, road: Road) -> None:
        self.transact = road.blocking

    def close(self) -> None: ...


Ask = Callable[..., Any]


@pytest.fixture(params=["awaiting", "blocking"])
def ask(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Run an op over a road, in either colour, without ever really waiting."""
    waited: list[float] = []

    async def no_sleep(delay: float) -> None:
        waited.append(delay)

    clock = iter(range(10_000))
    monkeypatch.setattr(database_module.asyncio, "sleep", no_sleep)
    monkeypatch.setattr(database_module.time, "sleep", waited.append)
    monkeypatch.setattr(database_module.time, "monotonic", lambda: next(clock) / 10)

    def run(road: Road, *, repeatable: bool = True, patience: float = 30.0, dialect: type[Dialect] = SQLite) -> object:
        database = SqlDatabase(
            make_basis("outlast", dialect, None),
            _Awaiting(road),
            _Blocking(road),
            listener=None,
            separate=lambda: database,
        )
        if request.param == "blocking":
            return database.run_blocking(_never, repeatable=repeatable, patience=patience)
        coroutine = database.run(_never, repeatable=repeatable, patience=patience)
        with pytest.raises(StopIteration) as end:
            coroutine.send(None)
        return end.value.value

    return run


def _never() -> Op[object]:
    raise AssertionError("the road decides in these tests")


def test_a_busy_database_is_asked_again(ask: Ask) -> None:
    road = Road(_busy(), _busy(), "done")

    assert (ask(road), road.made) == ("done", 3)


def test_a_database_that_is_away_is_asked_again(ask: Ask) -> None:
    road = Road(_busy(sqlite3.SQLITE_IOERR), "done")

    assert (ask(road), road.made) == ("done", 2)


def test_an_error_of_the_operation_is_raised_at_once(ask: Ask) -> None:
    road = Road(LeaseLost("over"))

    with pytest.raises(LeaseLost):
        ask(road)
    assert road.made == 1


def test_patience_ends(ask: Ask) -> None:
    road = Road(_busy())

    with pytest.raises(DatabaseUnavailable, match="in the way") as ended:
        ask(road, patience=2)
    assert isinstance(ended.value.__cause__, sqlite3.OperationalError)
    assert road.made > 2


def test_a_lost_answer_to_a_repeatable_operation_is_asked_for_again(ask: Ask) -> None:
    road = Road(_unknown(), "done")

    assert (ask(road, repeatable=True), road.made) == ("done", 2)


def test_a_lost_answer_to_any_other_operation_is_told(ask: Ask) -> None:
    road = Road(_unknown(), "done")

    with pytest.raises(DatabaseUnavailable, match="not known") as told:
        ask(road, repeatable=False)
    assert (road.made, type(told.value.__cause__)) == (1, ConnectionResetError)


def test_a_refusal_is_asked_again_also_where_a_lost_answer_is_not(ask: Ask) -> None:
    road = Road(_busy(), "done")

    assert (ask(road, repeatable=False), road.made) == ("done", 2)


def test_a_last_attempt_that_was_cut_short_does_not_hide_who_was_in_the_way(ask: Ask) -> None:
    held = OSError("canceling statement due to lock timeout")
    held.sqlstate = "55P03"  # type: ignore[attr-defined]  # as the drivers' errors have it
    road = Road(held, TimeoutError())

    with pytest.raises(DatabaseBusy, match="due to lock timeout"):
        ask(road, patience=3.0, dialect=PostgreSQL)
    assert road.made > 1
