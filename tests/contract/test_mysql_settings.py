"""MySQL and MariaDB that are set up otherwise than outlast wants its own connections, and engines whose connections are."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from sqlalchemy import Engine, create_engine, make_url
from sqlalchemy.ext.asyncio import create_async_engine

from outlast import Context, DatabaseUnavailable, NotATransaction, Outlast, workflow
from outlast.model.ids import RunId, WorkerId
from outlast.ports.operation import Op
from outlast.ports.store import Batch, ClaimRequest, NewSignal, Wait
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database
from outlast.stores.sql import SqlStore
from outlast.testing.contract.desk import finished, new_run, parked, step
from support.fix_missing import server_of
from support.probing import Tables, connect_mysql
from tools.mariadb import PrivateMariaDB
from tools.mysql import PrivateMySQL

T = TypeVar("T")
FLAGS = "ANSI,NO_BACKSLASH_ESCAPES,HIGH_NOT_PRECEDENCE,IGNORE_SPACE,NO_UNSIGNED_SUBTRACTION,STRICT_ALL_TABLES"
AWKWARD = json.dumps('it\'s \\ "quoted" || %s :x \n \u00e9 \U0001f600', ensure_ascii=False)


@pytest.mark.parametrize(
    "settings",
    [
        f"sql_mode = '{FLAGS}'",
        "sql_mode = 'TRADITIONAL'",
        "autocommit = 0",
        "{isolation} = 'SERIALIZABLE'",
        "{isolation} = 'READ-UNCOMMITTED'",
        "sql_auto_is_null = 1",
        "foreign_key_checks = 0, unique_checks = 0",
    ],
)
def test_an_engines_connections_may_be_set_up_in_any_way_that_keeps_texts(
    mysqlish: PrivateMySQL, mysqlish_url: str, settings: str
) -> None:
    """They are the application's, and its own statements may want these settings."""
    isolation = "transaction_isolation" if mysqlish.name == "MySQL" else "tx_isolation"
    engine = _engine(mysqlish_url, init_command=f"set session {settings.format(isolation=isolation)}")
    database = open_database(engine)
    database.migrate_blocking()

    _a_run_goes_through(database)

    database.close_blocking()
    engine.dispose()


@pytest.fixture
def contrary(breakable_mysqlish: PrivateMySQL) -> Iterator[str]:
    """A database with another character set, on a server whose usual settings are not what outlast wants."""
    server = breakable_mysqlish
    isolation = "transaction_isolation" if server.name == "MySQL" else "tx_isolation"
    settings = {"sql_mode": "", "default_storage_engine": "MyISAM", isolation: "SERIALIZABLE", "autocommit": 0}
    before = {name: server.execute(f"select @@global.{name}")[0][0] for name in settings}
    url = server.create_database()
    server.execute(f"alter database {url.rpartition('/')[2]} character set latin1 collate latin1_german2_ci")
    _set_globally(server, settings)
    yield url
    _set_globally(server, before)
    server.drop_database(url)


