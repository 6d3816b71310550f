"""MySQL's transactions are REPEATABLE READ unless told otherwise: a caller's see the past, and change the present."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import pymysql
import pytest

from outlast.ports.store import Batch, NewSignal, Wait
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database
from outlast.testing.contract.desk import new_run, parked
from support.history import A
from support.probing import connect_mysql
from tools.mysql import PrivateMySQL


@pytest.fixture
def database(mysqlish_url: str) -> Iterator[SqlDatabase]:
    made = open_database(mysqlish_url)
    made.migrate_blocking()
    made.run_blocking(lambda: made.store.register(A.worker, lease_us=600_000_000, host=""))
    yield made
    made.close_blocking()


@pytest.fixture
def caller(mysqlish: PrivateMySQL, mysqlish_url: str, database: SqlDatabase) -> Iterator[pymysql.Connection[Any]]:
    """A transaction of the application's that has looked at the database already."""
    with contextlib.closing(connect_mysql(mysqlish_url, autocommit=False)) as connection:
        if _keeps_to_the_snapshot(mysqlish):
            # MariaDB has it on since 11.6.2, and off in the versions before that have it.
            _execute(connection, "set session innodb_snapshot_isolation = off")
        _look_around(connection)
        yield connection


@pytest.fixture
def strict_caller(mariadb: PrivateMySQL, mariadb_url: str) -> Iterator[pymysql.Connection[Any]]:
    """The same on a server that refuses to change what has changed since that look, as MariaDB does from 11.6.2 on."""
    assert _keeps_to_the_snapshot(mariadb), "MariaDB has it from 10.6.18 and 10.11.8 on"
    with contextlib.closing(connect_mysql(mariadb_url, autocommit=False)) as connection:
        _execute(connection, "set session innodb_snapshot_isolation = on")
        yield connection


def _keeps_to_the_snapshot(server: PrivateMySQL) -> bool:
    """Whether it can be told to."""
    return bool(server.execute("show variables like 'innodb_snapshot_isolation'"))


def _look_around(connection: pymysql.Connection[Any]) -> None:
    _execute(connection, "set session transaction isolation level repeatable read")
    _execute(connection, "start transaction with consistent snapshot")
    _execute(connection, "select count(*) from outlast_runs")


def _execute(connection: pymysql.Connection[Any], statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def test_a_signal_wakes_a_run_that_began_to_wait_after_the_transactions_first_look(
    database: SqlDatabase, caller: pymysql.Connection[Any]
) -> None:
    store = database.store
    database.run_blocking(lambda: store.flush(A, Batch(starts=(new_run("r"),))))
    database.run_blocking(lambda: store.flush(A, Batch(writes=(parked("r", Wait("paid", 0)),))))

    (sent,) = database.join_blocking(
        caller, lambda: store.send([NewSignal("paid", "paid", "1", "null")]), read_committed=True
    )
    caller.commit()

    assert (sent.created, sent.woken) == (True, 1)
    found = database.run_blocking(lambda: store.get(new_run("r").id, journal=False))
    assert found is not None
    assert found.run.due_at is not None


def test_what_was_started_or_sent_after_the_transactions_first_look_is_found_there(
    database: SqlDatabase, caller: pymysql.Connection[Any]
) -> None:
    store = database.store
    database.run_blocking(lambda: store.start([new_run("r")]))
    database.run_blocking(lambda: store.send([NewSignal("paid", "paid", "1", "null")]))

    (started,) = database.join_blocking(caller, lambda: store.start([new_run("r")]))
    (sent,) = database.join_blocking(caller, lambda: store.send([NewSignal("paid", "paid", "1", "null")]))
    caller.commit()

    assert (started.created, sent.created) == (False, False)


def test_what_has_changed_since_a_strict_transactions_first_look_is_a_conflict(
    mariadb_url: str, strict_caller: pymysql.Connection[Any]
) -> None:
    """MariaDB 11.8 refuses the whole transaction: nothing is missed, and when it is begun again all is found."""
    database = open_database(mariadb_url)
    database.migrate_blocking()
    store = database.store
    database.run_blocking(lambda: store.register(A.worker, lease_us=600_000_000, host=""))
    database.run_blocking(lambda: store.flush(A, Batch(starts=(new_run("r"),))))
    _execute(strict_caller, "create table orders (id int primary key)")
    _look_around(strict_caller)
    _execute(strict_caller, "insert into orders values (1)")
    database.run_blocking(lambda: store.flush(A, Batch(writes=(parked("r", Wait("paid", 0)),))))
    send = partial(store.send, [NewSignal("paid", "paid", "1", "null")])

    with pytest.raises(pymysql.OperationalError, match="Record has changed") as refused:
        database.join_blocking(strict_caller, send, read_committed=True)

    assert database.is_conflict(refused.value)
    strict_caller.commit()
    _look_around(strict_caller)
    _execute(strict_caller, "insert into orders values (1)")  # The first was undone.
    (sent,) = database.join_blocking(strict_caller, send, read_committed=True)
    strict_caller.commit()
    assert (sent.created, sent.woken) == (True, 1)
    database.close_blocking()


def test_a_start_that_is_open_holds_up_no_signal(database: SqlDatabase, caller: pymysql.Connection[Any]) -> None:
    store = database.store
    database.run_blocking(lambda: store.send([NewSignal("paid", "paid", "1", "null")]))
    database.join_blocking(caller, lambda: store.start([new_run("r")]))

    (sent,) = database.run_blocking(lambda: store.send([NewSignal("paid", "paid", "2", "null")]), patience=5)

    assert sent.created
    caller.rollback()


def test_a_signal_that_is_open_holds_up_no_start(database: SqlDatabase, caller: pymysql.Connection[Any]) -> None:
    """The planner reads all of a small table. The signal then locked the end of the runs, where every new one comes."""
    store = database.store
    database.join_blocking(caller, lambda: store.send([NewSignal("paid", "paid", "1", "null")]))

    (started,) = database.run_blocking(lambda: store.start([new_run("r")]), patience=5)

    assert started.created
    caller.rollback()
