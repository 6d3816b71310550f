"""What an application may write as `database=`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from outlast.errors import InvalidArgument, InvalidName

_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,39}\Z")
_POSTGRES: Final = frozenset({"postgresql", "postgres", "postgresql+asyncpg", "postgresql+psycopg"})
_SQLITE: Final = frozenset({"sqlite", "sqlite+aiosqlite", "sqlite+pysqlite"})
_MYSQL: Final = frozenset(
    name if driver is None else f"{name}+{driver}"
    for name in ("mysql", "mariadb")
    for driver in (None, "asyncmy", "aiomysql", "pymysql", "mysqldb")
)
_LAST_PORT: Final = 65_535
_FORMS: Final = (
    "postgresql://user@host/database, mysql://user@host/database, mariadb://user@host/database, "
    "sqlite:///file.db, sqlite:////path/to/file.db, sqlite:// (in memory)"
)


_QUOTE: Final = "Write @ as %40 in a password (urllib.parse.quote does)."
_SECRET: Final = re.compile("pass|secret|token", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SQLiteTarget:
    """A file, or a database in memory when `path` is None."""

    path: str | None


@dataclass(frozen=True, slots=True)
class PostgresTarget:
    """A PostgreSQL server and database."""

    url: URL


@dataclass(frozen=True, slots=True)
class MySQLTarget:
    """A MySQL or MariaDB server and database."""

    url: URL


def parse_url(text: object) -> SQLiteTarget | PostgresTarget | MySQLTarget:
    """Read a database URL. A password in it never appears in an error."""
    if not isinstance(text, str):
        raise InvalidArgument(
            "database is a URL, an engine of SQLAlchemy or a pool of asyncpg, psycopg, asyncmy or aiomysql, not "
            f"{type(text).__name__}. Forms of a URL: {_FORMS}. Workflows are passed as workflows=[...]."
        )
    try:
        # SQLAlchemy dropped the short name; PostgreSQL's own programs still take it.
        url = make_url(re.sub(r"\Apostgres://", "postgresql://", text))
    except (ArgumentError, ValueError):
        hint = f" {_QUOTE}" if text.count("@") > 1 else ""
        raise InvalidArgument(f"This is not a database URL.{hint} Forms: {_FORMS}.") from None
    refuse_unquoted(url)
    if url.port is not None and not 1 <= url.port <= _LAST_PORT:
        raise InvalidArgument(f"The port in a database URL is a number from 1 to {_LAST_PORT}; {url.port} is not.")
    if url.drivername in _POSTGRES:
        return PostgresTarget(url)
    if url.drivername in _MYSQL:
        return MySQLTarget(url)
    if url.drivername in _SQLITE:
        return sqlite_target(url)
    taken = _drivers(url.get_backend_name())
    if taken:
        raise InvalidArgument(f"outlast does not go through the driver of {url.drivername}://. Write {taken}.")
    raise InvalidArgument(f"outlast has no store for {url.drivername}:// databases. Forms: {_FORMS}.")


def refuse_unquoted(url: URL) -> None:
    """Raise InvalidArgument for a password with an @ that ends it too early: its rest is where the host should be."""
    beyond = url.password is not None and re.search("@[^/]+/", url.database or "")
    if "@" in (url.host or "") or beyond:
        raise InvalidArgument(
            f"The {url.get_backend_name()} URL has an @ before the one that ends its password. {_QUOTE}"
        )


def shown(url: URL, *, options: bool = False) -> str:
    """Return what to call a database in messages: without its password and, as they may hold one, its options; those that
    do not are kept where `options` are asked for."""
    kept = {name: "***" if _SECRET.search(name) else value for name, value in url.query.items()} if options else {}
    return url.set(query=kept).render_as_string(hide_password=True).replace("%2A%2A%2A", "***")


def in_full(place: str) -> str:
    """Return what a database is called with the full path of a file, as it is found from where the process stands."""
    scheme, slashes, path = place.partition(":///")
    return f"{scheme}{slashes}{Path(path).absolute()}" if scheme == "sqlite" and path else place


def _drivers(name: str) -> str:
    """Return the beginnings of a URL that name a driver of this database, the one that chooses it by itself first."""
    known = {name, *(one for one in (*_POSTGRES, *_MYSQL, *_SQLITE) if one.startswith(f"{name}+"))}
    return ", ".join(f"{one}://" for one in sorted(known)) if len(known) > 1 else ""


def sqlite_target(url: URL) -> SQLiteTarget:
    """Read which file a SQLite URL names."""
    if url.host:
        raise InvalidArgument(
            f"A SQLite URL has three slashes and a relative path, or four and an absolute one; {shown(url)!r} names a host."
        )
    if url.query:
        raise InvalidArgument(f"A SQLite URL for outlast takes no options; {shown(url)!r} has some.")
    path = url.database
    return SQLiteTarget(None if path in (None, "", ":memory:") else path)


def installation_name(name: str) -> str:
    """Check the name of the schema, or of the prefix where there are no schemas."""
    if not _NAME.match(name):
        raise InvalidName(
            f"schema is a name of 1 to 40 characters, a-z, 0-9 and _, not starting with a digit; {name!r} is not."
        )
    return name
