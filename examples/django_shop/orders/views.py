"""The shop over HTTP. What belongs together commits together: each view that writes is one atomic block, which the verbs of
outlast join by themselves."""

from __future__ import annotations

import json
from secrets import token_hex
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from examples.django_shop.orders.models import Order, Status
from examples.django_shop.orders.workflows import CarrierEvent, fulfil_order, shipment_delivered, shipment_returned
from outlast import Run
from outlast.integrations.django import app
from outlast.model.values import shape_of

REPORTS = {
    "shipment.delivered": (shipment_delivered, Status.DELIVERED),
    "shipment.returned": (shipment_returned, Status.RETURNED),
}


@require_GET
def health(request: HttpRequest) -> JsonResponse:  # noqa: ARG001 -- every view takes one
    """Answer once the shop is up."""
    return JsonResponse({"status": "ok"})


@csrf_exempt
@require_POST
def place(request: HttpRequest) -> JsonResponse:
    """Place an order. The order exists if and only if its fulfilment does."""
    body: dict[str, Any] = json.loads(request.body)
    items = body["items"]
    total = sum(item["quantity"] * item["price"] for item in items)
    order = Order(id=token_hex(4), customer=body["customer"], items=items, total=total)
    try:
        order.full_clean()
    except ValidationError as error:
        return JsonResponse(error.message_dict, status=422)
    with transaction.atomic():
        order.save()
        app.blocking.start(fulfil_order, order.id, id=order.run_id)
    return JsonResponse({"id": order.id, "total": order.total}, status=201)


async def show(request: HttpRequest, order_id: str) -> JsonResponse:  # noqa: ARG001 -- the same
    """Tell where an order stands: for the customer, and in its fulfilment."""
    try:
        order = await Order.objects.aget(pk=order_id)
    except Order.DoesNotExist:
        raise Http404(order_id) from None
    run = await app.get(order.run_id, journal=True)
    return JsonResponse(
        {
            "id": order.id,
            "customer": order.customer,
            "total": order.total,
            "status": order.status,
            "fulfilment": None if run is None else fulfilment(run),
        }
    )


@csrf_exempt
@require_POST
def hear_from_carrier(request: HttpRequest) -> JsonResponse:
    """Take a report of the carrier. Verify its signature here before you trust it.

    The signal and the order's new status commit together, so the answer 200 means that both are safe. A report that is
    sent again carries the same id, and its signal is not stored twice.
    """
    event: CarrierEvent = shape_of(CarrierEvent).decode(request.body.decode(), "report")
    if event.type not in REPORTS:
        return JsonResponse({"new": True})
    signal, status = REPORTS[event.type]
    with transaction.atomic():
        leave_placed(event.reference, status)
        order = get_object_or_404(Order, pk=event.reference)
        receipt = app.blocking.signal(signal, event, key=order.id, id=event.id)
    return JsonResponse({"new": receipt.created})


@csrf_exempt
@require_POST
def cancel(request: HttpRequest, order_id: str) -> HttpResponse:
    """Cancel an order, for customer support. What was done for it is undone in reverse order."""
    reason: str = json.loads(request.body).get("reason", "Cancelled by customer support.")
    with transaction.atomic():
        is_ours = leave_placed(order_id, Status.CANCELLED)
        order = get_object_or_404(Order, pk=order_id)
        if is_ours and app.blocking.cancel(order.run_id, reason).accepted:
            return JsonResponse({"reason": reason}, status=202)
        transaction.set_rollback(True)
    return JsonResponse({"detail": f"Order {order_id} cannot be cancelled any more."}, status=409)


def leave_placed(order_id: str, status: Status) -> bool:
    """Give a placed order its final status; False when it has one, or there is no such order.

    A webhook and a cancel both begin with this, so that they take turns: whoever is second waits for the first one's
    commit, and what it then asks of the run comes later than what the first one asked. On SQLite before Django 5.1 a block
    has to begin with a write: one that has read first is refused when it writes after somebody else did.
    """
    return Order.objects.filter(pk=order_id, status=Status.PLACED).update(status=status) == 1


def fulfilment(run: Run) -> dict[str, Any]:
    """Put together what is shown of a run. Its input and its lease are not for customers, so they are left out."""
    return {
        "status": run.status,
        "stage": run.custom_status,
        "waiting_for": run.waiting_for,
        "due_at": run.due_at,
        "error": None if run.failure is None else run.failure.message,
        "journal": [
            {
                "name": entry.name,
                "kind": entry.kind,
                "phase": entry.phase,
                "attempts": entry.attempts,
                "recorded_at": entry.recorded_at,
            }
            for entry in run.journal
        ],
    }
