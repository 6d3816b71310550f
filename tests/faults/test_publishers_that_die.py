"""The process of who publishes is killed right before its commit, or right after it, whatever its transaction is made with.

Before: neither its rows nor what its events start and signal. After: all of it.
"""

from __future__ import annotations

import asyncio

from sqlalchemy import text

from outlast import Outlast
from support.callers import ROADS, Place
from support.colours import parked
from support.crashing import KILLED
from support.nursery import Nursery
from support.polls import worker_for
from support.programs import publishing
from support.programs.publishing import OrderDelivered, OrderPlaced


async def orders(url: str) -> int:
    async with ROADS["AsyncConnection"](url) as caller, caller.transaction() as tx:
        count: int = await tx.scalar(text("select count(*) from orders"))
        return count


async def publish_and_die(nursery: Nursery, app: Outlast, place: Place, at: str) -> None:
    await app.publish(OrderPlaced("waiting"))
    await parked(app, "order-waiting")

    child = nursery.start(publishing.publish, url=place.url, road=place.road, die=at)

    assert await asyncio.to_thread(child.wait) == KILLED, child.output


async def test_who_dies_before_the_commit_has_published_nothing(place: Place, nursery: Nursery) -> None:
    async with publishing.make_app(place.url, worker=worker_for(place.url)) as app:
        await publish_and_die(nursery, app, place, "before the commit")

        assert await orders(place.url) == 0
        assert await app.get("order-new") is None
        assert await app.get("thanks-new") is None
        # What it held is free: the same again, by somebody who lives.
        published = await app.publish(OrderPlaced("new"), OrderDelivered("waiting", "p-1"))
        assert [run.created for run in published.runs] == [True, True]
        assert [receipt.created for receipt in published.signals] == [True]
        assert await app.result("order-waiting", timeout="20s") == "waiting by p-1"


async def test_what_was_published_before_the_death_happens(place: Place, nursery: Nursery) -> None:
    async with publishing.make_app(place.url, worker=worker_for(place.url)) as app:
        await publish_and_die(nursery, app, place, "after the commit")

        assert await orders(place.url) == 1
        assert await app.result("order-waiting", timeout="20s") == "waiting by p-1"
        assert await app.result("thanks-new", timeout="20s") == "thanks for new"
        # Published again by who did not hear of it: nothing happens twice.
        published = await app.publish(OrderPlaced("new"), OrderDelivered("waiting", "p-1"))
        assert [run.created for run in published.runs] == [False, False]
        assert [receipt.created for receipt in published.signals] == [False]
