"""The verbs in the caller's own transaction: both commit or neither does, by every road and in both colours."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from outlast import (
    Context,
    IsolationRefused,
    NotATransaction,
    Outlast,
    RunIdConflict,
    SchemaBehind,
    Signal,
    Status,
    workflow,
)
from support.callers import BLOCKING, ROADS, Caller, async_session, sqlite3_connection
from support.colours import parked

poked = Signal("poked", None)


@workflow("greet")
async def greet(ctx: Context, name: str) -> str:
    return f"Hello, {name}"


@workflow("wait")
async def wait(ctx: Context) -> str:
    await ctx.wait_for("poke", ctx.signal(poked))
    return "poked"


class Undone(Exception):
    """What makes a caller roll back."""


@dataclass(frozen=True)
class Place:
    """A database and the road on which the caller's own transaction reaches it."""

    url: str
    road: str


PLACES = [f"sqlite-file {road}" for road in ROADS if road != "asyncpg"]
PLACES += [f"postgresql {road}" for road in ROADS if road != "sqlite3"]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    kind, road = request.param.split()
    if kind == "sqlite-file":
        return Place(f"sqlite:///{tmp_path}/outlast.db", road)
    return Place(request.getfixturevalue("postgres_url"), road)


def workflows_app(url: str, *, worker: bool = False) -> Outlast:
    return Outlast(url, workflows=[greet, wait], worker=worker)


@asynccontextmanager
async def world(place: Place, *, worker: bool = False) -> AsyncGenerator[tuple[Outlast, Caller], None]:
    app = workflows_app(place.url, worker=worker)
    async with app, ROADS[place.road](place.url) as caller:
        yield app, caller
    await asyncio.to_thread(app.blocking.close)


@asynccontextmanager
async def rolled_back(caller: Caller) -> AsyncGenerator[Any, None]:
    with suppress(Undone):
        async with caller.transaction() as tx:
            yield tx
            raise Undone


async def orders(url: str) -> int:
    async with ROADS["AsyncConnection"](url) as caller, caller.transaction() as tx:
        count: int = await tx.scalar(text("select count(*) from orders"))
        return count


async def test_a_run_begins_when_the_callers_transaction_commits(place: Place) -> None:
    async with world(place, worker=True) as (app, caller):
        async with caller.transaction() as tx:
            await caller.insert(tx, "o-1")
            handle = await app.start(greet, "Ada", id="order-1", tx=tx)

        assert handle.created
        assert await handle.result(timeout="20s") == "Hello, Ada"
        assert await orders(place.url) == 1


async def test_a_run_never_existed_when_the_caller_rolls_back(place: Place) -> None:
    async with world(place) as (app, caller):
        async with rolled_back(caller) as tx:
            await caller.insert(tx, "o-1")
            await app.start(greet, "Ada", id="order-1", tx=tx)
            await app.start_many(greet, ["Bob", "Grace"], tx=tx)

        assert (await app.list()).runs == ()
        assert await orders(place.url) == 0


async def test_many_runs_join_as_one_does(place: Place) -> None:
    async with world(place) as (app, caller):
        async with caller.transaction() as tx:
            await caller.insert(tx, "o-1")
            await app.start_many(greet, ["Ada", "Grace"], ids=["a", "g"], tx=tx)

        assert [run.id for run in (await app.list()).runs] == ["a", "g"]


async def test_a_signal_and_a_cancel_commit_and_roll_back_with_the_caller(place: Place) -> None:
    async with world(place) as (app, caller):
        await app.start(wait, id="w")
        await app.drain()

        async with rolled_back(caller) as tx:
            await caller.insert(tx, "o-1")
            assert (await app.signal(poked, tx=tx)).woken == 1
            assert (await app.cancel("w", tx=tx)).accepted
        assert await app.drain() == 0

        async with caller.transaction() as tx:
            await caller.insert(tx, "o-2")
            assert (await app.signal(poked, tx=tx)).woken == 1
        await app.drain()
        assert await app.result("w", timeout="0s") == "poked"


