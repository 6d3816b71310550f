"""The order process in Django's test runner: `manage.py test examples.django_shop.orders.tests`"""

# ruff: noqa: PT009 -- written for Django's own test runner
from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest import mock

from django.test import TestCase, TransactionTestCase

from examples.django_shop.orders.models import Order, Payment
from outlast.integrations.django import app
from outlast.integrations.django.testing import OutlastTests
from outlast.testing import ManualClock

BASKET = {"customer": "ada@example.com", "items": [{"product": "cat food", "quantity": 2, "price": 1450}]}
REPORT = {
    "id": "event-1",
    "type": "shipment.delivered",
    "tracking_number": "PARCEL-1",
    "occurred_at": "2026-01-01T12:00:00Z",
}


class Orders(OutlastTests):
    """What holds in both kinds of test cases of Django's."""

    clock = ManualClock()

    def setUp(self) -> None:
        super().setUp()
        self.asked: list[str] = []
        self.enterContext(mock.patch("examples.django_shop.orders.workflows.post", self.answer))

    def answer(self, path: str, body: dict[str, Any], key: str) -> dict[str, Any]:  # noqa: ARG002 -- as the providers take it
        self.asked.append(path)
        return {"id": f"{path[1:]}-1"}

    def place(self: Any) -> Order:
        response = self.client.post("/orders", BASKET, content_type="application/json")
        self.drain()
        return Order.objects.get(pk=response.json()["id"])

    def test_an_order_waits_for_the_carrier_and_a_week_later_for_a_review(self: Any) -> None:
        order = self.place()
        self.assertEqual(self.asked, ["/charges", "/reservations"])
        self.assertEqual(Payment.objects.get(order=order).amount, 2900)

        self.client.post("/webhooks/carrier", REPORT | {"reference": order.id}, content_type="application/json")
        self.drain()
        self.clock.advance(timedelta(days=7))
        self.drain()

        self.assertEqual(self.asked, ["/charges", "/reservations", "/mails"])
        self.assertEqual(app.blocking.result(order.run_id, timeout="10s"), "PARCEL-1")

    def test_an_order_that_nobody_delivers_is_undone(self: Any) -> None:
        order = self.place()

        self.clock.advance(timedelta(days=3))
        self.drain()

        self.assertEqual(self.asked, ["/charges", "/reservations", "/releases", "/refunds"])
        self.assertFalse(Payment.objects.filter(order=order).exists())

    def test_an_order_without_items_leaves_nothing(self: Any) -> None:
        response = self.client.post("/orders", BASKET | {"items": []}, content_type="application/json")

        self.assertEqual(response.status_code, 422)
        self.assertEqual((Order.objects.count(), app.blocking.list().runs), (0, ()))


class OrdersInOneTransaction(Orders, TestCase):
    """Each test is rolled back."""


class OrdersThatCommit(Orders, TransactionTestCase):
    """Each test commits, and is cleaned up after."""


del Orders
