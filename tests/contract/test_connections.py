"""Connections break, processes fork, tasks are cancelled: an operation is done once, and nothing is left open."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import asyncpg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from outlast.errors import DatabaseUnavailable, DriverMissing, IsolationRefused
from outlast.model.ids import RunId, WorkerId
from outlast.ports.operation import Op, Statement
from outlast.ports.store import Batch, Lease, NewSignal, RunFilter
from outlast.stores.databases import connector
from outlast.stores.databases import database as database_module
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database
from outlast.stores.sql import SqlStore
from outlast.testing.contract.desk import finished, new_run, step
from support.probing import Tables, until_awaited, until_seen
from support.processes import StartProcess
from support.tcp_proxy import TcpProxy
from tools.postgres import PrivatePostgres

A = Lease(WorkerId("a"), 1)
FORKING = Path(__file__).parent / "forking.py"
BARE = Path(__file__).parent / "bare.py"


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[SqlDatabase]:
    database = open_database(url)
    await database.open()
    await database.migrate()
    yield database
    await database.close()
    database.close_blocking()


async def _count(database: SqlDatabase) -> int:
    return len(await database.run(lambda: database.store.list(RunFilter())))


class TestALostAnswer:
    """The server did what it was told and the answer never came, or it was never told: nobody here can know."""

    VERBS: ClassVar[dict[str, tuple[bytes, Callable[[SqlStore], Op[Any]]]]] = {
        "a start": (b"the lost run", lambda store: store.start([new_run("the lost run")])),
        "starts together": (b"COMMIT\x00", lambda store: store.start([new_run("r"), new_run("q")])),
        "a signal": (b"COMMIT\x00", lambda store: store.send([NewSignal("t", "t", "1", "null")])),
    }

    @pytest.mark.parametrize("delivered", [True, False], ids=["done", "not done"])
    @pytest.mark.parametrize("verb", VERBS)
    async def test_a_repeatable_verb_is_done_once_and_its_caller_sees_success(
        self, postgres_url: str, postgres_proxy: TcpProxy, verb: str, delivered: bool
    ) -> None:
        needle, make = self.VERBS[verb]
        async with _opened(postgres_proxy.url(postgres_url)) as database:
            postgres_proxy.cut_at(needle, delivered=delivered)

            outcomes = await database.run(lambda: make(database.store))

            await asyncio.to_thread(postgres_proxy.wait_for_cut)
            # Whether it had been done is not known, so it was asked for again, which the second time creates nothing.
            assert {one.created for one in outcomes} == {not delivered}
            again = await database.run(lambda: make(database.store))
            assert [(one.id, one.created) for one in again] == [(one.id, False) for one in outcomes]

    @pytest.mark.parametrize("delivered", [True, False], ids=["done", "not done"])
    async def test_a_flush_is_asked_after_instead_of_repeated(
        self, postgres_url: str, postgres_proxy: TcpProxy, delivered: bool
    ) -> None:
        batch = Batch(records=((RunId("r"), step(0, "needle in the haystack")),), writes=(finished("r"),))
        async with _opened(postgres_proxy.url(postgres_url)) as database:
            await database.run(lambda: database.store.register(A.worker, lease_us=60_000_000, host=""))
            await database.run(lambda: database.store.flush(A, Batch(starts=(new_run("r"),))))
            postgres_proxy.cut_at(b"needle in the haystack", delivered=delivered)

            with pytest.raises(DatabaseUnavailable, match="not known"):
                await database.run(lambda: database.store.flush(A, batch), repeatable=False)

            assert await database.run(lambda: database.store.flushed(A, batch)) is delivered
            if not delivered:
                assert (await database.run(lambda: database.store.flush(A, batch), repeatable=False)).lost == ()
            details = await database.run(lambda: database.store.get(RunId("r"), journal=True))
            assert details is not None
            assert (details.run.output, len(details.journal)) == ("1", 1)


async def test_a_database_that_is_away_is_waited_for(breakable_postgres: PrivatePostgres) -> None:
    url = breakable_postgres.create_database()
    async with _opened(url) as database:
        breakable_postgres.stop(immediate=True)

        starting = asyncio.ensure_future(database.run(lambda: database.store.start([new_run("r")])))
        blocking = asyncio.ensure_future(
            asyncio.to_thread(database.run_blocking, lambda: database.store.start([new_run("q")]))
        )
        await asyncio.to_thread(breakable_postgres.start)

        assert [one.created for one in (*await starting, *await blocking)] == [True, True]
        assert await _count(database) == 2


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
@pytest.mark.parametrize(
    "option", ["sslmod=require", "sslmode=requir", "statement_timeout=soon", "options=-cwork_men=1"]
)
async def test_an_option_of_a_url_that_is_not_known_is_named_at_once(
    postgres_url: str, driver: str, option: str
) -> None:
    """`sslmod=require` came back as an error of the driver's, and some were tried for half a minute."""
    url = f"{postgres_url.replace('postgresql:', f'postgresql+{driver}:')}?{option}"
    name = option.removeprefix("options=-c").partition("=")[0]
    database = open_database(url)

    with pytest.raises(DatabaseUnavailable, match=f"asks for what cannot be|{name} value") as awaited:
        await database.open()
    with pytest.raises(DatabaseUnavailable, match=f"asks for what cannot be|{name} value") as blocking:
        await asyncio.to_thread(database.check_schema_blocking)

    assert name in str(awaited.value)
    assert name in str(blocking.value)
    assert "tried for" not in f"{awaited.value} {blocking.value}"


