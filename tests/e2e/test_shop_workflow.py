"""The shop's workflow on a clock that the test moves: three days and a week pass in milliseconds."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from examples.shop import fulfilment
from examples.shop.clients import Charge, Reservation
from examples.shop.fulfilment import Fulfilment, fulfil_order, shipment_delivered, shipment_returned
from examples.shop.orders import CarrierEvent, Item, Order, Shipment
from outlast import NonRetryable, Outlast, Status
from outlast.testing import ManualClock

ORDER = Order("7", "ada@example.com", [Item("cat food", 2, 1450)])


@dataclass
class Companies:
    """Payment provider, warehouse and mail provider in one, which only remember what they did."""

    done: list[str] = field(default_factory=list[str])
    outages: int = 0
    out_of_stock: bool = False

    async def charge(self, order: Order, key: str) -> Charge:
        if self.outages:
            self.outages -= 1
            raise ConnectionError("the payment provider is down")
        self.done.append(f"charge {order.total}")
        return Charge(f"charge for {key}", order.total)

    async def refund(self, charge: Charge, key: str) -> None:
        self.done.append(f"refund {charge.amount}")

    async def reserve(self, order: Order, key: str) -> Reservation:
        if self.out_of_stock:
            raise NonRetryable("there is no cat food left")
        self.done.append("reserve")
        return Reservation("reservation 1")

    async def release(self, reservation: Reservation, key: str) -> None:
        self.done.append(f"release {reservation.id}")

    async def request_review(self, order: Order, key: str) -> None:
        self.done.append(f"mail to {order.customer}")


UNDONE = ["charge 2900", "reserve", "release reservation 1", "refund 2900"]


@pytest.fixture
def companies(monkeypatch: pytest.MonkeyPatch) -> Companies:
    fakes = Companies()
    for name in ("payments", "warehouse", "mail"):
        monkeypatch.setattr(fulfilment, name, fakes)
    return fakes


@asynccontextmanager
async def shop(clock: ManualClock) -> AsyncGenerator[Outlast]:
    """Start the order's run on a database in memory, and run all that is due."""
    async with Outlast("sqlite://", workflows=[fulfil_order], worker=False, clock=clock) as app:
        await app.start(fulfil_order, ORDER, id="order-7")
        await app.drain()
        yield app


def event(report: Shipment) -> CarrierEvent:
    return CarrierEvent("event-1", report, ORDER.id, "PARCEL-7", datetime(2026, 1, 2, tzinfo=UTC))


async def end_of(app: Outlast) -> tuple[Status, str | None]:
    run = await app.get("order-7")
    assert run is not None
    return run.status, run.failure.message if run.failure else None


async def test_a_delivered_order_ends_with_a_review_request_a_week_later(companies: Companies) -> None:
    clock = ManualClock()
    async with shop(clock) as app:
        waiting = await app.get("order-7")
        assert waiting is not None
        assert (waiting.status, waiting.custom_status) == (Status.SUSPENDED, "awaiting-delivery")

        await app.signal(shipment_delivered, event(Shipment.DELIVERED), key=ORDER.id)
        await app.drain()
        clock.advance("6d")
        await app.drain()
        assert companies.done == ["charge 2900", "reserve"]
        clock.advance("1d")
        await app.drain()

        assert companies.done == ["charge 2900", "reserve", "mail to ada@example.com"]
        assert await app.result("order-7") == Fulfilment("charge for order-7:charge", "PARCEL-7")


async def test_a_parcel_that_does_not_arrive_within_three_days_is_undone(companies: Companies) -> None:
    clock = ManualClock()
    async with shop(clock) as app:
        clock.advance("3d")
        await app.drain()

        assert await end_of(app) == (Status.FAILED, "Order 7 was not delivered in time.")
        assert companies.done == UNDONE


async def test_a_delivery_reported_after_three_days_comes_too_late(companies: Companies) -> None:
    clock = ManualClock()
    async with shop(clock) as app:
        clock.advance("73h")
        await app.signal(shipment_delivered, event(Shipment.DELIVERED), key=ORDER.id)
        await app.drain()

        assert await end_of(app) == (Status.FAILED, "Order 7 was not delivered in time.")


async def test_a_parcel_that_comes_back_is_undone(companies: Companies) -> None:
    async with shop(ManualClock()) as app:
        await app.signal(shipment_returned, event(Shipment.RETURNED), key=ORDER.id)
        await app.drain()

        assert await end_of(app) == (Status.FAILED, "The carrier returned order 7 to the warehouse.")
        assert companies.done == UNDONE


async def test_a_cancelled_order_is_undone(companies: Companies) -> None:
    async with shop(ManualClock()) as app:
        await app.cancel("order-7", "The customer called.")
        await app.drain()

        assert await end_of(app) == (Status.CANCELLED, "The customer called.")
        assert companies.done == UNDONE


async def test_a_cancel_after_the_delivery_undoes_nothing(companies: Companies) -> None:
    async with shop(ManualClock()) as app:
        await app.signal(shipment_delivered, event(Shipment.DELIVERED), key=ORDER.id)
        await app.drain()
        await app.cancel("order-7", "Too late.")
        await app.drain()

        assert await end_of(app) == (Status.CANCELLED, "Too late.")
        assert companies.done == ["charge 2900", "reserve"]


async def test_an_order_that_cannot_be_reserved_is_refunded(companies: Companies) -> None:
    companies.out_of_stock = True
    async with shop(ManualClock()) as app:
        status, message = await end_of(app)

        assert status is Status.FAILED
        assert message is not None
        assert "there is no cat food left" in message
        assert companies.done == ["charge 2900", "refund 2900"]


async def test_a_payment_provider_that_is_down_is_asked_again(companies: Companies) -> None:
    companies.outages = 2
    clock = ManualClock()
    async with shop(clock) as app:
        assert companies.done == []
        clock.advance("2s")
        await app.drain()
        assert companies.done == []
        clock.advance("4s")
        await app.drain()

        assert companies.done == ["charge 2900", "reserve"]
