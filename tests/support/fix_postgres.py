"""PostgreSQL for tests: a private server for the session, a fresh database for each test.

`postgres_url`        a fresh empty database on the session's server
`postgres`            the session's server itself; create further databases with it, leave it running
`breakable_postgres`  a second server, which a test may stop, restart, pause and crash; whole again for the next test
`postgres_proxy`      a link to the session's server that a test may cut (see `tcp_proxy`)

Without the server's programs these tests are skipped, and the summary says so; in CI (`CI=true`) they fail.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.fix_missing import server_of
from support.tcp_proxy import TcpProxy
from tools.postgres import PrivatePostgres


@pytest.fixture(scope="session")
def postgres(pytestconfig: pytest.Config) -> Iterator[PrivatePostgres]:
    with server_of(PrivatePostgres, pytestconfig) as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PrivatePostgres) -> Iterator[str]:
    url = postgres.create_database()
    yield url
    postgres.drop_database(url)


@pytest.fixture
def postgres_proxy(postgres: PrivatePostgres) -> Iterator[TcpProxy]:
    with TcpProxy(postgres.host, postgres.port) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def _second_postgres(pytestconfig: pytest.Config) -> Iterator[PrivatePostgres]:
    with server_of(PrivatePostgres, pytestconfig) as server:
        yield server


@pytest.fixture
def breakable_postgres(_second_postgres: PrivatePostgres) -> Iterator[PrivatePostgres]:
    _second_postgres.start()
    yield _second_postgres
    _second_postgres.resume()
