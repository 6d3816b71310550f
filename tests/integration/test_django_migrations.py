"""Django's migrations make the very tables that `outlast migrate` makes, and either finds what the other has done."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from outlast import Outlast
from outlast.integrations.django import app
from outlast.integrations.django.management.commands import outlast_worker
from outlast.integrations.django.tables import table_name
from support.fix_django import Site, connected_to, entry_of

pytestmark = [pytest.mark.usefixtures("django_site"), pytest.mark.every_database]

COLUMNS = """
    select table_name, ordinal_position, column_name, data_type, is_nullable, column_default, collation_name, is_identity
    from information_schema.columns where table_schema = 'outlast' order by 1, 2
"""
INDEXES = "select indexdef from pg_indexes where schemaname = 'outlast' order by 1"
CONSTRAINTS = """
    select conrelid::regclass::text, conname, pg_get_constraintdef(oid) from pg_constraint
    where connamespace = to_regnamespace('outlast') order by 1, 2
"""


NAMES = {f"outlast_{name}" for name in ("runs", "journal", "waits", "signals", "workers", "migrations")}


def told(command: str, *arguments: str, **options: Any) -> str:
    out = StringIO()
    call_command(command, *arguments, stdout=out, stderr=out, **options)
    return out.getvalue()


def tables() -> list[Any]:
    """All that the database knows of outlast's tables."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("select name, sql from sqlite_master where name like 'outlast%' order by name")
            return cursor.fetchall()
        if connection.vendor == "mysql":
            return [_created(cursor, name) for name in connection.introspection.table_names(cursor) if name in NAMES]
        found: list[Any] = []
        for query in (COLUMNS, INDEXES, CONSTRAINTS):
            cursor.execute(query)
            found += cursor.fetchall()
        return found


def _created(cursor: Any, table: str) -> Any:
    cursor.execute(f"show create table {table}")
    return cursor.fetchone()


def _words(found: list[Any]) -> list[str]:
    """What SQLite keeps is the text of the statement: without its blanks and the case of words."""
    return ["".join(str(row).lower().replace("\\n", "").replace("\\t", "").split()) for row in found]


def test_both_ways_make_the_same_tables(django_site: Site, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    told("migrate", "outlast", verbosity=0)
    by_django = tables()

    if django_site.database == "sqlite":
        other = f"sqlite:///{tmp_path}/other.db"
    else:
        server = "postgres" if django_site.database == "postgresql" else django_site.database
        other = request.getfixturevalue(server).create_database()
    apart = Outlast(other)
    apart.blocking.migrate()
    apart.blocking.close()
    with connected_to({"default": entry_of(other)}):
        by_outlast = tables()

    assert by_django
    assert by_django == by_outlast


@pytest.mark.parametrize("django_site", ["mysql", "mariadb"], indirect=True)
def test_a_migration_leaves_no_lock_on_djangos_connection() -> None:
    """Such a lock lasts as long as its connection; a web process that migrated would have kept all others from it."""
    for make in (
        lambda: told("migrate", "outlast", verbosity=0),
        app.blocking.migrate,
        lambda: told("outlast_migrate"),
    ):
        make()
        with connection.cursor() as cursor:
            cursor.execute("select is_free_lock('outlast:outlast:migrations')")
            assert cursor.fetchone() == (1,)
            for name in NAMES:
                cursor.execute(f"drop table if exists {name}")


def test_after_migrate_there_is_nothing_to_migrate_and_nothing_to_make() -> None:
    told("migrate", "outlast", verbosity=0)

    assert "up to date already" in told("outlast_migrate")
    assert told("makemigrations", "--check", "--dry-run", "outlast") == "No changes detected in app 'outlast'\n"


def test_migrate_finds_what_outlast_has_made() -> None:
    assert "Applied 1" in told("outlast_migrate")
    before = tables()

    told("migrate", "outlast", verbosity=0)

    assert tables() == before


def test_a_migration_can_be_taken_back_and_applied_again() -> None:
    told("migrate", "outlast", verbosity=0)
    before = tables()

    told("migrate", "outlast", "zero", verbosity=0)
    assert tables() == []
    told("migrate", "outlast", verbosity=0)

    assert tables() == before


def test_status_says_what_is_missing_and_what_to_do() -> None:
    with pytest.raises(CommandError, match=r"missing.*needs version 1.*manage\.py migrate") as behind:
        told("outlast_status")

    assert behind.value.returncode == 3


def test_what_goes_wrong_ends_a_command_with_its_words_alone() -> None:
    told("migrate", "outlast", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute(f"drop table {table_name('migrations')}")

    with pytest.raises(CommandError, match=r"^SchemaConflict: There are tables .*Outlast\(schema=") as told_of:
        told("outlast_migrate")

    assert told_of.value.returncode == 1


def test_a_worker_without_its_tables_says_what_to_do() -> None:
    out = StringIO()

    with pytest.raises(CommandError, match=r"^SchemaBehind: .*manage\.py migrate") as told_of:
        call_command("outlast_worker", stdout=out)

    assert told_of.value.returncode == 1
    assert "unapplied migration" in out.getvalue()


def test_a_worker_ends_with_the_exit_code_of_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    out = StringIO()

    async def hurried(given: object, announce: Callable[[str], object]) -> int:
        assert given is app
        announce("Handing back at once.")
        return 1

    monkeypatch.setattr(outlast_worker, "work", hurried)
    with pytest.raises(SystemExit) as ended:
        call_command("outlast_worker", stdout=out)

    assert ended.value.code == 1
    assert out.getvalue().endswith("Handing back at once.\n")


def test_a_plan_of_migrations_says_what_is_made() -> None:
    assert "Bring the tables of outlast to version 1" in told("migrate", "outlast", plan=True)


def test_the_statements_of_a_migration_can_be_printed_and_executed_by_hand(django_site: Site) -> None:
    """`sqlmigrate` prints what a person's own tool may execute; it makes the same tables."""
    printed = told("sqlmigrate", "outlast", "0001")
    taken_back = told("sqlmigrate", "outlast", "0001", backwards=True)
    assert tables() == []

    with connection.cursor() as cursor:
        for statement in filter(str.strip, printed.split(";\n")):
            cursor.execute(statement)
    by_hand = tables()
    with connection.cursor() as cursor:
        for statement in filter(str.strip, taken_back.split(";\n")):
            cursor.execute(statement)
    assert tables() == []
    told("migrate", "outlast", verbosity=0)

    assert _words(by_hand) == _words(tables())


def test_status_counts_runs() -> None:
    from support.django_orders.workflows import fulfil, wait

    told("migrate", "outlast", verbosity=0)
    app.blocking.start_many(fulfil, ["a", "b"])
    app.blocking.cancel(app.blocking.start(wait).id)

    said = told("outlast_status")

    assert "version 1, up to date" in said
    assert [line.split() for line in said.splitlines()[1:]] == [["pending", "3"]]
