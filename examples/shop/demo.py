"""The shop's story, told by real processes over HTTP: python -m examples.shop.demo

A shop and its providers run on loopback ports; the shop is killed in the middle of a charge and started again; parcels
arrive, come back, get lost, and orders are cancelled. Each claim is checked against what the providers saw. The exit
status is 0 only if all of them hold.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from examples.shop.orders import Shipment
from examples.shop.processes import NotInTime, Server, end_in_order_on_sigterm, until
from examples.shop.providers import LedgerLine, Operation
from examples.shop.remote import RemoteProviders, RemoteShop
from examples.shop.report import Checks, heading, say, table

SHORT = {"SHOP_LEASE": "2s", "SHOP_REVIEW_AFTER": "1s"}


DATABASES = {
    "sqlite": ("", ""),
    "postgresql": ("OUTLAST_POSTGRES_URL", "postgresql+asyncpg"),
    "mysql": ("OUTLAST_MYSQL_URL", "mysql+asyncmy"),
    "mariadb": ("OUTLAST_MARIADB_URL", "mariadb+asyncmy"),
}
"""For each the variable that names an empty database, and how SQLAlchemy calls it."""

DATABASE_HELP = "a new SQLite file (the default), or the empty database that OUTLAST_POSTGRES_URL and the like name"


class Story:
    """The demo's orders, one after the other, and what is to be said of each."""

    def __init__(self, shop: Server, providers: Server, checks: Checks) -> None:
        self.server = shop
        self.shop = RemoteShop(shop.http)
        self.providers = RemoteProviders(providers.http)
        self.checks = checks

    def tell(self) -> None:
        """Tell it all, in order."""
        self.killed_while_charging()
        self.cancelled_by_support()
        self.brought_back()
        self.lost()

    def killed_while_charging(self) -> None:
        """An order outlasts the process that was charging its customer, and is delivered."""
        heading("1. The process is killed while it charges the card")
        self.providers.hold(Operation.CHARGE)
        order = self.shop.place("ada@example.com")
        say(f"order {order} placed; the provider has the money, its answer is on the way")
        until("a charge is made", lambda: self.providers.effects(order))
        say(f"kill -9 {self.server.pid}")
        self.server.kill()
        self.providers.release(Operation.CHARGE)
        self.server.start()
        say(f"started again as {self.server.pid}; the order goes on when the dead process's lease is over")
        self.shop.wait_for_stage(order, "awaiting-delivery")
        charges = [line for line in self.providers.seen(order) if line.operation is Operation.CHARGE]
        self.checks.expect("the charge was asked for again after the crash", len(charges) > 1)
        self.checks.expect("with the same idempotency key", len({line.key for line in charges}) == 1)
        self.checks.expect("the card was charged once", [line.effect for line in charges].count(True) == 1)
        self.delivered(order)

    def delivered(self, order: str) -> None:
        """The carrier's webhook ends the wait, however often it is sent."""
        first, again = (self.shop.hear(order, Shipment.DELIVERED, "event-1") for _ in range(2))
        say("the carrier reports the delivery, twice, as carriers do")
        self.checks.expect("the webhook was taken once and its repetition recognised", (first, again) == (True, False))
        seen = self.shop.wait_for_end(order)
        self.checks.expect("the webhook completed the wait, and the order", seen == ("delivered", "completed"))
        expected = [Operation.CHARGE, Operation.RESERVE, Operation.MAIL]
        self.checks.expect("the customer was asked for a review once", self.providers.effects(order) == expected)
        self.checks.expect("a delivered order cannot be cancelled", self.shop.cancel(order) == 409)
        self.show(order)

    def cancelled_by_support(self) -> None:
        """A cancelled order is undone."""
        heading("2. Support cancels an order that is on its way")
        order = self.shop.place("bob@example.com")
        self.shop.wait_for_stage(order, "awaiting-delivery")
        say(f"order {order} is paid and reserved; support cancels it")
        self.checks.expect("the cancel was accepted", self.shop.cancel(order) == 202)
        self.undone(order, ("cancelled", "cancelled"), "a cancelled order")

    def brought_back(self) -> None:
        """A returned order is undone."""
        heading("3. The carrier brings the parcel back")
        order = self.shop.place("cem@example.com")
        self.shop.wait_for_stage(order, "awaiting-delivery")
        say(f"order {order} is on its way; the carrier reports that it brings it back")
        self.shop.hear(order, Shipment.RETURNED, "event-2")
        self.undone(order, ("returned", "failed"), "a returned order")

    def lost(self) -> None:
        """An order that nobody hears of again is undone, after a deploy that gives parcels one second instead of three
        days: a deadline is fixed when a run first reaches it.
        """
        heading("4. The parcel never arrives")
        self.server.stop()
        self.server.environment["SHOP_DELIVERY_WITHIN"] = "1s"
        self.server.start()
        order = self.shop.place("dora@example.com")
        say(f"order {order} placed, after a deploy that waits 1 s for the carrier; it never calls")
        self.undone(order, ("placed", "failed"), "an order that never arrived")

    def undone(self, order: str, expected: tuple[str, str], what: str) -> None:
        """An order has ended as expected, and what was done for it was undone, last things first."""
        self.checks.expect(f"{what} ended as {expected[1]}", self.shop.wait_for_end(order) == expected)
        effects = self.providers.effects(order)
        done_and_undone = [Operation.CHARGE, Operation.RESERVE, Operation.RELEASE, Operation.REFUND]
        self.checks.expect(f"{what} was released, then refunded, each once", effects == done_and_undone)
        self.show(order)

    def show(self, order: str) -> None:
        """Print an order's journal, and what the providers saw of it."""
        fulfilment = self.shop.show(order).fulfilment
        if fulfilment is None:
            return
        why = f", because: {fulfilment.error}" if fulfilment.error else ""
        print(f"\n  Journal of run order-{order}, {fulfilment.status}{why}")
        rows = ((e.name, e.kind, e.phase, e.attempts or "", f"{e.recorded_at:%H:%M:%S.%f}") for e in fulfilment.journal)
        print(table(("entry", "kind", "phase", "attempts", "recorded (UTC)"), rows))
        print("\n  Requests that the providers saw")
        print(table(("request", "effect", "idempotency key"), map(_request, self.providers.seen(order))))
        print(flush=True)


