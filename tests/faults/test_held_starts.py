"""Many starts of ids that a caller has started and not committed, and innocent ones beside them.

In these tests a lock is waited for longer than a test may take: whoever is behind one statement that waits for it fails.
"""

from __future__ import annotations

import asyncio

import pytest

from outlast import Context, Outlast, WorkerOptions, workflow
from outlast.ports.database import HeldUp
from outlast.stores.databases import connector, mysql
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.mysql_link import Session
from outlast.stores.databases.opening import open_database
from outlast.testing.contract.desk import new_run
from support.callers import ROADS, kind_of

HELD = [f"held {number}" for number in range(40)]
ROAD = {"postgresql": "asyncpg", "mysql": "asyncmy", "mariadb": "asyncmy"}


@workflow("greet")
async def greet(ctx: Context, name: str) -> str:
    return f"Hello, {name}"


@pytest.fixture(autouse=True)
def _a_lock_is_waited_for_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "SETTINGS", {**connector.SETTINGS, "lock_timeout": "1h"})
    patient = tuple(
        text.replace("innodb_lock_wait_timeout = 1", "innodb_lock_wait_timeout = 3600") for text in mysql.OURS.texts
    )
    monkeypatch.setattr(mysql, "OURS", Session(patient, mysql.OURS.idle))


async def test_innocent_starts_wait_for_no_lock_of_others(server_url: str) -> None:
    """They waited for one after the other of those that were held up, for seconds."""
    await assert_innocent_starts_go_through(Outlast(server_url, workflows=[greet], worker=False), server_url)


async def test_innocent_starts_of_a_workers_process_wait_for_no_lock_of_others(postgres_url: str) -> None:
    """There they go with what the worker writes, and were tried by it one after the other."""
    worker = WorkerOptions(poll="50ms")
    await assert_innocent_starts_go_through(Outlast(postgres_url, workflows=[greet], worker=worker), postgres_url)


async def assert_innocent_starts_go_through(app: Outlast, url: str) -> None:
    async with app, ROADS[ROAD[kind_of(url)]](url) as caller:
        async with caller.transaction() as tx:
            await app.start_many(greet, ["Ada"] * len(HELD), ids=HELD, tx=tx)
            held = [asyncio.create_task(app.start(greet, "Ada", id=each)) for each in HELD]
            innocent = [app.start(greet, "Grace", id=f"innocent {number}") for number in range(5)]
            alone = app.start(greet, "Grace")

            assert {run.created for run in await asyncio.gather(*innocent, alone)} == {True}
            assert not any(one.done() for one in held)

        assert {(await one).created for one in held} == {False}


async def test_a_start_that_does_not_wait_is_refused_at_once_and_has_written_nothing(server_url: str) -> None:
    database = open_database(server_url)
    await database.open()
    await database.migrate()
    held = new_run("held")

    async with ROADS[ROAD[kind_of(server_url)]](server_url) as caller:
        async with caller.transaction() as tx:
            await database.join(tx, lambda: database.store.start([held]))
            for others in ("innocent",), ():
                with pytest.raises(HeldUp):
                    await started(database, "held", *others)
            assert await started(database, "innocent") == [True]
        assert await started(database, "innocent", "held") == [False, False]

    await database.close()
    database.close_blocking()


async def started(database: SqlDatabase, *ids: str) -> list[bool]:
    runs = [new_run(each) for each in ids]
    outcomes = await database.run(lambda: database.store.start(runs, waits=False), waits=False)
    return [one.created for one in outcomes]
