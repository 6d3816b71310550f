"""The shop and its providers, left running for a person: python -m examples.shop

Kill the shop's process as often as you like: it is started again, and its orders go on.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from examples.shop.demo import servers
from examples.shop.processes import Server, end_in_order_on_sigterm

TRY = """
The shop runs at {shop}, its providers at {providers}.

  Place an order:
    curl -s {shop}/orders -H 'Content-Type: application/json' \\
      -d '{{"customer": "ada@example.com", "items": [{{"product": "cat food", "quantity": 2, "price": 1450}}]}}'

  Where it stands, with its journal (put the order's id in):
    curl -s {shop}/orders/ID

  The carrier delivers it (shipment.returned brings it back); 10 seconds later the customer is asked for a review:
    curl -s {shop}/webhooks/carrier -H 'Content-Type: application/json' -d '{{"id": "event-1", "reference": "ID",
      "type": "shipment.delivered", "tracking_number": "PARCEL-1", "occurred_at": "2026-01-01T12:00:00Z"}}'

  Support cancels it:
    curl -s {shop}/orders/ID/cancel -H 'Content-Type: application/json' -d '{{"reason": "The customer called."}}'

  What the providers were asked for, and what they did:
    curl -s {providers}/ledger

  Keep the answer to a charge back (DELETE lets it go), place an order, and kill the shop; it is started again:
    curl -s -X PUT {providers}/holds/charges
    kill -9 {pid}

All of it by mouse: {shop}/docs. Ctrl-C ends it."""


def keep_alive(shop: Server) -> None:
    """Start the shop again whenever it has died, until interrupted."""
    while True:
        time.sleep(0.2)
        if shop.pid is None:
            shop.start()
            print(f"The shop died and was started again; it is process {shop.pid} now.", flush=True)


def main() -> int:
    """Run until Ctrl-C."""
    end_in_order_on_sigterm()
    with tempfile.TemporaryDirectory(prefix="shop-") as folder, ExitStack() as stack:
        shop, providers = servers(Path(folder), stack, {"SHOP_LEASE": "5s", "SHOP_REVIEW_AFTER": "10s"})
        print(TRY.format(shop=shop.url, providers=providers.url, pid=shop.pid), flush=True)
        with suppress(KeyboardInterrupt):
            keep_alive(shop)
    return 0


if __name__ == "__main__":
    sys.exit(main())
