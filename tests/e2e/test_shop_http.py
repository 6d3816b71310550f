"""The shop's HTTP application at its edges: what it refuses, and that a refusal leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest

from examples.shop.demo import on_server, servers
from examples.shop.orders import Item, Shipment
from examples.shop.providers import Operation
from examples.shop.remote import RemoteProviders, RemoteShop
from tools.postgres import PrivatePostgres

GOLD = [Item("gold bar", 1, 9_000_000)]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RemoteShop, RemoteProviders]]:
    settings = {"SHOP_REVIEW_AFTER": "0s"}
    if request.param == "postgresql":
        server: PrivatePostgres = request.getfixturevalue("postgres")
        settings |= on_server("postgresql", server.create_database())
    with ExitStack() as stack:
        shop, providers = servers(tmp_path_factory.mktemp("shop"), stack, settings)
        yield RemoteShop(shop.http), RemoteProviders(providers.http)


@pytest.fixture
def shop(both: tuple[RemoteShop, RemoteProviders]) -> RemoteShop:
    return both[0]


@pytest.fixture
def providers(both: tuple[RemoteShop, RemoteProviders]) -> RemoteProviders:
    return both[1]


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


def test_a_second_cancel_is_refused_and_the_first_reason_counts(shop: RemoteShop) -> None:
    order = shop.place("ada@example.com")
    shop.wait_for_stage(order, "awaiting-delivery")
    first = shop.http.post(f"/orders/{order}/cancel", json={"reason": "First."})
    second = shop.http.post(f"/orders/{order}/cancel", json={"reason": "Second."})

    assert (first.status_code, second.status_code) == (202, 409)
    assert shop.wait_for_end(order) == ("cancelled", "cancelled")
    fulfilment = shop.show(order).fulfilment
    assert fulfilment is not None
    assert fulfilment.error == "First."


def test_an_order_whose_run_has_failed_cannot_be_cancelled_and_stays_as_it_was(shop: RemoteShop) -> None:
    order = shop.place("eve@example.com", GOLD)
    shop.wait_for_end(order)

    assert shop.cancel(order) == 409
    assert shop.show(order).status == "placed"


def test_of_a_delivery_and_a_cancel_at_the_same_time_one_wins_in_the_order_and_in_its_run(
    shop: RemoteShop, providers: RemoteProviders
) -> None:
    orders = [shop.place("ada@example.com") for _ in range(12)]
    with ThreadPoolExecutor() as threads:
        reports = [threads.submit(shop.hear, order, Shipment.DELIVERED, f"event of {order}") for order in orders]
        cancels = [threads.submit(shop.cancel, order) for order in orders]

    assert all(report.result() for report in reports)
    for order, cancelled in zip(orders, cancels, strict=True):
        assert shop.wait_for_end(order) == (
            ("cancelled", "cancelled") if cancelled.result() == 202 else ("delivered", "completed")
        )
        effects = providers.effects(order)
        assert effects.count(Operation.CHARGE) - effects.count(Operation.REFUND) == (cancelled.result() == 409)


def test_a_declined_card_ends_the_order_without_anything_to_undo(shop: RemoteShop) -> None:
    order = shop.place("eve@example.com", GOLD)

    assert shop.wait_for_end(order) == ("placed", "failed")
    fulfilment = shop.show(order).fulfilment
    assert fulfilment is not None
    assert "The card was declined" in (fulfilment.error or "")
