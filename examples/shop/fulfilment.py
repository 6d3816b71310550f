"""The order process: charge, reserve, wait for the carrier, ask for a review; or undo it all.

It reads from top to bottom, takes days, and goes on in another process when the one it runs in dies.
"""

from __future__ import annotations

from dataclasses import dataclass

from examples.shop.clients import Charge, Reservation, mail, payments, warehouse
from examples.shop.orders import CarrierEvent, Order
from examples.shop.settings import settings
from outlast import CompensationContext, Context, Retry, Signal, StepContext, step, workflow

shipment_delivered = Signal("shipment.delivered", CarrierEvent)
shipment_returned = Signal("shipment.returned", CarrierEvent)


@dataclass(frozen=True, slots=True)
class Fulfilment:
    """What a fulfilled order leaves behind."""

    charge_id: str
    tracking_number: str


@step(retry=Retry(attempts=5, delay="2s"))
async def charge(s: StepContext, order: Order) -> Charge:
    return await payments.charge(order, s.idempotency_key)


@charge.compensate
async def refund(s: CompensationContext, charged: Charge) -> None:
    await payments.refund(charged, s.idempotency_key)


@step(name="reserve-stock")
async def reserve_stock(s: StepContext, order: Order) -> Reservation:
    return await warehouse.reserve(order, s.idempotency_key)


@reserve_stock.compensate
async def release_stock(s: CompensationContext, reserved: Reservation) -> None:
    await warehouse.release(reserved, s.idempotency_key)


@step(name="request-review")
async def request_review(s: StepContext, order: Order) -> None:
    await mail.request_review(order, s.idempotency_key)


@workflow("order-fulfilment", timeout="30d")
async def fulfil_order(ctx: Context, order: Order) -> Fulfilment:
    """Fulfil an order, or leave no trace of it."""
    charged = await charge(order)
    ctx.set_status("paid")
    await reserve_stock(order)
    ctx.set_status("awaiting-delivery")

    delivered = ctx.signal(shipment_delivered, key=order.id)
    returned = ctx.signal(shipment_returned, key=order.id)
    late = ctx.timer(settings.delivery_within)
    await ctx.first("await-delivery", delivered, returned, late)
    if returned.won:
        ctx.fail(f"The carrier returned order {order.id} to the warehouse.")
    if late.won:
        ctx.fail(f"Order {order.id} was not delivered in time.")

    # From here on nothing is refunded or released, whatever happens: the customer has the parcel.
    ctx.commit("delivered")
    ctx.set_status("delivered")
    await ctx.sleep("before-review-request", settings.review_after)
    await request_review(order)
    return Fulfilment(charged.id, delivered.value.tracking_number)


def run_id(order_id: str) -> str:
    """Name the one run that fulfils an order. The same id never starts twice."""
    return f"order-{order_id}"
