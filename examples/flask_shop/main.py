"""The shop's HTTP application: flask --app examples.flask_shop.main run

Orders live in the shop's own table, runs in those of outlast, both in one database: what belongs together commits
together, because `start`, `signal` and `cancel` take the shop's session as `tx`.
"""

from __future__ import annotations

from secrets import token_hex
from typing import Any, TypeVar, cast

import msgspec
import pydantic
from flask import Flask, Response, abort, request
from sqlalchemy import CursorResult, create_engine, update
from sqlalchemy.orm import Session, sessionmaker

from examples.flask_shop.fulfilment import fulfil_order, run_id, shipment_delivered, shipment_returned
from examples.flask_shop.settings import settings
from examples.shop.orders import Base, CarrierEvent, NewOrder, Order, OrderRow, OrderStatus, Shipment
from examples.shop.views import Cancellation, Placed, Received, order_view
from outlast import Outlast, WorkerOptions
from outlast.integrations.flask import FlaskOutlast

T = TypeVar("T")

engine = create_engine(settings.database_url)
sessions = sessionmaker(engine, expire_on_commit=False)
outlast = FlaskOutlast(lambda _: Outlast(engine, workflows=[fulfil_order], worker=WorkerOptions(lease=settings.lease)))


def create_app() -> Flask:
    """Make the application. Its runs execute in `flask --app examples.flask_shop.main outlast worker`."""
    flask = Flask(__name__)
    outlast.init_app(flask)
    flask.add_url_rule("/health", view_func=health)
    flask.add_url_rule("/orders", view_func=place, methods=["POST"])
    flask.add_url_rule("/orders/<order_id>", view_func=show)
    flask.add_url_rule("/webhooks/carrier", view_func=hear_from_carrier, methods=["POST"])
    flask.add_url_rule("/orders/<order_id>/cancel", view_func=cancel, methods=["POST"])
    flask.cli.command("create-tables")(create_tables)
    return flask


def create_tables() -> None:
    """Make the shop's own table."""
    Base.metadata.create_all(engine)


def health() -> dict[str, str]:
    """Answer once the shop is up."""
    return {"status": "ok"}


def place() -> Response:
    """Place an order. The order exists if and only if its fulfilment does."""
    new = _body(NewOrder)
    order = Order(token_hex(4), new.customer, new.items)
    with sessions.begin() as session:
        session.add(OrderRow.of(order))
        outlast.blocking.start(fulfil_order, order, id=run_id(order.id), tx=session)
    return _answer(Placed(order.id, order.total), 201)


def show(order_id: str) -> Response:
    """Tell where an order stands: for the customer, and in its fulfilment."""
    with sessions() as session:
        row = _order(session, order_id)
    return _answer(order_view(row, outlast.blocking.get(run_id(order_id), journal=True)))


def hear_from_carrier() -> Response:
    """Take a report of the carrier. Verify its signature here before you trust it.

    The signal and the order's new status commit together, so the answer 200 means that both are safe. A report that is
    sent again carries the same id, and its signal is not stored twice.
    """
    event = _body(CarrierEvent)
    match event.type:
        case Shipment.IN_TRANSIT:
            return _answer(Received(new=True))
        case Shipment.DELIVERED:
            signal, status = shipment_delivered, OrderStatus.DELIVERED
        case Shipment.RETURNED:
            signal, status = shipment_returned, OrderStatus.RETURNED
    with sessions.begin() as session:
        _order(session, event.reference)
        _leave_placed(session, event.reference, status)
        receipt = outlast.blocking.signal(signal, event, key=event.reference, id=event.id, tx=session)
    return _answer(Received(new=receipt.created))


def cancel(order_id: str) -> Response:
    """Cancel an order, for customer support. What was done for it is undone in reverse order."""
    cancellation = _body(Cancellation)
    with sessions.begin() as session:
        _order(session, order_id)
        is_ours = _leave_placed(session, order_id, OrderStatus.CANCELLED)
        if not is_ours or not outlast.blocking.cancel(run_id(order_id), cancellation.reason, tx=session).accepted:
            # Leaving the transaction by an exception takes back all of it.
            abort(409, f"Order {order_id} cannot be cancelled any more.")
    return _answer(cancellation, 202)


def _body(kind: type[T]) -> T:
    try:
        return pydantic.TypeAdapter(kind).validate_json(request.get_data())
    except pydantic.ValidationError as error:
        abort(422, str(error))


def _answer(view: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(view), status, content_type="application/json")


def _order(session: Session, order_id: str) -> OrderRow:
    row = session.get(OrderRow, order_id)
    if row is None:
        abort(404, f"There is no order {order_id}.")
    return row


def _leave_placed(session: Session, order_id: str, status: OrderStatus) -> bool:
    """Give a placed order its final status; False when it has one.

    A webhook and a cancel both begin with this, so that they take turns: whoever is second waits for the first one's
    commit, and what it then asks of the run comes later than what the first one asked.
    """
    still_placed = update(OrderRow).where(OrderRow.id == order_id, OrderRow.status == OrderStatus.PLACED)
    changed = cast("CursorResult[Any]", session.execute(still_placed.values(status=status)))
    return changed.rowcount == 1
