"""What events do to workflows commits and rolls back with the caller's own rows, whatever its transaction is made with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from outlast import IsolationRefused, NotATransaction, Outlast, RunIdConflict, WorkerOptions
from support.callers import ROADS, Caller, Place, awaiting_engine
from support.colours import ask_blocking, written
from support.programs.publishing import OrderDelivered, OrderPlaced, delivered, fulfil, make_app


class Undone(Exception):
    """What makes a caller roll back."""


@asynccontextmanager
async def world(
    place: Place, *more: object, worker: bool | WorkerOptions = False
) -> AsyncGenerator[tuple[Outlast, Caller], None]:
    app = make_app(place.url, *more, worker=worker)
    async with app, place.caller() as caller:
        yield app, caller
    await asyncio.to_thread(app.blocking.close)


async def orders(url: str) -> int:
    async with ROADS["AsyncConnection"](url) as caller, caller.transaction() as tx:
        count: int = await tx.scalar(text("select count(*) from orders"))
        return count


async def test_what_events_do_commits_with_the_callers_rows(place: Place) -> None:
    async with world(place, worker=WorkerOptions(poll="1h")) as (app, caller):
        async with caller.transaction() as tx:
            await caller.insert(tx, "o-1")
            published = await app.publish(OrderPlaced("7"), tx=tx)
        async with caller.transaction() as tx:
            await caller.insert(tx, "o-2")
            await app.publish(OrderDelivered("7", "p-1"), tx=tx)

        assert await published.runs[0].result(timeout="20s") == "7 by p-1"
        assert await orders(place.url) == 2


async def test_what_events_do_rolls_back_with_the_callers_rows(place: Place) -> None:
    async with world(place) as (app, caller):
        with suppress(Undone):
            async with caller.transaction() as tx:
                await caller.insert(tx, "o-1")
                await app.publish(OrderPlaced("7"), OrderDelivered("7", "p-1"), tx=tx)
                raise Undone

        assert await written(app) == []
        assert (await app.signal(delivered, "p-1", key="7", id="p-1")).created
        assert await orders(place.url) == 0


async def test_a_rolled_back_savepoint_takes_what_its_events_did_with_it(place: Place) -> None:
    async with world(place) as (app, caller):
        async with caller.transaction() as tx:
            await caller.insert(tx, "o-1")
            await app.publish(OrderPlaced("outer"), tx=tx)
            with suppress(Undone):
                async with caller.savepoint(tx):
                    await caller.insert(tx, "o-2")
                    await app.publish(OrderPlaced("undone"), OrderDelivered("outer", "p-1"), tx=tx)
                    raise Undone

        assert await written(app) == ["order-outer", "thanks-outer"]
        assert (await app.signal(delivered, "p-1", key="outer", id="p-1")).created
        assert await orders(place.url) == 1


async def test_handlers_are_called_before_the_commit_and_their_error_can_undo_it(place: Place) -> None:
    told: list[object] = []
    async with world(place) as (app, caller):

        @app.on(OrderPlaced)
        def refuse(event: OrderPlaced) -> None:
            told.append(event)
            raise Undone

        with suppress(Undone):
            async with caller.transaction() as tx:
                await caller.insert(tx, "o-1")
                await app.publish(OrderPlaced("7"), tx=tx)

        assert told == [OrderPlaced("7")]
        assert await written(app) == []
        assert await orders(place.url) == 0


@pytest.mark.every_database
async def test_a_blocking_publish_joins_a_blocking_session(shared_database_url: str) -> None:
    async with world(Place(shared_database_url, "Session")) as (app, caller):
        async with caller.transaction() as tx:
            await caller.insert(tx, "o-1")
            published = await ask_blocking(app, "publish", OrderPlaced("7"), OrderDelivered("7", "p-1"), tx=tx)
            assert await orders_seen(shared_database_url) == 0
        await app.drain()

        assert [run.created for run in published.runs] == [True, True]
        assert await app.result("order-7", timeout="0s") == "7 by p-1"


async def orders_seen(url: str) -> int:
    """What another connection sees without waiting for anybody."""
    engine = awaiting_engine(url)
    async with engine.connect() as connection:
        count: int = await connection.scalar(text("select count(*) from orders")) or 0
    await engine.dispose()
    return count


async def test_a_conflict_is_raised_before_a_signal_is_sent_and_leaves_the_transaction_usable(place: Place) -> None:
    async with world(place) as (app, caller):
        await app.start(fulfil, "other", id="order-7")

        async with caller.transaction() as tx:
            await caller.insert(tx, "o-1")
            with pytest.raises(RunIdConflict):
                await app.publish(OrderPlaced("7"), OrderDelivered("7", "p-1"), tx=tx)
            await caller.insert(tx, "o-2")

        assert (await app.signal(delivered, "p-1", key="7", id="p-1")).created
        assert await orders(place.url) == 2


@pytest.mark.every_database
async def test_a_root_handle_is_refused(shared_database_url: str) -> None:
    engine = awaiting_engine(shared_database_url)
    async with world(Place(shared_database_url, "AsyncSession")) as (app, _):
        with pytest.raises(NotATransaction, match=r"engine\.begin\(\)"):
            await app.publish(OrderPlaced("7"), tx=engine)

        assert await written(app) == []
    await engine.dispose()


async def test_a_signal_is_not_sent_from_a_stricter_transaction_and_a_start_is(postgres_url: str) -> None:
    engine = awaiting_engine(postgres_url).execution_options(isolation_level="REPEATABLE READ")
    async with world(Place(postgres_url, "AsyncSession")) as (app, _):
        async with AsyncSession(engine) as session, session.begin():
            await app.publish(OrderPlaced("7"), tx=session)
        with pytest.raises(IsolationRefused):
            async with AsyncSession(engine) as session, session.begin():
                await app.publish(OrderPlaced("8"), OrderDelivered("8", "p-1"), tx=session)

        assert await written(app) == ["order-7", "thanks-7"]
    await engine.dispose()
