"""The shop and its providers as seen from outside, over HTTP: what a customer, a carrier and an auditor can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import httpx
import msgspec

from examples.shop.orders import CarrierEvent, Item, NewOrder, Shipment
from examples.shop.processes import until
from examples.shop.providers import LedgerLine, Operation
from examples.shop.views import OrderView

ENDED = {"completed", "failed", "cancelled", "compensation_failed"}
BASKET = (Item("cat food, 12 tins", 2, 1450), Item("scratching post", 1, 3990))


@dataclass(frozen=True, slots=True)
class RemoteShop:
    """The shop, for its customers, its support and the carrier."""

    http: httpx.Client

    def place(self, customer: str, items: Sequence[Item] = BASKET) -> str:
        """Place an order and return its id."""
        response = self.http.post("/orders", json=msgspec.to_builtins(NewOrder(customer, list(items))))
        order: str = response.raise_for_status().json()["id"]
        return order

    def show(self, order: str) -> OrderView:
        """Ask where an order stands."""
        response = self.http.get(f"/orders/{order}").raise_for_status()
        return msgspec.json.decode(response.content, type=OrderView)

    def hear(self, order: str, report: Shipment, event_id: str) -> bool:
        """Send the carrier's webhook; True when the shop had not heard this event before."""
        event = CarrierEvent(event_id, report, order, f"PARCEL-{order}", datetime.now(UTC))
        response = self.http.post("/webhooks/carrier", json=msgspec.to_builtins(event)).raise_for_status()
        return response.json()["new"] is True

    def cancel(self, order: str) -> int:
        """Cancel an order as support does; returns the HTTP status."""
        return self.http.post(f"/orders/{order}/cancel", json={"reason": "The customer called."}).status_code

    def wait_for_stage(self, order: str, stage: str) -> None:
        """Return when the order has come to a stage and rests there."""
        until(f"order {order} is {stage}", lambda: self._fulfilment(order) == (stage, "suspended"))

    def wait_for_end(self, order: str) -> tuple[str, str]:
        """Return the status of the order and of its run, once the run has ended."""
        until(f"order {order} ends", lambda: self._fulfilment(order)[1] in ENDED)
        return self.show(order).status, self._fulfilment(order)[1]

    def _fulfilment(self, order: str) -> tuple[object, str]:
        fulfilment = self.show(order).fulfilment
        return (fulfilment.stage, fulfilment.status) if fulfilment else (None, "missing")


@dataclass(frozen=True, slots=True)
class RemoteProviders:
    """The providers, for their auditor."""

    http: httpx.Client

    def seen(self, order: str) -> list[LedgerLine]:
        """Return all requests that were made for an order, in order."""
        lines = msgspec.json.decode(self.http.get("/ledger").raise_for_status().content, type=list[LedgerLine])
        return [line for line in lines if line.key.startswith(f"order-{order}:")]

    def effects(self, order: str) -> list[Operation]:
        """Return what was really done for an order, in order."""
        return [line.operation for line in self.seen(order) if line.effect]

    def hold(self, operation: Operation) -> None:
        """Have an operation's answers kept back."""
        self.http.put(f"/holds/{operation}").raise_for_status()

    def release(self, operation: Operation) -> None:
        """Have an operation's answers sent."""
        self.http.delete(f"/holds/{operation}").raise_for_status()
