"""Events flow from what publishes them to the workflows that map them, with their types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import DeclarativeBase

from outlast import (
    BlockingContext,
    BlockingHandle,
    Context,
    Handle,
    Outlast,
    Published,
    Signal,
    Workflow,
    signals_on,
    starts_on,
    workflow,
)
from outlast.integrations.events_bus import wrap_blocking_publisher, wrap_publisher
from outlast.integrations.events_messages import blocking_consumer, consumer
from outlast.integrations.events_sqlalchemy import publish_on_commit


@dataclass
class Order:
    id: str
    is_express: bool


@dataclass
class OrderPlaced:
    order: Order


@dataclass
class ExpressOrderPlaced(OrderPlaced):
    hours: int


@dataclass
class OrderDelivered:
    order: str
    parcel: str


delivered = Signal("delivered", str)
arrived = Signal("arrived", OrderDelivered)
poked = Signal("poked")


@starts_on(
    OrderPlaced,
    id=lambda event: f"order-{event.order.id}",
    input=lambda event: event.order,
    priority=lambda event: 1 if event.order.is_express else 2,
)
@signals_on(
    OrderDelivered,
    signal=delivered,
    key=lambda event: event.order,
    id=lambda event: event.parcel,
    payload=lambda event: event.parcel,
)
@workflow("above")
async def above(ctx: Context, order: Order) -> int:
    return 1


assert_type(above, Workflow[Order, int])


@workflow("values")
@starts_on(OrderPlaced, id="the-only-one", input=lambda event: event.order)
@signals_on(OrderDelivered, signal=delivered, key="all", id="once", payload="it came")
async def values(ctx: Context, order: Order) -> int:
    return 1


assert_type(values, Workflow[Order, int])


@workflow("below")
@starts_on(OrderPlaced, id=lambda event: event.order.id, input=lambda event: event.order, priority=1)
@signals_on(OrderDelivered, signal=arrived, key="all")
@signals_on(OrderPlaced, signal=poked)
async def below(ctx: Context, order: Order) -> int:
    return 1


assert_type(below, Workflow[Order, int])


@starts_on(OrderPlaced, id=lambda event: event.order.id)
@workflow("event-itself")
async def event_itself(ctx: Context, event: OrderPlaced) -> None: ...


@starts_on(ExpressOrderPlaced, id=lambda event: f"{event.order.id}-{event.hours}")
@workflow("event-of-a-subclass")
async def event_of_a_subclass(ctx: Context, event: OrderPlaced) -> None: ...


@starts_on(OrderPlaced, id=lambda event: event.order.id, input=lambda event: event.order.id)
@workflow("wider")
async def wider(ctx: Context, order: str | None) -> None: ...


@starts_on(OrderPlaced, id=lambda event: event.order.id)
@workflow("alone")
async def alone(ctx: Context) -> str:
    return "done"


@workflow("alone-below")
@starts_on(OrderPlaced, id=lambda event: event.order.id)
async def alone_below(ctx: Context) -> str:
    return "done"


@starts_on(OrderPlaced, id=lambda event: event.order.id, input=lambda event: event.order)
@workflow("plain")
def plain(ctx: BlockingContext, order: Order) -> int:
    return 1


@workflow("plain-below")
@starts_on(OrderPlaced, id=lambda event: event.order.id, input=lambda event: event.order)
@signals_on(OrderDelivered, signal=poked, key=lambda event: event.order)
def plain_below(ctx: BlockingContext, order: Order) -> int:
    return 1


assert_type(event_itself, Workflow[OrderPlaced, None])
assert_type(alone, Workflow[None, str])
assert_type(alone_below, Workflow[None, str])
assert_type(plain, Workflow[Order, int])
assert_type(plain_below, Workflow[Order, int])


@starts_on(OrderPlaced, id=lambda event: event.order.id, input=lambda event: event.order)
@workflow("class-based")
@signals_on(OrderDelivered, signal=delivered, payload=lambda event: event.parcel)
class ClassBased:
    def __init__(self, greeting: str) -> None:
        self.greeting = greeting

    async def run(self, ctx: Context, order: Order) -> str:
        return self.greeting


assert_type(ClassBased("Moin"), ClassBased)
assert_type(ClassBased("Moin").greeting, str)

app = Outlast(workflows=[above, below, ClassBased("Moin"), alone])


@app.on(OrderPlaced)
def placed(event: OrderPlaced) -> int:
    return 1


@app.on(OrderPlaced)
async def placed_awaiting(event: OrderPlaced) -> None: ...


assert_type(placed(OrderPlaced(Order("7", True))), int)
app.on(ExpressOrderPlaced)(placed)
app.on(OrderPlaced)(print)


async def publish(session: AsyncSession) -> None:
    published = await app.publish(OrderDelivered("7", "p-1"), "anything", id="message-7", tx=session)
    assert_type(published, Published[Handle[Any]])
    assert_type(published.runs, tuple[Handle[Any], ...])
    assert_type(app.blocking.publish(OrderDelivered("7", "p-1"), tx=session), Published[BlockingHandle[Any]])
    assert_type(app.maps(OrderPlaced), bool)


class Row(DeclarativeBase):
    def pulled(self) -> list[object]:
        return []


publish_on_commit(app, async_sessionmaker(), of=Row, events=Row.pulled)
publish_on_commit(app, async_sessionmaker(), of=Row, events=lambda row: row.pulled())


class Bus:
    async def publish(self, event: object, *, urgent: bool = False) -> int:
        return 1

    def tell(self, event: OrderPlaced, times: int) -> str:
        return ""


async def bus() -> None:
    wrapped = wrap_publisher(app, Bus().publish, tx=lambda event, *, urgent=False: None)
    assert_type(await wrapped(OrderPlaced(Order("7", True)), urgent=True), int)
    assert_type(wrap_blocking_publisher(app, Bus().tell)(OrderPlaced(Order("7", True)), 2), str)


@dataclass
class Message:
    id: str
    body: bytes


def event_of(message: Message) -> OrderDelivered:
    return OrderDelivered(message.id, message.body.decode())


async def messages(session: AsyncSession) -> None:
    consume = consumer(app, event=event_of, id=lambda message: message.id)
    assert_type(await consume(Message("m", b""), tx=session), Published[Handle[Any]])
    assert_type(
        blocking_consumer(app, event=event_of, id=lambda m: m.id)(Message("m", b"")), Published[BlockingHandle[Any]]
    )
