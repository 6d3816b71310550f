"""The admin, and a view of each colour."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest, JsonResponse
from django.urls import path

from outlast.integrations.django import app
from support.django_orders.models import Order
from support.django_orders.workflows import fulfil


def order(request: HttpRequest, order: str) -> JsonResponse:
    Order.objects.create(id=order)
    run = app.blocking.start(fulfil, order, id=order)
    if "fail" in request.GET:
        raise LookupError(order)
    return JsonResponse({"created": run.created})


async def order_awaiting(request: HttpRequest, order: str) -> JsonResponse:
    await Order.objects.acreate(id=order)
    run = await app.start(fulfil, order, id=order)
    return JsonResponse({"created": run.created})


urlpatterns = [
    path("admin/", admin.site.urls),
    path("orders/<order>", order),
    path("awaiting/<order>", order_awaiting),
]
