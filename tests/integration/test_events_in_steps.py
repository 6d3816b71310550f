"""Events that steps publish: written once however often the step is tried, and with its entry where it has a transaction."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from outlast import (
    BlockingContext,
    Context,
    Outlast,
    Retry,
    Signal,
    StepContext,
    WorkflowIOError,
    signals_on,
    starts_on,
    transactional_step,
    workflow,
)
from support.callers import awaiting_engine
from support.colours import ask_awaiting, opened
from support.programs.publishing import OrderPlaced, make_app, order_of

paid = Signal("paid", str)
AT_ONCE = Retry(attempts=3, delay="1ms")


class Unmade(Exception):
    """What ends an attempt."""


@signals_on(OrderPlaced, signal=paid, key=order_of, payload=order_of)
@starts_on(OrderPlaced, id=lambda event: f"bill-{event.order}", input=order_of)
@workflow("bill")
async def bill(ctx: Context, order: str) -> str | None:
    return await ctx.wait_for("payment", ctx.signal(paid, key=order), timeout="1d")


@pytest.mark.parametrize("awaits", [True, False], ids=["awaited", "blocking"])
async def test_an_event_published_by_a_step_that_is_tried_again_does_what_it_does_once(
    database_url: str, awaits: bool
) -> None:
    receipts: list[Any] = []

    def published(found: Any) -> None:
        receipts.append(found)
        if len(receipts) == 1:
            raise Unmade

    async def publish_awaiting(s: StepContext) -> None:
        published(await ask_awaiting(app, "publish", OrderPlaced("7"), OrderPlaced("8")))

    def publish_blocking(s: StepContext) -> None:
        published(app.blocking.publish(OrderPlaced("7"), OrderPlaced("8")))

    @workflow("shop")
    async def shop(ctx: Context) -> None:
        await ctx.step("publish", publish_awaiting if awaits else publish_blocking, retry=AT_ONCE)

    app = Outlast(database_url, workflows=[bill, shop])
    async with opened(app):
        await (await app.start(shop)).result(timeout="20s")

        first, again = receipts
        assert [run.created for run in first.runs] == [True, True]
        assert [run.created for run in again.runs] == [False, False]
        assert [one.id for one in first.signals] == [one.id for one in again.signals]
        assert [one.created for one in again.signals] == [False, False]
        assert len({one.id for one in first.signals}) == 2


async def test_workflow_code_publishes_in_a_step_only(database_url: str) -> None:
    @workflow("shop")
    async def shop(ctx: Context) -> str:
        try:
            await app.publish(OrderPlaced("7"))
        except WorkflowIOError as error:
            return error.call
        return "published"

    app = make_app(database_url, shop, worker=True)
    async with opened(app):
        assert await (await app.start(shop)).result(timeout="20s") == "app.publish(...)"
        assert await app.get("order-7") is None


@pytest.mark.every_database
async def test_what_a_transactional_step_publishes_commits_with_its_entry(shared_database_url: str) -> None:
    engine = awaiting_engine(shared_database_url)
    seen: list[object] = []

    @transactional_step(retry=AT_ONCE)
    async def place(session: AsyncSession, order: str) -> str:
        await app.publish(OrderPlaced(order), tx=session)
        seen.append(await app.get(f"bill-{order}"))
        if len(seen) == 1:
            raise Unmade
        return order

    @workflow("shop")
    async def shop(ctx: Context) -> str:
        return await place("7")

    app = Outlast(shared_database_url, workflows=[bill, shop], transactions=async_sessionmaker(engine))
    async with opened(app):
        assert await (await app.start(shop)).result(timeout="20s") == "7"

        # Neither attempt's run was there before its commit, and the first attempt's never was.
        assert seen == [None, None]
        assert await app.result("bill-7", timeout="20s") == "7"
    await engine.dispose()


@signals_on(OrderPlaced, signal=paid, key=order_of, payload=order_of)
@workflow("plain-bill")
@starts_on(OrderPlaced, id=lambda event: f"bill-{event.order}", input=order_of)
def plain_bill(ctx: BlockingContext, order: str) -> str | None:
    return ctx.wait_for("payment", ctx.signal(paid, key=order), timeout="1d")


async def test_a_workflow_that_is_a_plain_def_is_started_and_signalled_too(database_url: str) -> None:
    async with opened(Outlast(database_url, workflows=[plain_bill], worker=False)) as app:
        await app.publish(OrderPlaced("7"))
        await app.drain()

        assert await app.result("bill-7", timeout="0s") == "7"