def _request(line: LedgerLine) -> tuple[str, str, str]:
    return (line.operation, "yes" if line.effect else "no, repeated", line.key)


def servers(folder: Path, stack: ExitStack, settings: dict[str, str]) -> tuple[Server, Server]:
    """Start a shop and its providers in a folder; both end with `stack`."""
    ledger = {"PROVIDERS_LEDGER": str(folder / "ledger.jsonl")}
    providers = stack.enter_context(Server("examples.shop.providers:api", folder / "providers.log", ledger))
    database = {"SHOP_DATABASE_URL": f"sqlite+aiosqlite:///{folder / 'shop.db'}"}
    environment = database | {"SHOP_PROVIDERS_URL": providers.url} | settings
    shop = stack.enter_context(Server("examples.shop.main:api", folder / "shop.log", environment))
    return shop, providers


def on_server(database: str, url: str) -> dict[str, str]:
    """The settings of a shop on a server's database, empty so far."""
    _, _, place = url.partition("://")
    return {"SHOP_DATABASE_URL": f"{DATABASES[database][1]}://{place}"}


def main() -> int:
    """Tell the story; return 0 if every check held."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--database", choices=tuple(DATABASES), default="sqlite", help=DATABASE_HELP)
    settings = dict(SHORT)
    database: str = parser.parse_args().database
    if database != "sqlite":
        settings |= on_server(database, os.environ[DATABASES[database][0]])
    end_in_order_on_sigterm()

    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="shop-") as folder, ExitStack() as stack:
        try:
            Story(*servers(Path(folder), stack, settings), checks).tell()
        except NotInTime as late:
            checks.expect(str(late), holds=False)
            for log in Path(folder).glob("*.log"):
                print(f"\n{log.stem} said:\n{log.read_text()}")
    heading("What was promised")
    print(checks.summary())
    return 0 if checks.all_hold else 1


if __name__ == "__main__":
    sys.exit(main())