_GIVEN_UP = r"The database postgresql://\S+/\S+ could not be reached for 0\.2 s"


async def test_a_database_that_stays_away_is_told_when_patience_ends(breakable_postgres: PrivatePostgres) -> None:
    url = breakable_postgres.create_database()
    async with _opened(url) as database:
        breakable_postgres.stop()

        with pytest.raises(DatabaseUnavailable, match=_GIVEN_UP):
            await database.run(lambda: database.store.start([new_run("r")]), patience=0.2)
        with pytest.raises(DatabaseUnavailable, match=_GIVEN_UP):
            await asyncio.to_thread(
                lambda: database.run_blocking(lambda: database.store.start([new_run("r")]), patience=0.2)
            )


async def test_a_link_that_carries_nothing_more_is_given_up(postgres_url: str, postgres_proxy: TcpProxy) -> None:
    async with _opened(postgres_proxy.url(postgres_url)) as database:
        postgres_proxy.stall()

        with pytest.raises(DatabaseUnavailable):
            await database.run(lambda: database.store.start([new_run("r")]), patience=0.3)
        postgres_proxy.let_through()

        assert (await database.run(lambda: database.store.start([new_run("s")])))[0].created


async def test_connections_that_broke_while_idle_are_replaced(postgres: PrivatePostgres, postgres_url: str) -> None:
    async with _opened(postgres_url) as database:
        await asyncio.gather(*(database.run(lambda n=n: database.store.start([new_run(f"r{n}")])) for n in range(5)))
        await _terminate_others(postgres_url)

        found = await asyncio.gather(*(_count(database) for _ in range(5)))

        assert found == [5] * 5


async def _terminate_others(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where datname = current_database() and pid <> pg_backend_pid()"
    )
    await connection.close()


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_cancelled_caller_leaves_no_transaction_open(postgres_url: str, driver: str) -> None:
    reached = asyncio.Event()

    def hanging() -> Op[None]:
        yield Statement(text("select 1"))
        reached.set()
        yield Statement(text("select pg_sleep(60)"))

    def is_over() -> bool:
        """Beside this look no transaction is open."""
        return (
            Tables(postgres_url)(
                "select 1 from pg_stat_activity where datname = current_database() and xact_start is not null "
                "and pid <> pg_backend_pid()"
            )
            == []
        )

    async with _opened(postgres_url.replace("postgresql:", f"postgresql+{driver}:")) as database:
        caller = asyncio.ensure_future(database.run(hanging))
        await reached.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller

        await until_awaited(lambda: asyncio.to_thread(is_over), "the transaction to end")
        assert await _count(database) == 0


async def test_an_operation_that_raises_rolls_back_and_its_connection_serves_on(database_url: str) -> None:
    async with _opened(database_url) as database:

        def raising() -> Op[None]:
            yield from database.store.start([new_run("r"), new_run("q")])
            raise LookupError("no")

        for _ in range(15):
            with pytest.raises(LookupError):
                await database.run(raising)
            with pytest.raises(LookupError):
                await asyncio.to_thread(database.run_blocking, raising)

        assert await _count(database) == 0


async def test_more_callers_than_connections_take_turns(database_url: str) -> None:
    async with _opened(database_url) as database:
        outcomes = await asyncio.gather(
            *(database.run(lambda n=n: database.store.start([new_run(f"r{n}")])) for n in range(60))
        )

        assert sum(one.created for (one,) in outcomes) == 60


async def test_a_database_that_is_stricter_by_default_is_refused_when_it_is_opened(
    postgres: PrivatePostgres, postgres_url: str
) -> None:
    name = postgres_url.rpartition("/")[2]
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(f'alter database "{name}" set default_transaction_isolation = serializable')
    await connection.close()
    database = open_database(postgres_url)

    with pytest.raises(IsolationRefused, match="ALTER ROLE"):
        await database.open()
    with pytest.raises(IsolationRefused, match="ALTER ROLE"):
        await asyncio.to_thread(database.check_schema_blocking)
    await database.close()
    database.close_blocking()


