"""A PostgreSQL of one's own: made in a temporary folder, reached on 127.0.0.1 only, gone with the process that made it.

As a module it gives tests `PrivatePostgres`, which they may stop, pause and crash. As a command:

    tools/postgres.py ensure                      see that the server's programs are here, or install them where it may
    tools/postgres.py run [--fsync] -- COMMAND    run COMMAND with OUTLAST_POSTGRES_URL naming an empty database
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self, TypedDict
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

if not __package__:  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from tools.processes import freeze, thaw

OLDEST = 13
_IN_MEMORY = Path("/dev/shm")
_ROOM = 3 * 2**30
HOW_TO_INSTALL = f"""\
The tests need the programs of a PostgreSQL server, version {OLDEST} or later (no running server). Install them:
    Debian, Ubuntu   apt-get install postgresql
    Fedora           dnf install postgresql-server
    macOS            brew install postgresql
or name the folder that holds initdb and postgres in OUTLAST_POSTGRES_BIN."""


class PostgresMissing(Exception):
    """This machine has no PostgreSQL server programs; the message says how to get them."""

    def __init__(self) -> None:
        super().__init__(HOW_TO_INSTALL)


class PostgresFailed(Exception):
    """The server did not start; the message ends with its log."""


def find_binaries() -> Path:
    """The folder that holds `initdb` and `postgres`: the one named, else Debian's newest, else what PATH leads to."""
    for folder in _candidates():
        if (folder / "initdb").exists() and (folder / "postgres").exists() and _major(folder) >= OLDEST:
            return folder
    raise PostgresMissing


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


