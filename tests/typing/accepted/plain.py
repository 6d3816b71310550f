"""A workflow that is a plain `def`: types flow as in an async one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

from outlast import BlockingContext, BlockingHandle, Outlast, Signal, StepContext, Workflow, step, workflow


@dataclass
class Order:
    id: str


approved = Signal("approved", bool)


@step
async def charge(order: Order, cents: int) -> str:
    return order.id


@step
def reserve(s: StepContext, order: Order) -> int:
    return s.attempt


async def fetched(s: StepContext) -> bytes:
    return b""


@workflow("fulfil")
def fulfil(ctx: BlockingContext, order: Order) -> str:
    assert_type(ctx.do(charge(order, 5)), str)
    assert_type(ctx.do(charge(order, 5), reserve(order)), tuple[str, int])
    assert_type(ctx.do(*[reserve.named(name)(order) for name in "ab"]), tuple[int, ...])
    assert_type(ctx.step("pack", lambda s: s.run_id), str)
    assert_type(ctx.step("fetch", fetched), bytes)
    assert_type(ctx.wait_for("approval", ctx.signal(approved, key=order.id), timeout="1d"), bool | None)
    assert_type(ctx.wait_for("at-last", ctx.signal(approved, key=order.id)), bool)
    return order.id


@workflow("alone")
def alone(ctx: BlockingContext) -> int:
    return 1


@workflow("class-based")
class ClassBased:
    def run(self, ctx: BlockingContext, order: Order) -> str:
        return order.id


assert_type(fulfil, Workflow[Order, str])
assert_type(alone, Workflow[None, int])


def callers(app: Outlast) -> None:
    assert_type(app.blocking.start(fulfil, Order("1")), BlockingHandle[str])
    assert_type(app.blocking.start(ClassBased, Order("1")), BlockingHandle[str])
    assert_type(app.blocking.start(alone).result(), int)
