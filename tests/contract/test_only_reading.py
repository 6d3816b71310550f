"""A server that takes no writes: a replica, or one that is about to become the primary."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psycopg
import pytest

from outlast import Context, DatabaseUnavailable, Outlast, StepContext, WorkerOptions, step, workflow
from outlast.stores.databases.opening import open_database
from outlast.testing.contract.desk import new_run
from support.probing import until_awaited
from support.roles import roles_on
from tools.mysql import PrivateMySQL
from tools.postgres import PrivatePostgres

PATIENT = WorkerOptions(poll="50ms", lease="3s")
stepped: list[int] = []


@step
async def double(s: StepContext, number: int) -> int:
    stepped.append(number)
    return 2 * number


@workflow("doubling")
async def doubling(ctx: Context, number: int) -> int:
    return await double.named("again")(await double(number))


@dataclass
class Place:
    """A database with the tables of outlast, and its server's switch."""

    url: str
    only_read: Callable[[bool], None]


def _on_postgresql(server: PrivatePostgres) -> Iterator[Place]:
    url = server.create_database()
    name = url.rpartition("/")[2]

    def only_read(is_so: bool) -> None:
        with psycopg.connect(server.url(), autocommit=True) as admin:
            admin.execute(f'alter database "{name}" set default_transaction_read_only = {is_so}'.encode())
            admin.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (name,))

    migrate(url)
    yield Place(url, only_read)
    server.drop_database(url)


def _on_mysqlish(server: PrivateMySQL) -> Iterator[Place]:
    """With a role of its own: an administrator may write all the same."""

    def only_read(is_so: bool) -> None:
        server.execute(f"set global read_only = {int(is_so)}")

    with roles_on(server) as roles:
        migrate(roles.deploy)
        yield Place(roles.app, only_read)
        only_read(False)


def migrate(url: str) -> None:
    app = Outlast(url)
    app.blocking.migrate()
    app.blocking.close()


@pytest.fixture
def on_postgresql(postgres: PrivatePostgres) -> Iterator[Place]:
    yield from _on_postgresql(postgres)


@pytest.fixture
def on_mysqlish(breakable_mysqlish: PrivateMySQL) -> Iterator[Place]:
    yield from _on_mysqlish(breakable_mysqlish)


async def opens_when_it_may_write(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    await asyncio.to_thread(place.only_read, True)
    app = Outlast(place.url, workflows=[doubling], worker=PATIENT)
    opening = asyncio.create_task(app.__aenter__())
    await until_awaited(lambda: is_told(caplog), "the warning")

    await asyncio.to_thread(place.only_read, False)

    await opening
    assert await app.start_and_wait(doubling, 2) == 8
    await app.__aexit__(None, None, None)


async def is_told(caplog: pytest.LogCaptureFixture) -> bool:
    return "takes no writes" in caplog.text


async def test_a_worker_that_starts_on_a_postgresql_that_only_reads_says_so_and_waits(
    on_postgresql: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """For half a minute there was nothing to be seen."""
    await opens_when_it_may_write(on_postgresql, caplog)


async def test_a_worker_that_starts_on_a_mysql_that_only_reads_says_so_and_waits(
    on_mysqlish: Place, caplog: pytest.LogCaptureFixture
) -> None:
    await opens_when_it_may_write(on_mysqlish, caplog)


async def looks_and_writes_not(place: Place) -> None:
    app = Outlast(place.url, workflows=[doubling], worker=False)
    await app.start(doubling, 2, id="two")
    await app.close()
    await asyncio.to_thread(place.only_read, True)

    async with Outlast(place.url, worker=False, migrate=False) as looking:
        assert [run.id for run in (await looking.list()).runs] == ["two"]
    database = open_database(place.url)
    with pytest.raises(DatabaseUnavailable, match=r"takes no writes.*Give outlast the primary"):
        await database.run(lambda: database.store.start([new_run("r")]), patience=1)
    await database.close()


async def test_a_replica_of_postgresql_serves_who_only_looks(on_postgresql: Place) -> None:
    await looks_and_writes_not(on_postgresql)


async def test_a_replica_of_mysql_serves_who_only_looks(on_mysqlish: Place) -> None:
    await looks_and_writes_not(on_mysqlish)


async def test_a_mysql_that_only_reads_for_a_while_holds_no_run_and_costs_no_step(
    on_mysqlish: Place, caplog: pytest.LogCaptureFixture
) -> None:
    stepped.clear()
    async with Outlast(on_mysqlish.url, workflows=[doubling], worker=PATIENT) as app:
        await asyncio.to_thread(on_mysqlish.only_read, True)
        doing = [asyncio.create_task(app.start_and_wait(doubling, number)) for number in range(20)]
        await until_awaited(lambda: is_told(caplog), "the warning")

        await asyncio.to_thread(on_mysqlish.only_read, False)

        assert await asyncio.gather(*doing) == [4 * number for number in range(20)]
    assert "is held" not in caplog.text
    assert sorted(stepped) == sorted([*range(20), *range(0, 40, 2)])
