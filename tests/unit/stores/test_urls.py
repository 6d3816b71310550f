"""What an application may write as its database."""

from __future__ import annotations

import ssl

import pytest
from sqlalchemy import create_engine

from outlast.errors import InvalidArgument, InvalidName
from outlast.stores.databases.mysql import tls_context
from outlast.stores.databases.opening import open_database
from outlast.stores.databases.urls import MySQLTarget, PostgresTarget, SQLiteTarget, installation_name, parse_url


@pytest.mark.parametrize(
    "url, path",
    [
        ("sqlite:///shop.db", "shop.db"),
        ("sqlite:///data/shop.db", "data/shop.db"),
        ("sqlite:////var/lib/shop.db", "/var/lib/shop.db"),
        ("sqlite://", None),
        ("sqlite:///", None),
        ("sqlite:///:memory:", None),
        ("sqlite+aiosqlite:///shop.db", "shop.db"),
        ("sqlite+pysqlite:////shop.db", "/shop.db"),
        ("sqlite+aiosqlite://", None),
        ("sqlite:///with blank.db", "with blank.db"),
    ],
)
def test_a_sqlite_url_names_a_file_or_memory(url: str, path: str | None) -> None:
    assert parse_url(url) == SQLiteTarget(path)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+asyncpg", "postgresql+psycopg"])
def test_a_postgresql_url_may_name_either_driver_or_none(scheme: str) -> None:
    target = parse_url(f"{scheme}://me:secret@db.example:6543/shop?sslmode=require")

    assert isinstance(target, PostgresTarget)
    assert (target.url.host, target.url.port, target.url.database) == ("db.example", 6543, "shop")
    assert (target.url.username, target.url.password) == ("me", "secret")


@pytest.mark.parametrize("name", ["mysql", "mariadb"])
@pytest.mark.parametrize("driver", ["", "+asyncmy", "+aiomysql", "+pymysql", "+mysqldb"])
def test_a_mysql_url_may_name_any_driver_or_none(name: str, driver: str) -> None:
    target = parse_url(f"{name}{driver}://me:secret@db.example:3307/shop?ssl_ca=ca.pem")

    assert isinstance(target, MySQLTarget)
    assert (target.url.host, target.url.port, target.url.database) == ("db.example", 3307, "shop")


def test_an_option_of_a_mysql_url_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidArgument, match=r"'ssl_caa'.*ssl_ca,"):
        open_database("mysql://me@h/shop?ssl_caa=ca.pem")


@pytest.mark.parametrize(
    "options, checks",
    [
        ({}, None),
        ({"ssl": "false"}, None),
        ({"ssl": "true", "ssl_disabled": "true"}, None),
        ({"charset": "utf8mb4"}, None),
        ({"ssl": "true"}, (ssl.CERT_NONE, False)),
        ({"ssl_verify_cert": "true"}, (ssl.CERT_REQUIRED, False)),
        ({"ssl_check_hostname": "true"}, (ssl.CERT_REQUIRED, True)),
    ],
    ids=str,
)
def test_the_tls_options_of_a_mysql_url_say_what_is_checked(
    options: dict[str, str], checks: tuple[ssl.VerifyMode, bool] | None
) -> None:
    context = tls_context(options)

    assert (context and (context.verify_mode, context.check_hostname)) == checks


@pytest.mark.parametrize(
    "url",
    [
        "",
        "shop.db",
        "mssql+pyodbc://h",
        "sqlite://host/shop.db",
        "sqlite:///x?mode=ro",
        "://",
    ],
)
def test_any_other_url_is_refused_with_the_forms_there_are(url: str) -> None:
    with pytest.raises(InvalidArgument, match=r"sqlite|SQLite"):
        parse_url(url)


@pytest.mark.parametrize(
    "url, taken",
    [
        (
            "postgresql+psycopg2://ada:secret@db/shop",
            "postgresql://, postgresql+asyncpg://, postgresql+psycopg://",
        ),
        (
            "mysql+mysqlconnector://ada:secret@db/shop",
            "mysql://, mysql+aiomysql://, mysql+asyncmy://, mysql+mysqldb://, mysql+pymysql://",
        ),
        ("sqlite+pysqlcipher:///shop.db", "sqlite://, sqlite+aiosqlite://, sqlite+pysqlite://"),
    ],
)
def test_a_driver_that_is_not_taken_is_refused_with_those_that_are(url: str, taken: str) -> None:
    """`postgresql+psycopg2://` was answered with `postgresql://...`, and nothing told of the driver that takes its place."""
    with pytest.raises(InvalidArgument) as refused:
        parse_url(url)

    name = url.partition(":")[0]
    assert str(refused.value) == f"outlast does not go through the driver of {name}://. Write {taken}."


