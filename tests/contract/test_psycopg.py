"""PostgreSQL through psycopg alone, awaiting: a whole store without asyncpg."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from outlast import Context, DriverMissing, Outlast, WorkerOptions, transactional_step, workflow
from outlast.errors import DatabaseUnavailable
from outlast.ports.operation import Op, Statement
from outlast.stores.databases import connector
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database
from outlast.testing.contract.desk import new_run
from outlast.testing.store_contract import Case
from support.every_statement import EVERY_STATEMENT
from support.tcp_proxy import TcpProxy


@transactional_step
async def note(connection: Any, name: str) -> str:
    await connection.execute("insert into notes values (%s)", [name])
    return name


@workflow("noting")
async def noting(ctx: Context, name: str) -> str:
    return await note(name)


@workflow("greet")
async def greet(ctx: Context, name: str) -> str:
    return f"Hello, {name}"


@pytest.fixture
def psycopg_url(postgres_url: str) -> str:
    return with_psycopg(postgres_url)


def with_psycopg(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[SqlDatabase]:
    database = open_database(url)
    await database.open()
    await database.migrate()
    yield database
    await database.close()


@pytest.mark.parametrize("case", EVERY_STATEMENT, ids=str)
def test_psycopg_carries_every_statement(case: Case, psycopg_url: str) -> None:
    case.check(lambda clock: open_database(psycopg_url, clock=clock), "awaiting")


async def test_a_worker_hears_of_work_through_psycopg(psycopg_url: str) -> None:
    """Its own look is an hour away, and the run comes from another app: only the notice can have brought it."""
    async with (
        Outlast(psycopg_url, workflows=[greet], worker=WorkerOptions(poll="1h")),
        Outlast(psycopg_url, workflows=[greet], worker=False) as client,
    ):
        assert await client.start_and_wait(greet, "Ada", timeout="20s") == "Hello, Ada"


async def test_listening_comes_back_after_its_connection_broke(psycopg_url: str) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    async with opened(psycopg_url) as listening:
        await listening.listen(heard.put_nowait)
        with psycopg.connect(psycopg_url.replace("+psycopg", ""), autocommit=True) as admin:
            admin.execute("select pg_terminate_backend(pid) from pg_stat_activity where query like 'LISTEN%'")
            assert {await heard.get(), await heard.get()} == {"ready", "stop"}

        await listening.run(lambda: listening.store.start([new_run("r")]))
        assert await heard.get() == "ready"


async def test_no_call_needs_a_thread(psycopg_url: str) -> None:
    async with opened(psycopg_url) as database:
        before = threading.active_count()

        await asyncio.gather(*(database.run(lambda n=n: database.store.start([new_run(f"r{n}")])) for n in range(50)))

        assert threading.active_count() == before


@pytest.mark.time_limit(8)
async def test_a_link_that_carries_nothing_more_is_given_up_when_patience_ends(
    postgres_url: str, postgres_proxy: TcpProxy
) -> None:
    """psycopg by itself would go on for ten seconds: it tells the server first, and waits for what becomes of that."""
    async with opened(with_psycopg(postgres_proxy.url(postgres_url))) as database:
        postgres_proxy.stall()

        with pytest.raises(DatabaseUnavailable):
            await database.run(lambda: database.store.start([new_run("r")]), patience=0.3)
        postgres_proxy.let_through()

        assert (await database.run(lambda: database.store.start([new_run("s")])))[0].created


async def test_a_statement_is_prepared_once_whatever_its_numbers_are(psycopg_url: str) -> None:
    """psycopg names the type of a number by its size, and prepares a statement for each."""
    numbers = text("select cast(:number as bigint)")

    def op() -> Op[int]:
        for number in (1, 40_000, 5_000_000_000):
            yield Statement(numbers, {"number": number})
        found = yield Statement(
            text("select count(*) from pg_prepared_statements where statement like 'select cast(%'")
        )
        count: int = found.rows[0][0]
        return count

    async with opened(psycopg_url) as database:
        assert await database.run(op) == 1


async def test_the_driver_is_the_one_that_is_named_else_the_one_that_is_there(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def driver(url: str) -> object:
        def op() -> Op[object]:
            found = yield Statement(text("select count(*) from pg_prepared_statements where name like '\\_pg3%'"))
            again = yield Statement(text("select count(*) from pg_prepared_statements where name like '\\_pg3%'"))
            return (found.rows, again.rows)

        async with opened(url) as database:
            return "psycopg" if await database.run(op) != ([(0,)], [(0,)]) else "asyncpg"

    assert await driver(postgres_url) == "asyncpg"
    assert await driver(with_psycopg(postgres_url)) == "psycopg"

    monkeypatch.setattr(connector, "is_installed", lambda name: name == "psycopg")
    assert await driver(postgres_url) == "psycopg"
    with pytest.raises(DriverMissing, match=r"outlast\[postgres\]"):
        await driver(postgres_url.replace("postgresql://", "postgresql+asyncpg://"))


async def test_options_in_the_url_reach_the_server(psycopg_url: str) -> None:
    def op() -> Op[object]:
        found = yield Statement(text("select current_setting('geqo'), current_setting('jit')"))
        return tuple(found.rows[0])

    async with opened(f"{psycopg_url}?options=-c%20geqo%3Doff") as database:
        assert await database.run(op) == ("off", "off")
        assert await asyncio.to_thread(database.run_blocking, op) == ("off", "off")
        await asyncio.to_thread(database.close_blocking)


async def test_a_transactional_step_gets_a_connection_of_psycopgs(psycopg_url: str) -> None:
    with psycopg.connect(psycopg_url.replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute("create table notes (name text)")
        async with Outlast(psycopg_url, workflows=[noting]) as app:
            assert await app.start_and_wait(noting, "Ada", timeout="20s") == "Ada"
        assert admin.execute("select name from notes").fetchall() == [("Ada",)]


@pytest.mark.parametrize("delivered", [True, False], ids=["done", "not done"])
@pytest.mark.parametrize("verb", ["one statement", "a transaction"])
async def test_a_verb_whose_answer_was_lost_is_done_once(
    postgres_url: str, postgres_proxy: TcpProxy, verb: str, delivered: bool
) -> None:
    runs = [new_run("the lost run")] if verb == "one statement" else [new_run("r"), new_run("q")]
    async with opened(with_psycopg(postgres_proxy.url(postgres_url))) as database:
        postgres_proxy.cut_at(b"the lost run" if verb == "one statement" else b"COMMIT\x00", delivered=delivered)

        outcomes = await database.run(lambda: database.store.start(runs))

        await asyncio.to_thread(postgres_proxy.wait_for_cut)
        assert {one.created for one in outcomes} == {not delivered}
        assert {one.created for one in await database.run(lambda: database.store.start(runs))} == {False}


async def test_connections_that_broke_while_idle_are_replaced(psycopg_url: str) -> None:
    async with opened(psycopg_url) as database:
        await asyncio.gather(*(database.run(lambda n=n: database.store.start([new_run(f"r{n}")])) for n in range(5)))
        with psycopg.connect(psycopg_url.replace("+psycopg", ""), autocommit=True) as admin:
            admin.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where datname = current_database() and pid <> pg_backend_pid()"
            )

        again = await asyncio.gather(
            *(database.run(lambda n=n: database.store.start([new_run(f"r{n}")])) for n in range(5))
        )
        assert [one.created for (one,) in again] == [False] * 5
