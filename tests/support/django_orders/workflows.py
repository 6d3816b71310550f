"""Workflows of a Django app, found by their module's name. Their steps are plain functions that use the ORM."""

from __future__ import annotations

import threading
from typing import Any

from django.db import connections

from outlast import Context, Signal, step, workflow
from support.django_orders.models import Order

poked = Signal("poked", None)


opened: list[Any] = []
"""The connections that steps have used."""


@step
def pack(order: str) -> int:
    opened.append(connections["default"])
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


@workflow("sleep")
async def sleep(ctx: Context) -> str:
    await ctx.sleep("a-week", "7d")
    return "awake"


threads: list[int] = []
"""The threads on which steps were called."""


@step
def note() -> None:
    threads.append(threading.get_ident())


@workflow("note-thread")
async def note_thread(ctx: Context) -> None:
    await note()
