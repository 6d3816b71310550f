"""On MySQL and MariaDB: credentials that live for minutes, and what is told of those that stay wrong."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pymysql
import pytest
from sqlalchemy import make_url

from outlast import ConnectionOptions, Context, Credentials, DatabaseUnavailable, Outlast, WorkerOptions, workflow
from outlast.ports.store import StartOutcome
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database
from outlast.testing.contract.desk import new_run
from outlast.worker import starting
from tools.mysql import PrivateMySQL


@workflow("greet")
async def greet(ctx: Context, name: str) -> str:
    return f"Hello, {name}"


@dataclass
class Account:
    """An account of the database's own, whose password changes; and the functions that an application may pass."""

    server: PrivateMySQL
    name: str
    url: str
    password: str = ""
    stale: list[str] = field(default_factory=list[str])
    asked: list[str] = field(default_factory=list[str])
    wrong: str | None = None

    def rotate(self) -> None:
        """Change the password and end every session, as a cloud's database does when it fails over."""
        # As tokens are: whatever a URL would read in its own way is in it.
        self.password = f"host:3306/?Action=connect&X=%2F+ a b @#{len(self.asked)}"
        self.server.execute(f"alter user {self.name} identified by '{self.password}'")
        for (session,) in self.server.execute(
            f"select id from information_schema.processlist where user = '{self.name}'"
        ):
            with contextlib.suppress(pymysql.Error):  # It has ended meanwhile.
                self.server.execute(f"kill {session}")

    def provide(self) -> Credentials:
        self.asked.append(threading.current_thread().name)
        return Credentials(user=self.name, password=self.wrong or (self.stale.pop() if self.stale else self.password))

    async def provide_awaited(self) -> Credentials:
        await asyncio.sleep(0)
        return self.provide()


@pytest.fixture
def account(mysqlish: PrivateMySQL, mysqlish_url: str) -> Iterator[Account]:
    url = make_url(mysqlish_url)
    name = f"account_of_{url.database}"[:32]
    mysqlish.execute(f"create user {name} identified by ''")
    mysqlish.execute(f"grant all on {url.database}.* to {name}")
    # No password in the URL, nor the user who has it.
    made = Account(mysqlish, name, url.set(username="nobody", password=None).render_as_string(hide_password=False))
    made.rotate()
    yield made
    mysqlish.execute(f"drop user {name}")


@asynccontextmanager
async def opened(account: Account, options: ConnectionOptions) -> AsyncIterator[SqlDatabase]:
    database = open_database(account.url, connections=options)
    await database.open()
    await database.migrate()
    yield database
    await database.close()
    await asyncio.to_thread(database.close_blocking)


@pytest.mark.parametrize("colour", ["plain", "async"])
async def test_new_connections_are_made_with_the_password_of_the_moment(account: Account, colour: str) -> None:
    options = ConnectionOptions(credentials=account.provide if colour == "plain" else account.provide_awaited)
    async with opened(account, options) as database:
        before = len(account.asked)
        for run_id in ("a", "b"):
            assert (await _started(database, run_id)).created
            assert (await asyncio.to_thread(_started_blocking, database, f"{run_id} blocking")).created

            account.rotate()

        assert len(account.asked) > before
        if colour == "plain":
            assert threading.current_thread().name not in account.asked, "it may do I/O, and the loop has other work"


async def test_a_password_that_was_replaced_before_it_was_used_is_asked_for_again(account: Account) -> None:
    async with opened(account, ConnectionOptions(credentials=account.provide)) as database:
        account.rotate()
        account.stale.append("the one before")
        assert (await _started(database, "a")).created

        account.stale.append("the one before")
        assert (await asyncio.to_thread(_started_blocking, database, "b")).created
        assert account.stale == []


async def _started(database: SqlDatabase, run_id: str) -> StartOutcome:
    return (await database.run(lambda: database.store.start([new_run(run_id)])))[0]


def _started_blocking(database: SqlDatabase, run_id: str) -> StartOutcome:
    return database.run_blocking(lambda: database.store.start([new_run(run_id)]))[0]


@pytest.mark.time_limit(15)
async def test_credentials_that_are_wrong_for_good_are_told_at_once(account: Account) -> None:
    wrong = ConnectionOptions(credentials=lambda: Credentials(user=account.name, password="wrong"))
    database = open_database(account.url, connections=wrong)

    with pytest.raises(DatabaseUnavailable, match="Access denied"):
        await database.open()
    with pytest.raises(DatabaseUnavailable, match="Access denied"):
        await asyncio.to_thread(database.check_schema_blocking)

    await database.close()
    database.close_blocking()


async def test_a_worker_goes_on_when_the_password_changes_and_callers_hear_why_it_cannot(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever started a run beside a worker heard that the database had not answered, when it had: access denied."""
    options = ConnectionOptions(credentials=account.provide)
    async with Outlast(account.url, workflows=[greet], worker=WorkerOptions(poll="100ms"), connections=options) as app:
        for name in ("Ada", "Bob"):
            assert await app.start_and_wait(greet, name, timeout="20s") == f"Hello, {name}"
            account.rotate()

        monkeypatch.setattr(starting, "_PATIENCE", 0.2)
        account.wrong = "wrong"
        account.rotate()
        with pytest.raises(DatabaseUnavailable, match=r"could not be used for .*Access denied.*Whether run 'c' is"):
            await app.start(greet, "Grace", id="c")
        account.wrong = None
        assert await app.result("c", timeout="20s") == "Hello, Grace"
