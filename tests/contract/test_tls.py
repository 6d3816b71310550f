"""TLS by the words of a URL, on real servers with certificates of an authority that no machine knows."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url, text

from outlast import Context, DatabaseUnavailable, InvalidArgument, Outlast, workflow
from outlast.ports.operation import Op, Statement
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.mysql import tls_context
from outlast.stores.databases.opening import open_database
from support.certificates import Authority
from support.processes import StartProcess
from support.project import ROOT
from tools.mariadb import PrivateMariaDB
from tools.mysql import PrivateMySQL
from tools.postgres import PrivatePostgres
from tools.private_server import server_account

AT_ONCE = 15
"""Seconds. Whoever waits for a database that is away waits for 30."""

FORKING = Path(__file__).parent / "forking.py"
PAGE = ROOT / "docs" / "how-to" / "tls.md"
DRIVERS = ("asyncpg", "psycopg")
Answer = Sequence[tuple[str, Any]]


@workflow("greet")
async def greet(ctx: Context, name: str) -> str:
    return f"Hello, {name}"


class Authorities:
    """The one that signed the servers' certificates, for 127.0.0.1, and another one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ours = Authority(folder, "ours")
        self.other = Authority(folder, "other")

    def settings(self, account: dict[str, Any], names: Sequence[str], name: str) -> dict[str, str]:
        issued = self.ours.issue(name, "127.0.0.1", owner=account.get("user", -1), group=account.get("group", -1))
        return dict(zip(names, (str(issued.certificate), str(issued.key), str(self.ours.certificate)), strict=True))


@pytest.fixture(scope="module")
def authorities() -> Iterator[Authorities]:
    """In a folder that the servers' account may read; the tests' own folders are closed to it."""
    with tempfile.TemporaryDirectory(prefix="outlast-tls-") as folder:
        Path(folder).chmod(0o755)
        yield Authorities(Path(folder))


@pytest.fixture(scope="module")
def postgresql(authorities: Authorities, postgres: PrivatePostgres) -> Iterator[PrivatePostgres]:
    """`postgres` is asked for so that a machine without its programs skips this in the way of all others."""
    del postgres
    names = ("ssl_cert_file", "ssl_key_file", "ssl_ca_file")
    settings = authorities.settings(dict(server_account("postgres")), names, "postgresql")
    with PrivatePostgres(settings={"ssl": "on", **settings}) as server:
        yield server


@pytest.fixture(scope="module", params=[PrivateMySQL, PrivateMariaDB], ids=["mysql", "mariadb"])
def mysqlish(request: pytest.FixtureRequest, authorities: Authorities) -> Iterator[PrivateMySQL]:
    """In the place of the servers that all other tests have, so that `mysqlish_url` is on one with TLS."""
    kind: type[PrivateMySQL] = request.param
    request.getfixturevalue(kind.scheme)
    names = ("ssl-cert", "ssl-key", "ssl-ca")
    with kind(settings=authorities.settings(dict(server_account("mysql")), names, kind.scheme)) as server:
        yield server


@pytest.fixture
def url(postgresql: PrivatePostgres) -> Iterator[str]:
    made = postgresql.create_database()
    yield made
    postgresql.drop_database(made)


def is_encrypted(url: str) -> list[bool]:
    """What the server says of an awaiting and of a blocking connection."""
    statement = (
        "select case when ssl then 'TLS' else '' end from pg_stat_ssl where pid = pg_backend_pid()"
        if url.startswith("postgresql")
        else "show session status like 'Ssl_version'"
    )

    def asking() -> Op[bool]:
        found = yield Statement(text(statement), span="alone")
        return bool(found.rows[0][-1])

    database = open_database(url)
    awaited = asyncio.run(once(database, asking))
    blocking = database.run_blocking(asking)
    database.close_blocking()
    return [awaited, blocking]


async def once(database: SqlDatabase, make: Any) -> bool:
    try:
        found: bool = await database.run(make)
        return found
    finally:
        await database.close()


def refusals(url: str) -> list[str]:
    """What awaiting and blocking callers are told, each at once."""
    told: list[str] = []
    for connect in (awaiting, blocking):
        began = time.monotonic()
        with pytest.raises((DatabaseUnavailable, InvalidArgument)) as raised:
            connect(url)
        assert time.monotonic() - began < AT_ONCE
        told.append(str(raised.value))
    return told


def awaiting(url: str) -> None:
    async def opened() -> None:
        async with Outlast(url, workflows=[greet]):
            pass

    asyncio.run(opened())


def blocking(url: str) -> None:
    with Outlast(url, worker=False).blocking:
        pass


def with_host(url: str, host: str) -> str:
    return make_url(url).set(host=host).render_as_string(hide_password=False)


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize(
    "options",
    [
        "",
        "sslmode=require",
        "ssl=require",
        "sslmode=verify-ca&sslrootcert={ours}",
        "sslmode=verify-full&sslrootcert={ours}",
    ],
)
def test_postgresql_is_reached_by_tls(url: str, authorities: Authorities, driver: str, options: str) -> None:
    asked = options.format(ours=authorities.ours.certificate)

    assert is_encrypted(f"{url.replace('postgresql:', f'postgresql+{driver}:')}?{asked}") == [True, True]


@pytest.mark.parametrize("driver", DRIVERS)
def test_postgresql_is_reached_without_tls_where_that_is_asked_for(url: str, driver: str) -> None:
    assert is_encrypted(f"{url.replace('postgresql:', f'postgresql+{driver}:')}?sslmode=disable") == [False, False]


