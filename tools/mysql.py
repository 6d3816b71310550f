"""A MySQL of one's own, for tests and figures. See `tools.private_server`.

As a module it gives tests `PrivateMySQL`, which they may stop, pause and crash. As a command:

    python -m tools.mysql ensure                      see that the server's programs are here, or fetch them where it may
    python -m tools.mysql run [--fsync] -- COMMAND    run COMMAND with OUTLAST_MYSQL_URL naming an empty database

Few Debian releases have MySQL. Where this machine has none, the packages of a release that does are unpacked into a folder
of their own and run from there by their own loader and libraries: nothing is installed, and no root is needed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pymysql

from tools.debian import archive, unpack
from tools.private_server import Account, PrivateServer, ServerFailed, ServerMissing, be_command, server_account

OLDEST = (8, 4)
HOW_TO_INSTALL = """\
The tests need the programs of a MySQL server, version 8.4 or later (no running server). Install them:
    Debian, Ubuntu   apt-get install mysql-server-core, where the release has it; else `make test` unpacks a copy
    Fedora           dnf install mysql-server
    macOS            brew install mysql
or name the folder that holds mysqld in OUTLAST_MYSQL_BIN."""


class PrivateMySQL(PrivateServer):
    """`with PrivateMySQL() as server: server.create_database()`.

    Without `fsync` a crash of the machine would lose data; a crash of the server, which tests cause, does not.
    """

    name: ClassVar[str] = "MySQL"
    scheme: ClassVar[str] = "mysql"

    def __init__(self, *, fsync: bool = False, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(fsync=fsync, settings=settings)
        self._program = self._find_program()
        self._databases = 0
        self._connection: pymysql.Connection[Any] | None = None

    def url(self, database: str = "", *, port: int | None = None) -> str:
        return f"{self.scheme}://outlast:{self._password}@{self.host}:{port or self.port}/{database}"

    def stop(self, *, immediate: bool = False) -> None:
        if self._connection is not None:
            with contextlib.suppress(pymysql.Error):
                self._connection.close()
            self._connection = None
        super().stop(immediate=immediate)

    # -- databases

    def create_database(self) -> str:
        """A fresh, empty database, of which the URL is returned."""
        self._databases += 1
        name = f"test_{os.getpid()}_{self._databases}"
        self.execute(f"create database {name}")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drop what `create_database` made, whoever is still connected to it."""
        name = urlsplit(url).path.removeprefix("/")
        # Open transactions would be waited for.
        for user in self.execute("show processlist"):
            if user[3] == name:
                with contextlib.suppress(pymysql.Error):
                    self.execute(f"kill {user[0]}")
        self.execute(f"drop database if exists {name}")

    def execute(self, statement: str) -> Sequence[Sequence[Any]]:
        """Execute a statement as the administrator."""
        if self._connection is None or not self._connection.open:
            self._connection = self._connect()
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            rows: Sequence[Sequence[Any]] = cursor.fetchall()
            return rows

    def _connect(self) -> pymysql.Connection[Any]:
        return pymysql.connect(
            host=self.host, port=self.port, user="outlast", password=self._password, autocommit=True, connect_timeout=5
        )

    # -- starting

    @classmethod
    def ensure(cls) -> int:
        """See that the server's programs are here, or fetch them where that is possible."""
        return ensure()

    def _find_program(self) -> list[str]:
        return find_program()

    def _account(self) -> Account:
        return server_account("mysql")

    def _initialise(self, folder: Path) -> None:
        (folder / "init.sql").write_text(
            f"create user if not exists outlast@'%' identified by '{self._password}';\n"
            "grant all on *.* to outlast@'%' with grant option;\n"
        )
        (folder / "init.sql").chmod(0o644)
        scratch = folder / "tmp"
        scratch.mkdir()
        os.chown(scratch, self._account().get("user", -1), self._account().get("group", -1))
        made = subprocess.run(
            self._data_command(str(folder / "data")),
            cwd=folder,
            env=os.environ | {"TMPDIR": str(scratch)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            **self._account(),
        )
        if made.returncode != 0:
            raise ServerFailed(f"{self.name}'s data could not be made.\n{made.stdout}{made.stderr}")

    def _data_command(self, data: str) -> list[str]:
        return [*self._program, "--initialize-insecure", f"--datadir={data}", "--innodb-redo-log-capacity=16M"]

    def _command(self) -> Sequence[str]:
        settings = {
            "datadir": str(self.folder / "data"),
            "socket": str(self.folder / "socket"),
            # A server that starts removes what others have left there, and what others are at work on.
            "tmpdir": str(self.folder / "tmp"),
            "pid-file": str(self.folder / "data" / "server.pid"),
            "port": str(self.port),
            "bind-address": self.host,
            "init-file": str(self.folder / "init.sql"),
            "skip-name-resolve": "ON",
            "max-connections": "200",
            "innodb-buffer-pool-size": "128M",
            # Far from UTC and from the whole hour, so that a time zone forgotten anywhere shows.
            "default-time-zone": "+05:45",
            "performance-schema": "OFF",
            **self._own_settings(),
        }
        if not self._fsync:
            # What is committed is with the operating system, which outlives the server.
            settings |= {"innodb-flush-log-at-trx-commit": "2", "innodb-doublewrite": "OFF", "skip-log-bin": ""}
        settings |= self._more_settings
        return [*self._program, *(f"--{name}={value}" if value else f"--{name}" for name, value in settings.items())]

    def _own_settings(self) -> dict[str, str]:
        return {"mysqlx": "OFF", "secure-file-priv": "NULL", "innodb-redo-log-capacity": "64M"}

    def _is_ready(self) -> bool:
        try:
            self._connect().close()
        except pymysql.Error:
            return False
        return True


# -- the server's programs


def find_program() -> list[str]:
    """How mysqld is called: the folder named, else the one on PATH, else the copy that `ensure` unpacked."""
    named = os.environ.get("OUTLAST_MYSQL_BIN")
    for program, options in _candidates(named):
        if _version(program) >= OLDEST:
            return [*program, "--no-defaults", *options]
    raise ServerMissing(HOW_TO_INSTALL)


def _candidates(named: str | None) -> Iterator[tuple[list[str], list[str]]]:
    if named:
        yield [str(Path(named) / "mysqld")], []
        return
    installed = shutil.which("mysqld") or shutil.which("mysqld", path="/usr/sbin:/usr/libexec:/usr/local/mysql/bin")
    if installed:
        yield [installed], []
    if (unpacked_at() / "complete").exists():
        yield _by_its_own_loader(unpacked_at())


def _version(program: Sequence[str]) -> tuple[int, ...]:
    try:
        shown = subprocess.run([*program, "--no-defaults", "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ()
    # MariaDB calls its server mysqld too.
    found = None if "MariaDB" in shown.stdout else re.search(r"Ver (\d+)\.(\d+)", shown.stdout)
    return (int(found[1]), int(found[2])) if found else ()


def unpacked_at() -> Path:
    """Where the copy lies that every checkout of this machine shares."""
    return Path(os.environ.get("OUTLAST_MYSQL_COPY", f"/var/tmp/outlast-mysql-{os.geteuid()}"))


def _by_its_own_loader(root: Path) -> tuple[list[str], list[str]]:
    loader = next(root.glob("usr/lib/*-linux-gnu/ld-linux*.so.*"))
    libraries = sorted({str(library.parent) for library in root.glob("usr/lib/*-linux-gnu/lib*.so*")})
    share = root / "usr/share/mysql"
    program = [str(loader), "--library-path", ":".join(libraries), str(root / "usr/sbin/mysqld")]
    return program, [
        f"--lc-messages-dir={share}",
        f"--character-sets-dir={share / 'charsets'}",
        f"--plugin-dir={root / 'usr/lib/mysql/plugin'}",
    ]


def ensure() -> int:
    """See that the server's programs are here; where apt-get is, unpack a copy of them."""
    with contextlib.suppress(ServerMissing):
        find_program()
        return 0
    source = archive()
    if source is None or "OUTLAST_MYSQL_BIN" in os.environ:
        raise ServerMissing(HOW_TO_INSTALL)
    unpack("sid", "mysql-server-core", unpacked_at(), source=source)
    find_program()
    return 0


if __name__ == "__main__":
    be_command(PrivateMySQL, "OUTLAST_MYSQL_URL")
