"""The roles of `docs/how-to/roles.md`, made by the statements that stand there."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import psycopg

from support.probing import connect_mysql
from support.project import ROOT
from tools.mysql import PrivateMySQL
from tools.postgres import PrivatePostgres

PAGE: Final = ROOT / "docs" / "how-to" / "roles.md"
_BLOCK: Final = re.compile(r"```sql\n-- (?P<title>[^\n]*)\n(?P<statements>.*?)```", re.DOTALL)
BLOCKS: Final = {found["title"]: found["statements"] for found in _BLOCK.finditer(PAGE.read_text())}
Server = PrivatePostgres | PrivateMySQL


class Roles:
    """A database with the roles `deploy` and `app`. Roles are a server's, so theirs hold the database's name."""

    def __init__(self, server: Server, url: str) -> None:
        self.server = server
        self.url = url
        self.database = urlsplit(url).path[1:]
        self.deploy = self._url_of("deploy")
        self.app = self._url_of("app")

    def block(self, title: str, *, leaving_out: str = "") -> None:
        """Execute what the page says under this title, but for lines that hold a text."""
        for line in BLOCKS[title].split(";\n"):
            if line and not (leaving_out and leaving_out in line):
                self.say(line)

    def say(self, statement: str) -> None:
        """Execute a statement of the page as the administrator, in this database and with its roles' names."""
        text = re.sub(r"\b(deploy|app)\b(?!')", lambda found: self.name(found[1]), statement)
        text = re.sub(r"\bshop\b", self.database, text)
        if isinstance(self.server, PrivatePostgres):
            with psycopg.connect(self.url, autocommit=True) as administrator:
                administrator.execute(text.encode())
        else:
            with connect_mysql(self.url) as connection, connection.cursor() as cursor:
                cursor.execute(text)

    def name(self, role: str) -> str:
        return f"{self.database}_{role}"

    def drop(self) -> None:
        if isinstance(self.server, PrivatePostgres):
            for role in ("app", "deploy"):
                self.say(f"drop owned by {role} cascade")
                self.say(f"drop role {role}")
        else:
            self.say("drop user if exists deploy, app")

    def _url_of(self, role: str) -> str:
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(netloc=f"{self.name(role)}:{role}@{parts.hostname}:{parts.port}"))


@contextmanager
def roles_on(server: Server) -> Generator[Roles]:
    """Make a database and the roles in it."""
    url = server.create_database()
    roles = Roles(server, url)
    roles.block("postgresql" if isinstance(server, PrivatePostgres) else "mysql, mariadb")
    try:
        yield roles
    finally:
        roles.drop()
        server.drop_database(url)
