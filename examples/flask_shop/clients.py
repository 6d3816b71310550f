"""The companies that the shop works with, as it calls them: payment provider, warehouse and mail provider.

Each call carries an idempotency key. A step may run twice, when the process dies before the answer is recorded; the
provider answers a repeated key with its first answer, so the card is charged once all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import httpx
import msgspec

from examples.flask_shop.settings import settings
from examples.shop.orders import Order
from outlast import NonRetryable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Charge:
    """Money taken from the customer's card. `amount` is in cents."""

    id: str
    amount: int


@dataclass(frozen=True, slots=True)
class Reservation:
    """Stock put aside for an order."""

    id: str


def take_money(order: Order, key: str) -> Charge:
    """Charge the customer's card."""
    return _post("/charges", {"order": order.id, "amount": order.total}, key, Charge)


def give_money_back(charge: Charge, key: str) -> None:
    """Give the money back."""
    _post("/refunds", {"charge": charge.id}, key, dict)


def reserve(order: Order, key: str) -> Reservation:
    """Put the order's items aside."""
    items = {item.product: item.quantity for item in order.items}
    return _post("/reservations", {"order": order.id, "items": items}, key, Reservation)


def release(reservation: Reservation, key: str) -> None:
    """Put the items back on sale."""
    _post("/releases", {"reservation": reservation.id}, key, dict)


def ask_for_review(order: Order, key: str) -> None:
    """Ask the customer how it was."""
    _post("/mails", {"order": order.id, "to": order.customer, "about": "review"}, key, dict)


def _post(path: str, body: dict[str, object], key: str, answer: type[T]) -> T:
    url = settings.providers_url + path
    response = httpx.post(url, json=body, headers={"Idempotency-Key": key}, timeout=30)
    if response.is_client_error:
        raise NonRetryable(f"{path} refused {body}: {response.text}")
    response.raise_for_status()
    return msgspec.json.decode(response.content, type=answer)
