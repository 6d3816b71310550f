"""Alembic, for real: tables that it makes are those that outlast makes, and it leaves alone what it should."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, MetaData, create_engine, inspect, text
from sqlalchemy.pool import NullPool

from outlast import Context, InvalidArgument, Outlast, SchemaBehind, workflow
from outlast.integrations.alembic import with_tables, without_tables
from support.alembic_project import Project, engine_url, own_tables


@workflow("hello")
async def hello(ctx: Context, name: str) -> str:
    return f"Hello, {name}!"


def generating(connection: Connection) -> dict[str, Any]:
    return with_tables(own_tables(), connection)


def leaving_alone(_: Connection) -> dict[str, Any]:
    return without_tables(own_tables(), include_name=is_no_system_schema)


def is_no_system_schema(name: str | None, kind: str, _: Any) -> bool:
    """An application that looks at several schemas says at which: a MySQL lists its own among them."""
    return kind != "schema" or name in {None, "outlast"}


_SERVERS = {"postgresql": "postgres", "mysql": "mysql", "mariadb": "mariadb"}


@pytest.fixture(params=["sqlite", *_SERVERS])
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Two empty databases of one kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/one.db", f"sqlite:///{tmp_path}/other.db"
    server = request.getfixturevalue(_SERVERS[request.param])
    return server.create_database(), server.create_database()


def migrate(url: str) -> None:
    app = Outlast(url)
    app.blocking.migrate()
    app.blocking.close()


def accepts(url: str, *, schema: str = "outlast") -> bool:
    """Whether outlast takes the tables for up to date."""
    app = Outlast(url, schema=schema, migrate=False)
    try:
        app.blocking.list()
    except SchemaBehind:
        return False
    finally:
        app.blocking.close()
    return True


def outlast_tables(url: str) -> list[tuple[Any, ...]]:
    """All that the database's own catalog says of our tables."""
    engine = create_engine(engine_url(url), poolclass=NullPool)
    with engine.connect() as connection:
        return [
            tuple(row) for statement in _CATALOG[engine.dialect.name] for row in connection.execute(text(statement))
        ]


_CATALOG = {
    "sqlite": [
        """select type, name, tbl_name, replace(replace(replace(sql, char(10), ''), char(9), ''), ' ', '')
           from sqlite_master where name like 'outlast%' order by name""",
        """select m.name, c.* from sqlite_master m, pragma_table_xinfo(m.name) c
           where m.name like 'outlast%' and m.type = 'table' order by m.name, c.cid""",
    ],
    "postgresql": [
        """select table_name, ordinal_position, column_name, data_type, is_nullable, column_default, collation_name,
                  is_identity, identity_generation
           from information_schema.columns where table_schema = 'outlast' order by 1, 2""",
        "select indexname, indexdef from pg_indexes where schemaname = 'outlast' order by 1",
        """select conrelid::regclass::text, conname, pg_get_constraintdef(oid) from pg_constraint
           where connamespace = 'outlast'::regnamespace order by 1, 2""",
        "select sequencename, start_value, increment_by, cycle from pg_sequences where schemaname = 'outlast'",
    ],
    "mysql": [
        """select table_name, ordinal_position, column_name, column_type, is_nullable, column_default, extra,
                  character_set_name, collation_name
           from information_schema.columns where table_schema = database() and table_name like 'outlast%' order by 1, 2""",
        """select table_name, index_name, seq_in_index, column_name, non_unique
           from information_schema.statistics where table_schema = database() and table_name like 'outlast%'
           order by 1, 2, 3""",
        """select table_name, engine, table_collation from information_schema.tables
           where table_schema = database() and table_name like 'outlast%' order by 1""",
        "select count(*), min(id), max(id) from outlast_locks",
    ],
}
_CATALOG["mariadb"] = _CATALOG["mysql"]
"""What tells of every table, column, type, collation, default, key, index and its condition."""


def test_a_revision_makes_the_tables_that_outlast_makes(urls: tuple[str, str], tmp_path: Path) -> None:
    by_alembic, by_outlast = urls
    project = Project(tmp_path, by_alembic, generating)
    revision = project.autogenerate()
    project.upgrade()
    migrate(by_outlast)

    made = outlast_tables(by_alembic)

    assert "create_table('orders'" in revision, "the application's own table beside them"
    assert made
    assert made == outlast_tables(by_outlast)


async def test_outlast_runs_on_tables_that_alembic_made(urls: tuple[str, str], tmp_path: Path) -> None:
    """Also where the application has none to make with them."""
    url, _ = urls
    project = Project(tmp_path, url, lambda connection: with_tables(MetaData(), connection))
    project.autogenerate()
    project.upgrade()

    async with Outlast(url, workflows=[hello], migrate=False) as app:
        assert await app.start_and_wait(hello, "Ada", wait="20s") == "Hello, Ada!"
        assert await app.migrate() == ()


@pytest.mark.parametrize("made_by", ["alembic", "outlast"])
def test_autogenerate_finds_nothing_to_do_however_they_were_made(
    urls: tuple[str, str], tmp_path: Path, made_by: str
) -> None:
    url, _ = urls
    project = Project(tmp_path, url, generating)
    if made_by == "alembic":
        project.autogenerate()
        project.upgrade()
    else:
        migrate(url)
        assert "outlast" not in project.autogenerate().lower(), "it makes the application's own table alone"
        project.upgrade()

    assert project.differs() is None


