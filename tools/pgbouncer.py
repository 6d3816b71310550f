"""A PgBouncer of one's own in transaction mode, on 127.0.0.1, before a server of `tools/postgres.py`; gone with its owner.

As a module it gives tests `PrivatePgBouncer`. As a command:

    python -m tools.pgbouncer ensure    see that the program is here, or install it where it may
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit, urlunsplit

from tools.postgres import PrivatePostgres
from tools.private_server import Account, PrivateServer, ServerMissing, apt_install, server_account

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


def find_program() -> str:
    found = shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))
    if found is None:
        raise ServerMissing(HOW_TO_INSTALL)
    return found


class PrivatePgBouncer(PrivateServer):
    """`with PrivatePgBouncer(server) as pooler: connect(pooler.url(server_url))`.

    Four connections to the server are given out in turn, one for each transaction, so whoever leaves something behind on one
    finds it missing, or in the way, at once.
    """

    name: ClassVar[str] = "PgBouncer"

    def __init__(self, server: PrivatePostgres) -> None:
        super().__init__()
        self._program = find_program()
        self._before = server

    def url(self, url: str) -> str:
        """Lead a URL of the server past this."""
        parts = urlsplit(url)
        netloc = parts.netloc.replace(f":{self._before.port}", f":{self.port}")
        return urlunsplit(parts._replace(netloc=netloc))

    def create_database(self) -> str:
        """A fresh, empty database of the server, of which the URL past this is returned."""
        return self.url(self._before.create_database())

    @classmethod
    def ensure(cls) -> int:
        """See that the program is here. As root on Debian, install it; elsewhere say how, and that tests will be left
        out."""
        with contextlib.suppress(ServerMissing):
            find_program()
            return 0
        if not apt_install("pgbouncer"):
            print(HOW_TO_INSTALL, file=sys.stderr)
            return 0
        find_program()
        return 0

    def _account(self) -> Account:
        return server_account("nobody")

    def _initialise(self, folder: Path) -> None:
        password = urlsplit(self._before.url()).password
        _write(folder / "users", f'"postgres" "{password}"\n')

    def _command(self) -> Sequence[str]:
        config = self.folder / "config"
        ports = {"server_port": self._before.port, "port": self.port}
        _write(config, _CONFIG.format(host=self.host, folder=self.folder, **ports))
        return [self._program, str(config)]

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), timeout=1):
            return True
        return False


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o644)


def main() -> int:
    match sys.argv[1:]:
        case ["ensure"]:
            return PrivatePgBouncer.ensure()
        case _:
            print(__doc__, file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main())
