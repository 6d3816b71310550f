"""A role that may change no table: what it needs stands in the docs, does for everything, and is missed at the start."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import async_sessionmaker

from outlast import (
    Context,
    DatabaseUnavailable,
    Outlast,
    SchemaBehind,
    SchemaConflict,
    Signal,
    Status,
    StepContext,
    WorkerOptions,
    step,
    transactional_step,
    workflow,
)
from outlast.stores.databases.opening import open_database
from outlast.stores.dialects.base import RIGHTS
from outlast.testing.store_contract import Case
from support.callers import awaiting_engine
from support.every_statement import EVERY_STATEMENT
from support.probing import Tables, until_awaited
from support.roles import Roles, Server, roles_on

ENDLESS = WorkerOptions(poll="1h", lease="3s")
PATIENT = WorkerOptions(poll="50ms", lease="3s")
TABLES = ("runs", "journal", "waits", "signals", "workers")
paid = Signal("paid", int)
stepped: list[int] = []


@step
async def double(s: StepContext, number: int) -> int:
    stepped.append(number)
    return 2 * number


@transactional_step
async def note(session: Any, number: int) -> int:
    await session.execute(text(f"insert into notes values ({number})"))
    return number


@workflow("order")
async def order(ctx: Context, number: int) -> int:
    doubled = await double(number)
    await ctx.wait_for("payment", ctx.signal(paid, key=str(number)), timeout="1h")
    return await note(doubled)


@workflow("doubling")
async def doubling(ctx: Context, number: int) -> int:
    return await double.named("again")(await double(number))


@pytest.fixture(params=["postgres", "mysql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def roles(server: Server) -> Iterator[Roles]:
    with roles_on(server) as made:
        yield made


@pytest.fixture
def migrated(roles: Roles) -> Roles:
    migrate(roles.deploy)
    return roles


def migrate(url: str) -> None:
    app = Outlast(url)
    assert app.blocking.migrate() == (1,)
    app.blocking.close()


def prefix(roles: Roles) -> str:
    return "outlast." if roles.url.startswith("postgresql") else "outlast_"


@pytest.mark.parametrize("server", ["postgres", "mariadb"], indirect=True)
def test_the_applications_role_executes_every_statement(migrated: Roles) -> None:
    tables = Tables(migrated.url)
    for case in EVERY_STATEMENT:
        for name in TABLES:
            tables(f"delete from {{{name}}}")
        check(case, migrated.app)


def check(case: Case, url: str) -> None:
    try:
        case.check(lambda clock: open_database(url, clock=clock), "awaiting")
    except Exception as error:
        error.add_note(f"In the case {case.name}.")
        raise


async def test_the_applications_role_does_all_that_an_application_does(migrated: Roles) -> None:
    """Two processes: one that works, one that starts and signals; the first is told of it where that can be."""
    migrated.say("create table notes (number int)")
    migrated.say("grant select, insert on notes to app")
    engine = awaiting_engine(migrated.app)
    is_told = migrated.url.startswith("postgresql")
    working = Outlast(
        migrated.app, workflows=[order], worker=ENDLESS if is_told else PATIENT, transactions=async_sessionmaker(engine)
    )
    async with working, Outlast(migrated.app, workflows=[order], worker=False) as client:
        async with engine.begin() as tx:
            handle = await client.start(order, 4, id="four", tx=tx)
        async with engine.begin() as tx:
            await client.signal(paid, 8, key="4", tx=tx)

        assert await handle.result(timeout="20s") == 8

        other = await client.start(order, 5, id="five")
        assert (await client.cancel("five", "no")).accepted
        await until_awaited(lambda: ended(client, other.id), "the cancelled run's end")
        assert [run.id for run in (await client.list(status=Status.COMPLETED)).runs] == ["four"]
    await engine.dispose()
    assert Tables(migrated.url)("select number from notes") == [(8,)]


async def ended(app: Outlast, run_id: str) -> bool:
    run = await app.get(run_id)
    return run is not None and run.status is Status.CANCELLED


def test_rights_that_are_given_afterwards_do_as_well(server: Server, request: pytest.FixtureRequest) -> None:
    is_postgresql = request.node.callspec.params["server"] == "postgres"
    with roles_on(server) as roles:
        if is_postgresql:
            roles.say("alter default privileges for role deploy revoke all on tables from app")
            roles.say("alter default privileges for role deploy revoke all on schemas from app")
        else:
            roles.say("revoke select, insert, update, delete on shop.* from app")
        migrate(roles.deploy)
        roles.block("postgresql, afterwards" if is_postgresql else "mysql, mariadb, table by table")

        app = Outlast(roles.app, workflows=[doubling], worker=False, migrate=False)
        assert app.blocking.start(doubling, 1).created
        assert app.blocking.migrate() == ()
        app.blocking.close()


async def test_a_missing_right_is_told_at_the_start_with_its_table(migrated: Roles) -> None:
    """The app opened, and a worker tried for ever what it could not do."""
    has_schemas = migrated.url.startswith("postgresql")
    if not has_schemas:
        migrated.say("revoke select, insert, update, delete on shop.* from app")
        migrated.block("mysql, mariadb, table by table")
    wanted = {(name, right) for name in TABLES for right in RIGHTS}
    if not has_schemas:
        wanted |= {("locks", "SELECT"), ("locks", "UPDATE"), ("migrations", "SELECT")}
        # Without any right to it the table of versions is not seen at all.
        migrated.say("grant update on shop.outlast_migrations to app")
    for table, right in sorted(wanted):
        name = f"{prefix(migrated)}{table}"
        place = name if has_schemas else f"shop.{name}"
        migrated.say(f"revoke {right} on {place} from app")

        told = await asyncio.to_thread(refusal_blocking, migrated.app)

        assert name in told
        assert right in told
        assert "GRANT" in told.upper()
        if (table, right) == ("runs", "UPDATE"):
            assert await refusal(migrated.app) == told
        migrated.say(f"grant {right} on {place} to app")
    assert await refusal(migrated.app) == ""


async def refusal(url: str) -> str:
    """What opening an app says that has a worker."""
    try:
        await opened(Outlast(url, workflows=[doubling]))
    except DatabaseUnavailable as error:
        return str(error)
    return ""


def refusal_blocking(url: str) -> str:
    with pytest.raises(DatabaseUnavailable) as told, contextlib.closing(Outlast(url).blocking) as client:
        client.list()
    return str(told.value)


async def opened(app: Outlast) -> None:
    async with app:
        pass


async def test_without_a_right_to_the_schema_it_is_told_which_one_to_grant(postgres: Any) -> None:
    with roles_on(postgres) as roles:
        await asyncio.to_thread(migrate, roles.deploy)
        roles.say("revoke usage on schema outlast from app")

        with pytest.raises(DatabaseUnavailable, match=r"denied.*schema outlast.*GRANT USAGE ON SCHEMA"):
            await opened(Outlast(roles.app))


async def test_a_role_that_may_not_connect_is_told_at_once(postgres: Any) -> None:
    with roles_on(postgres) as roles:
        roles.say("revoke connect on database shop from public")

        for driver in ("asyncpg", "psycopg"):
            with pytest.raises(DatabaseUnavailable, match=r"refused the connection: .*permission denied for database"):
                await opened(Outlast(roles.app.replace("postgresql:", f"postgresql+{driver}:")))


async def test_a_role_that_sees_none_of_the_tables_is_told_that_this_may_be_so(migrated: Roles) -> None:
    """MySQL and MariaDB list a role only what it has a right to; PostgreSQL lists all, and denies."""
    if migrated.url.startswith("postgresql"):
        migrated.say("revoke all on all tables in schema outlast from app")
        with pytest.raises(DatabaseUnavailable, match="permission denied for table migrations"):
            await opened(Outlast(migrated.app, migrate=False))
        return
    migrated.say("revoke select, insert, update, delete on shop.* from app")
    migrated.say("create table shop.mine (id int)")
    migrated.say("grant select on shop.mine to app")
    with pytest.raises(SchemaBehind, match="none that this role has a right to"):
        await opened(Outlast(migrated.app, migrate=False))
    with pytest.raises(DatabaseUnavailable, match=r"CREATE command denied.*outlast_migrations"):
        await opened(Outlast(migrated.app))
    migrated.say("grant select on shop.outlast_runs to app")
    with pytest.raises(SchemaConflict, match="this role's right to read it"):
        await opened(Outlast(migrated.app))


async def test_a_role_that_makes_tables_and_may_not_use_them_is_told_as_well(mysqlish: Any) -> None:
    with roles_on(mysqlish) as roles, pytest.raises(DatabaseUnavailable, match=r"DELETE command denied.*outlast_runs"):
        await opened(Outlast(roles.deploy))


async def test_a_right_that_is_taken_away_holds_no_run_and_costs_no_step(
    migrated: Roles, caplog: pytest.LogCaptureFixture
) -> None:
    """The runs whose records were denied were held, for a minute and then for ten, as if they could not be written."""
    stepped.clear()
    table = f"{prefix(migrated)}journal"
    async with Outlast(migrated.app, workflows=[doubling], worker=PATIENT) as app:
        if migrated.url.startswith("postgresql"):
            migrated.say(f"revoke insert on {table} from app")
        else:
            migrated.say("revoke select, insert, update, delete on shop.* from app")
            migrated.block("mysql, mariadb, table by table", leaving_out="outlast_journal")
            migrated.say("grant select on shop.outlast_journal to app")
            end_connections(migrated)
        doing = [asyncio.create_task(app.start_and_wait(doubling, number)) for number in range(5)]
        await until_awaited(lambda: is_told(caplog), "the worker's complaint")

        migrated.say(f"grant select, insert, update, delete on {'' if '.' in table else 'shop.'}{table} to app")

        assert await asyncio.gather(*doing) == [4 * number for number in range(5)]
    assert "is held" not in caplog.text
    assert sorted(stepped) == sorted([*range(5), *(2 * number for number in range(5))])


async def is_told(caplog: pytest.LogCaptureFixture) -> bool:
    return any("denied" in message and "GRANT" in message.upper() for message in caplog.messages)


def end_connections(roles: Roles) -> None:
    """Rights on a whole database are looked at when a connection is made."""
    for process in roles.server.execute("show processlist"):  # type: ignore[union-attr]  # this one is no PostgreSQL
        if process[1] == roles.name("app"):
            roles.say(f"kill {process[0]}")
