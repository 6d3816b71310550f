"""The shop's HTTP application at its edges: what it refuses, and that a refusal leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from examples.shop.demo import servers
from examples.shop.orders import Shipment
from examples.shop.remote import RemoteShop


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteShop]:
    with ExitStack() as stack:
        server, _ = servers(tmp_path_factory.mktemp("shop"), stack, {})
        yield RemoteShop(server.http)


def test_an_order_without_items_is_refused(shop: RemoteShop) -> None:
    assert shop.http.post("/orders", json={"customer": "ada@example.com", "items": []}).status_code == 422


def test_an_unknown_order_is_not_found(shop: RemoteShop) -> None:
    assert shop.http.get("/orders/none").status_code == 404
    assert shop.cancel("none") == 404


def test_a_report_on_an_unknown_order_is_refused_and_leaves_no_signal(shop: RemoteShop) -> None:
    with pytest.raises(httpx.HTTPStatusError, match="404"):
        shop.hear("none", Shipment.DELIVERED, "event-1")

    order = shop.place("ada@example.com")
    assert shop.hear(order, Shipment.DELIVERED, "event-1"), "the refused report's id is free for a true one"


def test_a_parcel_in_transit_changes_nothing(shop: RemoteShop) -> None:
    order = shop.place("ada@example.com")

    shop.hear(order, Shipment.IN_TRANSIT, "event-2")

    assert shop.show(order).status == "placed"


def test_a_cancelled_order_stays_cancelled_when_the_carrier_reports_late(shop: RemoteShop) -> None:
    order = shop.place("ada@example.com")
    assert shop.cancel(order) == 202

    shop.hear(order, Shipment.DELIVERED, "event-3")

    assert shop.wait_for_end(order) == ("cancelled", "cancelled")


def test_a_second_cancel_is_not_accepted(shop: RemoteShop) -> None:
    order = shop.place("ada@example.com")
    shop.wait_for_stage(order, "awaiting-delivery")
    first = shop.http.post(f"/orders/{order}/cancel", json={"reason": "First."})
    second = shop.http.post(f"/orders/{order}/cancel", json={"reason": "Second."})

    assert (first.json(), second.json()) == ({"accepted": True}, {"accepted": False})


def test_a_declined_card_ends_the_order_without_anything_to_undo(shop: RemoteShop) -> None:
    items = [{"product": "gold bar", "quantity": 1, "price": 9_000_000}]
    order: str = shop.http.post("/orders", json={"customer": "eve@example.com", "items": items}).json()["id"]

    assert shop.wait_for_end(order) == ("placed", "failed")
    fulfilment = shop.show(order).fulfilment
    assert fulfilment is not None
    assert "The card was declined" in (fulfilment.error or "")