@pytest.mark.parametrize("colour", ["awaiting", "blocking"])
async def test_no_tables_are_made_where_outlast_would_not_work(postgres_url: str, colour: str) -> None:
    """`outlast migrate` made them on servers that are too old and said that all was well; the worker was refused there."""
    name = postgres_url.rpartition("/")[2]
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(f'alter database "{name}" set default_transaction_isolation = serializable')
    database = open_database(postgres_url)

    with pytest.raises(IsolationRefused, match="ALTER ROLE"):
        await (database.migrate() if colour == "awaiting" else asyncio.to_thread(database.migrate_blocking))

    assert await connection.fetchval("select count(*) from pg_namespace where nspname = 'outlast'") == 0
    await connection.close()
    await database.close()
    database.close_blocking()


async def test_a_database_that_becomes_stricter_later_still_serves(postgres_url: str) -> None:
    """Its conflicts are tried again and never reach a caller."""
    async with _opened(postgres_url) as database:
        name = postgres_url.rpartition("/")[2]
        connection = await asyncpg.connect(postgres_url)
        await connection.execute(f'alter database "{name}" set default_transaction_isolation = serializable')
        await connection.close()
        await _terminate_others(postgres_url)

        outcomes = await asyncio.gather(
            *(database.run(lambda n=n: database.store.start([new_run(f"r{n % 5}")])) for n in range(40))
        )

        assert sum(one.created for (one,) in outcomes) == 5


def test_a_missing_driver_is_named_with_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "is_installed", lambda _: False)
    database = open_database("postgresql://nowhere.invalid/x")

    with pytest.raises(DriverMissing, match=r"asyncpg.*outlast\[postgres\]"):
        asyncio.run(database.open())
    with pytest.raises(DriverMissing, match=r"psycopg.*outlast\[postgres\]"):
        database.check_schema_blocking()


async def test_a_wrong_password_or_database_is_told_at_once(postgres_url: str) -> None:
    """On all roads but asyncpg's own the attempts went on for half a minute."""
    awaiting = postgres_url.replace("postgresql://", "postgresql+asyncpg://")
    blocking = postgres_url.replace("postgresql://", "postgresql+psycopg://")
    made: list[tuple[str, Callable[[str], Any]]] = [
        (postgres_url, str), (awaiting, create_async_engine), (blocking, create_engine),
    ]  # fmt: skip
    for url, target in made:
        for wrong in (url.replace("postgres:", "postgres:not"), f"{url}_that_is_not_there"):
            database = open_database(target(wrong))
            with pytest.raises(DatabaseUnavailable, match=r"refused the connection: .*(password|does not exist)"):
                await database.open()
            with pytest.raises(DatabaseUnavailable, match=r"refused the connection: .*(password|does not exist)"):
                await asyncio.to_thread(database.check_schema_blocking)
            await database.close()
            database.close_blocking()


async def test_a_server_that_is_not_there_is_told_while_it_is_still_tried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing was to be seen for the first half minute."""
    monkeypatch.setattr(database_module, "_PATIENCE", 0.2)
    database = open_database("postgresql://ann:secret@127.0.0.1:1/shop?application_name=hidden")

    with pytest.raises(DatabaseUnavailable, match=r"for 0\.2 s"):
        await database.open()
    with pytest.raises(DatabaseUnavailable, match=r"for 0\.2 s"):
        await asyncio.to_thread(database.check_schema_blocking)

    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2, "once for each opening"
    for message in caplog.messages:
        assert "postgresql://ann:***@127.0.0.1:1/shop cannot be reached (" in message
        assert "Trying for 0.2 s" in message
        assert "refused" in message.lower()
        assert "secret" not in message
        assert "hidden" not in message
    await database.close()
    database.close_blocking()


async def test_a_server_that_says_nothing_is_told_of_as_well(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(database_module, "_SILENCE", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        database = open_database(f"postgresql://ann@127.0.0.1:{mute.getsockname()[1]}/shop")
        opening = asyncio.ensure_future(database.open())
        await until_seen(lambda: caplog.messages, "a word about it")
        opening.cancel()
        await asyncio.wait([opening])

    assert "(no answer yet)" in caplog.text
    await database.close()


async def test_a_database_that_answers_is_not_told_of(database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with _opened(database_url):
        pass

    assert caplog.messages == []


def test_a_folder_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path}/no/such/folder/x.db")

    with pytest.raises(DatabaseUnavailable, match="no folder"):
        database.check_schema_blocking()


def test_after_a_fork_parent_and_child_each_go_on_with_connections_of_their_own(
    shared_database_url: str, start_process: StartProcess
) -> None:
    program = start_process(str(FORKING), shared_database_url)

    assert program.wait() == 0, program.output
    assert "child: 200 runs, parent: 200 runs" in program.output


def test_a_database_in_memory_does_not_cross_a_fork(start_process: StartProcess) -> None:
    program = start_process(str(FORKING), "sqlite://")

    assert program.wait() == 0, program.output
    assert "refused: A database in memory" in program.output


def test_sqlite_needs_nothing_that_is_not_required(start_process: StartProcess) -> None:
    program = start_process(str(BARE))

    assert program.wait() == 0, program.output
    assert "created: True" in program.output
