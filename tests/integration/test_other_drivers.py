"""SQLAlchemy over drivers that outlast has none of its own statements for: an engine as the database, `tx=` and steps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pg8000.exceptions  # type: ignore[import-untyped]  # it has no types
import psycopg
import pytest
from sqlalchemy import Connection, Engine, create_engine, make_url, text
from sqlalchemy.orm import Session

from outlast import (
    Context,
    NonRetryable,
    NotATransaction,
    Outlast,
    RunFailed,
    WorkerOptions,
    transactional_step,
    workflow,
)
from outlast.stores.dialects.base import Trouble
from outlast.stores.dialects.postgresql import PostgreSQL
from support.probing import connect_mysql

DRIVERS = {
    "postgresql+psycopg2": "postgres_url",
    "postgresql+pg8000": "postgres_url",
    "mysql+mysqlconnector": "mysql_url",
    "mariadb+mysqlconnector": "mariadb_url",
}


@transactional_step
def note(connection: Connection, order: str) -> str:
    connection.execute(text("insert into orders values (:id)"), {"id": order})
    if order == "refused":
        raise NonRetryable
    return f"\U0001f600 {order}"


@workflow("noting")
async def noting(ctx: Context, order: str) -> str:
    return await note(order)


@pytest.fixture(params=DRIVERS)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    url: str = request.getfixturevalue(DRIVERS[request.param])
    made = create_engine(make_url(url).set(drivername=request.param))
    with made.begin() as connection:
        connection.execute(text("create table orders (id varchar(40) primary key)"))
    yield made
    made.dispose()


async def test_an_engine_over_another_driver_serves_as_the_database_for_tx_and_for_steps(engine: Engine) -> None:
    async with Outlast(engine, workflows=[noting], worker=WorkerOptions(poll="50ms")) as app:
        with Session(engine) as session:
            await app.start(noting, "rolled back", id="rolled back", tx=session)
            session.rollback()
        with Session(engine) as session:
            session.execute(text("insert into orders values ('callers')"))
            await app.start(noting, "committed", id="committed", tx=session)
            with session.begin_nested() as savepoint:
                await app.start(noting, "savepoint", id="savepoint", tx=session)
                savepoint.rollback()
            session.commit()
        with (
            engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
            pytest.raises(NotATransaction, match="AUTOCOMMIT"),
        ):
            await app.start(noting, "alone", tx=connection)

        assert await app.result("committed", timeout="20s") == "\U0001f600 committed"
        with pytest.raises(RunFailed):
            await app.start_and_wait(noting, "refused", timeout="20s")
        assert {run.input for run in (await app.list()).runs} == {"committed", "refused"}
    with engine.begin() as connection:
        assert connection.execute(text("select id from orders order by id")).all() == [("callers",), ("committed",)]


async def test_connections_that_the_server_ends_are_made_anew(engine: Engine) -> None:
    async with Outlast(engine, workflows=[noting], worker=False) as app:
        assert (await app.start(noting, "a", id="a")).created
        _end_sessions(engine)
        assert (await app.start(noting, "b", id="b")).created


def _end_sessions(engine: Engine) -> None:
    """End all of this database."""
    url = engine.url.render_as_string(hide_password=False)
    if engine.dialect.name == "postgresql":
        with psycopg.connect(f"postgresql://{url.partition('://')[2]}", autocommit=True) as admin:
            admin.execute(
                "select pg_terminate_backend(pid, 10000) from pg_stat_activity "
                "where datname = current_database() and pid <> pg_backend_pid()"
            )
        return
    with contextlib.closing(connect_mysql(url)) as killer, killer.cursor() as cursor:
        cursor.execute("select id from information_schema.processlist where db = database() and id <> connection_id()")
        for (session,) in cursor.fetchall():
            cursor.execute(f"kill {session}")


@pytest.mark.parametrize("code, trouble", [("40P01", Trouble.BUSY), ("55P03", Trouble.HELD), ("22021", None)])
def test_what_pg8000_says_is_understood(code: str, trouble: Trouble | None) -> None:
    error = pg8000.exceptions.DatabaseError({"S": "ERROR", "C": code, "M": "as the server says"})

    assert PostgreSQL().trouble(error) is trouble
