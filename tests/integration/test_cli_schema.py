"""`outlast migrate`, `status` and `sql` on the databases that there are."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import MetaData, inspect, make_url
from typer.testing import CliRunner, Result

from outlast import Outlast
from outlast.cli.commands import commands
from outlast.cli.schema import same_place
from outlast.client.operating import BEHIND
from support.callers import blocking_engine

pytestmark = pytest.mark.every_database
TABLES = ("runs", "journal", "waits", "signals", "workers", "migrations")

TILL = """
from outlast import Context, Outlast, workflow

@workflow("count")
async def count(ctx: Context) -> None: ...

@workflow("count", version=2)
async def recount(ctx: Context) -> None: ...

app = Outlast("sqlite:///till.db", workflows=[count, recount])
"""


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(commands, arguments, env={"OUTLAST_URL": None, **environment})


def test_the_tables_are_missing_then_made_then_up_to_date(shared_database_url: str) -> None:
    missing = run("status", "--url", shared_database_url, COLUMNS="300")
    assert missing.exit_code == BEHIND
    assert "missing" in missing.output
    assert "outlast migrate" in missing.output
    url = make_url(shared_database_url)
    assert url.render_as_string() in missing.output  # the password as ***
    assert not url.password or url.password not in missing.output
    assert ("Put the password where *** stands" in missing.output) == bool(url.password)

    assert "Applied 1" in run("migrate", "--url", shared_database_url).output
    assert "up to date already" in run("migrate", "--url", shared_database_url).output

    found = run("status", OUTLAST_URL=shared_database_url, COLUMNS="300")
    assert found.exit_code == 0
    rows = [row.strip("│ ").split("│") for row in found.stdout.splitlines() if "│" in row]
    shown = [("where", url.render_as_string()), ("expected", "1"), ("found", "1"), ("state", "up to date")]
    assert [tuple(cell.strip() for cell in row) for row in rows] == shown
    assert "migrate" not in found.output
    nothing = run("sql", "--url", shared_database_url)
    assert (nothing.stdout, nothing.stderr) == ("", "The tables are up to date: there is nothing to do.\n")


def test_help_and_a_wrong_option_are_told() -> None:
    """Typer before 0.16 fell over both with Click 8.2, and the other commands went on working."""
    for command in ((), ("migrate",), ("worker",)):
        helped = run(*command, "--help")
        assert helped.exit_code == 0
        assert "Usage" in helped.output
    wrong = run("status", "--nosuch")
    assert wrong.exit_code == 2
    assert "No such option" in wrong.output


def test_looking_at_a_file_that_is_not_there_does_not_make_it(tmp_path: Path) -> None:
    """A name that was mistyped left an empty database behind, and whoever looked next found one."""
    url = f"sqlite:///{tmp_path}/typo.db"

    looked = run("status", "--url", url, COLUMNS="300")
    printed = run("sql", "--url", url)

    assert list(tmp_path.iterdir()) == []
    assert looked.exit_code == BEHIND
    assert "there is no such file" in looked.stdout
    assert "CREATE TABLE" in printed.stdout.upper()


def test_a_file_that_is_there_lacks_the_tables_alone(tmp_path: Path) -> None:
    (tmp_path / "shop.db").touch()

    for url in (f"sqlite:///{tmp_path}/shop.db", "sqlite://"):
        looked = run("status", "--url", url, COLUMNS="300")

        assert looked.exit_code == BEHIND
        assert "no such file" not in looked.stdout
        assert re.search(r"found +│ none", looked.stdout)


def test_tables_that_are_newer_than_this_code_are_told_and_are_no_error(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    run("migrate", "--url", url)
    engine = blocking_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("insert into outlast_migrations (version, name, applied_at) values (99, 'later', 0)")
    engine.dispose()

    looked = run("status", "--url", url)

    assert looked.exit_code == 0
    assert "newer" in looked.stdout


def test_an_application_may_be_named_in_the_place_of_a_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "till.py").write_text(TILL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "till", raising=False)

    missing = run("status", "till:app", COLUMNS="300")
    assert missing.exit_code == BEHIND
    assert "till:app" in missing.stdout
    assert "outlast migrate till:app\n" in missing.stdout
    assert "outlast sql till:app\n" in missing.stdout
    assert "no such file" not in missing.stdout
    rows = [
        tuple(cell.strip() for cell in row.strip("│ ").split("│")) for row in missing.stdout.splitlines() if "│" in row
    ]
    assert ("database", f"sqlite:///{tmp_path}/till.db") in rows
    assert ("workflows", "count version 1, count version 2") in rows
    assert "create table" in run("sql", "till:app").stdout.lower()

    assert "Applied 1" in run("migrate", "till:app").stdout
    assert run("status", "till:app").exit_code == 0


@pytest.mark.parametrize("options", [(), ("--schema", "other")])
def test_what_status_names_can_be_run_as_it_stands(tmp_path: Path, options: tuple[str, ...]) -> None:
    url = f"sqlite:///{tmp_path}/my shop.db"
    looked = run("status", "--url", url, *options)
    (named,) = (line for line in looked.stdout.splitlines() if "outlast migrate" in line)

    assert run(*shlex.split(named.partition(": outlast ")[2])).exit_code == 0

    assert run("status", "--url", url, *options).exit_code == 0


def test_what_status_names_shows_no_password_and_names_what_was_named() -> None:
    assert same_place(None, "postgresql://ada:secret@host/shop", "outlast") == " --url 'postgresql://ada:***@host/shop'"
    assert same_place("shop.main:app", None, "outlast") == " shop.main:app"
    options = "?sslmode=require&password=secret"
    told = same_place(None, f"postgresql://ada@host/shop{options}", "outlast")
    assert told == " --url 'postgresql://ada@host/shop?password=***&sslmode=require'"


def test_a_database_of_the_environment_is_not_named_again(tmp_path: Path) -> None:
    assert "outlast migrate\n" in run("status", OUTLAST_URL=f"sqlite:///{tmp_path}/shop.db").stdout


def test_the_printed_statements_make_what_migrate_makes(shared_database_url: str) -> None:
    printed = run("sql", "--url", shared_database_url, "--schema", "by_hand")
    assert printed.exit_code == 0
    engine = blocking_engine(shared_database_url)
    with engine.begin() as connection:
        for statement in printed.stdout.split(";\n\n"):
            if statement.strip():
                connection.exec_driver_sql(
                    statement.replace("%", "%%") if engine.dialect.name != "sqlite" else statement
                )

    assert run("migrate", "--url", shared_database_url, "--schema", "by_itself").exit_code == 0

    assert run("status", "--url", shared_database_url, "--schema", "by_hand").exit_code == 0
    assert _described(engine, "by_hand") == _described(engine, "by_itself")
    engine.dispose()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mysql", "mariadb"])
def test_statements_are_printed_without_a_database_too(kind: str) -> None:
    printed = run("sql", "--dialect", kind)
    assert printed.exit_code == 0
    statements = [statement.strip().lower() for statement in printed.stdout.split(";\n\n")]
    assert [name for name in TABLES if not any(_makes(statement, name) for statement in statements)] == []
    assert sum("migrations (version" in statement for statement in statements) == 1
    newest = run("sql", "--dialect", kind, "--since", "1")
    assert (newest.exit_code, newest.stdout) == (0, "")
    assert "up to date" in newest.stderr


def test_what_is_asked_wrongly_is_told(tmp_path: Path) -> None:
    assert "--url or OUTLAST_URL" in run("status").output
    assert "there are sqlite, postgresql" in run("sql", "--dialect", "oracle").output
    # Nothing is passed over in silence: the tables of another schema would be printed, or made.
    assert "Leave one of them out" in run("migrate", "shop:app", "--schema", "billing").output
    assert "leave shop:app out" in run("sql", "shop:app", "--dialect", "mysql").output
    assert "--since goes with --dialect" in run("sql", "--url", f"sqlite:///{tmp_path}/a.db", "--since", "1").output
    (tmp_path / "other.db").write_text("no database")
    broken = run("status", "--url", f"sqlite:///{tmp_path}/other.db")
    assert broken.exit_code == 1


async def test_an_application_sees_its_version(database_url: str) -> None:
    async with Outlast(database_url, worker=False) as app:
        assert await app.schema_version() == (1, 1)


def _makes(statement: str, table: str) -> bool:
    head = statement.partition("(")[0].split()
    return head[:2] == ["create", "table"] and head[-1].endswith(table)


def _described(engine: Any, name: str) -> dict[str, Any]:
    """Tables with their columns, keys and indexes, named without the installation's name."""
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            rows = connection.exec_driver_sql("select name, sql from sqlite_master where name like ?", (f"{name}_%",))
            made = {row[0].replace(name, "x"): (row[1] or "").replace(name, "x") for row in rows}
        assert len(made) >= len(TABLES)
        return made
    schema = name if engine.dialect.name == "postgresql" else None
    metadata = MetaData(schema=schema)
    metadata.reflect(engine, only=lambda table, _: schema is not None or table.startswith(f"{name}_"))
    found: dict[str, Any] = {}
    for table in metadata.tables.values():
        columns = [(column.name, str(column.type), column.nullable) for column in table.columns]
        indexes = sorted(map(repr, inspect(engine).get_indexes(table.name, schema=schema)))
        found[table.name.replace(name, "x")] = repr((columns, indexes)).replace(name, "x")
    assert len(found) >= len(TABLES)
    return found