UNTRUSTED = "no TLS with this server as the URL asks for it: .*certificate verify failed"


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize(
    "options, told",
    [
        ("sslmode=verify-ca&sslrootcert={other}", UNTRUSTED),
        ("sslmode=verify-full&sslrootcert={other}", UNTRUSTED),
        ("sslmode=verify-full&sslrootcert=/no/such.pem", "/no/such.pem"),
        ("sslmode=nonsense", "sslmode"),
    ],
)
def test_postgresqls_tls_is_refused_at_once(
    url: str, authorities: Authorities, driver: str, options: str, told: str
) -> None:
    """It was tried for half a minute, and told as a server that is away."""
    asked = (
        f"{url.replace('postgresql:', f'postgresql+{driver}:')}?{options.format(other=authorities.other.certificate)}"
    )

    for refusal in refusals(asked):
        assert_told(told, refusal)


def assert_told(pattern: str, refusal: str) -> None:
    with pytest.raises(AssertionError, match=pattern):
        raise AssertionError(refusal.replace("\n", " "))


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_postgresql_of_another_name_and_one_without_tls_are_refused_at_once(
    url: str, postgres_url: str, authorities: Authorities, driver: str
) -> None:
    verified = f"sslmode=verify-full&sslrootcert={authorities.ours.certificate}"
    for wrong in (f"{with_host(url, 'localhost')}?{verified}", f"{postgres_url}?sslmode=require"):
        for refusal in refusals(wrong.replace("postgresql:", f"postgresql+{driver}:")):
            assert_told("no TLS with this server as the URL asks for it: .*sslmode=", refusal)


@pytest.mark.parametrize(
    "options", ["ssl=true", "ssl_ca={ours}", "ssl=on&ssl_verify_cert=no", "ssl_ca={ours}&ssl_check_hostname=false"]
)
def test_mysql_is_reached_by_tls(mysqlish_url: str, authorities: Authorities, options: str) -> None:
    asked = options.format(ours=authorities.ours.certificate)

    assert is_encrypted(f"{mysqlish_url}?{asked}") == [True, True]
    if "check_hostname" in asked:
        assert is_encrypted(f"{with_host(mysqlish_url, 'localhost')}?{asked}") == [True, True]


@pytest.mark.parametrize(
    "options, told",
    [
        ("ssl_ca={other}", "no TLS with this server as the URL asks for it: .*CERTIFICATE_VERIFY_FAILED.*ssl_ca="),
        (
            "ssl_verify_cert=true",
            "no TLS with this server as the URL asks for it: .*CERTIFICATE_VERIFY_FAILED.*ssl_ca=",
        ),
    ],
)
def test_mysqls_tls_is_refused_at_once(mysqlish_url: str, authorities: Authorities, options: str, told: str) -> None:
    for refusal in refusals(f"{mysqlish_url}?{options.format(other=authorities.other.certificate)}"):
        assert_told(told, refusal)


def test_a_mysql_of_another_name_is_refused_at_once(mysqlish_url: str, authorities: Authorities) -> None:
    for refusal in refusals(f"{with_host(mysqlish_url, 'localhost')}?ssl_ca={authorities.ours.certificate}"):
        assert_told("no TLS with this server .*Hostname mismatch", refusal)


def test_a_mysql_that_asks_for_tls_says_how_to_have_it(mysqlish: PrivateMySQL, mysqlish_url: str) -> None:
    mysqlish.execute("create user strict@'%' identified by 'x' require ssl")
    mysqlish.execute("grant all on *.* to strict@'%'")
    strict = make_url(mysqlish_url).set(username="strict", password="x").render_as_string(hide_password=False)

    with pytest.raises(DatabaseUnavailable, match=r"Access denied.*add ssl=true to its URL"):
        awaiting(strict)
    awaiting(f"{strict}?ssl=true")

    mysqlish.execute("drop user strict@'%'")
    mysqlish.execute("set global require_secure_transport = on")
    try:
        with pytest.raises(DatabaseUnavailable, match=r"(?i)add ssl=true to its URL"):
            awaiting(mysqlish_url)
    finally:
        mysqlish.execute("set global require_secure_transport = off")


@pytest.mark.parametrize(
    "options, told",
    [
        ({"ssl_ca": "/no/such.pem"}, r"cannot be read \(ssl_ca=/no/such.pem\)"),
        ({"ssl_cert": "/no/such.pem", "ssl_key": "/no/such.key"}, r"ssl_cert=/no/such.pem, ssl_key=/no/such.key"),
        ({"ssl": "maybe"}, "ssl of a MySQL URL is true or false, not 'maybe'"),
        ({"ssl_ca": "{page}"}, "cannot be read"),
    ],
)
def test_what_cannot_be_is_told_when_the_app_is_made(options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        tls_context({name: said.replace("{page}", str(PAGE)) for name, said in options.items()})


def test_after_a_fork_each_goes_on_with_tls_of_its_own(url: str, start_process: StartProcess) -> None:
    program = start_process(str(FORKING), f"{url}?sslmode=require")

    assert program.wait() == 0, program.output
    assert "child: 200 runs, parent: 200 runs" in program.output


def test_the_program_of_the_page_runs(url: str, authorities: Authorities, tmp_path: Path) -> None:
    source = PAGE.read_text().partition("<!-- run with: tls -->\n```python\n")[2].partition("```")[0]
    for written, given in (("postgresql://localhost/shop", url), ("/etc/shop/ca.pem", authorities.ours.certificate)):
        assert written in source
        source = source.replace(written, str(given))
    (tmp_path / "page.py").write_text(source)

    done = subprocess.run(
        [sys.executable, "-W", "error", "page.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "Hello, Ada\n"), done.stderr
