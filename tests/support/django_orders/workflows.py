"""Workflows of a Django app, found by their module's name. Their steps are plain functions that use the ORM."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from asgiref.sync import sync_to_async
from django.db import IntegrityError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from outlast import Context, Retry, Signal, StepContext, step, transactional_step, workflow
from outlast.integrations.django import app
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


@workflow("wait-long")
async def wait_long(ctx: Context) -> None:
    ctx.set_status("on its way")
    await ctx.first("either", ctx.signal(poked, key="2"), ctx.timer("7d"))


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


@transactional_step(retry=Retry(attempts=2, delay="1ms"))
def book(_: BaseDatabaseWrapper, s: StepContext, order: str, how: str) -> str:
    """Write a row, start a run, and go wrong in one way or the other."""
    Order.objects.create(id=f"{order}-{s.attempt}")
    app.blocking.start(fulfil, order, id=f"{order}-{s.attempt}")
    if how == "raises" and s.attempt == 1:
        raise LookupError(order)
    if how == "catches":
        with suppress(IntegrityError):
            Order.objects.create(id=f"{order}-{s.attempt}")
    if how == "confines":
        with suppress(IntegrityError), transaction.atomic():
            Order.objects.create(id=f"{order}-{s.attempt}")
    if how == "commits":
        connections["default"].commit()
    return how


@workflow("book-order")
async def book_order(ctx: Context, how: str) -> str:
    return await book("o", how)


@step
async def count() -> int:
    await sync_to_async(lambda: opened.append(connections["default"]))()
    return await Order.objects.acount()


@workflow("count-orders")
async def count_orders(ctx: Context) -> int:
    return await count()


@step
def draw(size: int) -> str:
    opened.append(connections["default"])
    return "x" * size


@workflow("draw-picture")
async def draw_picture(ctx: Context, size: int) -> int:
    return len(await draw(size))