def _set_globally(server: PrivateMySQL, settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        server.execute(f"set global {name} = {value!r}")


def test_connections_of_ours_do_not_go_by_what_is_usual_on_the_server(contrary: str) -> None:
    database = open_database(contrary)
    database.migrate_blocking()
    database.check_schema_blocking()

    _a_run_goes_through(database)

    made = Tables(contrary)(
        "select distinct engine, table_collation like %s from information_schema.tables "
        "where table_schema = database() and table_name like %s",
        "utf8mb4%bin",
        "outlast%",
    )
    assert made == [("InnoDB", 1)]
    database.close_blocking()


@pytest.fixture
def logging_statements(pytestconfig: pytest.Config) -> Iterator[str]:
    """A database on a server that logs statements; others here have no binary log."""
    settings = {"log-bin": "bin", "binlog_format": "STATEMENT"}
    with server_of(PrivateMariaDB, pytestconfig, lambda: PrivateMariaDB(settings=settings)) as server:
        yield server.create_database()


async def test_a_server_that_logs_statements_is_refused_with_what_to_set(logging_statements: str) -> None:
    """It said so of the first write, in words about storage engines."""
    database = open_database(logging_statements)

    with pytest.raises(DatabaseUnavailable, match="Set binlog_format = ROW"):
        await database.open()
    with pytest.raises(DatabaseUnavailable, match="Set binlog_format = ROW"):
        database.check_schema_blocking()

    await database.close()
    database.close_blocking()


NARROW = ["utf8mb3", "latin1"]


@pytest.mark.parametrize("charset", NARROW)
def test_an_engine_whose_connections_cannot_send_every_text_is_refused(mysqlish_url: str, charset: str) -> None:
    """It opened, and the first step that returned an emoji was done again and again."""
    engine = _engine(mysqlish_url, charset=charset)
    database = open_database(engine)

    with pytest.raises(DatabaseUnavailable, match=rf"one in {charset}, .* add \?charset=utf8mb4 to the engine's URL"):
        database.check_schema_blocking()

    engine.dispose()


@pytest.mark.parametrize("road", ["asyncmy", "aiomysql"])
async def test_an_awaiting_engine_is_asked_as_well(mysqlish_url: str, road: str) -> None:
    url = make_url(mysqlish_url)
    engine = create_async_engine(url.set(drivername=f"{url.get_backend_name()}+{road}", query={"charset": "latin1"}))
    database = open_database(engine)

    with pytest.raises(DatabaseUnavailable, match="one in latin1"):
        await database.open()

    await engine.dispose()


@pytest.mark.parametrize("said", [*NARROW, "set names latin1", "set character_set_client = latin1"])
async def test_a_transaction_on_a_connection_that_cannot_send_every_text_is_refused(
    mysqlish_url: str, said: str
) -> None:
    """Whether it was made so or told so later, of which its driver knows nothing: texts came back as others."""
    async with Outlast(mysqlish_url, workflows=[say], worker=False) as app:
        with contextlib.closing(connect_mysql(mysqlish_url, autocommit=False)) as connection:
            if said in NARROW:
                connection.set_character_set(said)
            else:
                connection.query(said)
            with pytest.raises(NotATransaction, match=r"a pymysql.* on a connection in .* pass charset='utf8mb4'"):
                await app.start(say, "\u00e9", tx=connection)
            connection.commit()

        assert (await app.list()).runs == ()


def test_connections_without_conversion_are_fine(mysqlish_url: str) -> None:
    engine = _engine(mysqlish_url, init_command="set character_set_results = null")
    database = open_database(engine)
    database.migrate_blocking()

    _a_run_goes_through(database)

    database.close_blocking()
    engine.dispose()


@workflow("say")
async def say(ctx: Context, text: str) -> str:
    return text


def _engine(url: str, **arguments: object) -> Engine:
    return create_engine(
        url.replace("mysql://", "mysql+pymysql://").replace("mariadb://", "mariadb+pymysql://"), connect_args=arguments
    )


def _a_run_goes_through(database: SqlDatabase) -> None:
    """It is started, claimed, waits for a signal, hears it and ends, and every text comes back as it was."""

    def do(verb: Callable[[SqlStore], Op[T]]) -> T:
        return database.run_blocking(lambda: verb(database.store))

    lease = do(lambda store: store.register(WorkerId("w"), lease_us=10**9, host=""))
    do(lambda store: store.start([new_run("R", input=AWKWARD), new_run("r ", input="1"), new_run("r", input="1")]))
    request = ClaimRequest(lease, 10, (("work", 1),), {})
    assert {run.id for run in do(lambda store: store.claim(request)).runs} == {"R", "r ", "r"}
    writes = (parked("R", Wait("T", 0)), parked("r ", Wait("t", 0)), finished("r", output=AWKWARD))
    records = ((RunId("R"), step(0, "s", AWKWARD)),)
    assert do(lambda store: store.flush(lease, Batch(records=records, writes=writes))).lost == ()
    assert do(lambda store: store.send([NewSignal("T", "T", "d", AWKWARD)]))[0].woken == 1
    (again,) = do(lambda store: store.claim(request)).runs

    assert again.records is not None
    assert (again.input, again.records[0].payload, again.signals[0].payload) == (AWKWARD, AWKWARD, AWKWARD)
    ended = do(lambda store: store.get(RunId("r"), journal=False))
    assert ended is not None
    assert ended.run.output == AWKWARD