async def test_a_cancel_joins_and_undoes_the_run_after_the_commit(place: Place) -> None:
    async with world(place) as (app, caller):
        await app.start(wait, id="w")
        await app.drain()

        async with caller.transaction() as tx:
            await caller.insert(tx, "o-1")
            receipt = await app.cancel("w", "Ada called", tx=tx)
        await app.drain()

        run = await app.get("w")
        assert receipt.accepted
        assert run is not None
        assert (run.status, run.failure and run.failure.message) == (Status.CANCELLED, "Ada called")


async def test_a_conflict_leaves_the_callers_transaction_usable(place: Place) -> None:
    async with world(place) as (app, caller):
        await app.start(greet, "Ada", id="taken")

        async with caller.transaction() as tx:
            await caller.insert(tx, "o-1")
            with pytest.raises(RunIdConflict):
                await app.start(greet, "Grace", id="taken", tx=tx)
            await caller.insert(tx, "o-2")

        assert await orders(place.url) == 2


@pytest.mark.parametrize("road", ["Session", "AsyncSession"])
async def test_a_savepoint_takes_its_runs_with_it(shared_database_url: str, road: str) -> None:
    async with world(Place(shared_database_url, road)) as (app, caller):
        async with caller.transaction() as tx:
            await app.start(greet, "Ada", id="outer", tx=tx)
            savepoint = tx.begin_nested()
            if road == "AsyncSession":
                await savepoint
            await app.start(greet, "Bob", id="inner", tx=tx)
            undone = savepoint.rollback()
            if road == "AsyncSession":
                await undone

        assert [run.id for run in (await app.list()).runs] == ["outer"]


@pytest.mark.parametrize("road", sorted(BLOCKING))
def test_the_blocking_verbs_join_a_blocking_transaction(shared_database_url: str, road: str) -> None:
    app = workflows_app(shared_database_url)
    app.blocking.migrate()
    engine = create_engine(shared_database_url.replace("postgresql:", "postgresql+psycopg:"))

    with Session(engine) as opened:
        tx = opened if road == "Session" else opened.connection()
        app.blocking.start(greet, "Ada", id="a", tx=tx)
        opened.rollback()
    assert app.blocking.get("a") is None
    with Session(engine) as opened:
        tx = opened if road == "Session" else opened.connection()
        app.blocking.start(greet, "Ada", id="a", tx=tx)
        assert app.blocking.signal(poked, tx=tx).created
        assert app.blocking.cancel("a", tx=tx).accepted
        opened.commit()

    run = app.blocking.get("a")
    assert run is not None
    assert run.stop_requested == "cancel"
    app.blocking.close()
    engine.dispose()


async def test_a_commit_of_a_session_wakes_the_worker_of_this_process(shared_database_url: str) -> None:
    """Its poll is an hour away and other processes' notices are cut off: only the session's commit can have woken it."""
    app = workflows_app(shared_database_url)
    woken: list[str] = []
    async with app, async_session(shared_database_url) as caller:

        class Worker:
            def wake(self) -> None:
                woken.append("woken")

        app._access.local = _local(Worker())
        async with caller.transaction() as tx:
            await app.start(greet, "Ada", tx=tx)
            assert woken == []

        assert woken == ["woken"]
        app._access.local = None


def _local(worker: Any) -> Any:
    from outlast.client.access import Local

    return Local(worker, asyncio.get_running_loop())


@pytest.mark.time_limit(10)
async def test_a_first_call_inside_a_transaction_never_waits_for_that_transaction(place: Place) -> None:
    """To make the tables it might have to wait for the caller's transaction, which waits for the call."""
    app = workflows_app(place.url)
    async with ROADS[place.road](place.url) as caller:
        async with caller.transaction() as tx:
            await caller.insert(tx, "o-1")
            with pytest.raises(SchemaBehind) as raised:
                await app.start(greet, "Ada", tx=tx)
        await app.start(greet, "Ada", id="a")
        async with caller.transaction() as tx:
            await caller.insert(tx, "o-2")
            await app.start(greet, "Ada", id="b", tx=tx)

        assert "open the app before it" in str(raised.value.__notes__)
        assert [run.id for run in (await app.list()).runs] == ["a", "b"]
        assert await orders(place.url) == 2
    await app.close()


