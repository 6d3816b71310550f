"""The commands about the tables: make them, compare them with this code, print what would make them."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from sqlalchemy import make_url

from outlast.app import Outlast
from outlast.cli.loading import NotFound, load_app
from outlast.cli.telling import errors_told, say, table
from outlast.client.operating import BEHIND, migrated
from outlast.stores.databases.urls import SQLiteTarget, parse_url, shown
from outlast.stores.migrations.script import KINDS, script

Target = Annotated[
    str | None, typer.Argument(metavar="[MODULE:APP]", help="Where your Outlast(...) is, such as shop.main:app.")
]
Url = Annotated[
    str | None, typer.Option("--url", envvar="OUTLAST_URL", help="The database, in place of an application.")
]
Schema = Annotated[str, typer.Option("--schema", help="With --url: the schema, or the tables' prefix.")]


def migrate(target: Target = None, url: Url = None, schema: Schema = "outlast") -> None:
    """Bring the tables up to date, once, however many run it at the same time."""
    with errors_told(), closing(_app(target, url, schema).blocking) as client:
        say(migrated(client.migrate()))


def status(target: Target = None, url: Url = None, schema: Schema = "outlast") -> None:
    """Compare the tables with this code. Exits with 0 when they are up to date, with 3 when they are missing or older."""
    with errors_told():
        app = _app(target, url, schema)
        with closing(app.blocking) as client:
            found, needed = client.schema_version()
    place = {"where": app.place} if target is None else {"where": target, "database": app.place}
    known = {} if target is None else {"workflows": app.registered}
    missing = "missing: there is no such file" if target is None and _is_absent(url or "") else "missing"
    stands = missing if found == 0 else "older" if found < needed else "newer" if found > needed else "up to date"
    table("Tables of outlast", {**place, "expected": needed, "found": found or "none", "state": stands, **known})
    if found < needed:
        same = same_place(target, url, schema)
        say(f"Bring them up to date with: outlast migrate{same}")
        say(f"See what that would do with: outlast sql{same}")
        if "***" in same:
            say("Put the password where *** stands, or pass the database as OUTLAST_URL.")
        raise typer.Exit(BEHIND)


def sql(
    target: Target = None,
    url: Url = None,
    schema: Schema = "outlast",
    kind: Annotated[
        str | None, typer.Option("--dialect", help=f"Without a database: {', '.join(KINDS)}; from nothing, or --since.")
    ] = None,
    since: Annotated[int, typer.Option("--since", min=0, help="With --dialect: the version that is there.")] = 0,
) -> None:
    """Print the statements that bring the tables up to date, for a person's own tool. Executes nothing."""
    with errors_told():
        if kind is None and since:
            raise NotFound(
                "--since goes with --dialect; an application or a database says itself which version it has."
            )
        if kind is None:
            with closing(_app(target, url, schema).blocking) as client:
                statements = client.migration_statements()
        elif target is not None:
            raise NotFound(f"--dialect asks no database: leave {target} out, and name its schema with --schema.")
        elif kind in KINDS:
            statements = script(kind, schema, since=since)
        else:
            raise NotFound(f"There is no dialect {kind!r}; there are {', '.join(KINDS)}.")
    if not statements:
        say("The tables are up to date: there is nothing to do.", err=True)
    for statement in statements:
        sys.stdout.write(f"{statement};\n\n")


def same_place(target: str | None, url: str | None, schema: str) -> str:
    """Return the arguments that name the same tables once more, as they are written in a shell; without a password."""
    if target is not None:
        return f" {shlex.quote(target)}"
    told = shown(make_url(url or ""), options=True)
    arguments = "" if os.environ.get("OUTLAST_URL") == url else f" --url {shlex.quote(told)}"
    return arguments if schema == "outlast" else f"{arguments} --schema {shlex.quote(schema)}"


def _is_absent(url: str) -> bool:
    found = parse_url(url)
    return isinstance(found, SQLiteTarget) and found.path is not None and not Path(found.path).exists()


def _app(target: str | None, url: str | None, schema: str) -> Outlast:
    if target is not None:
        if schema != "outlast":
            raise NotFound(
                f"--schema goes with --url; {target} says itself where its tables are. Leave one of them out."
            )
        return load_app(target)
    if url is None:
        raise NotFound("Name an application (such as shop.main:app), or a database with --url or OUTLAST_URL.")
    return Outlast(url, schema=schema, worker=False, migrate=False)
