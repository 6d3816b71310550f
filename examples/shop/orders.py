"""What the shop talks about: orders, what the carrier reports, and the table that holds the orders."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field
from sqlalchemy import JSON, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


@dataclass(frozen=True, slots=True)
class Item:
    """A line of an order. `price` is that of one piece, in cents."""

    product: str
    quantity: Annotated[int, Field(gt=0)]
    price: Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class NewOrder:
    """What a customer sends to place an order."""

    customer: str
    items: Annotated[list[Item], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Order:
    """An order as it was placed; the input of its fulfilment."""

    id: str
    customer: str
    items: list[Item]

    @property
    def total(self) -> int:
        """The amount to charge, in cents."""
        return sum(item.quantity * item.price for item in self.items)


class Shipment(StrEnum):
    """What a carrier can say about a parcel."""

    IN_TRANSIT = "shipment.in_transit"
    DELIVERED = "shipment.delivered"
    RETURNED = "shipment.returned"


@dataclass(frozen=True, slots=True)
class CarrierEvent:
    """The body of the carrier's webhook. A report that is sent again has the same `id`; `reference` is our order's."""

    id: str
    type: Shipment
    reference: str
    tracking_number: str
    occurred_at: datetime


class OrderStatus(StrEnum):
    """Where an order stands for the customer. How its fulfilment goes is the run's to tell."""

    PLACED = "placed"
    DELIVERED = "delivered"
    RETURNED = "returned"
    CANCELLED = "cancelled"


class Base(DeclarativeBase):
    """The shop's own tables. Those of outlast are its own affair."""

    # MySQL asks for a length.
    type_annotation_map: ClassVar[dict[Any, Any]] = {str: String(255)}


class OrderRow(Base):
    """An order in the shop's database."""

    __tablename__ = "orders"

    id: Mapped[str] = mapped_column(primary_key=True)
    customer: Mapped[str]
    items: Mapped[list[dict[str, Any]]] = mapped_column(JSON)
    total: Mapped[int]
    status: Mapped[str] = mapped_column(default=OrderStatus.PLACED)

    @classmethod
    def of(cls, order: Order) -> OrderRow:
        """Make the row of a new order."""
        items = [asdict(item) for item in order.items]
        return cls(id=order.id, customer=order.customer, items=items, total=order.total, status=OrderStatus.PLACED)
