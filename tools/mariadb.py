"""A MariaDB of one's own, for tests and figures. See `tools.private_server`.

python -m tools.mariadb ensure                      see that the server's programs are here, or install them
python -m tools.mariadb run [--fsync] -- COMMAND    run COMMAND with OUTLAST_MARIADB_URL naming an empty database
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from typing import ClassVar

from tools.mysql import PrivateMySQL
from tools.private_server import ServerMissing, apt_install, be_command

OLDEST = (10, 6)
_PLACES = "/usr/sbin:/usr/libexec:/usr/local/sbin:/usr/local/bin:/opt/homebrew/bin"
HOW_TO_INSTALL = """\
The tests need the programs of a MariaDB server, version 10.6 or later (no running server). Install them:
    Debian, Ubuntu   apt-get install mariadb-server
    Fedora           dnf install mariadb-server
    macOS            brew install mariadb
or name the folder that holds mariadbd and mariadb-install-db in OUTLAST_MARIADB_BIN."""


class PrivateMariaDB(PrivateMySQL):
    """`with PrivateMariaDB() as server: server.create_database()`."""

    name: ClassVar[str] = "MariaDB"
    scheme: ClassVar[str] = "mariadb"

    @classmethod
    def ensure(cls) -> int:
        with contextlib.suppress(ServerMissing):
            find_program("mariadbd")
            return 0
        if "OUTLAST_MARIADB_BIN" in os.environ or not apt_install("mariadb-server"):
            raise ServerMissing(HOW_TO_INSTALL)
        find_program("mariadbd")
        return 0

    def _find_program(self) -> list[str]:
        return [find_program("mariadbd"), "--no-defaults"]

    def _data_command(self, data: str) -> list[str]:
        options = ["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-log-bin"]
        return [find_program("mariadb-install-db"), *options, f"--datadir={data}"]

    def _own_settings(self) -> dict[str, str]:
        return {"innodb-log-file-size": "64M"}


def find_program(name: str) -> str:
    """The folder named, else PATH, else where servers usually lie."""
    named = os.environ.get("OUTLAST_MARIADB_BIN")
    found = shutil.which(name, path=named) if named else shutil.which(name) or shutil.which(name, path=_PLACES)
    if found is None or (name == "mariadbd" and _version(found) < OLDEST):
        raise ServerMissing(HOW_TO_INSTALL)
    return found


def _version(program: str) -> tuple[int, ...]:
    shown = subprocess.run([program, "--no-defaults", "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"Ver (\d+)\.(\d+)\.\d+-MariaDB", shown)
    return (int(found[1]), int(found[2])) if found else ()


if __name__ == "__main__":
    be_command(PrivateMariaDB, "OUTLAST_MARIADB_URL")
