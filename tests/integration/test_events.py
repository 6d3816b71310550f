"""Events start and signal workflows: what is written, how often, and who is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from outlast import (
    AppClosed,
    Context,
    DefinitionError,
    InvalidArgument,
    Outlast,
    RunIdConflict,
    Signal,
    SignalIdConflict,
    ValueNotStorable,
    signals_on,
    starts_on,
    workflow,
)
from support.colours import Ask, opened, parked, result_of, written
from support.programs.publishing import (
    OrderDelivered,
    OrderPlaced,
    delivered,
    fulfil,
    make_app,
    order_of,
    parcel_of,
    run_of,
)


async def was_sent(app: Outlast, event: OrderDelivered) -> bool:
    """Whether the signal of this delivery is stored: sent again under its id it is not new then."""
    return not (await app.signal(delivered, event.parcel, key=event.order, id=event.parcel)).created


@pytest.mark.every_database
async def test_events_start_and_signal_workflows(database_url: str, ask: Ask) -> None:
    async with opened(make_app(database_url, worker=True)) as app:
        placed = await ask(app, "publish", OrderPlaced("7"))
        assert [(run.id, run.workflow, run.created) for run in placed.runs] == [
            ("order-7", "fulfil", True),
            ("thanks-7", "thank", True),
        ]
        assert placed.signals == ()
        await parked(app, "order-7")

        sent = await ask(app, "publish", OrderDelivered("7", "p-1"))

        assert sent.runs == ()
        assert [(receipt.id, receipt.created, receipt.woken) for receipt in sent.signals] == [("p-1", True, 1)]
        assert [await result_of(run) for run in placed.runs] == ["7 by p-1", "thanks for 7"]


@pytest.mark.every_database
async def test_an_event_that_is_published_twice_does_what_it_does_once(database_url: str, ask: Ask) -> None:
    async with opened(make_app(database_url)) as app:
        events = (OrderPlaced("7"), OrderDelivered("7", "p-1"))
        first = await ask(app, "publish", *events)
        again = await ask(app, "publish", *events)
        twice = await ask(app, "publish", *events, *events)

        assert [run.created for run in first.runs] == [True, True]
        assert [run.created for run in (*again.runs, *twice.runs)] == [False] * 6
        assert [receipt.created for receipt in (*first.signals, *again.signals, *twice.signals)] == [
            True,
            False,
            False,
            False,
        ]
        assert await written(app) == ["order-7", "thanks-7"]


async def test_an_event_twice_in_one_call_does_what_it_does_once(database_url: str, ask: Ask) -> None:
    async with opened(make_app(database_url)) as app:
        published = await ask(app, "publish", OrderPlaced("7"), OrderPlaced("7"))

        assert [(run.id, run.created) for run in published.runs] == [
            ("order-7", True),
            ("thanks-7", True),
            ("order-7", False),
            ("thanks-7", False),
        ]


async def test_a_run_that_an_event_starts_sees_the_signals_of_the_same_call(database_url: str, ask: Ask) -> None:
    async with opened(make_app(database_url)) as app:
        await ask(app, "publish", OrderDelivered("7", "p-1"), OrderPlaced("7"))
        await app.drain()

        assert await app.result("order-7", timeout="0s") == "7 by p-1"


paid = Signal("paid", str)


@signals_on(OrderPlaced, signal=paid, key=order_of, payload=order_of)
@starts_on(OrderPlaced, id=lambda event: f"bill-{event.order}", input=order_of)
@workflow("bill")
async def bill(ctx: Context, order: str) -> str | None:
    return await ctx.wait_for("payment", ctx.signal(paid, key=order), timeout="1d")


async def test_an_event_may_start_a_run_and_signal_it(database_url: str, ask: Ask) -> None:
    async with opened(Outlast(database_url, workflows=[bill], worker=False)) as app:
        await ask(app, "publish", OrderPlaced("7"))
        await app.drain()

        assert await app.result("bill-7", timeout="0s") == "7"


# What fails writes nothing.


@dataclass(frozen=True)
class Broken:
    order: str


class Unmade(Exception):
    """What an application's own function raises."""


