"""The companies that the shop works with, as it calls them: payment provider, warehouse and mail provider.

Each call carries an idempotency key. A step may run twice, when the process dies before the answer is recorded; the
provider answers a repeated key with its first answer, so the card is charged once all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import httpx
import msgspec

from examples.shop.orders import Order
from examples.shop.settings import settings
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


@dataclass(frozen=True, slots=True)
class Payments:
    """The payment provider."""

    http: httpx.AsyncClient

    async def charge(self, order: Order, key: str) -> Charge:
        """Charge the customer's card."""
        return await _post(self.http, "/charges", {"order": order.id, "amount": order.total}, key, Charge)

    async def refund(self, charge: Charge, key: str) -> None:
        """Give the money back."""
        await _post(self.http, "/refunds", {"charge": charge.id}, key, dict)


@dataclass(frozen=True, slots=True)
class Warehouse:
    """The warehouse."""

    http: httpx.AsyncClient

    async def reserve(self, order: Order, key: str) -> Reservation:
        """Put the order's items aside."""
        items = {item.product: item.quantity for item in order.items}
        return await _post(self.http, "/reservations", {"order": order.id, "items": items}, key, Reservation)

    async def release(self, reservation: Reservation, key: str) -> None:
        """Put the items back on sale."""
        await _post(self.http, "/releases", {"reservation": reservation.id}, key, dict)


@dataclass(frozen=True, slots=True)
class Mail:
    """The mail provider."""

    http: httpx.AsyncClient

    async def request_review(self, order: Order, key: str) -> None:
        """Ask the customer how it was."""
        await _post(self.http, "/mails", {"order": order.id, "to": order.customer, "about": "review"}, key, dict)


async def _post(http: httpx.AsyncClient, path: str, body: dict[str, object], key: str, answer: type[T]) -> T:
    response = await http.post(path, json=body, headers={"Idempotency-Key": key})
    if response.is_client_error:
        raise NonRetryable(f"{path} refused {body}: {response.text}")
    response.raise_for_status()
    return msgspec.json.decode(response.content, type=answer)


http = httpx.AsyncClient(base_url=settings.providers_url, timeout=30)
payments = Payments(http)
warehouse = Warehouse(http)
mail = Mail(http)
