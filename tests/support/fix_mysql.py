"""MySQL and MariaDB for tests, as `fix_postgres` has PostgreSQL: a private server of each for the session.

`mysql_url`, `mariadb_url`    a fresh empty database on the session's server
`mysql`, `mariadb`            the session's server itself; create further databases with it, leave it running
`mysqlish`                    both, one after the other: the server itself
`breakable_mysql`, `breakable_mariadb`, `breakable_mysqlish`
                              a second server of each, which a test may stop, restart, pause and crash
`frugal_url`                  a fresh empty database on either second server, which takes a megabyte at once meanwhile

Without a server's programs these tests are skipped, and the summary names the server; in CI (`CI=true`) they fail.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.fix_missing import server_of
from tools.mariadb import PrivateMariaDB
from tools.mysql import PrivateMySQL

_KINDS: dict[str, type[PrivateMySQL]] = {"mysql": PrivateMySQL, "mariadb": PrivateMariaDB}


@pytest.fixture(scope="session")
def mysql(pytestconfig: pytest.Config) -> Iterator[PrivateMySQL]:
    with server_of(PrivateMySQL, pytestconfig) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb(pytestconfig: pytest.Config) -> Iterator[PrivateMySQL]:
    with server_of(PrivateMariaDB, pytestconfig) as server:
        yield server


@pytest.fixture
def mysql_url(mysql: PrivateMySQL) -> Iterator[str]:
    url = mysql.create_database()
    yield url
    mysql.drop_database(url)


@pytest.fixture
def mariadb_url(mariadb: PrivateMySQL) -> Iterator[str]:
    url = mariadb.create_database()
    yield url
    mariadb.drop_database(url)


@pytest.fixture(scope="session", params=_KINDS)
def mysqlish(request: pytest.FixtureRequest) -> PrivateMySQL:
    server: PrivateMySQL = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def mysqlish_url(mysqlish: PrivateMySQL) -> Iterator[str]:
    url = mysqlish.create_database()
    yield url
    mysqlish.drop_database(url)


@pytest.fixture(scope="session")
def _second_mysql(pytestconfig: pytest.Config) -> Iterator[PrivateMySQL]:
    with server_of(PrivateMySQL, pytestconfig) as server:
        yield server


@pytest.fixture(scope="session")
def _second_mariadb(pytestconfig: pytest.Config) -> Iterator[PrivateMySQL]:
    with server_of(PrivateMariaDB, pytestconfig) as server:
        yield server


@pytest.fixture
def breakable_mysql(_second_mysql: PrivateMySQL) -> Iterator[PrivateMySQL]:
    yield from _whole_again(_second_mysql)


@pytest.fixture
def breakable_mariadb(_second_mariadb: PrivateMySQL) -> Iterator[PrivateMySQL]:
    yield from _whole_again(_second_mariadb)


@pytest.fixture(params=_KINDS)
def breakable_mysqlish(request: pytest.FixtureRequest) -> PrivateMySQL:
    server: PrivateMySQL = request.getfixturevalue(f"breakable_{request.param}")
    return server


@pytest.fixture
def frugal_url(breakable_mysqlish: PrivateMySQL) -> Iterator[str]:
    """A database on a server that takes a megabyte at once."""
    (most,) = breakable_mysqlish.execute("select @@global.max_allowed_packet")
    breakable_mysqlish.execute("set global max_allowed_packet = 1048576")
    url = breakable_mysqlish.create_database()
    yield url
    breakable_mysqlish.execute(f"set global max_allowed_packet = {most[0]}")
    breakable_mysqlish.drop_database(url)


def _whole_again(server: PrivateMySQL) -> Iterator[PrivateMySQL]:
    server.start()
    yield server
    server.resume()
