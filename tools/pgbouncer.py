"""A PgBouncer of one's own in transaction mode, on 127.0.0.1, before a server of `tools/postgres.py`; gone with its owner.

As a module it gives tests `PrivatePgBouncer`. As a command:

    python -m tools.pgbouncer ensure    see that the program is here, or install it where it may
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit, urlunsplit

from tools.postgres import PrivatePostgres
from tools.private_server import ServerFailed, ServerMissing, apt_install, free_port, server_account

HOW_TO_INSTALL = """\
The tests of poolers need the program pgbouncer. Install it:
    Debian, Ubuntu   apt-get install pgbouncer
    Fedora           dnf install pgbouncer
    macOS            brew install pgbouncer"""
_CONFIG = """\
[databases]
* = host={host} port={server_port}

[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 4
max_client_conn = 200
server_round_robin = 1
"""
_GUARD = """\
import os, signal, sys
sys.stdin.buffer.read()
try:
    os.kill(int(sys.argv[1]), signal.SIGKILL)
except ProcessLookupError:
    pass
"""


def find_program() -> str:
    found = shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))
    if found is None:
        raise ServerMissing(HOW_TO_INSTALL)
    return found


class PrivatePgBouncer:
    """`with PrivatePgBouncer(server) as pooler: connect(pooler.url(server_url))`.

    Four connections to the server are given out in turn, one for each transaction, so whoever leaves something behind on one
    finds it missing, or in the way, at once.
    """

    def __init__(self, server: PrivatePostgres) -> None:
        self._program = find_program()
        self._server = server
        self._folder = Path(tempfile.mkdtemp(prefix="outlast-pgbouncer-"))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._write()
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [self._program, str(self._folder / "config")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **server_account("nobody"),
            )
        # Should this process be killed, the guard's input ends.
        self._guard = subprocess.Popen(
            [sys.executable, "-c", _GUARD, str(self._process.pid)], stdin=subprocess.PIPE, start_new_session=True
        )
        deadline = time.monotonic() + 30
        while self._process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection((self._server.host, self.port), timeout=1):
                return self
            time.sleep(0.01)
        told = (self._folder / "log").read_text(errors="replace")
        self.close()
        raise ServerFailed(f"PgBouncer did not start.\n{told}")

    def __exit__(self, *exc: object) -> None:
        self.close()

    def url(self, url: str) -> str:
        """Lead a URL of the server past this."""
        parts = urlsplit(url)
        netloc = parts.netloc.replace(f":{self._server.port}", f":{self.port}")
        return urlunsplit(parts._replace(netloc=netloc))

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._guard is not None:
            self._guard.communicate()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _write(self) -> None:
        account = server_account("nobody")
        os.chown(self._folder, account.get("user", -1), account.get("group", -1))
        password = urlsplit(self._server.url()).password
        for name, content in (
            ("users", f'"postgres" "{password}"\n'),
            (
                "config",
                _CONFIG.format(
                    host=self._server.host, server_port=self._server.port, port=self.port, folder=self._folder
                ),
            ),
        ):
            (self._folder / name).write_text(content)
            (self._folder / name).chmod(0o644)


def ensure() -> int:
    """See that the program is here. As root on Debian, install it; elsewhere say how, and that tests will be left out."""
    with contextlib.suppress(ServerMissing):
        find_program()
        return 0
    if not apt_install("pgbouncer"):
        print(HOW_TO_INSTALL, file=sys.stderr)
        return 0
    find_program()
    return 0


def main() -> int:
    match sys.argv[1:]:
        case ["ensure"]:
            return ensure()
        case _:
            print(__doc__, file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main())
