"""From what an application passes as its database to a `Database`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, cast

from sqlalchemy import Engine

from outlast.errors import InvalidArgument
from outlast.model.connections import ConnectionOptions
from outlast.ports.clock import Clock
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.integrated import Integrated
from outlast.stores.databases.loaded import is_a
from outlast.stores.databases.mysql import (
    mysql_async_engine_database,
    mysql_database,
    mysql_engine_database,
    mysql_pool_database,
)
from outlast.stores.databases.postgresql import (
    async_engine_database,
    engine_database,
    pool_database,
    postgres_database,
)
from outlast.stores.databases.raw_pools import RawPool, raw_pool
from outlast.stores.databases.sqlite import sqlite_database
from outlast.stores.databases.urls import (
    MySQLTarget,
    PostgresTarget,
    SQLiteTarget,
    installation_name,
    parse_url,
    refuse_unquoted,
    shown,
    sqlite_target,
)

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

_Target: TypeAlias = "SQLiteTarget | PostgresTarget | MySQLTarget | RawPool | Engine | AsyncEngine"
_MYSQL: Final = frozenset({"mysql", "mariadb"})
_USUAL: Final = ConnectionOptions()


def open_database(
    target: object,
    *,
    schema: str = "outlast",
    clock: Clock | None = None,
    connections: ConnectionOptions = _USUAL,
) -> SqlDatabase:
    """Return the database; nothing is connected yet, so this may run at import.

    `target` is a URL, an Engine or AsyncEngine of SQLAlchemy, a pool of a driver's, or what an integration passes.
    `schema` names the schema on PostgreSQL, the tables' prefix elsewhere. `clock` replaces the database's clock
    everywhere. `connections` says how connections of ours are made.
    """
    if clock is not None and not callable(getattr(clock, "now", None)):
        raise InvalidArgument(f"clock is a clock such as outlast.testing.ManualClock(); {clock!r} is not.")
    if isinstance(target, Integrated):
        return target.open_outlast(installation_name(schema), clock)
    recognised = _target(target)
    database = _database(recognised, installation_name(schema), clock, connections)
    database.place = _place(recognised)
    return database


def _database(
    target: _Target,
    name: str,
    clock: Clock | None,
    connections: ConnectionOptions,
) -> SqlDatabase:
    match target:
        case SQLiteTarget(path):
            if connections != _USUAL:
                raise InvalidArgument("connections= is about a database server; SQLite has files. Leave it out.")
            return sqlite_database(path, prefix=name, clock=clock)
        case PostgresTarget(url):
            return postgres_database(url, connections, schema=name, clock=clock)
        case MySQLTarget(url):
            return mysql_database(url, connections, prefix=name, clock=clock)
        case RawPool() as pool if pool.url.get_backend_name() in _MYSQL:
            return mysql_pool_database(pool, connections, prefix=name, clock=clock)
        case RawPool() as pool:
            return pool_database(pool, connections, schema=name, clock=clock)
        case Engine() as engine if engine.dialect.name in _MYSQL:
            return mysql_engine_database(engine, prefix=name, clock=clock)
        case Engine() as engine:
            return engine_database(engine, connections, schema=name, clock=clock)
        case engine if engine.dialect.name in _MYSQL:
            return mysql_async_engine_database(engine, connections, prefix=name, clock=clock)
        case engine:
            return async_engine_database(engine, connections, schema=name, clock=clock)


def _place(target: _Target) -> str:
    """Return what to call it in messages: no password, and no options, which may hold one."""
    if isinstance(target, SQLiteTarget):
        return f"sqlite:///{target.path or ''}"
    return shown(target.url)


def _target(target: object) -> _Target:
    # SQLAlchemy's asyncio module asks for greenlet; whoever has no such engine needs neither.
    if not isinstance(target, Engine) and not is_a(target, "sqlalchemy.ext.asyncio", "AsyncEngine"):
        pool = raw_pool(target)
        if pool is None:
            return parse_url(target)
        refuse_unquoted(pool.url)
        return pool
    engine = cast("Engine | AsyncEngine", target)
    refuse_unquoted(engine.url)
    kind = engine.dialect.name
    if kind == "postgresql" or kind in _MYSQL:
        return engine
    if kind != "sqlite":
        raise InvalidArgument(
            f"outlast has no store for {kind} databases; it has for PostgreSQL, MySQL, MariaDB and SQLite."
        )
    file = sqlite_target(engine.url)
    if file.path is None:
        raise InvalidArgument(
            "This engine's SQLite database is in memory: it lives in one connection of the engine's, which outlast cannot "
            "share. Use a file for both, or give outlast one of its own with database='sqlite://'."
        )
    return file