class _Account(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


def _account() -> _Account:
    """Who the server runs as: ourselves, but never root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise PostgresFailed("PostgreSQL does not run as root, and this machine has no user 'postgres' or 'nobody'.")


class PrivatePostgres:
    """A server that belongs to this process: `with PrivatePostgres() as server: server.create_database()`.

    It ends with this process, even one that is killed: a guard process waits for our end of a pipe to close.
    With `fsync` off a crash of the machine would lose data; a crash of the server, which tests cause, does not.
    """

    def __init__(self, *, fsync: bool = False, settings: Mapping[str, str] | None = None) -> None:
        self.host = "127.0.0.1"
        self.port = 0
        self._binaries = find_binaries()
        self._fsync = fsync
        self._more_settings = settings or {}
        self._password = secrets.token_hex(8)
        self._folder: Path | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._databases = 0
        self._major = _major(self._binaries)
        self._connection: psycopg.Connection | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def is_running(self) -> bool:
        return self._server is not None and self._server.poll() is None

    @property
    def pid(self) -> int:
        """The server's first process, from which all others come."""
        assert self._server is not None
        return self._server.pid

    def url(self, database: str = "postgres", *, port: int | None = None) -> str:
        return f"postgresql://postgres:{self._password}@{self.host}:{port or self.port}/{database}"

    # -- life cycle

    def start(self) -> None:
        """Start it and return when it takes connections; after a stop, on the same port with the same data."""
        if self.is_running:
            return
        if self._folder is None:
            self._create()
        fixed_port = self.port
        for _ in range(5):
            self.port = fixed_port or _free_port()
            if self._launch():
                return
        raise PostgresFailed(f"PostgreSQL did not start.\n{self._log_tail()}")

    def stop(self, *, immediate: bool = False) -> None:
        """Stop it and keep its data; `immediate` leaves it to recover at the next start, as after a crash."""
        if self._server is None:
            return
        self.resume()
        if self._connection is not None:
            self._connection.close()
        for reason in (signal.SIGQUIT,) if immediate else (signal.SIGINT, signal.SIGQUIT):
            self._server.send_signal(reason)
            try:
                self._server.wait(30)
            except subprocess.TimeoutExpired:
                continue
            break
        else:
            self._server.kill()
            self._server.wait()
        self._server = None

    def restart(self, *, immediate: bool = False) -> None:
        self.stop(immediate=immediate)
        self.start()

    def pause(self) -> None:
        """Freeze the server and each of its connections: links stay open, and nothing answers from when this returns."""
        freeze(self.pid)

    def resume(self) -> None:
        """Let a paused server go on; nothing happens to one that is not paused."""
        if self.is_running:
            thaw(self.pid)

    def close(self) -> None:
        """Stop it and remove all it has made. May be called twice."""
        self.stop(immediate=True)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._guard is not None:
            self._guard.communicate()
            self._guard = None

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

    def _place(self) -> str | None:
        """In memory where there is room, which makes a fresh database ten times cheaper; on disk for `fsync`."""
        if self._fsync:
            return "/var/tmp"
        if _IN_MEMORY.is_dir() and shutil.disk_usage(_IN_MEMORY).free > _ROOM:
            return str(_IN_MEMORY)
        # Root's own temporary folder may be closed to the account that the server runs as.
        return "/tmp" if os.geteuid() == 0 else None

    def _create(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="outlast-postgres-", dir=self._place()))
        self._folder = folder
        account = _account()
        os.chown(folder, account.get("user", -1), account.get("group", -1))
        self._guard = subprocess.Popen(
            [sys.executable, __file__, "guard", str(folder)], stdin=subprocess.PIPE, start_new_session=True
        )
        password = folder / "password"
        password.write_text(self._password)
        password.chmod(0o644)
        command = [str(self._binaries / "initdb"), "-D", "data", "-U", "postgres", "-A", "scram-sha-256"]
        command += ["--pwfile", "password", "--encoding", "UTF8", "--locale", "C", "--no-sync"]
        made = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **account
        )
        password.unlink()
        if made.returncode != 0:
            raise PostgresFailed(f"initdb failed.\n{made.stdout}{made.stderr}")

    def _launch(self) -> bool:
        """Start the server's process and wait until it answers; False when it ended instead."""
        assert self._folder is not None
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [str(self._binaries / "postgres"), "-D", "data", *self._settings()],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C at the terminal is ours to handle
                **_account(),
            )
        deadline = time.monotonic() + 60
        while self._server.poll() is None and time.monotonic() < deadline:
            if self._is_ready(self._server.pid):
                return True
            time.sleep(0.01)
        self.stop(immediate=True)
        return False

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

    def _is_ready(self, pid: int) -> bool:
        assert self._folder is not None
        try:
            lines = (self._folder / "data" / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def _log_tail(self) -> str:
        assert self._folder is not None
        return "\n".join((self._folder / "log").read_text(errors="replace").splitlines()[-20:])


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


# -- commands


def ensure() -> int:
    """See that the server's programs are here. As root on Debian, install them."""
    with contextlib.suppress(PostgresMissing):
        find_binaries()
        return 0
    if os.geteuid() != 0 or not shutil.which("apt-get") or "OUTLAST_POSTGRES_BIN" in os.environ:
        raise PostgresMissing
    print("postgres: installing the Debian package postgresql", file=sys.stderr)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", "postgresql"]):
        subprocess.run(
            ["apt-get", "-qq", *command], env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=True
        )
    find_binaries()
    return 0


def run(command: list[str], *, fsync: bool) -> int:
    """Run a command beside a server of its own and return its exit code."""
    with PrivatePostgres(fsync=fsync) as server:
        environment = os.environ | {"OUTLAST_POSTGRES_URL": server.create_database()}
        child = subprocess.Popen(command, env=environment)
        while True:
            # Ctrl-C reaches the command as well; it decides when to end.
            with contextlib.suppress(KeyboardInterrupt):
                return child.wait()


def guard(folder: Path) -> int:
    """Wait until the owner's end of our stdin closes, then end whatever server is left in its folder."""
    sys.stdin.buffer.read()
    with contextlib.suppress(OSError, ValueError, IndexError):
        pid = int((folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        if _lives_in(folder, pid):
            os.kill(pid, signal.SIGQUIT)
            thaw(pid)
        while _lives_in(folder, pid):
            time.sleep(0.01)
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _lives_in(folder: Path, pid: int) -> bool:
    """Whether `pid` is the server of `folder`: a crashed server's number may belong to a stranger by now."""
    link = Path(f"/proc/{pid}/cwd")
    if Path("/proc/self/cwd").exists():
        return link.exists() and link.resolve() == (folder / "data").resolve()
    os.kill(pid, 0)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description="A private PostgreSQL for tests and figures.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("ensure", help="see that the server's programs are here, or install them")
    runner = commands.add_parser("run", help="run a command beside a server of its own")
    runner.add_argument("--fsync", action="store_true", help="make every commit safe from a crash of the machine")
    runner.add_argument("argv", nargs="+", metavar="COMMAND")
    commands.add_parser("guard").add_argument("folder", type=Path)
    chosen = parser.parse_args()
    match chosen.command:
        case "ensure":
            return ensure()
        case "run":
            return run(chosen.argv, fsync=chosen.fsync)
        case _:
            return guard(chosen.folder)


if __name__ == "__main__":
    # A stop asked for by the system is the same as Ctrl-C: what was started is stopped first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main())
    except (PostgresMissing, PostgresFailed) as problem:
        sys.exit(str(problem))
