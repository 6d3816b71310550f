"""Steps keep the types of their functions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import assert_type

from outlast import CompensationContext, Context, Retry, Step, StepContext, step, workflow


@dataclass
class Order:
    id: str


@dataclass
class Charge:
    id: str


@step(retry=Retry(attempts=5, delay="2s"), timeout="30s", name="charge-card", on_cancel="abort")
async def charge(s: StepContext, order: Order, cents: int = 1) -> Charge:
    return Charge(s.idempotency_key)


@charge.compensate
async def refund(s: CompensationContext, charged: Charge) -> None:
    assert_type(s.reason.message, str)


@step
async def notify(order: Order) -> None: ...


@step
def invoice(order: Order, *, copies: int) -> list[str]:
    return [order.id] * copies


@invoice.compensate
def tear_up(s: CompensationContext, sheets: list[str]) -> int:
    return len(sheets)


@step(timeout=timedelta(seconds=2))
def plain_with_context(s: StepContext, word: str) -> str:
    return word


@step(retry=3)
async def alone() -> int:
    return 1


def compensation(s: CompensationContext, charged: Charge) -> None: ...


class Shop:
    @step
    async def reserve(self, s: StepContext, order: Order) -> Charge:
        return Charge(order.id)

    @step(retry=False)
    async def release(self, charged: Charge) -> bool:
        return True

    @step
    def count(self) -> int:
        return 1

    @step(name="told")
    def tell(self, s: StepContext, word: str) -> str:
        return word

    @reserve.compensate
    async def give_back(self, s: CompensationContext, charged: Charge) -> None: ...


async def reserve(order: Order, key: str) -> Charge:
    return Charge(key)


def look_up(order: Order) -> int:
    return 1


async def with_context(s: StepContext) -> Charge:
    return Charge(s.run_id)


@workflow("steps")
async def steps(ctx: Context, order: Order) -> str:
    charged = await charge(order, cents=2)
    assert_type(charged, Charge)
    assert_type(await charge.named("charge-2")(order), Charge)
    assert_type(await notify(order), None)
    assert_type(await invoice(order, copies=2), list[str])
    assert_type(await plain_with_context("a"), str)
    assert_type(await alone(), int)

    shop = Shop()
    assert_type(await shop.reserve(order), Charge)
    assert_type(await shop.reserve.named("again")(order), Charge)
    assert_type(await shop.release(charged), bool)
    assert_type(await shop.count(), int)
    assert_type(await shop.tell("a"), str)

    both = await asyncio.gather(charge.named("a")(order), alone.named("b")())
    assert_type(both, tuple[Charge, int])

    reserved = await ctx.step("reserve", lambda s: reserve(order, s.idempotency_key))
    assert_type(reserved, Charge)
    assert_type(await ctx.step("look-up", lambda s: look_up(order)), int)
    assert_type(await ctx.step("with-context", with_context, retry=5, timeout="2s"), Charge)
    undoable = await ctx.step(
        "undoable", lambda s: reserve(order, "a"), compensate=compensation, compensate_retry=False
    )
    assert_type(undoable, Charge)
    also = await ctx.step("also", with_context, compensate=lambda s, charged: reserve(order, charged.id))
    assert_type(also, Charge)
    plain = await ctx.step("plain", lambda s: look_up(order), compensate=lambda s, number: print(number + 1))
    assert_type(plain, int)
    return reserved.id


async def unit_test() -> None:
    assert_type(await charge(Order("7")), Charge)
    function: Step[[Order], None] = notify
    await function(Order("7"))
