"""A transaction on another database, which happens to have tables of outlast as well."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.orm import Session

from outlast import Context, NotATransaction, Outlast, Signal, workflow
from support.callers import Place, awaiting_engine, blocking_engine

pytestmark = pytest.mark.every_database
poked = Signal("poked", None)


@workflow("greet")
async def greet(ctx: Context, name: str) -> str:
    return f"Hello, {name}"


def app_of(url: str) -> Outlast:
    return Outlast(url, workflows=[greet], worker=False)


@contextmanager
def another(kind: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Another database of the same kind: a file, or one of the server that the fixture of this name starts."""
    if kind == "sqlite":
        yield f"sqlite:///{folder}/other.db"
    else:
        server: Any = request.getfixturevalue({"postgresql": "postgres"}.get(kind, kind))
        made: str = server.create_database()
        yield made
        server.drop_database(made)


@pytest.fixture
def other(place: Place, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    """The same kind of handle on another database."""
    with another(request.node.callspec.params["place"].split()[0], tmp_path, request) as url:
        yield Place(url, place.road)


@pytest.fixture
def other_url(shared_database_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    with another(request.node.callspec.params["shared_database_url"].partition("-")[0], tmp_path, request) as url:
        yield url


async def test_a_transaction_on_another_installation_is_refused(place: Place, other: Place) -> None:
    """The run was written there and committed, its handle was handed out, and no worker of the app ever saw it."""
    async with app_of(other.url) as elsewhere, app_of(place.url) as app:
        async with other.caller() as caller, caller.transaction() as tx:
            for call in (
                app.start(greet, "Ada", tx=tx), app.signal(poked, tx=tx), app.cancel("a", tx=tx),
            ):  # fmt: skip
                with pytest.raises(NotATransaction, match="another database than this app's"):
                    await call
        assert (await elsewhere.list()).runs == ()

        async with place.caller() as caller:
            for run_id in ("a", "b"):
                async with caller.transaction() as tx:
                    assert (await app.start(greet, "Ada", id=run_id, tx=tx)).created


async def test_a_blocking_call_is_refused_as_well(shared_database_url: str, other_url: str) -> None:
    async with app_of(other_url), app_of(shared_database_url) as app:
        engine = blocking_engine(other_url)

        def start() -> None:
            with Session(engine) as session, pytest.raises(NotATransaction, match="another database"):
                app.blocking.start(greet, "Ada", tx=session)

        await asyncio.to_thread(start)
        engine.dispose()
        await asyncio.to_thread(app.blocking.close)


async def test_a_database_without_tables_of_outlast_is_refused_by_its_name(place: Place, other: Place) -> None:
    """The database's own error came through, which named a table that nobody had asked for, and on PostgreSQL it left the
    caller's transaction unusable."""
    async with app_of(place.url) as app, other.caller() as caller, caller.transaction() as tx:
        for call in (
            app.start(greet, "Ada", tx=tx), app.signal(poked, tx=tx), app.cancel("a", tx=tx),
        ):  # fmt: skip
            with pytest.raises(NotATransaction, match="no tables of outlast") as refused:
                await call
            for name in (place.url, other.url):
                assert name.rpartition("/")[2] in str(refused.value)


async def test_a_blocking_call_is_refused_without_tables_as_well(shared_database_url: str, other_url: str) -> None:
    async with app_of(shared_database_url) as app:
        engine = blocking_engine(other_url)

        def start() -> None:
            with Session(engine) as session:
                with pytest.raises(NotATransaction, match="no tables of outlast"):
                    app.blocking.start(greet, "Ada", tx=session)
                assert session.execute(text("select 1")).scalar_one() == 1
            engine.dispose()
            app.blocking.close()

        await asyncio.to_thread(start)


async def test_each_engine_is_asked_once(shared_database_url: str) -> None:
    async with app_of(shared_database_url) as app:
        engine = awaiting_engine(shared_database_url)
        asked: list[str] = []
        event.listen(engine.sync_engine, "before_cursor_execute", lambda *call: asked.append(call[2]))
        for _ in range(3):
            async with engine.begin() as connection:
                await app.start(greet, "Ada", tx=connection)
        await engine.dispose()

    assert len([statement for statement in asked if "migrations" in statement]) == 1


async def test_tables_that_are_made_anew_are_known_after_a_migration(shared_database_url: str) -> None:
    async with app_of(shared_database_url) as app:
        engine = blocking_engine(shared_database_url)
        _drop(engine, shared_database_url)
        assert await app.migrate() == (1,)

        with engine.begin() as connection:
            assert (await app.start(greet, "Ada", tx=connection)).created
        engine.dispose()


def _drop(engine: Engine, url: str) -> None:
    with engine.begin() as connection:
        if url.startswith("postgresql"):
            connection.execute(text("drop schema outlast cascade"))
            return
        for table in ("runs", "journal", "waits", "signals", "workers", "migrations"):
            connection.execute(text(f"drop table outlast_{table}"))
