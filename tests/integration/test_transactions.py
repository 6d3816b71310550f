"""The verbs in the caller's own transaction: both commit or neither does, by every road and in both colours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from typing import Any

import pytest
from sqlalchemy import text

from outlast import (
    ConnectionOptions,
    Context,
    Outlast,
    RunIdConflict,
    SchemaBehind,
    Signal,
    Status,
    WorkerOptions,
    workflow,
)
from support.callers import ROADS, Caller, Place, roads_on
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


def workflows_app(url: str, *, worker: bool = False) -> Outlast:
    return Outlast(url, workflows=[greet, wait], worker=worker)


@asynccontextmanager
async def world(place: Place, *, worker: bool = False) -> AsyncGenerator[tuple[Outlast, Caller], None]:
    app = workflows_app(place.url, worker=worker)
    async with app, place.caller() as caller:
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


async def test_a_rolled_back_savepoint_takes_its_runs_with_it(place: Place) -> None:
    async with world(place, worker=True) as (app, caller):
        async with caller.transaction() as tx:
            await caller.insert(tx, "o-1")
            await app.start(greet, "Ada", id="outer", tx=tx)
            with suppress(Undone):
                async with caller.savepoint(tx):
                    await caller.insert(tx, "o-2")
                    await app.start(greet, "Bob", id="undone", tx=tx)
                    raise Undone
            async with caller.savepoint(tx):
                await app.start(greet, "Grace", id="inner", tx=tx)

        assert await app.result("outer", timeout="20s") == "Hello, Ada"
        assert await app.result("inner", timeout="20s") == "Hello, Grace"
        assert sorted(run.id for run in (await app.list()).runs) == ["inner", "outer"]
        assert await orders(place.url) == 1


async def test_a_rolled_back_savepoint_leaves_a_waiting_run_as_it_was(place: Place) -> None:
    async with world(place) as (app, caller):
        await app.start(wait, id="w")
        await app.drain()

        async with caller.transaction() as tx:
            await caller.insert(tx, "o-1")
            with suppress(Undone):
                async with caller.savepoint(tx):
                    assert (await app.signal(poked, tx=tx)).woken == 1
                    assert (await app.cancel("w", tx=tx)).accepted
                    raise Undone

        assert await app.drain() == 0
        run = await app.get("w")
        assert run is not None
        assert (run.status, run.stop_requested) == (Status.SUSPENDED, None)
        await app.signal(poked)
        await app.drain()
        assert await app.result("w", timeout="0s") == "poked"


def test_the_blocking_verbs_join_a_blocking_transaction(blocking_place: Place) -> None:
    app = workflows_app(blocking_place.url)
    app.blocking.migrate()

    with asyncio.Runner() as loop, entered(loop, blocking_place.caller()) as caller:
        with suppress(Undone), entered(loop, caller.transaction()) as tx:
            app.blocking.start(greet, "Ada", id="a", tx=tx)
            raise Undone
        assert app.blocking.get("a") is None
        with entered(loop, caller.transaction()) as tx:
            app.blocking.start(greet, "Ada", id="a", tx=tx)
            assert app.blocking.signal(poked, tx=tx).created
            assert app.blocking.cancel("a", tx=tx).accepted

        run = app.blocking.get("a")
        assert run is not None
        assert run.stop_requested == "cancel"
    app.blocking.close()


@contextmanager
def entered(loop: asyncio.Runner, manager: AbstractAsyncContextManager[Any]) -> Generator[Any, None, None]:
    """Enter a caller's blocking transaction from here, where no loop runs: the blocking verbs refuse to be called in one."""
    value = loop.run(_awaited(manager.__aenter__()))
    try:
        yield value
    except Undone as undone:
        loop.run(_awaited(manager.__aexit__(Undone, undone, None)))
        raise
    loop.run(_awaited(manager.__aexit__(None, None, None)))


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


SESSIONS = [name for name in ROADS if "ession" in name]