@pytest.mark.parametrize("port", ["99999", "0", "65536"])
@pytest.mark.parametrize("name", ["postgresql", "mysql"])
def test_a_port_that_there_cannot_be_is_refused(name: str, port: str) -> None:
    """It came back as OverflowError of a socket, from inside of a driver."""
    with pytest.raises(InvalidArgument, match=f"a number from 1 to 65535; {port} is not"):
        parse_url(f"{name}://ada@db:{port}/shop")


def test_a_refused_url_does_not_show_its_password() -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_url("oracle://me:s3cret@host/shop")

    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("name", ["postgresql", "postgresql+psycopg", "mysql", "mariadb", "sqlite"])
@pytest.mark.parametrize(
    "rest",
    [
        "ada:se@cret@db:5432/shop",
        "ada:s@e@cret@db/shop",
        "ada:s@ecr@et:5@db/shop",
        "ada:se/x@cret@db/shop",
        "ada:se@x/cret@db/shop",
    ],
)
def test_a_password_with_an_at_sign_that_is_not_quoted_is_refused_and_not_shown(name: str, rest: str) -> None:
    """`ada:se@cret@db` was read as password `se` on the host `cret@db`, and half of the password came into the log."""
    with pytest.raises(InvalidArgument, match="Write @ as %40 in a password") as refused:
        open_database(f"{name}://{rest}")

    assert "ecr" not in str(refused.value)


@pytest.mark.parametrize("kind", ["postgresql+psycopg", "mysql+pymysql"])
def test_an_engine_whose_url_has_such_a_password_is_refused(kind: str) -> None:
    with pytest.raises(InvalidArgument, match="Write @ as %40 in a password") as refused:
        open_database(create_engine(f"{kind}://ada:se@cret@db/shop"))

    assert "cret" not in str(refused.value)


@pytest.mark.parametrize(
    "url, place",
    [
        ("postgresql://ada:se%40cret@db/shop?password=se%40cret", "postgresql://ada:***@db/shop"),
        ("mysql://ada@corp:secret@db:3307/shop", "mysql://ada%40corp:***@db:3307/shop"),
        ("mariadb://ada:secret@db/sh@op", "mariadb://ada:***@db/sh%40op"),
        ("postgresql://ada@corp@db/shop", "postgresql://ada%40corp@db/shop"),
    ],
)
def test_a_database_is_named_without_its_password(url: str, place: str) -> None:
    assert open_database(url).place == place
    assert open_database(url).separate().place == place


@pytest.mark.parametrize("url", ["sqlite://me:s3cret@host/shop", "sqlite:///shop.db?password=s3cret"])
def test_a_refused_sqlite_url_does_not_show_what_stands_for_a_password(url: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_url(url)

    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("target", [None, 5, b"sqlite://", object(), [object()]])
def test_what_is_neither_a_url_nor_an_engine_is_refused(target: object) -> None:
    with pytest.raises(
        InvalidArgument, match=r"a URL, an engine of SQLAlchemy or a pool of.*Workflows are passed as workflows="
    ):
        open_database(target)


def test_an_engine_on_sqlite_in_memory_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="in memory"):
        open_database(create_engine("sqlite://"))


def test_an_engine_on_an_unknown_database_is_refused() -> None:
    engine = create_engine("mssql+pyodbc://h/d?driver=any", module=_Driver())

    with pytest.raises(InvalidArgument, match="no store for mssql"):
        open_database(engine)


class _Driver:
    """Enough of a driver for an engine that never connects."""

    paramstyle = "qmark"
    version = "4.0"
    Cursor = object
    __version__ = "1.0"
    version_info = (1, 0)


@pytest.mark.parametrize("name", ["outlast", "a", "_x9", "x" * 40])
def test_a_schema_has_a_plain_name(name: str) -> None:
    assert installation_name(name) == name


@pytest.mark.parametrize("name", ["", "Outlast", "9x", "x" * 41, "a b", 'a"b', "a;drop table x", "ä", "a\n", "a-b"])
def test_a_schema_with_any_other_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidName):
        open_database("sqlite://", schema=name)