def unmade(event: Broken) -> str:
    raise Unmade(event.order)


@starts_on(Broken, id=unmade)
@workflow("broken")
async def broken(ctx: Context) -> None: ...


@starts_on(Broken, id=lambda event: "unstorable", input=lambda event: object())
@workflow("unstorable")
async def unstorable(ctx: Context, value: object) -> None: ...


@signals_on(Broken, signal=delivered, payload=cast("Any", lambda event: 7))
@workflow("mistyped")
async def mistyped(ctx: Context) -> None: ...


@pytest.mark.parametrize(
    "failing, error", [(broken, Unmade), (unstorable, ValueNotStorable), (mistyped, ValueNotStorable)]
)
async def test_nothing_is_written_when_one_of_the_starts_and_signals_cannot_be_made(
    database_url: str, ask: Ask, failing: object, error: type[Exception]
) -> None:
    told: list[object] = []
    async with opened(make_app(database_url, failing)) as app:
        app.on(OrderPlaced)(told.append)

        with pytest.raises(error):
            await ask(app, "publish", OrderPlaced("7"), OrderDelivered("7", "p-1"), Broken("7"))

        assert await written(app) == []
        assert not await was_sent(app, OrderDelivered("7", "p-1"))
        assert told == []


async def test_a_start_that_conflicts_undoes_the_others(database_url: str, ask: Ask) -> None:
    async with opened(make_app(database_url)) as app:
        await app.start(fulfil, "other", id="order-7")

        with pytest.raises(RunIdConflict):
            await ask(app, "publish", OrderPlaced("7"), OrderDelivered("7", "p-1"))

        assert await written(app) == ["order-7"]
        assert not await was_sent(app, OrderDelivered("7", "p-1"))


@pytest.mark.every_database
async def test_a_signal_that_conflicts_undoes_a_lone_start(database_url: str, ask: Ask) -> None:
    """The start would be one statement, which commits by itself where nothing follows."""
    async with opened(Outlast(database_url, workflows=[fulfil], worker=False)) as app:
        await app.signal(delivered, "p-1", key="another order", id="p-1")

        with pytest.raises(SignalIdConflict):
            await ask(app, "publish", OrderPlaced("7"), OrderDelivered("7", "p-1"))

        assert await written(app) == []


@pytest.mark.every_database
async def test_two_starts_of_one_id_undo_each_other(database_url: str, ask: Ask) -> None:
    """Runs of one id are created by statements of their own."""

    @starts_on(OrderPlaced, id=run_of)
    @workflow("rival")
    async def rival(ctx: Context) -> None: ...

    async with opened(make_app(database_url, rival)) as app:
        with pytest.raises(RunIdConflict):
            await ask(app, "publish", OrderPlaced("7"))

        assert await written(app) == []


async def test_versions_that_disagree_about_a_signal_write_nothing(database_url: str, ask: Ask) -> None:
    @signals_on(OrderDelivered, signal=delivered, key=parcel_of, payload=parcel_of)
    @starts_on(OrderPlaced, id=run_of, input=order_of)
    @workflow("fulfil", version=2)
    async def second(ctx: Context, order: str) -> None: ...

    async with opened(make_app(database_url, second)) as app:
        with pytest.raises(DefinitionError, match="disagree about the key of signal 'delivered'"):
            await ask(app, "publish", OrderPlaced("7"), OrderDelivered("7", "p-1"))

        assert await written(app) == []


