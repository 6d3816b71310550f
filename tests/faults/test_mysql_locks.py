"""Deadlocks (1213) and lock waits (1205) on MySQL and MariaDB: tried again in transactions of ours, told in a caller's."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pymysql
import pytest

from outlast.model.ids import RunId
from outlast.model.run import StopKind
from outlast.ports.operation import Op
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database
from outlast.stores.sql import SqlStore
from outlast.testing.contract.desk import new_run
from support.probing import Tables, connect_mysql, until


@pytest.fixture
def database(mysqlish_url: str) -> Iterator[SqlDatabase]:
    made = open_database(mysqlish_url)
    made.migrate_blocking()
    made.run_blocking(lambda: made.store.start([new_run("r1"), new_run("r2")]))
    yield made
    made.close_blocking()


@pytest.fixture
def callers(mysqlish_url: str) -> Iterator[tuple[pymysql.Connection[Any], pymysql.Connection[Any]]]:
    """Two transactions of the application's, each with a row of its own."""
    with contextlib.ExitStack() as stack:
        made = [
            stack.enter_context(contextlib.closing(connect_mysql(mysqlish_url, autocommit=False))) for _ in range(2)
        ]
        Tables(mysqlish_url)("create table orders (id int primary key)")
        for number, connection in enumerate(made):
            with connection.cursor() as cursor:
                cursor.execute("set session innodb_lock_wait_timeout = 1")
                cursor.execute("insert into orders values (%s)", (number,))
        yield made[0], made[1]


def stop(store: SqlStore, run_id: str) -> Op[object]:
    return store.request_stop(RunId(run_id), StopKind.CANCEL, '{"type":"t"}')


def test_a_deadlock_reaches_the_caller_whose_transaction_it_has_undone(
    mysqlish_url: str, database: SqlDatabase, callers: tuple[pymysql.Connection[Any], pymysql.Connection[Any]]
) -> None:
    def cancel(which: int, run_id: str) -> int:
        """Return the number of the error that the caller gets."""
        try:
            database.join_blocking(callers[which], lambda: stop(database.store, run_id))
        except pymysql.OperationalError as error:
            return int(error.args[0])
        callers[which].commit()
        return 0

    for connection in callers:
        with connection.cursor() as cursor:
            cursor.execute("set session innodb_lock_wait_timeout = 50")
    for connection, run_id in zip(callers, ("r1", "r2"), strict=True):
        database.join_blocking(connection, lambda name=run_id: stop(database.store, name))

    with ThreadPoolExecutor() as threads:
        first = threads.submit(cancel, 0, "r2")
        until(Tables(mysqlish_url).waits_for_a_lock, "the first to wait for the second")
        second = threads.submit(cancel, 1, "r1")
        answers = [first.result(30), second.result(30)]

    assert sorted(answers) == [0, 1213]
    # What the other one did is there as a whole, its own row and both requests; of the one that lost nothing is.
    assert Tables(mysqlish_url)("select id from orders") == [(answers.index(0),)]
    assert Tables(mysqlish_url)("select count(*) from {runs} where stop_kind = 'cancel'") == [(2,)]


def test_a_lock_that_is_not_got_reaches_the_caller_whose_transaction_goes_on(
    mysqlish_url: str, database: SqlDatabase, callers: tuple[pymysql.Connection[Any], pymysql.Connection[Any]]
) -> None:
    one, other = callers
    database.join_blocking(one, lambda: stop(database.store, "r1"))

    with pytest.raises(pymysql.OperationalError, match="1205"):
        database.join_blocking(other, lambda: stop(database.store, "r1"))
    database.join_blocking(other, lambda: stop(database.store, "r2"))
    other.commit()
    one.rollback()

    assert Tables(mysqlish_url)("select id from orders") == [(1,)]
    assert Tables(mysqlish_url)("select id from {runs} where stop_kind = 'cancel'") == [("r2",)]


def test_a_lock_that_is_not_got_is_asked_for_again_in_a_transaction_of_ours(
    database: SqlDatabase,
    callers: tuple[pymysql.Connection[Any], pymysql.Connection[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused, told = threading.Event(), list[str]()
    road: Any = database._blocking_road
    transact = road.transact

    def noted(make: Any) -> Any:
        try:
            return transact(make)
        except Exception as error:
            told.append(str(error))
            refused.set()
            raise

    monkeypatch.setattr(road, "transact", noted)
    database.join_blocking(callers[0], lambda: stop(database.store, "r1"))

    with ThreadPoolExecutor() as threads:
        ours: Any = threads.submit(database.run_blocking, lambda: stop(database.store, "r1"))
        assert refused.wait(30)
        assert not ours.done()
        callers[0].rollback()

        assert ours.result(30).accepted
    assert all("1205" in each for each in told)