def test_autogenerate_sees_a_table_that_was_changed(urls: tuple[str, str], tmp_path: Path) -> None:
    url, _ = urls
    project = Project(tmp_path, url, generating)
    project.autogenerate()
    project.upgrade()
    engine = create_engine(engine_url(url), poolclass=NullPool)
    with engine.begin() as connection:
        names = {"sqlite": "outlast_waits_topic", "postgresql": "outlast.waits_topic"}
        name = names.get(engine.dialect.name, "outlast_waits_topic on outlast_waits")
        connection.execute(text(f"drop index {name}"))

    assert "waits_topic" in (project.differs() or "")


def test_a_downgrade_leaves_nothing(urls: tuple[str, str], tmp_path: Path) -> None:
    url, _ = urls
    project = Project(tmp_path, url, generating)
    project.autogenerate()
    project.upgrade()

    project.downgrade()

    engine = create_engine(engine_url(url), poolclass=NullPool)
    inspector = inspect(engine)
    assert inspector.get_table_names() == ["alembic_version"]
    if engine.dialect.name == "postgresql":
        assert "outlast" not in inspector.get_schema_names()
    assert not accepts(url)


@pytest.mark.parametrize("include_schemas", [False, True])
def test_autogenerate_leaves_alone_what_outlast_has_made(
    urls: tuple[str, str], tmp_path: Path, include_schemas: bool
) -> None:
    url, _ = urls
    migrate(url)
    project = Project(
        tmp_path, url, lambda connection: leaving_alone(connection) | {"include_schemas": include_schemas}
    )

    revision = project.autogenerate()
    project.upgrade()

    assert "orders" in revision
    assert "outlast" not in revision
    assert project.differs() is None
    assert accepts(url)


def test_without_a_word_autogenerate_would_drop_them(urls: tuple[str, str], tmp_path: Path) -> None:
    """What `without_tables` is for. On PostgreSQL only an application with several schemas comes to see them."""
    url, _ = urls
    migrate(url)
    project = Project(tmp_path, url, lambda _: {"target_metadata": own_tables(), "include_schemas": True})

    assert "drop_table" in project.autogenerate()


def test_a_filter_of_the_applications_is_asked_too(urls: tuple[str, str], tmp_path: Path) -> None:
    url, _ = urls
    engine = create_engine(engine_url(url), poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("create table legacy (id integer primary key)"))

    def is_ours(name: str | None, kind: str, _: Any) -> bool:
        return not (kind == "table" and name == "legacy")

    def generating(connection: Connection) -> dict[str, Any]:
        return with_tables(MetaData(), connection, include_name=is_ours)

    def leaving_alone(_: Connection) -> dict[str, Any]:
        return without_tables(MetaData(), include_name=is_ours)

    for number, arguments in enumerate([generating, leaving_alone]):
        (tmp_path / str(number)).mkdir()
        assert "legacy" not in Project(tmp_path / str(number), url, arguments).autogenerate()


IN_OURS, IN_THEIRS, IN_NONE = ({"schema_name": schema} for schema in ("outlast", "theirs", None))


@pytest.mark.parametrize(
    "name, kind, parents, expected",
    [
        ("outlast", "schema", {}, False),
        ("theirs", "schema", {}, True),
        ("outlast_runs", "table", IN_NONE, False),
        ("runs", "table", IN_OURS, False),
        ("runs", "table", IN_NONE, True),  # an application may have such a table itself
        ("workers", "table", IN_THEIRS, True),
        ("outlast", "table", IN_NONE, True),
        ("outlast_runs", "column", IN_THEIRS, True),
        ("legacy", "table", IN_THEIRS, False),
    ],
)
def test_what_is_left_alone_is_outlasts_and_no_more(
    name: str | None, kind: str, parents: dict[str, str | None], expected: bool
) -> None:
    included = without_tables(MetaData(), include_name=lambda name, kind, _: name != "legacy")["include_name"]
    assert included(name, kind, parents) is expected


@pytest.mark.parametrize("has_filter", [False, True])
def test_of_other_schemas_than_outlasts_the_application_says_itself_which_are_looked_at(has_filter: bool) -> None:
    def is_theirs(name: str | None, kind: str, _: Any) -> bool:
        return name == "theirs"

    with create_engine("sqlite://").connect() as connection:
        connection.dialect.name = "postgresql"
        arguments = with_tables(MetaData(), connection, include_name=is_theirs if has_filter else None)
        connection.engine.dispose()
    included = arguments["include_name"]

    schemas = [name for name in (None, "outlast", "theirs") if included(name, "schema", {})]
    assert schemas == (["outlast", "theirs"] if has_filter else [None, "outlast"])
    assert included("runs", "table", IN_OURS), "the filter is not asked of what is outlast's"
    assert included("theirs", "table", IN_NONE)
    assert included("orders", "table", IN_NONE) is not has_filter


def test_another_installation_is_another_one(urls: tuple[str, str], tmp_path: Path) -> None:
    url, _ = urls
    migrate(url)
    project = Project(
        tmp_path,
        url,
        lambda connection: with_tables(
            without_tables(own_tables())["target_metadata"],
            connection,
            schema="billing",
            include_name=without_tables(own_tables())["include_name"],
        ),
    )

    revision = project.autogenerate()
    project.upgrade()

    assert "outlast" not in revision
    assert project.differs() is None
    assert accepts(url, schema="billing")


def test_a_database_that_outlast_has_no_store_for_is_refused() -> None:
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        connection.dialect.name = "oracle"
        with pytest.raises(InvalidArgument, match="oracle"):
            with_tables(MetaData(), connection)
    engine.dispose()
