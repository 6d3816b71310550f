"""Connections of ours that a step writes on come back as they were, whatever its statements have set, made or locked."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from psycopg.rows import dict_row

from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database

Say = Callable[[Any, str], Awaitable[Any]]
Photo = dict[str, object]

OF_POSTGRESQL = (
    "set search_path = pg_catalog",
    "set session characteristics as transaction isolation level serializable",
    "set time zone 'Asia/Kathmandu'",
    "create temporary table basket (id int)",
    "insert into basket values (1)",
    "declare held cursor with hold for select 1",
    "select pg_advisory_lock(7)",
    "listen gossip",
    "savepoint left_behind",
    "set session authorization pg_monitor",
    "set role pg_monitor",
)
ASKED_OF_POSTGRESQL = {
    "settings": "select name, setting from pg_settings order by name",
    "roles": "select session_user, current_user",
    "temporary tables": "select relname from pg_class where relpersistence = 't' and pg_table_is_visible(oid)",
    "cursors": "select name from pg_cursors where is_holdable",
    "channels": "select pg_listening_channels()",
    "locks": "select objid from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()",
    "session": "select pg_backend_pid()",
}
OF_MYSQL = (
    "set @secret = 7, session time_zone = '+05:45', session foreign_key_checks = 0, sql_mode = ''",
    "set names latin1",
    "set session transaction isolation level serializable",
    "create temporary table basket (id int) engine = InnoDB",
    "insert into basket values (1)",
    "do get_lock('gossip', 0)",
    "savepoint left_behind",
    "use information_schema",
)
ASKED_OF_MYSQL = {
    "settings": "show session variables where variable_name not like 'gtid%' and variable_name not in ('timestamp', "
    "'rand_seed1', 'rand_seed2', 'pseudo_thread_id', 'last_gtid', 'in_transaction', 'last_insert_id', 'identity', "
    "'statement_id', 'error_count', 'warning_count')",
    "place": "select database(), @secret",
    "locks": "select is_used_lock('gossip')",
    "session": "select connection_id()",
}


async def _said_awaiting(tx: Any, text: str) -> Any:
    """Execute on a connection of asyncpg, psycopg or asyncmy, and return the rows."""
    if hasattr(tx, "fetch"):
        return [tuple(row) for row in await tx.fetch(text)] if text.startswith("select") else await tx.execute(text)
    if hasattr(tx, "pgconn"):
        found = await tx.execute(text)
        return await found.fetchall() if found.description is not None else None
    async with tx.cursor() as cursor:
        await cursor.execute(text)
        return await cursor.fetchall()


async def _said_blocking(tx: Any, text: str) -> Any:
    """The same on an SQLAlchemy connection or PyMySQL's."""
    if hasattr(tx, "exec_driver_sql"):
        result = tx.exec_driver_sql(text)
        return result.fetchall() if result.returns_rows else None
    with tx.cursor() as cursor:
        cursor.execute(text)
        return cursor.fetchall()


class Given:
    """A database whose transactions are taken one after the other."""

    def __init__(self, url: str, *, blocks: bool) -> None:
        self._database: SqlDatabase = open_database(url)
        self._blocks = blocks
        self.is_mysql = url.startswith(("mysql", "mariadb"))

    async def use(self, use: Callable[[Any, Say], Awaitable[Any]]) -> Any:
        transactions = self._database.transactions
        if self._blocks:
            assert transactions.blocking is not None
            with transactions.blocking() as tx:
                return await use(tx, _said_blocking)
        assert transactions.awaiting is not None
        async with transactions.awaiting() as tx:
            return await use(tx, _said_awaiting)

    async def photo(self) -> Photo:
        asked = ASKED_OF_MYSQL if self.is_mysql else ASKED_OF_POSTGRESQL

        async def look(tx: Any, say: Say) -> Photo:
            return {what: [tuple(row) for row in await say(tx, text)] for what, text in asked.items()}

        found: Photo = await self.use(look)
        return found

    async def close(self) -> None:
        await self._database.close()
        self._database.close_blocking()


ROADS = ["asyncpg", "psycopg", "blocking psycopg", "asyncmy", "asyncmy on MariaDB", "PyMySQL", "PyMySQL on MariaDB"]