# What is refused.


def engine_of(url: str) -> Any:
    return create_engine(url.replace("postgresql:", "postgresql+psycopg:"))


def async_engine_of(url: str) -> Any:
    return create_async_engine(
        url.replace("sqlite:", "sqlite+aiosqlite:").replace("postgresql:", "postgresql+asyncpg:")
    )


ROOTS: dict[str, Callable[[str], Any]] = {
    "an engine": engine_of,
    "an awaiting engine": async_engine_of,
    "a session factory": lambda url: sessionmaker(engine_of(url)),
    "an awaiting session factory": lambda url: async_sessionmaker(async_engine_of(url)),
    "a URL": lambda url: url,
    "True": lambda _: True,
}


@pytest.mark.parametrize("root", sorted(ROOTS))
async def test_a_root_handle_is_refused_with_what_to_pass(shared_database_url: str, root: str) -> None:
    async with workflows_app(shared_database_url) as app:
        with pytest.raises(NotATransaction, match="Pass"):
            await app.start(greet, "Ada", tx=ROOTS[root](shared_database_url))

        assert (await app.list()).runs == ()


async def test_an_asyncpg_pool_or_idle_connection_is_refused(postgres_url: str) -> None:
    async with workflows_app(postgres_url) as app, asyncpg.create_pool(postgres_url, min_size=1) as pool:
        with pytest.raises(NotATransaction, match="pool"):
            await app.start(greet, "Ada", tx=pool)
        async with pool.acquire() as connection:
            with pytest.raises(NotATransaction, match="without an open transaction"):
                await app.start(greet, "Ada", tx=connection)

        assert (await app.list()).runs == ()


async def test_an_idle_sqlite3_connection_that_commits_by_itself_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/outlast.db"
    connection = sqlite3.connect(f"{tmp_path}/outlast.db", isolation_level=None)
    async with workflows_app(url) as app:
        with pytest.raises(NotATransaction, match="BEGIN"):
            await app.start(greet, "Ada", tx=connection)

        assert (await app.list()).runs == ()
    connection.close()


async def test_a_transaction_on_another_kind_of_database_is_refused(postgres_url: str, tmp_path: Path) -> None:
    async with workflows_app(postgres_url) as app, sqlite3_connection(f"sqlite:///{tmp_path}/other.db") as caller:
        with pytest.raises(NotATransaction, match="postgresql"):
            async with caller.transaction() as tx:
                await app.start(greet, "Ada", tx=tx)


def test_a_blocking_verb_refuses_a_transaction_that_has_to_be_awaited(shared_database_url: str) -> None:
    app = workflows_app(shared_database_url)
    app.blocking.migrate()
    engine = async_engine_of(shared_database_url)

    with pytest.raises(NotATransaction, match="await"):
        app.blocking.start(greet, "Ada", tx=AsyncSession(engine))

    app.blocking.close()


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_a_signal_refuses_a_transaction_that_could_miss_a_waiting_run(postgres_url: str, level: str) -> None:
    engine = create_async_engine(postgres_url.replace("postgresql:", "postgresql+asyncpg:"), isolation_level=level)
    async with workflows_app(postgres_url) as app:
        async with engine.connect() as connection:
            with pytest.raises(IsolationRefused, match="READ COMMITTED"):
                await app.signal(poked, tx=connection)
        async with engine.begin() as connection:
            await app.start(greet, "Ada", id="a", tx=connection)

        assert await app.get("a") is not None
    await engine.dispose()


async def test_a_blocked_caller_does_not_hold_other_lines_of_signals(postgres_url: str) -> None:
    """The line of one name and key waits for the caller's transaction; a wait and a signal elsewhere do not."""
    async with workflows_app(postgres_url, worker=True) as app, async_session(postgres_url) as caller:
        await app.start(wait, id="w")
        await parked(app, "w")
        async with caller.transaction() as tx:
            await app.signal(poked, key="held", tx=tx)

            await app.signal(poked)

            assert await app.result("w", timeout="20s") == "poked"
