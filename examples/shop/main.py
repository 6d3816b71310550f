"""The shop's HTTP application: uvicorn examples.shop.main:api

Orders live in the shop's own table, runs in those of outlast, both in one database: what belongs together commits
together, because `start`, `signal` and `cancel` take the shop's session as `tx`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from secrets import token_hex
from typing import Any, cast

from fastapi import FastAPI, HTTPException
from sqlalchemy import CursorResult, update
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from examples.shop.clients import http
from examples.shop.fulfilment import fulfil_order, run_id, shipment_delivered, shipment_returned
from examples.shop.orders import Base, CarrierEvent, NewOrder, Order, OrderRow, OrderStatus, Shipment
from examples.shop.settings import settings
from examples.shop.views import Cancellation, OrderView, Placed, Received, order_view
from outlast import Outlast, WorkerOptions

engine = create_async_engine(settings.database_url)
sessions = async_sessionmaker(engine, expire_on_commit=False)
app = Outlast(engine, workflows=[fulfil_order], worker=WorkerOptions(lease=settings.lease))


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncGenerator[None]:
    """Open what the worker needs before it starts, and close it after it has handed its runs back."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with http, app.lifespan(api):
        yield
    await engine.dispose()


api = FastAPI(title="Shop", lifespan=lifespan)


@api.get("/health")
async def health() -> dict[str, str]:
    """Answer once the shop is up."""
    return {"status": "ok"}


@api.post("/orders", status_code=201)
async def place(new: NewOrder) -> Placed:
    """Place an order. The order exists if and only if its fulfilment does."""
    order = Order(token_hex(4), new.customer, new.items)
    async with sessions.begin() as session:
        session.add(OrderRow.of(order))
        await app.start(fulfil_order, order, id=run_id(order.id), tx=session)
    return Placed(order.id, order.total)


@api.get("/orders/{order_id}")
async def show(order_id: str) -> OrderView:
    """Tell where an order stands: for the customer, and in its fulfilment."""
    async with sessions() as session:
        row = await _order(session, order_id)
    return order_view(row, await app.get(run_id(order_id), journal=True))


@api.post("/webhooks/carrier")
async def hear_from_carrier(event: CarrierEvent) -> Received:
    """Take a report of the carrier. Verify its signature here before you trust it.

    The signal and the order's new status commit together, so the answer 200 means that both are safe. A report that is
    sent again carries the same id, and its signal is not stored twice.
    """
    match event.type:
        case Shipment.IN_TRANSIT:
            return Received(new=True)
        case Shipment.DELIVERED:
            signal, status = shipment_delivered, OrderStatus.DELIVERED
        case Shipment.RETURNED:
            signal, status = shipment_returned, OrderStatus.RETURNED
    async with sessions.begin() as session:
        await _order(session, event.reference)
        await _leave_placed(session, event.reference, status)
        receipt = await app.signal(signal, event, key=event.reference, id=event.id, tx=session)
    return Received(new=receipt.created)


@api.post("/orders/{order_id}/cancel", status_code=202)
async def cancel(order_id: str, cancellation: Cancellation) -> Cancellation:
    """Cancel an order, for customer support. What was done for it is undone in reverse order."""
    async with sessions.begin() as session:
        await _order(session, order_id)
        is_ours = await _leave_placed(session, order_id, OrderStatus.CANCELLED)
        if not is_ours or not (await app.cancel(run_id(order_id), cancellation.reason, tx=session)).accepted:
            # Leaving the transaction by an exception takes back all of it.
            raise HTTPException(409, f"Order {order_id} cannot be cancelled any more.")
    return cancellation


async def _order(session: AsyncSession, order_id: str) -> OrderRow:
    row = await session.get(OrderRow, order_id)
    if row is None:
        raise HTTPException(404, f"There is no order {order_id}.")
    return row


async def _leave_placed(session: AsyncSession, order_id: str, status: OrderStatus) -> bool:
    """Give a placed order its final status; False when it has one. Held by tests/e2e/test_shop_http.py.

    A webhook and a cancel both begin with this, so that they take turns: whoever is second waits for the first one's
    commit, and what it then asks of the run comes later than what the first one asked.
    """
    still_placed = update(OrderRow).where(OrderRow.id == order_id, OrderRow.status == OrderStatus.PLACED)
    changed = cast("CursorResult[Any]", await session.execute(still_placed.values(status=status)))
    return changed.rowcount == 1