@pytest.fixture(params=ROADS)
def given(request: pytest.FixtureRequest) -> Given:
    name: str = request.param
    server = "mariadb" if "MariaDB" in name else "mysql" if "MySQL" in name or "asyncmy" in name else "postgres"
    url: str = request.getfixturevalue(f"{server}_url")
    if name == "psycopg":
        url = url.replace("postgresql://", "postgresql+psycopg://")
    return Given(url, blocks="blocking" in name or "PyMySQL" in name)


class Undone(Exception):
    """What ends a step."""


@pytest.mark.parametrize("ends", ["well", "in an error"])
async def test_what_a_step_leaves_on_its_session_the_next_one_does_not_find(given: Given, ends: str) -> None:
    """A role or a time zone that was set for one customer would have been the next one's."""
    left = OF_MYSQL if given.is_mysql else OF_POSTGRESQL

    async def leave(tx: Any, say: Say) -> None:
        for text in left:
            await say(tx, text)
        if ends == "in an error":
            raise Undone

    before = await given.photo()
    for _ in range(2):
        with suppress(Undone):
            await given.use(leave)

    assert await given.photo() == before  # on the same session, which was not simply thrown away
    await given.close()


@pytest.mark.parametrize(
    "given", [road for road in ROADS if "psycopg" not in road and road != "asyncpg"], indirect=True
)
async def test_a_step_that_has_nothing_commit_by_itself_leaves_that_to_no_other(given: Given) -> None:
    await given.use(lambda tx, say: say(tx, "set session autocommit = 0"))

    assert [tuple(row) for row in await given.use(lambda tx, say: say(tx, "select @@autocommit"))] == [(1,)]
    await given.close()


@pytest.mark.parametrize("given", ["psycopg", "blocking psycopg", "PyMySQL"], indirect=True)
async def test_what_a_step_makes_of_its_rows_the_next_one_does_not_get(given: Given) -> None:
    async def ask_for_names(tx: Any, _say: Say) -> None:
        driver = tx.connection.driver_connection if hasattr(tx, "exec_driver_sql") else tx
        if given.is_mysql:
            import pymysql.cursors

            driver.cursorclass = pymysql.cursors.DictCursor
        else:
            driver.row_factory = dict_row

    await given.use(ask_for_names)

    assert await given.use(lambda tx, say: say(tx, "select 1")) in ([(1,)], ((1,),))
    await given.close()


@pytest.mark.parametrize("given", ["asyncpg"], indirect=True)
async def test_what_a_step_makes_of_types_the_next_one_does_not_get(given: Given) -> None:
    async def teach(tx: Any, _say: Say) -> None:
        await tx.set_type_codec("int4", schema="pg_catalog", encoder=str, decoder=lambda text: f"number {text}")

    await given.use(teach)

    assert await given.use(lambda tx, say: say(tx, "select 1")) == [(1,)]
    await given.close()


async def test_a_role_of_the_url_is_the_one_that_is_gone_back_to(postgres_url: str) -> None:
    for blocks in (True, False):
        given = Given(f"{postgres_url}?options=-c%20role%3Dpg_monitor", blocks=blocks)

        async def become_another(tx: Any, say: Say) -> None:
            await say(tx, "set role none")

        await given.use(become_another)
        assert await given.use(lambda tx, say: say(tx, "select current_user")) == [("pg_monitor",)]
        await given.close()


async def test_a_caller_that_goes_away_while_its_connection_is_cleaned_does_not_keep_its_place(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = Given(postgres_url, blocks=False)

    reached = asyncio.Event()

    async def hang(*_: object, **__: object) -> None:
        reached.set()
        await asyncio.Event().wait()

    async def leave(tx: Any, _say: Say) -> None:
        monkeypatch.setattr(type(tx), "reset", hang)

    for _ in range(20):  # more than there are places
        reached.clear()
        caller = asyncio.ensure_future(given.use(leave))
        await reached.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
    await given.close()


def test_a_step_on_a_file_leaves_no_table_and_no_other_file_on_the_connection(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path}/shop.db")
    begin = database.transactions.blocking
    assert begin is not None
    with begin() as tx:
        tx.execute("create temporary table basket (id int)")
        tx.isolation_level = "DEFERRED"
        tx.row_factory = sqlite3.Row
    with begin() as tx:
        with pytest.raises(sqlite3.OperationalError, match="no such table: basket"):
            tx.execute("select * from basket")
        assert tx.isolation_level is None
        assert tx.execute("select 1").fetchone() == (1,)
        kept = tx
    with begin() as tx:
        assert tx is kept
    database.close_blocking()
