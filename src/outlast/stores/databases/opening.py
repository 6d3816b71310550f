"""From what an application passes as its database to a `Database`."""

from __future__ import annotations

from typing import assert_never

from outlast.ports.clock import Clock
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.sqlite import sqlite_database
from outlast.stores.databases.urls import PostgresTarget, SQLiteTarget, installation_name, parse_url


def open_database(target: object, *, schema: str = "outlast", clock: Clock | None = None) -> SqlDatabase:
    """Return the database; nothing is connected yet, so this may run at import.

    `target` is a URL, an SQLAlchemy Engine or an AsyncEngine. `schema` names the schema on PostgreSQL, the tables' prefix
    on SQLite. `clock` replaces the database's clock everywhere.
    """
    name = installation_name(schema)
    match parse_url(str(target)):
        case SQLiteTarget(path):
            return sqlite_database(path, prefix=name, clock=clock)
        case PostgresTarget():
            raise NotImplementedError
        case unexpected:
            assert_never(unexpected)
