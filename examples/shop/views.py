"""What the shop answers over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from examples.shop.orders import OrderRow
from outlast import Run


@dataclass(frozen=True, slots=True)
class Placed:
    """The answer to a new order. `total` is in cents."""

    id: str
    total: int


@dataclass(frozen=True, slots=True)
class Received:
    """The answer to the carrier. `new` is False for a report that was sent before."""

    new: bool


@dataclass(frozen=True, slots=True)
class Cancellation:
    """What customer support sends to cancel an order, and gets back once it is cancelled."""

    reason: str = "Cancelled by customer support."


@dataclass(frozen=True, slots=True)
class EntryView:
    """One line of a run's journal."""

    name: str
    kind: str
    phase: str
    attempts: int | None
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class FulfilmentView:
    """Where a fulfilment stands. A run's input and its lease are not for customers, so they are left out."""

    status: str
    stage: object
    waiting_for: list[str]
    due_at: datetime | None
    error: str | None
    journal: list[EntryView]


@dataclass(frozen=True, slots=True)
class OrderView:
    """Where an order stands."""

    id: str
    customer: str
    total: int
    status: str
    fulfilment: FulfilmentView | None


def order_view(row: OrderRow, run: Run | None) -> OrderView:
    """Put together what is shown of an order."""
    return OrderView(row.id, row.customer, row.total, row.status, None if run is None else _fulfilment_view(run))


def _fulfilment_view(run: Run) -> FulfilmentView:
    return FulfilmentView(
        status=run.status,
        stage=run.custom_status,
        waiting_for=list(run.waiting_for),
        due_at=run.due_at,
        error=None if run.failure is None else run.failure.message,
        journal=[
            EntryView(entry.name, entry.kind, entry.phase, entry.attempts, entry.recorded_at) for entry in run.journal
        ],
    )
