"""The order process: charge, reserve, wait for the carrier, ask for a review; or undo it all.

The same as in `examples.shop`, for people who do not write async: the steps are plain functions, each on a thread while it
executes, and the workflow is one too, on no thread while it waits.
"""

from __future__ import annotations

from dataclasses import dataclass

from examples.flask_shop import clients
from examples.flask_shop.clients import Charge, Reservation
from examples.flask_shop.settings import settings
from examples.shop.orders import CarrierEvent, Order
from outlast import BlockingContext, CompensationContext, Retry, Signal, StepContext, step, workflow

shipment_delivered = Signal("shipment.delivered", CarrierEvent)
shipment_returned = Signal("shipment.returned", CarrierEvent)


@dataclass(frozen=True, slots=True)
class Fulfilment:
    """What a fulfilled order leaves behind."""

    charge_id: str
    tracking_number: str


@step(retry=Retry(attempts=5, delay="2s"))
def charge(s: StepContext, order: Order) -> Charge:
    return clients.take_money(order, s.idempotency_key)


@charge.compensate
def refund(s: CompensationContext, charged: Charge) -> None:
    clients.give_money_back(charged, s.idempotency_key)


@step(name="reserve-stock")
def reserve_stock(s: StepContext, order: Order) -> Reservation:
    return clients.reserve(order, s.idempotency_key)


@reserve_stock.compensate
def release_stock(s: CompensationContext, reserved: Reservation) -> None:
    clients.release(reserved, s.idempotency_key)


@step(name="request-review")
def request_review(s: StepContext, order: Order) -> None:
    clients.ask_for_review(order, s.idempotency_key)


@workflow("order-fulfilment", timeout="30d")
def fulfil_order(ctx: BlockingContext, order: Order) -> Fulfilment:
    """Fulfil an order, or leave no trace of it."""
    charged = ctx.do(charge(order))
    ctx.set_status("paid")
    ctx.do(reserve_stock(order))
    ctx.set_status("awaiting-delivery")

    delivered = ctx.signal(shipment_delivered, key=order.id)
    returned = ctx.signal(shipment_returned, key=order.id)
    late = ctx.timer(settings.delivery_within)
    ctx.first("await-delivery", delivered, returned, late)
    if returned.won:
        ctx.fail(f"The carrier returned order {order.id} to the warehouse.")
    if late.won:
        ctx.fail(f"Order {order.id} was not delivered in time.")

    # From here on nothing is refunded or released, whatever happens: the customer has the parcel.
    ctx.commit("delivered")
    ctx.set_status("delivered")
    ctx.sleep("before-review-request", settings.review_after)
    ctx.do(request_review(order))
    return Fulfilment(charged.id, delivered.value.tracking_number)


def run_id(order_id: str) -> str:
    """Name the one run that fulfils an order. The same id never starts twice."""
    return f"order-{order_id}"
