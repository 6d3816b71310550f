"""Behind PgBouncer in transaction mode: each transaction may find itself on another connection of the server's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from outlast import (
    ConnectionOptions,
    Context,
    DatabaseUnavailable,
    InvalidArgument,
    Outlast,
    StepContext,
    WorkerOptions,
    step,
    transactional_step,
    workflow,
)
from outlast.ports.operation import Op, Span, Statement
from outlast.stores.databases.connector import LIMITED, PLANNED
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database
from outlast.testing.contract.desk import new_run
from outlast.testing.store_contract import Case
from support.every_statement import EVERY_STATEMENT

POOLED = ConnectionOptions(transaction_pooling=True)
DRIVERS = ("postgresql+asyncpg", "postgresql+psycopg")


@step
async def double(s: StepContext, number: int) -> int:
    return 2 * number


@transactional_step
async def note(connection: Any, number: int) -> int:
    await connection.execute(f"insert into notes values ({number})")
    return number


@workflow("noting")
async def noting(ctx: Context, number: int) -> int:
    return await note(number)


@workflow("doubling")
async def doubling(ctx: Context, number: int) -> int:
    return await double.named("again")(await double(number))


def through(driver: str, url: str) -> str:
    return url.replace("postgresql://", f"{driver}://")


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[SqlDatabase]:
    database = open_database(url, connections=POOLED)
    await database.open()
    await database.migrate()
    yield database
    await database.close()
    await asyncio.to_thread(database.close_blocking)


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("case", EVERY_STATEMENT, ids=str)
def test_every_statement_passes_a_pooler(case: Case, driver: str, pooled_url: str) -> None:
    url = through(driver, pooled_url)
    case.check(lambda clock: open_database(url, clock=clock, connections=POOLED), "awaiting")


@pytest.mark.parametrize("case", EVERY_STATEMENT, ids=str)
def test_every_statement_passes_a_pooler_blocking(case: Case, pooled_url: str) -> None:
    case.check(lambda clock: open_database(pooled_url, clock=clock, connections=POOLED), "blocking")


@pytest.mark.parametrize("driver", DRIVERS)
async def test_runs_execute_behind_a_pooler_and_leave_nothing_on_its_connections(
    driver: str, pooled_url: str, direct_url: str
) -> None:
    async with Outlast(
        through(driver, pooled_url), workflows=[doubling], worker=WorkerOptions(poll="50ms"), connections=POOLED
    ) as app:
        results = await asyncio.gather(*(app.start_and_wait(doubling, n, timeout="40s") for n in range(40)))
    assert results == [4 * n for n in range(40)]

    with psycopg.connect(pooled_url, prepare_threshold=None) as connection:
        for _ in range(8):
            left = connection.execute("select name, statement from pg_prepared_statements").fetchall()
            changed = connection.execute(
                "select name, setting from pg_settings where name = any(%s) and setting <> reset_val",
                [[*PLANNED, *LIMITED]],
            ).fetchall()
            connection.commit()
            assert (left, changed) == ([], [])


@pytest.mark.parametrize("span", ["write", "read", "alone"])
@pytest.mark.parametrize("driver", DRIVERS)
async def test_each_transaction_has_its_settings_whatever_connection_it_gets(
    driver: str, span: Span, pooled_url: str
) -> None:
    settings = {**PLANNED, **LIMITED}
    asked = text("select " + ", ".join(f"current_setting('{name}')" for name in settings))

    def op() -> Op[list[str]]:
        found = yield Statement(asked, span=span)
        return list(found.rows[0])

    async with opened(through(driver, pooled_url)) as database:
        for _ in range(6):
            assert await database.run(op) == list(settings.values())


async def test_blocking_transactions_have_their_settings_too(pooled_url: str) -> None:
    settings = {**PLANNED, **LIMITED}
    asked = text("select " + ", ".join(f"current_setting('{name}')" for name in settings))

    def op() -> Op[list[str]]:
        found = yield Statement(asked)
        return list(found.rows[0])

    async with opened(pooled_url) as database:
        for _ in range(6):
            assert await asyncio.to_thread(database.run_blocking, op) == list(settings.values())


async def test_work_is_heard_of_past_the_pooler(pooled_url: str, direct_url: str) -> None:
    """Its own look is an hour away, and the run comes from another app: only the notice can have brought it."""
    listening = ConnectionOptions(transaction_pooling=True, listen=direct_url)
    async with (
        Outlast(pooled_url, workflows=[doubling], worker=WorkerOptions(poll="1h"), connections=listening),
        Outlast(pooled_url, workflows=[doubling], worker=False, connections=POOLED) as client,
    ):
        assert await client.start_and_wait(doubling, 1, timeout="20s") == 4


async def test_nobody_listens_where_nothing_can_be_heard(pooled_url: str, direct_url: str) -> None:
    async with Outlast(pooled_url, workflows=[doubling], worker=WorkerOptions(poll="50ms"), connections=POOLED) as app:
        assert await app.start_and_wait(doubling, 1, timeout="20s") == 4
        with psycopg.connect(direct_url) as monitor:
            found = monitor.execute("select count(*) from pg_stat_activity where query ilike 'listen%'").fetchone()
        assert found == (0,)


async def test_an_engine_of_the_application_may_lead_to_a_pooler(pooled_url: str) -> None:
    blocking = create_engine(
        through("postgresql+psycopg", pooled_url), connect_args={"prepare_threshold": None}, poolclass=NullPool
    )
    awaiting = create_async_engine(
        through("postgresql+psycopg", pooled_url), connect_args={"prepare_threshold": None}, poolclass=NullPool
    )
    for engine in (blocking, awaiting):
        async with Outlast(engine, workflows=[doubling], worker=WorkerOptions(poll="50ms"), connections=POOLED) as app:
            results = await asyncio.gather(*(app.start_and_wait(doubling, n, timeout="40s") for n in range(10)))
            assert results == [4 * n for n in range(10)]


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_pooler_that_nobody_spoke_of_is_told_with_the_option_for_it(driver: str, pooled_url: str) -> None:
    database = open_database(through(driver, pooled_url))

    with pytest.raises(DatabaseUnavailable, match=r"ConnectionOptions\(transaction_pooling=True\)"):
        await database.open()
    with pytest.raises(DatabaseUnavailable, match=r"ConnectionOptions\(transaction_pooling=True\)"):
        await asyncio.to_thread(database.check_schema_blocking)

    await database.close()
    database.close_blocking()


def test_what_cannot_be_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="nothing is heard through a pooler"):
        ConnectionOptions(transaction_pooling=True, listen=True)
    with pytest.raises(InvalidArgument, match="credentials"):
        ConnectionOptions(credentials="secret")  # type: ignore[arg-type]  # what somebody may write
    with pytest.raises(InvalidArgument, match="connections="):
        Outlast(f"sqlite:///{tmp_path}/x.db", connections=POOLED)
    with pytest.raises(InvalidArgument, match="listen"):
        Outlast("postgresql://localhost/x", connections=ConnectionOptions(listen="sqlite:///x.db"))


def test_a_run_that_is_started_behind_a_pooler_is_there(pooled_url: str) -> None:
    app = Outlast(pooled_url, workflows=[doubling], connections=POOLED)
    app.blocking.start(doubling, 1, id="a")
    assert app.blocking.get("a") is not None
    app.blocking.close()


async def test_starts_at_once_share_the_poolers_connections(pooled_url: str) -> None:
    async with opened(pooled_url) as database:
        outcomes = await asyncio.gather(
            *(database.run(lambda n=n: database.store.start([new_run(f"r{n % 20}")])) for n in range(60))
        )
    assert sum(one.created for (one,) in outcomes) == 20


@pytest.mark.parametrize("driver", DRIVERS)
async def test_transactional_steps_write_behind_a_pooler(driver: str, pooled_url: str, direct_url: str) -> None:
    with psycopg.connect(direct_url, autocommit=True) as admin:
        admin.execute("create table notes (number int)")
        async with Outlast(
            through(driver, pooled_url), workflows=[noting], worker=WorkerOptions(poll="50ms"), connections=POOLED
        ) as app:
            await asyncio.gather(*(app.start_and_wait(noting, n, timeout="40s") for n in range(20)))
        assert admin.execute("select count(*), count(distinct number) from notes").fetchone() == (20, 20)
