"""The tables come from one version to the next: once, under a lock, and never over somebody else's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import DDL, Engine, create_engine, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import ExecutableDDLElement

from outlast.errors import SchemaBehind, SchemaConflict
from outlast.ports.operation import Op, Statement
from outlast.ports.store import NewSignal
from outlast.stores.basis import make_basis
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database
from outlast.stores.dialects.postgresql import PostgreSQL
from outlast.stores.dialects.sqlite import SQLite
from outlast.stores.migrations import runner
from outlast.stores.migrations.runner import LATEST, MIGRATIONS, Migration, migrate
from outlast.stores.tables import Tables, make_tables
from outlast.testing.contract.desk import new_run
from support.interleaving import Answer, arena_over


@pytest.fixture
def engine(shared_database_url: str) -> Iterator[Engine]:
    """Somebody else's way into the same database."""
    made = create_engine(shared_database_url.replace("postgresql://", "postgresql+psycopg://"))
    yield made
    made.dispose()


def _execute(engine: Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


def _found(engine: Engine, name: str) -> dict[str, Any]:
    """Every table of an installation, with its columns, keys and indexes, as the database describes them."""
    schema = name if engine.dialect.name == "postgresql" else None
    seen = inspect(engine)
    described: dict[str, Any] = {}
    for table in sorted(seen.get_table_names(schema=schema)):
        if schema is None and not table.startswith(f"{name}_"):
            continue
        bare = table.removeprefix(f"{name}_")
        described[bare] = {
            "columns": [(c["name"], str(c["type"]), c["nullable"]) for c in seen.get_columns(table, schema=schema)],
            "key": seen.get_pk_constraint(table, schema=schema)["constrained_columns"],
            "indexes": sorted(
                (str(i["name"]).removeprefix(f"{name}_"), tuple(map(str, i["column_names"])), bool(i["unique"]))
                for i in seen.get_indexes(table, schema=schema)
            ),
        }
    return described


async def test_migrating_applies_what_is_missing_and_then_nothing(shared_database_url: str) -> None:
    database = open_database(shared_database_url)

    with pytest.raises(SchemaBehind) as behind:
        await database.check_schema()
    assert (behind.value.schema, behind.value.found, behind.value.needed) == ("outlast", 0, LATEST)
    assert await database.migrate() == tuple(migration.version for migration in MIGRATIONS)
    assert await database.migrate() == ()
    await database.check_schema()
    await database.close()


def test_blocking_callers_migrate_and_check_alike(shared_database_url: str) -> None:
    database = open_database(shared_database_url)

    with pytest.raises(SchemaBehind):
        database.check_schema_blocking()
    assert database.migrate_blocking() == tuple(range(1, LATEST + 1))
    database.check_schema_blocking()
    database.close_blocking()


async def test_what_statements_know_is_what_the_migrations_made(shared_database_url: str, engine: Engine) -> None:
    database = open_database(shared_database_url)
    await database.migrate()
    await database.close()
    kind = PostgreSQL if engine.dialect.name == "postgresql" else SQLite
    tables = make_basis("outlast", kind, None).tables

    made = _found(engine, "outlast")

    assert {table.name.removeprefix("outlast_") for table in tables.all} == set(made)
    for table in tables.all:
        found = made[table.name.removeprefix("outlast_")]
        assert [column.name for column in table.columns] == [name for name, _, _ in found["columns"]]
        assert [column.name for column in table.primary_key] == found["key"]
        for column, (_, kept, _) in zip(table.columns, found["columns"], strict=True):
            assert str(column.type).split("(")[0] == kept.split(" COLLATE")[0].replace("INTEGER", str(column.type)), (
                column
            )


async def test_two_installations_live_in_one_database(shared_database_url: str, engine: Engine) -> None:
    mine, yours = (open_database(shared_database_url, schema=name) for name in ("mine", "yours"))
    await mine.migrate()
    with pytest.raises(SchemaBehind):
        await yours.check_schema()
    await yours.migrate()

    await mine.run(lambda: mine.store.start([new_run("r")]))

    assert await yours.run(lambda: yours.store.outcomes([new_run("r").id])) == {}
    assert _found(engine, "mine") == _found(engine, "yours")
    for database in (mine, yours):
        await database.close()


async def test_tables_that_somebody_else_made_are_left_alone(shared_database_url: str, engine: Engine) -> None:
    if engine.dialect.name == "postgresql":
        _execute(engine, "create schema outlast", "create table outlast.runs (mine integer)")
    else:
        _execute(engine, "create table outlast_runs (mine integer)")
    database = open_database(shared_database_url)

    with pytest.raises(SchemaConflict, match="runs"):
        await database.migrate()
    with pytest.raises(SchemaConflict):
        await database.check_schema()

    assert list(_found(engine, "outlast")) == ["runs"]
    await database.close()


async def test_other_tables_in_the_same_place_do_not_matter(shared_database_url: str, engine: Engine) -> None:
    if engine.dialect.name == "postgresql":
        _execute(engine, "create schema outlast", "create table outlast.orders (mine integer)")
    else:
        _execute(engine, "create table orders (mine integer)", "create table outlast_orders (mine integer)")
    database = open_database(shared_database_url)

    assert await database.migrate() == (1,)
    await database.close()


async def test_a_schema_that_is_ahead_is_served(shared_database_url: str, engine: Engine) -> None:
    database = open_database(shared_database_url)
    await database.migrate()
    table = "outlast.migrations" if engine.dialect.name == "postgresql" else "outlast_migrations"
    _execute(engine, f"insert into {table} (version, name, applied_at) values (999, 'later', 0)")

    await database.check_schema()
    assert await database.migrate() == ()
    assert (await database.run(lambda: database.store.start([new_run("r")])))[0].created
    await database.close()


async def test_a_migration_that_fails_leaves_nothing_of_itself(
    shared_database_url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Migration(2, "broken", _broken, lambda name: _broken(name, schemas=False))
    monkeypatch.setattr(runner, "MIGRATIONS", (*MIGRATIONS, broken))
    monkeypatch.setattr(runner, "LATEST", 2)
    database = open_database(shared_database_url)

    with pytest.raises(Exception, match="nosuch"):
        await database.migrate()

    assert _found(engine, "outlast") == {}
    assert inspect(engine).get_table_names() == []
    await database.close()


def _broken(name: str, *, schemas: bool) -> list[ExecutableDDLElement]:
    return [*MIGRATIONS[0].statements(f"{name}2", schemas=False), _bad()]


def _bad() -> ExecutableDDLElement:
    return DDL("alter table nosuch add column x integer")


async def test_two_migrating_processes_apply_each_version_once(shared_database_url: str) -> None:
    async with arena_over(shared_database_url) as arena:
        tables = make_tables("again", schemas=arena.database._basis.dialect.has_schemas)

        async def given() -> None:
            await arena.database.run(lambda: _dropped(arena.database, tables))

        async def then(first: Answer, second: Answer) -> None:
            assert sorted([first, second]) == [(), (1,)]

        basis = make_basis("again", type(arena.database._basis.dialect), None)
        await arena.every_interleaving(
            lambda _: migrate(basis), lambda _: migrate(basis), given=given, then=then, most_switches=1
        )
        assert arena.schedules > 1


def _dropped(database: SqlDatabase, tables: Tables) -> Op[None]:
    if database._basis.dialect.has_schemas:
        yield Statement(text("drop schema if exists again cascade"))
    else:
        for table in tables.all:
            yield Statement(text(f"drop table if exists {table.name}"))


async def test_ten_processes_that_start_on_an_empty_database_all_serve(shared_database_url: str) -> None:
    databases = [open_database(shared_database_url) for _ in range(10)]

    applied = await asyncio.gather(*(database.migrate() for database in databases))

    assert sorted(applied) == [()] * 9 + [(1,)]
    for database in databases:
        await database.check_schema()
        await database.close()


class TestARoleWithoutTheRightToChangeTables:
    @pytest.fixture
    def owner(self, postgres_url: str) -> Iterator[Engine]:
        engine = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
        _execute(engine, "drop role if exists plain", "create role plain login password 'plain'")
        yield engine
        _execute(engine, "drop owned by plain", "drop role plain")
        engine.dispose()

    @pytest.fixture
    def plain(self, owner: Engine) -> SqlDatabase:
        url = owner.url.set(username="plain", password="plain", drivername="postgresql")
        return open_database(url.render_as_string(hide_password=False))

    async def test_it_works_once_the_tables_are_up_to_date(
        self, owner: Engine, plain: SqlDatabase, postgres_url: str
    ) -> None:
        owning = open_database(postgres_url)
        await owning.migrate()
        _execute(
            owner,
            "grant usage on schema outlast to plain",
            "grant select, insert, update, delete on all tables in schema outlast to plain",
        )

        await plain.open()
        assert await plain.migrate() == ()
        await plain.check_schema()
        assert (await plain.run(lambda: plain.store.start([new_run("r")])))[0].created
        await plain.close()
        await owning.close()

    async def test_it_is_told_who_must_migrate(self, owner: Engine, plain: SqlDatabase) -> None:
        with pytest.raises(SchemaBehind) as behind:
            await plain.migrate()

        assert "plain" in "".join(behind.value.__notes__)
        with pytest.raises(DBAPIError):
            _execute(owner, "select * from outlast.runs")
        await plain.close()


async def test_ids_go_on_beyond_32_bits(shared_database_url: str, engine: Engine) -> None:
    database = open_database(shared_database_url)
    await database.migrate()
    if engine.dialect.name == "postgresql":
        _execute(engine, "alter sequence outlast.signals_id_seq restart with 2147483646")
    else:
        _execute(engine, "insert into sqlite_sequence (name, seq) values ('outlast_signals', 2147483645)")

    sent = await database.run(lambda: database.store.send([NewSignal("t", "t", str(n), "null") for n in range(4)]))

    assert [one.id for one in sent] == [2147483646 + n for n in range(4)]
    await database.close()


def test_the_numbers_of_versions_have_no_gaps() -> None:
    assert [migration.version for migration in MIGRATIONS] == list(range(1, LATEST + 1))
