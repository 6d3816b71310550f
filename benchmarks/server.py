"""A PostgreSQL of the benchmark's own: durable, with counters of statements, gone at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg

from tools.postgres import PrivatePostgres

FOLDER: Final = Path("/var/tmp")
"""Where the databases lie: on a disk, where `/tmp` may be memory."""
SETTINGS: Final = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "1GB",
    "max_connections": "200",
    "max_wal_size": "8GB",
    "shared_preload_libraries": "pg_stat_statements",
}


@contextlib.contextmanager
def running_server() -> Iterator[PrivatePostgres]:
    """Start it and stop it at the end, whatever happens."""
    with PrivatePostgres(fsync=True, settings=SETTINGS) as server:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("create extension pg_stat_statements")
        yield server


@contextlib.contextmanager
def empty_database(server: PrivatePostgres) -> Iterator[str]:
    """A database of which the URL is given, dropped at the end."""
    url = server.create_database()
    try:
        yield url
    finally:
        server.drop_database(url)


def server_version(server: PrivatePostgres) -> str:
    with psycopg.connect(server.url()) as connection:
        row = connection.execute("show server_version").fetchone()
        return str(row[0]) if row else "unknown"
