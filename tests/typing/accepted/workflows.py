"""Input and output flow from a workflow to whoever starts it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

from outlast import Context, Handle, Outlast, Workflow, workflow


@dataclass
class Order:
    id: str


@dataclass
class Fulfilment:
    tracking: str


@workflow("fulfil", version=2, timeout="30d")
async def fulfil(ctx: Context, order: Order) -> Fulfilment:
    return Fulfilment(order.id)


@workflow("clean")
async def clean(ctx: Context) -> int:
    return 1


class Payments: ...


@workflow("class-based")
class ClassBased:
    def __init__(self, payments: Payments) -> None:
        self.payments = payments

    async def run(self, ctx: Context, order: Order) -> Fulfilment:
        return Fulfilment(order.id)


@workflow("class-alone")
class ClassAlone:
    async def run(self, ctx: Context) -> str:
        return "done"


assert_type(fulfil, Workflow[Order, Fulfilment])
assert_type(clean, Workflow[None, int])
instance = ClassBased(Payments())
assert_type(instance, ClassBased)

app = Outlast(workflows=[fulfil, clean, instance, ClassAlone()])


async def start() -> None:
    handle = await app.start(fulfil, Order("7"), id="order-7")
    assert_type(handle, Handle[Fulfilment])
    assert_type(await handle.result(), Fulfilment)
    assert_type(await app.start(clean), Handle[int])
    assert_type(await app.start(ClassBased, Order("7")), Handle[Fulfilment])
    assert_type(await app.start(instance, Order("7")), Handle[Fulfilment])
    assert_type(await app.start(ClassAlone), Handle[str])
    assert_type(await app.start_and_wait(fulfil, Order("7")), Fulfilment)
    assert_type(await app.start_many(fulfil, [Order("7")]), list[Handle[Fulfilment]])
