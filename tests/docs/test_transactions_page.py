"""Each function of the page on transactions is called on every database that has its kind, and does what the page says."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
import sqlite3
import types
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiomysql
import aiosqlite
import asyncmy
import asyncpg
import psycopg_pool
import pytest
from django.db import IntegrityError, connections
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from outlast import Outlast
from support.callers import awaiting_engine, blocking_engine
from support.fix_django import Site
from support.probing import connect_mysql
from support.project import ROOT

PAGE = ROOT / "docs" / "how-to" / "transactions.md"
Open = Callable[[str], Any]


@asynccontextmanager
async def _engine(url: str) -> AsyncIterator[Any]:
    engine = blocking_engine(url)
    yield engine
    engine.dispose()


@asynccontextmanager
async def _async_engine(url: str) -> AsyncIterator[Any]:
    engine = awaiting_engine(url)
    yield engine
    await engine.dispose()


@asynccontextmanager
async def _registry(url: str) -> AsyncIterator[Any]:
    async with _engine(url) as engine:
        registry = scoped_session(sessionmaker(engine), scopefunc=lambda: None)
        yield registry
        registry.remove()


@asynccontextmanager
async def _async_registry(url: str) -> AsyncIterator[Any]:
    async with _async_engine(url) as engine:
        registry = async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: None)
        yield registry
        await registry.remove()


@asynccontextmanager
async def _asyncpg_pool(url: str) -> AsyncIterator[Any]:
    async with asyncpg.create_pool(url, min_size=1) as pool:
        yield pool


@asynccontextmanager
async def _psycopg_pool(url: str) -> AsyncIterator[Any]:
    with psycopg_pool.ConnectionPool(url, min_size=1) as pool:
        yield pool


@asynccontextmanager
async def _async_psycopg_pool(url: str) -> AsyncIterator[Any]:
    async with psycopg_pool.AsyncConnectionPool(url, min_size=1) as pool:
        yield pool


@asynccontextmanager
async def _sqlite3(url: str) -> AsyncIterator[Any]:
    with contextlib.closing(sqlite3.connect(str(make_url(url).database), check_same_thread=False)) as connection:
        yield connection


@asynccontextmanager
async def _aiosqlite(url: str) -> AsyncIterator[Any]:
    async with aiosqlite.connect(str(make_url(url).database)) as connection:
        yield connection


@asynccontextmanager
async def _pymysql(url: str) -> AsyncIterator[Any]:
    with contextlib.closing(connect_mysql(url, autocommit=False)) as connection:
        yield connection


def _over_mysql(driver: Any) -> Open:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Any]:
        parts = make_url(url)
        connection = await driver.connect(
            host=parts.host, port=parts.port, user=parts.username, password=parts.password, db=parts.database
        )
        yield connection
        await connection.ensure_closed()

    return opened


MYSQL = ("mysql", "mariadb")
BOTH, POSTGRESQL, SQLITE = ("sqlite", "postgresql"), ("postgresql",), ("sqlite",)
FUNCTIONS: dict[str, tuple[Open, tuple[str, ...]]] = {
    "with_session": (_engine, BOTH),
    "with_async_session": (_async_engine, BOTH),
    "with_scoped_session": (_registry, BOTH),
    "with_async_scoped_session": (_async_registry, BOTH),
    "with_connection": (_engine, BOTH),
    "with_async_connection": (_async_engine, BOTH),
    "with_sqlmodel": (_engine, BOTH),
    "with_async_sqlmodel": (_async_engine, BOTH),
    "with_asyncpg": (_asyncpg_pool, POSTGRESQL),
    "with_psycopg": (_psycopg_pool, POSTGRESQL),
    "with_async_psycopg": (_async_psycopg_pool, POSTGRESQL),
    "with_sqlite3": (_sqlite3, SQLITE),
    "with_aiosqlite": (_aiosqlite, SQLITE),
    "with_pymysql": (_pymysql, MYSQL),
    "with_asyncmy": (_over_mysql(asyncmy), MYSQL),
    "with_aiomysql": (_over_mysql(aiomysql), ("mysql",)),
}
SERVERS = {"postgresql": "postgres_url", "mysql": "mysql_url", "mariadb": "mariadb_url"}
CASES = [f"{database} {name}" for name, (_, databases) in FUNCTIONS.items() for database in databases]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[types.ModuleType]:
    """What the page defines; the examples that run by themselves have run."""
    program = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    module = types.ModuleType("transactions_page")
    with contextlib.chdir(tmp_path_factory.mktemp("page")):
        exec(compile(program, str(PAGE), "exec", dont_inherit=True), module.__dict__)  # the project's own page
    yield module
    order = module.__dict__.pop("Order")
    order.metadata.remove(order.__table__)


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shop.db"
    server: str = request.getfixturevalue(SERVERS[request.param])
    return server


def defined(module: types.ModuleType) -> set[str]:
    return {name for name in vars(module) if name.startswith("with_")}


async def test_the_pages_block_of_django_commits_both_and_rolls_back_both(
    page: types.ModuleType, django_site: Site
) -> None:
    def with_django(app: Outlast, _: object, order: str) -> None:
        try:
            page.with_django(app, order)
        finally:
            connections.close_all()

    async with shop(page, django_site.url) as app:
        await called(with_django, app, None, "o-1")
        with pytest.raises(IntegrityError):
            await called(with_django, app, None, "o-1")

        assert [run.id for run in (await app.list()).runs] == ["o-1"]
        assert await orders(django_site.url) == 1


@pytest.mark.parametrize("url", SQLITE, indirect=True)
async def test_on_sqlite_a_savepoint_needs_a_transaction_around_it_as_the_page_says(
    page: types.ModuleType, url: str
) -> None:
    def rolled_back(app: Outlast, engine: Any, order: str) -> None:
        with Session(engine) as session:
            if order == "after-begin":
                session.execute(text("BEGIN"))
            with session.begin_nested():
                app.blocking.start(page.fulfil, order, id=order, tx=session)
            session.rollback()

    async with shop(page, url) as app, _engine(url) as engine:
        await called(rolled_back, app, engine, "after-begin")
        await called(rolled_back, app, engine, "first")

        assert [run.id for run in (await app.list()).runs] == ["first"]


def test_every_function_of_the_page_is_called(page: types.ModuleType) -> None:
    assert defined(page) == {*FUNCTIONS, "with_django", "with_savepoint"}


@pytest.mark.parametrize("url, name", [case.split() for case in CASES], indirect=["url"])
async def test_a_function_of_the_page_commits_both_and_rolls_back_both(
    page: types.ModuleType, url: str, name: str
) -> None:
    place, (opened, _) = getattr(page, name), FUNCTIONS[name]
    async with shop(page, url) as app, opened(url) as handle:
        await called(place, app, handle, "o-1")
        # The row is there already: the whole of it is refused.
        with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
            await called(place, app, handle, "o-1")

        assert [run.id for run in (await app.list()).runs] == ["o-1"]
        assert await orders(url) == 1


@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_the_pages_savepoint_leaves_the_order_and_no_gift(page: types.ModuleType, url: str) -> None:
    def with_gift(app: Outlast, engine: Any, order: str) -> None:
        with Session(engine) as session, session.begin():
            page.with_savepoint(app, session, order, "gift")

    async with shop(page, url) as app, _engine(url) as engine:
        await called(with_gift, app, engine, "o-1")

        assert [run.id for run in (await app.list()).runs] == ["o-1"]


@asynccontextmanager
async def shop(page: types.ModuleType, url: str) -> AsyncIterator[Outlast]:
    async with _engine(url) as engine:
        with engine.begin() as connection:
            connection.execute(text("create table orders (id varchar(40) primary key)"))
    app = Outlast(url, workflows=[page.fulfil], worker=False)
    async with app:
        yield app
        await asyncio.to_thread(app.blocking.close)


async def called(place: Callable[..., Any], app: Outlast, handle: object, order: str) -> None:
    if inspect.iscoroutinefunction(place):
        await place(app, handle, order)
    else:
        await asyncio.to_thread(place, app, handle, order)


async def orders(url: str) -> int:
    async with _async_engine(url) as engine, engine.connect() as connection:
        count: int = await connection.scalar(text("select count(*) from orders"))
        return count
