"""Database servers of the benchmark's own: durable, with counters of statements, gone at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import psycopg

from benchmarks.plan import database_of
from tools.mariadb import PrivateMariaDB
from tools.mysql import PrivateMySQL
from tools.postgres import PrivatePostgres

Server: TypeAlias = PrivatePostgres | PrivateMySQL

FOLDER: Final = Path("/var/tmp")
"""Where the databases lie: on a disk, where `/tmp` may be memory."""
_INNODB: Final = {
    "innodb-flush-log-at-trx-commit": "1",
    "innodb-buffer-pool-size": "1G",
    # A second log, which PostgreSQL does not have; without replicas nobody reads it.
    "skip-log-bin": "",
}
SETTINGS: Final[dict[str, dict[str, str]]] = {
    "postgresql": {
        "fsync": "on",
        "synchronous_commit": "on",
        "shared_buffers": "1GB",
        "max_connections": "200",
        "max_wal_size": "8GB",
        "shared_preload_libraries": "pg_stat_statements",
    },
    "mysql": {**_INNODB, "innodb-redo-log-capacity": "8G"},
    "mariadb": {**_INNODB, "innodb-log-file-size": "8G"},
}
"""By kind of database."""


@contextlib.contextmanager
def running_servers(systems: list[str]) -> Iterator[Mapping[str, Server]]:
    """Start the servers that these systems are measured on, by kind; stop them at the end, whatever happens."""
    kinds = {database_of(system) for system in systems}
    with contextlib.ExitStack() as stack:
        yield {kind: stack.enter_context(_server(kind)) for kind in SETTINGS if kind in kinds}


@contextlib.contextmanager
def _server(kind: str) -> Iterator[Server]:
    if kind == "postgresql":
        with PrivatePostgres(fsync=True, settings=SETTINGS[kind]) as server:
            with psycopg.connect(server.url(), autocommit=True) as connection:
                connection.execute("create extension pg_stat_statements")
            yield server
    else:
        program = PrivateMariaDB if kind == "mariadb" else PrivateMySQL
        with program(fsync=True, settings=SETTINGS[kind]) as server:
            yield server


@contextlib.contextmanager
def empty_database(server: Server) -> Iterator[str]:
    """A database of which the URL is given, dropped at the end."""
    url = server.create_database()
    try:
        yield url
    finally:
        server.drop_database(url)


def version(server: Server) -> str:
    if isinstance(server, PrivateMySQL):
        return str(server.execute("select version()")[0][0])
    with psycopg.connect(server.url()) as connection:
        row = connection.execute("show server_version").fetchone()
        return str(row[0]) if row else "unknown"
