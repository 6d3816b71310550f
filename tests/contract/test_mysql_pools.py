"""The application's own pool of asyncmy's or aiomysql's connections as the database."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle
from typing import Any

import aiomysql  # type: ignore[import-untyped]  # it has no types
import asyncmy
import pytest
from sqlalchemy import make_url, text

from outlast import (
    Context,
    InvalidArgument,
    NonRetryable,
    Outlast,
    RunFailed,
    StepContext,
    WorkerOptions,
    step,
    transactional_step,
    workflow,
)
from outlast.ports.operation import Op, Statement
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database
from outlast.testing.contract.desk import new_run
from outlast.testing.store_contract import Case
from support.every_statement import EVERY_STATEMENT
from support.pools_tried import carry, migrated
from support.probing import connect_mysql
from tools.mysql import PrivateMySQL

DRIVERS: dict[str, Any] = {"asyncmy": asyncmy, "aiomysql": aiomysql}


@step
async def double(s: StepContext, number: int) -> int:
    return 2 * number


@transactional_step
async def note(connection: Any, number: int) -> int:
    async with connection.cursor() as cursor:
        await cursor.execute("insert into notes values (%s)", (number,))
    if number > 100:
        raise NonRetryable
    return number


@workflow("doubling")
async def doubling(ctx: Context, number: int) -> int:
    noted: int = await note(await double(number))
    return noted


@asynccontextmanager
async def pool_of(driver: str, url: str, **options: Any) -> AsyncIterator[Any]:
    parts = make_url(url)
    arguments = {"user": parts.username, "password": parts.password, "db": parts.database, "charset": "utf8mb4"}
    options = {"host": parts.host, "port": parts.port, "minsize": 1, "maxsize": 4, **arguments, **options}
    async with DRIVERS[driver].create_pool(**options) as pool:
        yield pool


driven = pytest.mark.parametrize("driver", DRIVERS)


PLACES = (("mariadb", "aiomysql", True), ("mysql", "asyncmy", False))
CASES = [
    # Leases are renewed on connections of our own. These count rows that changed alone, and no clock moves here.
    case
    for case in EVERY_STATEMENT
    if case.name != "a_renewal_tells_of_stop_requests_for_runs_of_this_worker"
]


@pytest.mark.parametrize(
    "case, server, driver, autocommit",
    [pytest.param(case, *place, id=f"{case}-{place[1]}") for case, place in zip(CASES, cycle(PLACES), strict=False)],
)
def test_a_pool_carries_every_statement(
    case: Case, server: str, driver: str, autocommit: bool, request: pytest.FixtureRequest
) -> None:
    """Whether its connections commit by themselves or not. Each case is tried with one of the two: what they share is
    tried by the other contract tests."""
    url: str = request.getfixturevalue(f"{server}_url")
    carry(case, pool_of(driver, url, autocommit=autocommit))


@driven
@pytest.mark.parametrize("option", ["database", "transactions"])
async def test_runs_and_transactional_steps_execute_over_a_pool(driver: str, option: str, mysqlish_url: str) -> None:
    _make_notes(mysqlish_url)
    async with (
        pool_of(driver, mysqlish_url) as pool,
        Outlast(
            pool if option == "database" else mysqlish_url,
            workflows=[doubling],
            transactions=None if option == "database" else pool,
            worker=WorkerOptions(poll="50ms"),
        ) as app,
    ):
        assert await app.start_and_wait(doubling, 4, timeout="20s") == 8
        with pytest.raises(RunFailed):
            await app.start_and_wait(doubling, 100, timeout="20s")
        async with pool.acquire() as connection:
            await connection.begin()
            await app.start(doubling, 1, id="joined", tx=connection)
            await connection.rollback()
        assert await app.get("joined") is None
    assert _notes(mysqlish_url) == [(8,)]


def _make_notes(url: str) -> None:
    with contextlib.closing(connect_mysql(url)) as connection, connection.cursor() as cursor:
        cursor.execute("create table notes (number int) engine = InnoDB")


def _notes(url: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(connect_mysql(url)) as connection, connection.cursor() as cursor:
        cursor.execute("select number from notes")
        return list(cursor.fetchall())


@driven
async def test_both_colours_are_there(driver: str, mysqlish_url: str) -> None:
    async with pool_of(driver, mysqlish_url) as pool, Outlast(pool, workflows=[doubling], worker=False) as app:
        await app.start(doubling, 1, id="awaited")
        await asyncio.to_thread(app.blocking.start, doubling, 1, id="blocking")
        assert {run.id for run in (await app.list()).runs} == {"awaited", "blocking"}
        await asyncio.to_thread(app.blocking.close)


SHOWN = "select @@session.innodb_lock_wait_timeout, @@session.autocommit, {}"


async def _started(database: SqlDatabase, run_id: str) -> None:
    await database.run(lambda: database.store.start([new_run(run_id)]))


@driven
@pytest.mark.parametrize("autocommit", [False, True])
async def test_a_pool_gets_its_connections_back_as_they_were(
    driver: str, autocommit: bool, mysqlish: PrivateMySQL, mysqlish_url: str
) -> None:
    def raising() -> Op[None]:
        yield Statement(text("select 1"))
        raise LookupError

    shown = SHOWN.format("@@session.tx_isolation" if mysqlish.name == "MariaDB" else "@@session.transaction_isolation")
    async with pool_of(
        driver, mysqlish_url, maxsize=1, autocommit=autocommit, init_command="set session innodb_lock_wait_timeout = 7"
    ) as pool:
        database = open_database(pool)
        await migrated(database)
        for number in range(3):
            await _started(database, f"r{number}")
            with pytest.raises(LookupError):
                await database.run(raising)

            async with pool.acquire() as connection:
                assert not connection.get_transaction_status()
                async with connection.cursor() as cursor:
                    await cursor.execute(shown)
                    assert await cursor.fetchone() == (7, autocommit, "REPEATABLE-READ")
                await connection.rollback()
        await database.close()


@driven
async def test_a_cancelled_caller_gives_its_place_back(driver: str, mysqlish_url: str) -> None:
    async with pool_of(driver, mysqlish_url, maxsize=1) as pool:
        database = open_database(pool)
        await migrated(database)
        for _ in range(2):
            reached = asyncio.Event()

            def hanging(reached: asyncio.Event = reached) -> Op[None]:
                yield Statement(text("select 1"))
                reached.set()
                yield Statement(text("select sleep(60)"))

            caller = asyncio.ensure_future(database.run(hanging))
            await reached.wait()
            caller.cancel()
            with pytest.raises(asyncio.CancelledError):
                await caller

        assert (await database.run(lambda: database.store.start([new_run("r")])))[0].created
        await database.close()


@driven
async def test_a_pool_that_does_not_say_where_it_leads_is_refused_with_what_to_pass(driver: str) -> None:
    async with DRIVERS[driver].create_pool(minsize=0, maxsize=1, read_default_file="/etc/my.cnf") as pool:
        with pytest.raises(InvalidArgument, match="Give it the URL"):
            Outlast(pool)
