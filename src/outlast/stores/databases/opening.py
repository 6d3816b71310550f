"""From what an application passes as its database to a `Database`."""

from __future__ import annotations

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from outlast.errors import InvalidArgument
from outlast.ports.clock import Clock
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.postgresql import async_engine_database, engine_database, postgres_database
from outlast.stores.databases.sqlite import sqlite_database
from outlast.stores.databases.urls import PostgresTarget, SQLiteTarget, installation_name, parse_url, sqlite_target


def open_database(target: object, *, schema: str = "outlast", clock: Clock | None = None) -> SqlDatabase:
    """Return the database; nothing is connected yet, so this may run at import.

    `target` is a URL, an SQLAlchemy Engine or an AsyncEngine. `schema` names the schema on PostgreSQL, the tables' prefix
    on SQLite. `clock` replaces the database's clock everywhere.
    """
    name = installation_name(schema)
    match _target(target):
        case SQLiteTarget(path):
            return sqlite_database(path, prefix=name, clock=clock)
        case PostgresTarget(url):
            return postgres_database(url, schema=name, clock=clock)
        case Engine() as engine:
            return engine_database(engine, schema=name, clock=clock)
        case AsyncEngine() as engine:
            return async_engine_database(engine, schema=name, clock=clock)


def _target(target: object) -> SQLiteTarget | PostgresTarget | Engine | AsyncEngine:
    if not isinstance(target, Engine | AsyncEngine):
        return parse_url(target)
    kind = target.dialect.name
    if kind == "postgresql":
        return target
    if kind != "sqlite":
        raise InvalidArgument(f"outlast has no store for {kind} databases; it has for PostgreSQL and SQLite.")
    file = sqlite_target(target.url)
    if file.path is None:
        raise InvalidArgument(
            "This engine's SQLite database is in memory: it lives in one connection of the engine's, which outlast cannot "
            "share. Use a file for both, or give outlast one of its own with database='sqlite://'."
        )
    return file
