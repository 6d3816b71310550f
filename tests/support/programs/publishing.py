"""An application whose events start and signal its workflows; a process of it that may die before or after its commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from outlast import Context, Outlast, Signal, WorkerOptions, signals_on, starts_on, workflow
from support.callers import Place
from support.programs.dying import die_at, point

POINTS = ("before the commit", "after the commit")


@dataclass(frozen=True)
class OrderPlaced:
    order: str


@dataclass(frozen=True)
class OrderDelivered:
    order: str
    parcel: str


delivered = Signal("delivered", str)


def run_of(event: OrderPlaced) -> str:
    return f"order-{event.order}"


def order_of(event: OrderPlaced | OrderDelivered) -> str:
    return event.order


def parcel_of(event: OrderDelivered) -> str:
    return event.parcel


@starts_on(OrderPlaced, id=run_of, input=order_of)
@signals_on(OrderDelivered, signal=delivered, key=order_of, id=parcel_of, payload=parcel_of)
@workflow("fulfil")
async def fulfil(ctx: Context, order: str) -> str:
    parcel = await ctx.wait_for("delivery", ctx.signal(delivered, key=order))
    return f"{order} by {parcel}"


@starts_on(OrderPlaced, id=lambda event: f"thanks-{event.order}")
@workflow("thank")
class Thank:
    """A class, and one that takes the event itself."""

    async def run(self, ctx: Context, event: OrderPlaced) -> str:
        return f"thanks for {event.order}"


def make_app(url: str, *more: object, worker: bool | WorkerOptions = False, **options: Any) -> Outlast:
    return Outlast(url, workflows=[fulfil, Thank, *more], worker=worker, **options)


async def publish(url: str, road: str, die: str) -> None:
    """Write a row and publish, all of it in one transaction: order `new` was placed, and `waiting` delivered."""
    die_at(die)
    async with make_app(url) as app, Place(url, road).caller() as caller:
        async with caller.transaction() as tx:
            await caller.insert(tx, "o-1")
            await app.publish(OrderPlaced("new"), OrderDelivered("waiting", "p-1"), tx=tx)
            point("before the commit")
        point("after the commit")
