"""The process of the caller is killed right before its commit, or right after it, whatever its transaction is made with.

Before: nothing of it ever was, and nothing of it is in the way of who comes next. After: all of it is, and others hear of it
although the one who would have told them is gone.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import text

from outlast import Outlast, RunCancelled, Status
from support.callers import ROADS, Place
from support.colours import parked
from support.crashing import KILLED
from support.nursery import Nursery
from support.polls import worker_for
from support.programs import calling
from support.programs.calling import greet, listen, poked, rest


async def served(app: Outlast) -> None:
    """The two runs that the caller is about to write to, both at their wait."""
    await app.start(listen, id="listening")
    await app.start(rest, id="resting")
    await parked(app, "listening")
    await parked(app, "resting")


async def orders(url: str) -> int:
    async with ROADS["AsyncConnection"](url) as caller, caller.transaction() as tx:
        count: int = await tx.scalar(text("select count(*) from orders"))
        return count


async def order_and_die(nursery: Nursery, place: Place, at: str) -> None:
    child = nursery.start(calling.order, url=place.url, road=place.road, die=at)

    assert await asyncio.to_thread(child.wait) == KILLED, child.output


async def test_a_caller_that_dies_before_its_commit_has_done_nothing(place: Place, nursery: Nursery) -> None:
    async with calling.make_app(place.url, worker=worker_for(place.url)) as app:
        await served(app)

        await order_and_die(nursery, place, "before the commit")

        assert await orders(place.url) == 0
        assert await app.get("ordered") is None
        resting: Any = await app.get("resting")
        assert (resting.status, resting.stop_requested) == (Status.SUSPENDED, None)
        # What it held is free: the same again, by somebody who lives.
        await app.signal(poked, "from the next one")
        assert await app.result("listening", timeout="20s") == "from the next one"
        assert (await app.start(greet, "Bob", id="ordered")).created
        assert await app.result("ordered", timeout="20s") == "Hello, Bob"
        assert (await app.cancel("resting")).accepted


async def test_what_a_caller_committed_before_it_died_happens(place: Place, nursery: Nursery) -> None:
    async with calling.make_app(place.url, worker=worker_for(place.url)) as app:
        await served(app)

        await order_and_die(nursery, place, "after the commit")

        assert await orders(place.url) == 1
        assert await app.result("ordered", timeout="20s") == "Hello, Ada"
        assert await app.result("listening", timeout="20s") == "from a transaction"
        with pytest.raises(RunCancelled):
            await app.result("resting", timeout="20s")
