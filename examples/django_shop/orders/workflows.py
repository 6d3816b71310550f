"""The order process: charge, reserve, wait for the carrier, ask for a review; or undo it all.

It reads from top to bottom, takes days, and goes on in another process when the one it runs in dies. outlast finds it by the
name of this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db.backends.base.base import BaseDatabaseWrapper

from examples.django_shop.orders.models import Order, Payment
from examples.django_shop.orders.providers import post
from outlast import (
    BlockingContext,
    CompensationContext,
    Retry,
    Signal,
    StepContext,
    step,
    transactional_step,
    workflow,
)


@dataclass(frozen=True, slots=True)
class Charge:
    """Money taken from the customer's card, in cents."""

    id: str
    amount: int


@dataclass(frozen=True, slots=True)
class CarrierEvent:
    """What the carrier reports. A report that is sent again has the same `id`; `reference` is our order's."""

    id: str
    type: str
    reference: str
    tracking_number: str
    occurred_at: datetime


shipment_delivered = Signal("shipment.delivered", CarrierEvent)
shipment_returned = Signal("shipment.returned", CarrierEvent)


@step(retry=Retry(attempts=5, delay="2s"))
def charge(s: StepContext, order_id: str) -> Charge:
    order = Order.objects.get(pk=order_id)
    answer = post("/charges", {"order": order.id, "amount": order.total}, s.idempotency_key)
    return Charge(answer["id"], order.total)


@charge.compensate
def refund(s: CompensationContext, charged: Charge) -> None:
    post("/refunds", {"charge": charged.id}, s.idempotency_key)


@transactional_step(name="book-payment")
def book_payment(_: BaseDatabaseWrapper, order_id: str, charged: Charge) -> None:
    """Write the payment down in the transaction that records this step: exactly once, whatever dies."""
    Payment.objects.create(order_id=order_id, charge=charged.id, amount=charged.amount)


@book_payment.compensate
def unbook_payment(_: BaseDatabaseWrapper, s: CompensationContext, booked: None) -> None:  # noqa: ARG001 -- it is None
    Payment.objects.filter(order_id=s.run_id.removeprefix("order-")).delete()


@step(name="reserve-stock")
def reserve_stock(s: StepContext, order_id: str) -> str:
    items = {item["product"]: item["quantity"] for item in Order.objects.get(pk=order_id).items}
    reservation: str = post("/reservations", {"order": order_id, "items": items}, s.idempotency_key)["id"]
    return reservation


@reserve_stock.compensate
def release_stock(s: CompensationContext, reservation: str) -> None:
    post("/releases", {"reservation": reservation}, s.idempotency_key)


@step(name="request-review")
def request_review(s: StepContext, order_id: str) -> None:
    order = Order.objects.get(pk=order_id)
    post("/mails", {"order": order.id, "to": order.customer, "about": "review"}, s.idempotency_key)


@workflow("order-fulfilment", timeout="30d")
def fulfil_order(ctx: BlockingContext, order_id: str) -> str:
    """Fulfil an order, or leave no trace of it. Returns the parcel's tracking number."""
    charged = ctx.do(charge(order_id))
    ctx.do(book_payment(order_id, charged))
    ctx.set_status("paid")
    ctx.do(reserve_stock(order_id))
    ctx.set_status("awaiting-delivery")

    delivered = ctx.signal(shipment_delivered, key=order_id)
    returned = ctx.signal(shipment_returned, key=order_id)
    late = ctx.timer(settings.DELIVERY_WITHIN)
    ctx.first("await-delivery", delivered, returned, late)
    if returned.won:
        ctx.fail(f"The carrier returned order {order_id} to the warehouse.")
    if late.won:
        ctx.fail(f"Order {order_id} was not delivered in time.")

    # From here on nothing is refunded or released, whatever happens: the customer has the parcel.
    ctx.commit("delivered")
    ctx.set_status("delivered")
    ctx.sleep("before-review-request", settings.REVIEW_AFTER)
    ctx.do(request_review(order_id))
    return delivered.value.tracking_number
