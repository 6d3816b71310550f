"""Credentials that live for minutes: each new connection is made with what the application says at that moment."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from outlast import (
    ConnectionOptions,
    Context,
    Credentials,
    DatabaseUnavailable,
    InvalidArgument,
    Outlast,
    WorkerOptions,
    workflow,
)
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database
from outlast.testing.contract.desk import new_run

DRIVERS = ("postgresql+asyncpg", "postgresql+psycopg")


@workflow("greet")
async def greet(ctx: Context, name: str) -> str:
    return f"Hello, {name}"


@dataclass
class Role:
    """A role of the database's own, whose password changes; and the functions that an application may pass."""

    admin: psycopg.Connection
    name: str
    url: str
    password: str = ""
    stale: list[str] = field(default_factory=list[str])
    asked: list[str] = field(default_factory=list[str])

    def rotate(self) -> None:
        """Change the password and end every session, as a cloud's database does when it fails over."""
        # As tokens are: whatever a URL would read in its own way is in it.
        self.password = f"host:5432/?Action=connect&X=%2F+ a b @#'\\{len(self.asked)}"
        self.admin.execute(
            sql.SQL("alter role {} login password {}").format(sql.Identifier(self.name), sql.Literal(self.password))
        )
        self.admin.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", [self.name])

    def provide(self) -> Credentials:
        self.asked.append(threading.current_thread().name)
        return Credentials(user=self.name, password=self.stale.pop() if self.stale else self.password)

    async def provide_awaited(self) -> Credentials:
        await asyncio.sleep(0)
        return self.provide()


@pytest.fixture
def role(postgres_url: str) -> Iterator[Role]:
    parts = urlsplit(postgres_url)
    database = parts.path.removeprefix("/")
    name = f"role_of_{database}"
    # No password in the URL, nor the user who has it.
    url = urlunsplit(parts._replace(netloc=f"nobody@{parts.hostname}:{parts.port}"))
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(sql.SQL("create role {} login").format(sql.Identifier(name)))
        admin.execute(
            sql.SQL("grant create on database {} to {}").format(sql.Identifier(database), sql.Identifier(name))
        )
        made = Role(admin, name, url)
        made.rotate()
        yield made
        made.rotate()
        admin.execute(sql.SQL("drop owned by {} cascade").format(sql.Identifier(name)))
        admin.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


def through(driver: str, url: str) -> str:
    return url.replace("postgresql://", f"{driver}://")


@asynccontextmanager
async def opened(role: Role, driver: str, options: ConnectionOptions) -> AsyncIterator[SqlDatabase]:
    database = open_database(through(driver, role.url), connections=options)
    await database.open()
    await database.migrate()
    yield database
    await database.close()
    await asyncio.to_thread(database.close_blocking)


@pytest.mark.parametrize("colour", ["plain", "async"])
@pytest.mark.parametrize("driver", DRIVERS)
async def test_new_connections_are_made_with_the_password_of_the_moment(role: Role, driver: str, colour: str) -> None:
    options = ConnectionOptions(credentials=role.provide if colour == "plain" else role.provide_awaited)
    async with opened(role, driver, options) as database:
        assert (await database.run(lambda: database.store.start([new_run("a")])))[0].created
        before = len(role.asked)

        role.rotate()

        assert (await database.run(lambda: database.store.start([new_run("b")])))[0].created
        assert len(role.asked) > before
        if colour == "plain":
            assert threading.current_thread().name not in role.asked, "it may do I/O, and the loop has other work"


@pytest.mark.parametrize("colour", ["plain", "async"])
async def test_blocking_connections_are_made_with_the_password_of_the_moment(role: Role, colour: str) -> None:
    options = ConnectionOptions(credentials=role.provide if colour == "plain" else role.provide_awaited)
    async with opened(role, DRIVERS[0], options) as database:
        for number in range(3):
            outcomes = await asyncio.to_thread(
                database.run_blocking, lambda number=number: database.store.start([new_run(f"r{number}")])
            )
            assert outcomes[0].created
            role.rotate()


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_password_that_was_replaced_before_it_was_used_is_asked_for_again(role: Role, driver: str) -> None:
    async with opened(role, driver, ConnectionOptions(credentials=role.provide)) as database:
        role.rotate()
        role.stale.append("the one before")
        assert (await database.run(lambda: database.store.start([new_run("a")])))[0].created

        role.stale.append("the one before")
        outcomes = await asyncio.to_thread(database.run_blocking, lambda: database.store.start([new_run("b")]))
        assert outcomes[0].created
        assert role.stale == []


@pytest.mark.time_limit(15)
@pytest.mark.parametrize("driver", DRIVERS)
async def test_credentials_that_are_wrong_for_good_are_told_at_once(role: Role, driver: str) -> None:
    wrong = ConnectionOptions(credentials=lambda: Credentials(user=role.name, password="wrong"))
    database = open_database(through(driver, role.url), connections=wrong)

    with pytest.raises(DatabaseUnavailable, match="refused"):
        await database.open()
    with pytest.raises(DatabaseUnavailable, match="refused"):
        await asyncio.to_thread(database.check_schema_blocking)

    await database.close()
    database.close_blocking()


async def test_what_gives_no_credentials_is_told(role: Role) -> None:
    untyped: object = "a password"
    options = ConnectionOptions(credentials=lambda: untyped)  # type: ignore[arg-type, return-value]  # what somebody may write
    database = open_database(role.url, connections=options)

    with pytest.raises(InvalidArgument, match=r"returned str, but has to return Credentials"):
        await database.open()
    with pytest.raises(InvalidArgument, match=r"returned str, but has to return Credentials"):
        await asyncio.to_thread(database.check_schema_blocking)

    database.close_blocking()


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_worker_goes_on_when_the_password_changes(role: Role, driver: str) -> None:
    """Its turns, its lease's renewal and its listening all connect anew."""
    options = ConnectionOptions(credentials=role.provide)
    async with Outlast(
        through(driver, role.url), workflows=[greet], worker=WorkerOptions(poll="1s", lease="2s"), connections=options
    ) as app:
        for name in ("Ada", "Bob", "Grace"):
            assert await app.start_and_wait(greet, name, timeout="20s") == f"Hello, {name}"
            role.rotate()


def test_a_password_is_shown_nowhere() -> None:
    assert "secret" not in repr(Credentials(user="ann", password="secret"))
