"""One test over the servers: PostgreSQL, and MySQL and MariaDB as `fix_stores` says.

`server_url`   a fresh database on the session's server
`link`         the same, reached through a link that the test may cut
`breakable`    a second server, which the test may stop, restart, pause and crash, and a fresh database on it
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from support.tcp_proxy import ANY_ANSWER, COMMIT_MESSAGE, COMMIT_OF_MYSQL, READY_FOR_QUERY, TcpProxy
from tools.mysql import PrivateMySQL
from tools.postgres import PrivatePostgres

_FIXTURES: Final = {"postgresql": "postgres", "mysql": "mysql", "mariadb": "mariadb"}
_SECOND: Final = {"postgresql": "breakable_postgres", "mysql": "breakable_mysql", "mariadb": "breakable_mariadb"}

Server = PrivatePostgres | PrivateMySQL


@dataclass(frozen=True)
class Link:
    """A database, and a link to it that may be cut."""

    server_url: str
    """The database, reached directly."""
    proxy: TcpProxy

    @property
    def url(self) -> str:
        return self.proxy.url(self.server_url)

    @property
    def is_mysql(self) -> bool:
        return not self.server_url.startswith("postgresql")

    @property
    def commit(self) -> bytes:
        """The message that says COMMIT."""
        return COMMIT_OF_MYSQL if self.is_mysql else COMMIT_MESSAGE

    def said(self, text: str) -> bytes:
        """A text as a statement carries it: MySQL's holds its values, with some characters escaped."""
        return (text.replace("\n", "\\n") if self.is_mysql else text).encode()


@dataclass(frozen=True)
class Breakable:
    """A server that may be broken, and a database on it."""

    server: Server
    url: str

    def restart(self) -> None:
        """Crash it and start it again."""
        self.server.restart(immediate=True)


@pytest.fixture
def server_url(request: pytest.FixtureRequest) -> Iterator[str]:
    server = _server(request)
    url = server.create_database()
    yield url
    server.drop_database(url)


@pytest.fixture
def link(request: pytest.FixtureRequest) -> Iterator[Link]:
    server = _server(request)
    url = server.create_database()
    answer = READY_FOR_QUERY if isinstance(server, PrivatePostgres) else ANY_ANSWER
    with TcpProxy(server.host, server.port, answer=answer) as proxy:
        yield Link(url, proxy)
    server.drop_database(url)


@pytest.fixture
def breakable(request: pytest.FixtureRequest) -> Iterator[Breakable]:
    server: Server = request.getfixturevalue(_SECOND[request.param])
    url = server.create_database()
    yield Breakable(server, url)
    server.resume()
    server.start()
    server.drop_database(url)


def _server(request: pytest.FixtureRequest) -> Server:
    server: Server = request.getfixturevalue(_FIXTURES[request.param])
    return server
