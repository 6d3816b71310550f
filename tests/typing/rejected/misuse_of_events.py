"""Every line that says so must be refused by both type checkers, and no other."""

from __future__ import annotations

from dataclasses import dataclass

from outlast import Context, Outlast, Signal, signals_on, starts_on, workflow


@dataclass
class OrderPlaced:
    order: str


@dataclass
class OrderDelivered:
    order: str
    grams: int


delivered = Signal("delivered", str)
arrived = Signal("arrived", OrderDelivered)
poked = Signal("poked")


starts_on(OrderPlaced)  # refused: an id is missing
starts_on("order.placed", id=lambda event: "7")  # refused: a type, not a name
starts_on(OrderPlaced, id=lambda event: 7)  # refused: an id is a text
starts_on(OrderPlaced, id=lambda event: event.number)  # refused: the event has no number
starts_on(OrderPlaced, id=7)  # refused: an id is a text
starts_on(OrderPlaced, id="order-7", input="express")  # refused: a function of the event
starts_on(OrderPlaced, id=lambda event: event.order, priority="high")  # refused: a number
starts_on(OrderPlaced, id=lambda event: event.order, input=lambda event: event.number)  # refused: the event has no number
signals_on(OrderDelivered, signal=delivered)  # refused: the event is no text
signals_on(OrderDelivered, signal="delivered")  # refused: the declared signal, not its name
signals_on(OrderDelivered, signal=delivered, payload=lambda event: event.grams)  # refused: the payload is a text
signals_on(OrderDelivered, signal=delivered, payload=lambda event: event.pounds)  # refused: the event has no pounds
signals_on(OrderDelivered, signal=delivered, payload=7)  # refused: the payload is a text
signals_on(OrderDelivered, signal=poked, key=lambda event: event.grams)  # refused: a key is a text
signals_on(OrderDelivered, signal=poked, id=lambda event: event.grams)  # refused: an id is a text
signals_on(OrderDelivered, signal=poked, key=7)  # refused: a key is a text
signals_on(OrderPlaced, signal=arrived)  # refused: another event


@starts_on(OrderPlaced, id=lambda event: event.order, input=lambda event: event.order)  # refused: the input is a number
@workflow("wants-a-number")
async def wants_a_number(ctx: Context, number: int) -> None: ...


@starts_on(OrderPlaced, id=lambda event: event.order)  # refused: the input is another event
@workflow("wants-a-delivery")
async def wants_a_delivery(ctx: Context, event: OrderDelivered) -> None: ...


@workflow("below")
@starts_on(OrderPlaced, id=lambda event: event.order, input=lambda event: event.order)  # refused: the input is a number
async def below(ctx: Context, number: int) -> None: ...


@starts_on(OrderPlaced, id=lambda event: event.order, input=lambda event: event.order)  # refused: it takes no input
@workflow("alone")
async def alone(ctx: Context) -> None: ...


class NoWorkflow:
    def go(self) -> None: ...


starts_on(OrderPlaced, id=lambda event: event.order, input=lambda event: event.order)(NoWorkflow)  # refused: no workflow


def takes_number(number: int) -> None: ...


async def client(app: Outlast) -> None:
    app.on(OrderPlaced)(takes_number)  # refused: it is given an order
    app.on("order.placed")(print)  # refused: a type, not a name
    (await app.publish(OrderPlaced("7"))).runs[0].amount  # refused: a handle has no amount
