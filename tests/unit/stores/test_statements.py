"""Statements are text for the drivers, compiled once."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import BigInteger, Integer, Update, bindparam, literal_column, select
from sqlalchemy.dialects.postgresql import asyncpg
from sqlalchemy.dialects.sqlite import pysqlite

from outlast.stores.basis import make_basis
from outlast.stores.databases.compiling import Compiler
from outlast.stores.databases.mysql_statements import FOR_MYSQL
from outlast.stores.dialects.mysql import MySQL, topic_slot
from outlast.stores.dialects.postgresql import PostgreSQL, advisory_key, channel
from outlast.stores.dialects.sqlite import SQLite
from outlast.stores.sql import SqlStore
from outlast.stores.tables import make_tables
from outlast.testing import ManualClock

POSTGRESQL = Compiler(asyncpg.dialect())
SQLITE = Compiler(pysqlite.dialect())


def test_arguments_stand_in_the_order_of_the_text() -> None:
    sql = select(bindparam("b", type_=Integer), bindparam("a", type_=Integer), bindparam("b", type_=Integer))

    assert SQLITE.compiled(sql).arguments({"a": 1, "b": 2}) == [2, 1, 2]
    assert POSTGRESQL.compiled(sql).arguments({"a": 1, "b": 2}) == [2, 1]


def test_a_statement_is_compiled_once() -> None:
    sql = select(literal_column("1"))

    assert SQLITE.compiled(sql) is SQLITE.compiled(sql)


def test_what_a_statement_brings_along_is_read_at_each_use() -> None:
    clock = ManualClock()
    sql = select(bindparam("now", callable_=clock.now, type_=BigInteger), bindparam("x", type_=Integer))
    before = SQLITE.compiled(sql).arguments({"x": 1})

    clock.advance("1s")

    assert SQLITE.compiled(sql).arguments({"x": 1})[0] == before[0] + 1_000_000  # type: ignore[operator]  # an instant
    assert SQLITE.compiled(sql).rows_of_arguments([{"x": 1}, {"x": 2}]) == [[clock.now(), 1], [clock.now(), 2]]


def test_a_missing_argument_is_an_error_and_never_a_null() -> None:
    with pytest.raises(KeyError):
        SQLITE.compiled(select(bindparam("x", type_=Integer))).arguments({})


def test_the_present_is_the_test_clocks_or_the_databases() -> None:
    clock = ManualClock()

    tested = POSTGRESQL.compiled(select(make_basis("outlast", PostgreSQL, clock).now))
    real = POSTGRESQL.compiled(select(make_basis("outlast", PostgreSQL, None).now))

    assert tested.arguments({}) == [clock.now()]
    assert ("statement_timestamp()" in real.text, real.arguments({})) == (True, [])


def test_sqlite_takes_the_hosts_clock_when_it_executes() -> None:
    statement = SQLITE.compiled(select(make_basis("outlast", SQLite, None).now))

    first, second = statement.arguments({}), statement.arguments({})

    assert first <= second  # type: ignore[operator]  # instants
    assert isinstance(first[0], int)


def test_tables_have_a_schema_where_there_are_schemas_and_a_prefix_elsewhere() -> None:
    assert make_tables("mine", schemas=True).runs.fullname == "mine.runs"
    assert make_tables("mine", schemas=False).runs.fullname == "mine_runs"


def test_installations_share_neither_channels_nor_locks() -> None:
    mine, yours = make_tables("mine", schemas=True), make_tables("yours", schemas=True)

    assert channel(mine) != channel(yours)
    assert PostgreSQL().topic_locks(mine, ["t"], shared=False) != PostgreSQL().topic_locks(yours, ["t"], shared=False)


def _updates() -> list[Update]:
    """Every update of the store in the form for databases without arrays."""
    store = SqlStore(make_basis("outlast", MySQL, None))
    parts = [part for part in vars(store).values() if hasattr(part, "__dict__")]
    return [value for part in parts for value in vars(part).values() if isinstance(value, Update)]


def test_no_update_looks_at_a_column_that_it_has_set_before() -> None:
    """MySQL sets one column after the other, and an expression sees those that were set; elsewhere it sees the old row."""
    updates = _updates()
    assert len(updates) >= 7

    for sql in updates:
        text = FOR_MYSQL.compiled(sql).text
        assignments = re.split(r", (?=(?:`?\w+`?\.)?\w+=)", text.partition(" SET ")[2].rpartition(" WHERE ")[0])
        done: list[str] = []
        for assignment in assignments:
            name, _, expression = assignment.partition("=")
            assert not [before for before in done if re.search(rf"\b{before}\b", expression)], text
            done.append(name.rpartition(".")[2].strip("`"))


def test_a_list_without_members_is_one_for_mysql_too() -> None:
    assert MySQL().listed([]) == ("",)
    assert MySQL().listed(["a", "b"]) == ("a", "b")


def test_topic_locks_are_taken_once_each_and_in_one_order() -> None:
    tables = make_tables("mine", schemas=True)
    first = PostgreSQL().topic_locks(tables, ["a", "b", "c", "a"], shared=False)
    second = PostgreSQL().topic_locks(tables, ["c", "a", "b"], shared=False)

    assert first == second
    assert PostgreSQL().topic_locks(tables, [], shared=True) is None


def test_a_lock_key_is_the_same_in_every_process() -> None:
    assert advisory_key("outlast:topic:order.paid") == advisory_key("outlast:topic:order.paid")
    assert -(2**63) <= advisory_key("x") < 2**63
    # A key that changed with a release would let an old and a new process pass each other.
    assert advisory_key("outlast:migrations") == 4574491606565441465
    assert topic_slot("order.paid") == 3981