async def test_of_two_versions_the_highest_starts_and_both_are_signalled_once(database_url: str, ask: Ask) -> None:
    @signals_on(OrderDelivered, signal=delivered, key=order_of, id=parcel_of, payload=parcel_of)
    @starts_on(OrderPlaced, id=lambda event: f"second-{event.order}", input=order_of)
    @workflow("fulfil", version=2)
    async def second(ctx: Context, order: str) -> str:
        first = await ctx.wait_for("first", ctx.signal(delivered, key=order))
        second = await ctx.wait_for("second", ctx.signal(delivered, key=order))
        return f"{first}, {second}"

    async with opened(make_app(database_url, second)) as app:
        await app.start(fulfil, "7", id="first", version=1)
        placed = await ask(app, "publish", OrderPlaced("7"))
        await app.drain()
        sent = await ask(app, "publish", OrderDelivered("7", "p-1"))
        await ask(app, "publish", OrderDelivered("7", "p-2"))
        await app.drain()

        assert [(run.id, run.version) for run in placed.runs] == [("second-7", 2), ("thanks-7", 1)]
        assert [receipt.woken for receipt in sent.signals] == [2]
        assert await app.result("first", timeout="0s") == "7 by p-1"
        assert await app.result("second-7", timeout="0s") == "p-1, p-2"


# From a message, and from a process that runs nothing.


async def test_a_message_that_comes_twice_sends_its_signals_once(database_url: str, ask: Ask) -> None:
    @signals_on(OrderDelivered, signal=paid, key=order_of, payload=parcel_of)
    @workflow("by-order")
    async def by_order(ctx: Context) -> None: ...

    @signals_on(OrderDelivered, signal=paid, key=parcel_of, payload=parcel_of)
    @workflow("by-parcel")
    async def by_parcel(ctx: Context) -> None: ...

    async with opened(Outlast(database_url, workflows=[by_order, by_parcel], worker=False)) as app:
        first = await ask(app, "publish", OrderDelivered("7", "p-1"), id="message-1")
        again = await ask(app, "publish", OrderDelivered("7", "p-1"), id="message-1")
        other = await ask(app, "publish", OrderDelivered("7", "p-1"), id="message-2")

        assert first.signals[0].id == "message-1"
        assert len({receipt.id for receipt in (*first.signals, *other.signals)}) == 4
        assert [receipt.id for receipt in again.signals] == [receipt.id for receipt in first.signals]
        assert [receipt.created for receipt in (*first.signals, *again.signals, *other.signals)] == [
            True,
            True,
            False,
            False,
            True,
            True,
        ]
        with pytest.raises(InvalidArgument, match="signal id"):
            await ask(app, "publish", OrderDelivered("7", "p-1"), id="")


async def test_a_process_without_a_worker_publishes_for_those_that_have_one(shared_database_url: str, ask: Ask) -> None:
    async with make_app(shared_database_url, worker=True) as working, opened(make_app(shared_database_url)) as app:
        await ask(app, "publish", OrderPlaced("7"))
        await ask(app, "publish", OrderDelivered("7", "p-1"))

        assert await working.result("order-7", timeout="20s") == "7 by p-1"


async def test_an_app_that_was_closed_publishes_nothing(ask: Ask) -> None:
    app = make_app("sqlite://")
    async with app:
        pass

    with pytest.raises(AppClosed):
        await ask(app, "publish", OrderPlaced("7"))


# At start-up.


def test_a_workflow_that_maps_an_event_twice_is_refused_at_start_up() -> None:
    @starts_on(OrderPlaced, id=run_of)
    @starts_on(OrderPlaced, id=order_of)
    @workflow("twice")
    async def twice(ctx: Context) -> None: ...

    with pytest.raises(DefinitionError, match="stands there twice"):
        Outlast("sqlite://", workflows=[twice])


def test_a_mapping_on_what_is_no_workflow_is_refused_at_start_up() -> None:
    @starts_on(OrderPlaced, id=run_of)
    async def plain(ctx: Context) -> None: ...

    with pytest.raises(DefinitionError, match="is not a workflow"):
        Outlast("sqlite://", workflows=[plain])


def test_an_input_of_another_type_is_refused_at_start_up() -> None:
    @starts_on(OrderPlaced, id=run_of)
    @workflow("wants-text")
    class WantsText:
        async def run(self, ctx: Context, order: str) -> None: ...

    with pytest.raises(DefinitionError, match="the workflow's input is str; the event itself is OrderPlaced"):
        Outlast("sqlite://", workflows=[WantsText])
