"""A workflow that events of the project start and signal. Named in the settings of the tests that want it."""

from __future__ import annotations

from dataclasses import dataclass

from outlast import Context, Signal, signals_on, starts_on, workflow


@dataclass(frozen=True)
class OrderSaved:
    order: str


@dataclass(frozen=True)
class OrderGone:
    order: str


gone = Signal("gone", str)


@starts_on(OrderSaved, id=lambda event: f"watch-{event.order}", input=lambda event: event.order)
@signals_on(
    OrderGone, signal=gone, key=lambda event: event.order, id=lambda event: event.order, payload=lambda e: e.order
)
@workflow("watch")
async def watch(ctx: Context, order: str) -> str | None:
    return await ctx.wait_for("gone", ctx.signal(gone, key=order))
