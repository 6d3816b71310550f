"""A bus of the application's own and messages of a broker, as the source of events."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from outlast import Context, InvalidArgument, Outlast, RunIdConflict, Signal, signals_on, workflow
from outlast.integrations.events_bus import wrap_blocking_publisher, wrap_publisher
from outlast.integrations.events_messages import blocking_consumer, consumer
from support.callers import awaiting_engine, blocking_engine
from support.colours import opened, written
from support.programs.publishing import OrderDelivered, OrderPlaced, fulfil, make_app


class Bus:
    """What an application has: subscribers, told one after the other."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def tell(self, event: object, *, urgent: bool = False) -> int:
        self.told.append((event, urgent))
        return len(self.told)

    async def publish(self, event: object, *, urgent: bool = False, session: object = None) -> int:
        return self.tell(event, urgent=urgent)


async def test_a_wrapped_bus_writes_first_and_then_tells(database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(make_app(database_url)) as app:
        seen: list[list[str]] = []

        async def inner(event: object) -> None:
            seen.append(await written(app))

        publish = wrap_publisher(app, inner)
        await publish("nothing maps it")
        await publish(OrderPlaced("7"))

        assert seen == [[], ["order-7", "thanks-7"]]
        assert "is published" not in caplog.text  # a bus has events of many kinds


async def test_a_wrapped_bus_is_called_as_it_was(database_url: str) -> None:
    async with opened(make_app(database_url)) as app:
        bus = Bus()
        publish = wrap_publisher(app, bus.publish)
        tell = wrap_blocking_publisher(app, bus.tell)

        assert await publish(OrderPlaced("7"), urgent=True) == 1
        assert await asyncio.to_thread(tell, OrderPlaced("8"), urgent=True) == 2
        assert await asyncio.to_thread(tell, "nothing maps it") == 3

        assert bus.told == [(OrderPlaced("7"), True), (OrderPlaced("8"), True), ("nothing maps it", False)]
        assert await written(app) == ["order-7", "order-8", "thanks-7", "thanks-8"]
        assert publish.__name__ == "publish"


async def test_a_publisher_of_several_events_writes_them_together(database_url: str) -> None:
    async with opened(make_app(database_url)) as app:
        told: list[list[object]] = []

        async def publish_all(events: list[object]) -> None:
            told.append(events)

        wrapped = wrap_publisher(app, publish_all, events=lambda events: events)
        wrapped_blocking = wrap_blocking_publisher(app, told.append, events=lambda events: events)
        await app.start(fulfil, "other", id="order-9")

        await wrapped([OrderPlaced("7"), "nothing maps it", OrderDelivered("7", "p-1")])
        await asyncio.to_thread(wrapped_blocking, [OrderPlaced("8")])
        with pytest.raises(RunIdConflict):
            await wrapped([OrderPlaced("10"), OrderPlaced("9")])

        assert [len(events) for events in told] == [3, 1]
        assert await written(app) == ["order-7", "order-8", "order-9", "thanks-7", "thanks-8"]


async def test_a_publisher_is_given_all_that_it_was_called_with_and_so_is_what_finds_the_events() -> None:
    told: list[tuple[object, ...]] = []

    async def publish(topic: str, *events: object, urgent: bool = False) -> None:
        """Tell subscribers."""
        told.append((topic, *events, urgent))

    def publish_blocking(topic: str, *events: object, urgent: bool = False) -> None:
        """Tell subscribers."""
        told.append((topic, *events, urgent))

    def urgent_ones(topic: str, *events: object, urgent: bool = False) -> list[object]:
        return list(events) if urgent else []

    found: list[tuple[object, ...]] = []

    def no_transaction(*args: object, urgent: bool = False) -> None:
        found.append((*args, urgent))

    async with opened(make_app("sqlite://")) as app:
        wrapped = wrap_publisher(app, publish, events=urgent_ones, tx=no_transaction)
        blocking = wrap_blocking_publisher(app, publish_blocking, events=urgent_ones, tx=no_transaction)
        await wrapped("orders", OrderPlaced("6"))
        await wrapped("orders", OrderPlaced("7"), OrderPlaced("8"), urgent=True)
        await asyncio.to_thread(blocking, "orders", OrderPlaced("9"), urgent=True)

        assert await written(app) == ["order-7", "order-8", "order-9", "thanks-7", "thanks-8", "thanks-9"]

    several = ("orders", OrderPlaced("7"), OrderPlaced("8"), True)
    assert told == [("orders", OrderPlaced("6"), False), several, ("orders", OrderPlaced("9"), True)]
    assert found == [several, ("orders", OrderPlaced("9"), True)]
    assert wrapped.__doc__ == blocking.__doc__ == "Tell subscribers."


async def test_what_cannot_be_written_is_not_told(database_url: str) -> None:
    async with opened(make_app(database_url)) as app:
        await app.start(fulfil, "other", id="order-7")
        bus = Bus()

        with pytest.raises(RunIdConflict):
            await wrap_publisher(app, bus.publish)(OrderPlaced("7"))
        with pytest.raises(RunIdConflict):
            await asyncio.to_thread(wrap_blocking_publisher(app, bus.tell), OrderPlaced("7"))

        assert bus.told == []


class Undone(Exception):
    """What makes a caller roll back."""


@pytest.mark.every_database
async def test_a_wrapped_bus_writes_in_the_transaction_that_it_finds(shared_database_url: str) -> None:
    engine = awaiting_engine(shared_database_url)
    async with opened(make_app(shared_database_url)) as app:
        publish = wrap_publisher(app, Bus().publish, tx=lambda event, *, urgent=False, session=None: session)

        with suppress(Undone):
            async with AsyncSession(engine) as session, session.begin():
                await publish(OrderPlaced("undone"), session=session)
                raise Undone
        async with AsyncSession(engine) as session, session.begin():
            await publish(OrderPlaced("7"), session=session)

        assert await written(app) == ["order-7", "thanks-7"]
    await engine.dispose()


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_publishers_that_are_not_awaited_write_in_a_transaction_too(shared_database_url: str, ends: str) -> None:
    engine = blocking_engine(shared_database_url)
    app = make_app(shared_database_url)
    app.blocking.migrate()
    publish = wrap_blocking_publisher(app, Bus().tell, tx=lambda event, *, urgent=False: session)
    consume = blocking_consumer(app, event=OrderPlaced, id=str)

    with Session(engine) as session:
        publish(OrderPlaced("7"))
        consume("8", tx=session)
        session.commit() if ends == "commit" else session.rollback()

    ids = sorted(run.id for run in app.blocking.list().runs)
    assert ids == (["order-7", "order-8", "thanks-7", "thanks-8"] if ends == "commit" else [])
    app.blocking.close()
    engine.dispose()


def test_wrapping_for_an_app_that_maps_nothing_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    wrap_publisher(make_app("sqlite://"), Bus().publish)
    assert caplog.text == ""

    wrap_publisher(Outlast("sqlite://"), Bus().publish)
    wrap_blocking_publisher(Outlast("sqlite://"), Bus().tell)

    assert caplog.text.count("no workflow of it maps an event, so nothing is started or signalled") == 2


def test_an_app_tells_which_events_a_consumer_has_to_subscribe_to() -> None:
    assert make_app("sqlite://").mapped_events == {OrderPlaced, OrderDelivered}
    assert Outlast("sqlite://").mapped_events == frozenset()


# Messages.


@dataclass
class Message:
    id: str
    order: str
    parcel: str = "p-1"


arrived = Signal("arrived", str)


@signals_on(OrderDelivered, signal=arrived, key=lambda event: event.order, payload=lambda event: event.parcel)
@workflow("unpack")
async def unpack(ctx: Context, order: str) -> str:
    first = await ctx.wait_for("first", ctx.signal(arrived, key=order))
    second = await ctx.wait_for("second", ctx.signal(arrived, key=order))
    return f"{first}, {second}"


def event_of(message: Message) -> OrderDelivered:
    return OrderDelivered(message.order, message.parcel)


def id_of(message: Message) -> str:
    return message.id


@pytest.mark.every_database
@pytest.mark.parametrize("awaits", [True, False], ids=["awaited", "blocking"])
async def test_a_message_that_is_delivered_twice_is_taken_once(database_url: str, awaits: bool) -> None:
    async with opened(Outlast(database_url, workflows=[unpack], worker=False)) as app:
        await app.start(unpack, "7", id="u")
        consume = consumer(app, event=event_of, id=id_of)
        consume_blocking = blocking_consumer(app, event=event_of, id=id_of)

        async def take(message: Message) -> Any:
            return await consume(message) if awaits else await asyncio.to_thread(consume_blocking, message)

        for message in (Message("m-1", "7"), Message("m-1", "7"), Message("m-2", "7", "p-2")):
            assert [one.id for one in (await take(message)).signals] == [message.id]
        await app.drain()

        assert await app.result("u", timeout="0s") == "p-1, p-2"


@pytest.mark.every_database
async def test_a_message_is_taken_in_the_consumers_transaction(shared_database_url: str) -> None:
    engine = awaiting_engine(shared_database_url)
    async with opened(Outlast(shared_database_url, workflows=[unpack], worker=False)) as app:
        consume = consumer(app, event=event_of, id=id_of)

        with suppress(Undone):
            async with AsyncSession(engine) as session, session.begin():
                assert (await consume(Message("m-1", "7"), tx=session)).signals[0].created
                raise Undone

        assert (await consume(Message("m-1", "7"))).signals[0].created
    await engine.dispose()


async def test_an_event_that_is_yet_to_be_awaited_is_refused() -> None:
    """It was published as an event that nothing maps: a line in the log, and the message was lost."""

    async def event_in(message: dict[str, str]) -> object:
        return OrderPlaced(message["order"])

    async with opened(make_app("sqlite://")) as app:
        with pytest.raises(InvalidArgument, match="awaited first"):
            await consumer(app, event=event_in, id=lambda _: "m-1")({"order": "7"})
        with pytest.raises(InvalidArgument, match="awaited first"):
            await asyncio.to_thread(blocking_consumer(app, event=event_in, id=lambda _: "m-1"), {"order": "7"})

        assert await written(app) == []


async def test_a_message_that_cannot_be_read_writes_nothing() -> None:
    def event_in(message: dict[str, str]) -> object:
        return OrderPlaced(message["order"])

    async with opened(make_app("sqlite://")) as app:
        with pytest.raises(KeyError):
            await consumer(app, event=event_in, id=lambda message: message["id"])({"id": "m-1"})

        assert await written(app) == []