@pytest.mark.every_database
@pytest.mark.parametrize("road", SESSIONS)
async def test_a_commit_of_a_session_wakes_the_worker_of_this_process(shared_database_url: str, road: str) -> None:
    """Other notices are cut off: only the session's commit can have woken it. What is rolled back wakes nobody."""
    app = workflows_app(shared_database_url)
    woken: list[str] = []
    async with app, ROADS[road](shared_database_url) as caller:

        class Worker:
            def wake(self) -> None:
                woken.append("woken")

        app._access.local = _local(Worker())
        async with rolled_back(caller) as tx:
            await app.start(greet, "Ada", tx=tx)
        async with caller.transaction() as tx:
            with suppress(Undone):
                async with caller.savepoint(tx):
                    await app.start(greet, "Ada", tx=tx)
                    raise Undone
        assert woken == []

        async with caller.transaction() as tx:
            await app.start(greet, "Ada", tx=tx)
            async with caller.savepoint(tx):
                await caller.insert(tx, "o-1")
            assert woken == []
        assert woken == ["woken"]
        app._access.local = None


async def test_a_commit_is_noticed_whatever_committed_it(place: Place) -> None:
    """The worker's own look is an hour away: the kind of transaction tells of its commit, or the database does."""
    app = Outlast(place.url, workflows=[greet, wait], worker=WorkerOptions(poll="1h", lease="1h"))
    async with app, place.caller() as caller:
        async with caller.transaction() as tx:
            await app.start(greet, "Ada", id="a", tx=tx)
            await app.start(wait, id="w", tx=tx)
        assert await app.result("a", timeout="20s") == "Hello, Ada"
        await parked(app, "w")

        async with caller.transaction() as tx:
            await app.signal(poked, tx=tx)
        assert await app.result("w", timeout="20s") == "poked"


BARE = [road for road in roads_on("postgresql") if road not in SESSIONS]


@pytest.mark.parametrize("road", BARE)
async def test_a_commit_is_noticed_where_the_database_tells_nobody(postgres_url: str, road: str) -> None:
    """The worker's own look is an hour away, and nobody listens: as behind a pooler, or on a server without notices."""
    app = Outlast(
        postgres_url,
        workflows=[greet],
        worker=WorkerOptions(poll="1h", lease="1h"),
        connections=ConnectionOptions(listen=False),
    )
    async with app, ROADS[road](postgres_url) as caller:
        async with rolled_back(caller) as tx:
            await app.start(greet, "Bob", id="b", tx=tx)
        async with caller.transaction() as tx:
            await app.start(greet, "Ada", id="a", tx=tx)
        assert await app.result("a", timeout="20s") == "Hello, Ada"
        assert await app.get("b") is None


def _local(worker: Any) -> Any:
    from outlast.client.access import Local

    return Local(worker, asyncio.get_running_loop())


@pytest.mark.time_limit(10)
async def test_a_first_call_inside_a_transaction_makes_the_tables_beside_it(place: Place) -> None:
    app = workflows_app(place.url)
    async with place.caller() as caller:
        async with rolled_back(caller) as tx:
            await app.start(greet, "Ada", id="a", tx=tx)
        async with caller.transaction() as tx:
            await app.start(greet, "Ada", id="b", tx=tx)
            await caller.insert(tx, "o-1")

        assert [run.id for run in (await app.list()).runs] == ["b"]
        assert await orders(place.url) == 1
    await app.close()


@pytest.mark.time_limit(10)
async def test_a_first_call_inside_a_transaction_never_waits_for_that_transaction(place: Place) -> None:
    """A transaction that has written has a SQLite file's only write lock, and it waits for the call."""
    app = workflows_app(place.url)
    async with place.caller() as caller:
        async with caller.transaction() as tx:
            await caller.insert(tx, "o-1")
            if place.url.startswith("sqlite"):
                with pytest.raises(SchemaBehind) as raised:
                    await app.start(greet, "Ada", tx=tx)
                assert "`with app.blocking: ...`" in str(raised.value.__notes__)
            else:
                await app.start(greet, "Ada", id="a", tx=tx)
        await app.migrate()
        async with caller.transaction() as tx:
            await caller.insert(tx, "o-2")
            await app.start(greet, "Ada", id="b", tx=tx)

        assert await app.get("b")
        assert await orders(place.url) == 2
    await app.close()


async def test_a_blocked_caller_does_not_hold_other_lines_of_signals(postgres_url: str) -> None:
    """The line of one name and key waits for the caller's transaction; a wait and a signal elsewhere do not."""
    async with workflows_app(postgres_url, worker=True) as app, ROADS["AsyncSession"](postgres_url) as caller:
        await app.start(wait, id="w")
        await parked(app, "w")
        async with caller.transaction() as tx:
            await app.signal(poked, key="held", tx=tx)

            await app.signal(poked)

            assert await app.result("w", timeout="20s") == "poked"
