"""A database server of one's own: made in a temporary folder, reached on 127.0.0.1 only, gone with the process that made it.

`PrivateServer` is what `tools.postgres`, `tools.mysql`, `tools.mariadb` and `tools.pgbouncer` have in common: a server with
its folder, which tests may stop, pause and crash; the first three are commands, `ensure` and `run`. As a command this module
is the guard that ends a server whose owner was killed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self, TypedDict

from tools.processes import freeze, thaw

ROOT = Path(__file__).resolve().parents[1]
_IN_MEMORY = Path("/dev/shm")
_ROOM = 3 * 2**30


class ServerMissing(Exception):
    """This machine does not have the server's programs; the message says how to get them."""


class ServerFailed(Exception):
    """The server did not start; the message ends with its log."""


class Account(TypedDict, total=False):
    """Who a server's processes run as, for `subprocess`."""

    user: int
    group: int
    extra_groups: list[int]


def server_account(preferred: str) -> Account:
    """Who the server runs as: ourselves, but never root, which database servers refuse."""
    if os.geteuid() != 0:
        return {}
    for name in (preferred, "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise ServerFailed(f"The server does not run as root, and this machine has no user {preferred!r} or 'nobody'.")


class PrivateServer(ABC):
    """A server that belongs to this process. It ends with it, even if that is killed: a guard process waits for our end of
    a pipe to close."""

    name: ClassVar[str]
    farewell: ClassVar[signal.Signals] = signal.SIGTERM
    """What ends it in good order."""
    crash: ClassVar[signal.Signals] = signal.SIGKILL
    """What ends it at once, with all that came from it."""

    def __init__(self, *, fsync: bool = False, settings: Mapping[str, str] | None = None) -> None:
        self.host = "127.0.0.1"
        self.port = 0
        self._fsync = fsync
        self._more_settings = dict(settings or {})
        self._password = secrets.token_hex(8)
        self._folder: Path | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def folder(self) -> Path:
        assert self._folder is not None
        return self._folder

    @property
    def is_running(self) -> bool:
        return self._server is not None and self._server.poll() is None

    @property
    def pid(self) -> int:
        assert self._server is not None
        return self._server.pid

    # -- what each kind of server does in its own way

    @classmethod
    @abstractmethod
    def ensure(cls) -> int:
        """See that the server's programs are here, or get them where that is possible."""

    @abstractmethod
    def create_database(self) -> str:
        """A fresh, empty database, of which the URL is returned."""

    @abstractmethod
    def _account(self) -> Account: ...

    @abstractmethod
    def _initialise(self, folder: Path) -> None:
        """Make the server's data in `folder / "data"`."""

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """The command that runs the server in the foreground on `self.port`."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether the server takes connections."""

    # -- life cycle

    def start(self) -> None:
        """Start it and return when it takes connections; after a stop, on the same port with the same data."""
        if self.is_running:
            return
        if self._folder is None:
            self._create()
        fixed_port = self.port
        for _ in range(5):
            self.port = fixed_port or free_port()
            if self._launch():
                return
        raise ServerFailed(f"{self.name} did not start.\n{self._log_tail()}")

    def stop(self, *, immediate: bool = False) -> None:
        """Stop it and keep its data; `immediate` leaves it to recover at the next start, as after a crash."""
        if self._server is None:
            return
        self.resume()
        for reason in (self.crash,) if immediate else (self.farewell, self.crash):
            self._server.send_signal(reason)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server.wait(30)
                break
        else:
            self._server.kill()
            self._server.wait()
        self._server = None

    def restart(self, *, immediate: bool = False) -> None:
        self.stop(immediate=immediate)
        self.start()

    def pause(self) -> None:
        """Freeze the server: links stay open, and nothing answers from when this returns."""
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

    # -- starting

    def _place(self) -> str | None:
        """In memory where there is room, which makes a fresh database much cheaper; on disk for `fsync`."""
        if self._fsync:
            return "/var/tmp"
        if _IN_MEMORY.is_dir() and shutil.disk_usage(_IN_MEMORY).free > _ROOM:
            return str(_IN_MEMORY)
        # Root's own temporary folder may be closed to the account that the server runs as.
        return "/tmp" if os.geteuid() == 0 else None

    def _create(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix=f"outlast-{self.name.lower()}-", dir=self._place()))
        self._folder = folder
        account = self._account()
        os.chown(folder, account.get("user", -1), account.get("group", -1))
        self._guard = subprocess.Popen(
            [sys.executable, "-m", "tools.private_server", str(folder), str(self.crash.value)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._initialise(folder)

    def _launch(self) -> bool:
        """Start the server's process and wait until it answers; False when it ended instead."""
        with (self.folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                list(self._command()),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C at the terminal is ours to handle
                **self._account(),
            )
        (self.folder / "pid").write_text(str(self._server.pid))
        deadline = time.monotonic() + 60
        while self._server.poll() is None and time.monotonic() < deadline:
            if self._is_ready():
                return True
            time.sleep(0.02)
        self.stop(immediate=True)
        return False

    def _log_tail(self) -> str:
        return "\n".join((self.folder / "log").read_text(errors="replace").splitlines()[-20:])


def be_command(server: type[PrivateServer], variable: str) -> None:
    """Be the command of one kind of server: `ensure`, or `run` with `variable` naming an empty database."""
    # A stop asked for by the system is the same as Ctrl-C: what was started is stopped first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(_command(server, variable))
    except (ServerMissing, ServerFailed) as problem:
        sys.exit(str(problem))


def _command(server: type[PrivateServer], variable: str) -> int:
    parser = argparse.ArgumentParser(description=f"A private {server.name} for tests and figures.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("ensure", help="see that the server's programs are here, or get them")
    runner = commands.add_parser("run", help="run a command beside a server of its own")
    runner.add_argument("--fsync", action="store_true", help="make every commit safe from a crash of the machine")
    runner.add_argument("argv", nargs="+", metavar="COMMAND")
    chosen = parser.parse_args()
    if chosen.command == "ensure":
        return server.ensure()
    with server(fsync=chosen.fsync) as running:
        child = subprocess.Popen(chosen.argv, env=os.environ | {variable: running.create_database()})
        while True:
            # Ctrl-C reaches the command as well; it decides when to end.
            with contextlib.suppress(KeyboardInterrupt):
                return child.wait()


def apt_install(*packages: str) -> bool:
    """Install Debian packages where that is possible: as root, with apt-get. Returns whether it was tried."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    print(f"installing the Debian packages {' '.join(packages)}", file=sys.stderr)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        subprocess.run(
            ["apt-get", "-qq", *arguments], env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=True
        )
    return True


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _guard(folder: Path, crash: int) -> int:
    """Wait until the owner's end of our stdin closes, then end whatever server is left in its folder."""
    sys.stdin.buffer.read()
    with contextlib.suppress(OSError, ValueError):
        pid = int((folder / "pid").read_text())
        if _lives_in(folder, pid):
            os.kill(pid, crash)
            thaw(pid)  # A server that its owner paused would not hear of it.
        while _lives_in(folder, pid):
            time.sleep(0.01)
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _lives_in(folder: Path, pid: int) -> bool:
    """Whether `pid` is the server of `folder`: a crashed server's number may belong to a stranger by now."""
    if Path("/proc/self/cwd").exists():
        link = Path(f"/proc/{pid}/cwd")
        return link.exists() and folder.resolve() in (link.resolve(), *link.resolve().parents)
    os.kill(pid, 0)
    return True


if __name__ == "__main__":
    sys.exit(_guard(Path(sys.argv[1]), int(sys.argv[2])))
