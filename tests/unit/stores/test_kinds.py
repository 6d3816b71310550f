"""What a caller may pass as `tx=`, and what is said of that which only looks like it."""

from __future__ import annotations

import importlib
import re
import sqlite3
from contextlib import closing, nullcontext
from typing import Any

import aiomysql  # type: ignore[import-untyped]  # it has no types
import asyncmy
import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from outlast import NotATransaction
from outlast.stores.databases.kinds.kind import AwaitingTransaction, BlockingTransaction, told
from outlast.stores.databases.kinds.registry import KINDS, after_commit, is_open, recognise
from outlast.stores.dialects.base import Dialect
from outlast.stores.dialects.mysql import MySQL
from outlast.stores.dialects.sqlite import SQLite
from support.probing import connect_mysql

ROOTS = [(module, name, hint) for kind in KINDS for (module, name), hint in kind.roots.items()]


@pytest.fixture
def dialect() -> Dialect:
    return SQLite()


@pytest.mark.parametrize("module, name, hint", ROOTS, ids=[f"{module}.{name}" for module, name, _ in ROOTS])
def test_what_a_library_has_beside_its_transaction_is_refused_with_what_to_pass(
    dialect: Dialect, module: str, name: str, hint: str
) -> None:
    """Libraries move and rename their classes; a hint for one that is not there would never be given."""
    kind: Any = getattr(importlib.import_module(module), name)

    with pytest.raises(NotATransaction, match=re.escape(hint)):
        recognise(kind.__new__(kind), dialect)

    assert "tx=" in hint or "connection that it came from" in hint


def test_what_is_no_transaction_at_all_is_refused_with_all_that_may_be_passed(dialect: Dialect) -> None:
    with pytest.raises(NotATransaction) as refused:
        recognise("a text", dialect)

    message = str(refused.value)
    assert message.startswith("tx= is a str, which is no transaction. Pass what your own statements")
    assert [kind.handles for kind in KINDS if kind.handles not in message] == []
    assert not after_commit("a text", lambda: None)
    assert not is_open("a text")


class Connected(sqlite3.Connection):
    """As Python 3.12 and later tell who begins transactions."""

    autocommit: Any = -1


@pytest.mark.parametrize(
    "autocommit, isolation_level, is_refused",
    [(True, "", True), (False, None, False), (-1, None, True), (-1, "", False)],
)
def test_a_connection_of_sqlite3_is_joined_where_somebody_begins(
    dialect: Dialect, autocommit: Any, isolation_level: Any, is_refused: bool
) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=isolation_level, factory=Connected)) as connection:
        connection.autocommit = autocommit

        with pytest.raises(NotATransaction, match="without an open transaction") if is_refused else nullcontext():
            recognise(connection, dialect)
        if is_refused:
            connection.execute("begin")
            assert isinstance(recognise(connection, dialect), BlockingTransaction)


@pytest.mark.parametrize("kind", [Session, AsyncSession])
def test_a_session_that_is_bound_to_no_database_is_refused_with_what_to_pass(dialect: Dialect, kind: Any) -> None:
    with pytest.raises(NotATransaction, match=r"bound to no one database.*session\.connection\(bind_arguments"):
        recognise(kind(), dialect)


def test_what_an_applications_own_session_raises_is_its_own(dialect: Dialect) -> None:
    class Routed(Session):
        def get_bind(self, *_: Any, **__: Any) -> Any:
            raise LookupError("of the application's routing")

    with pytest.raises(LookupError, match="routing"):
        recognise(Routed(), dialect)


def test_a_connection_of_sqlalchemy_tells_whether_its_transaction_is_open() -> None:
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        assert not is_open(connection)
        begun = connection.begin()
        assert is_open(connection)
        begun.commit()
        assert not is_open(connection)
        connection.begin()
    assert not is_open(connection)
    engine.dispose()


async def test_connections_of_drivers_tell_whether_their_transaction_is_open(postgres_url: str) -> None:
    async with asyncpg.create_pool(postgres_url, min_size=1) as pool:
        async with pool.acquire() as lent:
            assert not is_open(lent)
            async with lent.transaction():
                assert is_open(lent)
        assert not is_open(lent)  # it is back in its pool
    own = await asyncpg.connect(postgres_url)
    assert not is_open(own)
    await own.execute("begin")
    assert is_open(own)
    await own.close()
    assert not is_open(own)

    with psycopg.connect(postgres_url) as blocking:
        assert not is_open(blocking)
        blocking.execute("select 1")
        assert is_open(blocking)
    assert not is_open(blocking)
    async with await psycopg.AsyncConnection.connect(postgres_url) as awaiting:
        assert not is_open(awaiting)
        await awaiting.execute("select 1")
        assert is_open(awaiting)
    assert not is_open(awaiting)


def test_a_connection_of_pymysql_is_joined_where_somebody_begins(mysql_url: str) -> None:
    connection = connect_mysql(mysql_url, autocommit=True)
    with pytest.raises(NotATransaction, match=r"without an open transaction.*: `connection\.begin\(\)`"):
        recognise(connection, MySQL())
    assert not is_open(connection)

    connection.begin()
    assert isinstance(recognise(connection, MySQL()), BlockingTransaction)
    assert is_open(connection)
    connection.commit()
    assert not is_open(connection)

    connection.autocommit(False)
    assert isinstance(recognise(connection, MySQL()), BlockingTransaction), "the server begins it"
    connection.begin()
    connection.close()
    assert not is_open(connection)


@pytest.mark.parametrize("driver", [asyncmy, aiomysql], ids=["asyncmy", "aiomysql"])
async def test_an_awaiting_connection_to_mysql_is_joined_where_somebody_begins(mysql_url: str, driver: Any) -> None:
    url = make_url(mysql_url)
    connection = await driver.connect(
        host=url.host, port=url.port, user=url.username, password=url.password or "", db=url.database, autocommit=True
    )
    with pytest.raises(NotATransaction, match=r"without an open transaction.*await connection\.begin\(\)"):
        recognise(connection, MySQL())
    assert not is_open(connection)

    await connection.begin()
    assert isinstance(recognise(connection, MySQL()), AwaitingTransaction)
    assert is_open(connection)
    await connection.commit()
    assert not is_open(connection)

    await connection.autocommit(False)
    assert isinstance(recognise(connection, MySQL()), AwaitingTransaction), "the server begins it"
    await connection.begin()
    connection.close()
    assert not is_open(connection)


async def test_an_awaiting_connection_tells_the_same() -> None:
    engine = create_async_engine("sqlite+aiosqlite://")
    async with engine.connect() as connection:
        assert not is_open(connection)
        await connection.begin()
        assert is_open(connection)
    assert not is_open(connection)
    await engine.dispose()


class Order: ...


@pytest.mark.parametrize(
    "value, words", [(None, "None"), (7, "an int"), ("", "a str"), (Order, "a type"), (SQLite(), "an outlast.SQLite")]
)
def test_a_value_is_named_by_its_kind(value: object, words: str) -> None:
    assert told(value) == words


def test_a_kind_of_the_applications_own_is_named_with_its_package_and_place() -> None:
    class Cart: ...

    assert told(Cart()).endswith(
        ".test_a_kind_of_the_applications_own_is_named_with_its_package_and_place.<locals>.Cart"
    )
    assert told(Order()).partition(".")[0] == f"a {__name__.partition('.')[0]}"
