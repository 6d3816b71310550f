"""A PostgreSQL of one's own, for tests and figures. See `tools.private_server`.

As a module it gives tests `PrivatePostgres`, which they may stop, pause and crash. As a command:

    tools/postgres.py ensure                      see that the server's programs are here, or install them where it may
    tools/postgres.py run [--fsync] -- COMMAND    run COMMAND with OUTLAST_POSTGRES_URL naming an empty database
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

if not __package__:  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from tools.private_server import (
    Account,
    PrivateServer,
    ServerFailed,
    ServerMissing,
    apt_install,
    be_command,
    server_account,
)

OLDEST = 13
HOW_TO_INSTALL = f"""\
The tests need the programs of a PostgreSQL server, version {OLDEST} or later (no running server). Install them:
    Debian, Ubuntu   apt-get install postgresql
    Fedora           dnf install postgresql-server
    macOS            brew install postgresql
or name the folder that holds initdb and postgres in OUTLAST_POSTGRES_BIN."""


def find_binaries() -> Path:
    """The folder that holds `initdb` and `postgres`: the one named, else Debian's newest, else what PATH leads to."""
    for folder in _candidates():
        if (folder / "initdb").exists() and (folder / "postgres").exists() and _major(folder) >= OLDEST:
            return folder
    raise ServerMissing(HOW_TO_INSTALL)


def _candidates() -> Iterator[Path]:
    named = os.environ.get("OUTLAST_POSTGRES_BIN")
    if named:
        yield Path(named)
        return
    debian = [folder for folder in Path("/usr/lib/postgresql").glob("*/bin") if folder.parent.name.isdecimal()]
    yield from sorted(debian, key=lambda folder: int(folder.parent.name), reverse=True)
    config = shutil.which("pg_config")
    if config:
        yield Path(subprocess.run([config, "--bindir"], capture_output=True, text=True, check=True).stdout.strip())
    initdb = shutil.which("initdb")
    if initdb:
        yield Path(initdb).resolve().parent


def _major(folder: Path) -> int:
    shown = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+)", shown)
    return int(found.group(1)) if found else 0


class PrivatePostgres(PrivateServer):
    """`with PrivatePostgres() as server: server.create_database()`.

    Without `fsync` a crash of the machine would lose data; a crash of the server, which tests cause, does not.
    """

    name: ClassVar[str] = "PostgreSQL"
    farewell: ClassVar[signal.Signals] = signal.SIGINT
    crash: ClassVar[signal.Signals] = signal.SIGQUIT

    def __init__(self, *, fsync: bool = False, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(fsync=fsync, settings=settings)
        self._binaries = find_binaries()
        self._major = _major(self._binaries)
        self._databases = 0
        self._connection: psycopg.Connection | None = None

    def url(self, database: str = "postgres", *, port: int | None = None) -> str:
        return f"postgresql://postgres:{self._password}@{self.host}:{port or self.port}/{database}"

    def stop(self, *, immediate: bool = False) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        super().stop(immediate=immediate)

    # -- databases

    def create_database(self) -> str:
        """A fresh, empty database, of which the URL is returned."""
        self._databases += 1
        name = f"test_{os.getpid()}_{self._databases}"
        statement = sql.SQL("create database {} template template0").format(sql.Identifier(name))
        if self._major >= 15:
            statement += sql.SQL(" strategy file_copy")
        self._admin().execute(statement)
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drop what `create_database` made, whoever is still connected to it."""
        name = urlsplit(url).path.removeprefix("/")
        self._admin().execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))

    def _admin(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.url(), autocommit=True)
        return self._connection

    # -- starting

    @classmethod
    def ensure(cls) -> int:
        """See that the server's programs are here. As root on Debian, install them."""
        with contextlib.suppress(ServerMissing):
            find_binaries()
            return 0
        if "OUTLAST_POSTGRES_BIN" in os.environ or not apt_install("postgresql"):
            raise ServerMissing(HOW_TO_INSTALL)
        find_binaries()
        return 0

    def _account(self) -> Account:
        return server_account("postgres")

    def _initialise(self, folder: Path) -> None:
        password = folder / "password"
        password.write_text(self._password)
        password.chmod(0o644)
        command = [str(self._binaries / "initdb"), "-D", "data", "-U", "postgres", "-A", "scram-sha-256"]
        command += ["--pwfile", "password", "--encoding", "UTF8", "--locale", "C", "--no-sync"]
        made = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            **self._account(),
        )
        password.unlink()
        if made.returncode != 0:
            raise ServerFailed(f"initdb failed.\n{made.stdout}{made.stderr}")

    def _command(self) -> Sequence[str]:
        return [str(self._binaries / "postgres"), "-D", "data", *self._settings()]

    def _settings(self) -> list[str]:
        settings = {
            "listen_addresses": self.host,
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "200",
            # Far from UTC and from the whole hour, so that a time zone forgotten anywhere shows.
            "timezone": "Asia/Kathmandu",
        }
        if not self._fsync:
            settings |= {"fsync": "off", "full_page_writes": "off", "max_wal_size": "256MB"}
        settings |= self._more_settings
        return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]

    def _is_ready(self) -> bool:
        try:
            lines = (self.folder / "data" / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"


if __name__ == "__main__":
    be_command(PrivatePostgres, "OUTLAST_POSTGRES_URL")
