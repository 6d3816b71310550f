"""Workflows of a Django app, found by their module's name. Their steps are plain functions that use the ORM."""

from __future__ import annotations

from outlast import Context, Signal, step, workflow
from support.django_orders.models import Order

poked = Signal("poked", None)


@step
def pack(order: str) -> int:
    Order.objects.create(id=f"{order}-packed")
    return Order.objects.filter(id__startswith=order).count()


@workflow("fulfil")
async def fulfil(ctx: Context, order: str) -> int:
    return await pack(order)


@workflow("wait")
async def wait(ctx: Context) -> str:
    await ctx.wait_for("poke", ctx.signal(poked))
    return "poked"


@step(retry=False)
def look_in_stock() -> None:
    raise LookupError("nothing in stock")


@workflow("fail")
async def fail(ctx: Context) -> None:
    await look_in_stock()
