"""The shop on Flask, as real processes over HTTP: providers, a web server and a worker, which is killed once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from examples.shop.orders import Item, Shipment
from examples.shop.processes import Server, free_port
from examples.shop.providers import Operation
from examples.shop.remote import RemoteProviders, RemoteShop
from support.callers import blocking_url
from support.probing import until
from support.processes import ChildProcess

FLASK = ("-m", "flask", "--app", "examples.flask_shop.main")


class Site:
    """The processes that make up the shop. All end with it."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self._stack = ExitStack()
        with ExitStack() as started:
            ledger = {"PROVIDERS_LEDGER": str(folder / "ledger.jsonl")}
            providers = started.enter_context(Server("examples.shop.providers:api", folder / "providers.log", ledger))
            self.providers = RemoteProviders(providers.http)
            self.environment = {
                "SHOP_DATABASE_URL": database_url,
                "SHOP_PROVIDERS_URL": providers.url,
                "SHOP_LEASE": "2s",
                "SHOP_REVIEW_AFTER": "0s",
            }
            for command in (["create-tables"], ["outlast", "migrate"]):
                done = self._start(*command)
                assert done.wait() == 0, done.output
            port = free_port()
            web = self._start("run", "--port", str(port))
            started.callback(web.close)
            client = started.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30))
            self.shop = RemoteShop(client)
            until(self._answers, "the web server to answer")
            self._stack = started.pop_all()

    def worker(self) -> ChildProcess:
        """Start a worker, and return it when it works."""
        worker = self._start("outlast", "worker")
        self._stack.callback(worker.close)
        worker.wait_for("works in process")
        return worker

    def close(self) -> None:
        self._stack.close()

    def _start(self, *command: str) -> ChildProcess:
        return ChildProcess(*FLASK, *command, env=self.environment)

    def _answers(self) -> bool:
        try:
            return self.shop.http.get("/health").is_success
        except httpx.TransportError:
            return False


@pytest.fixture
def site(shared_database_url: str, tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, blocking_url(shared_database_url).render_as_string(hide_password=False))
    yield made
    made.close()


@pytest.mark.every_database("mariadb")
@pytest.mark.time_limit(180)
def test_an_order_outlasts_the_worker_that_was_charging_its_customer(site: Site) -> None:
    shop, providers = site.shop, site.providers
    worker = site.worker()
    providers.hold(Operation.CHARGE)
    order = shop.place("ada@example.com")
    until(lambda: providers.effects(order), "the charge to be made")

    worker.kill()
    providers.release(Operation.CHARGE)
    assert shop.show(order).status == "placed", "the web server goes on serving"
    site.worker()
    shop.wait_for_stage(order, "awaiting-delivery")

    charges = [line for line in providers.seen(order) if line.operation is Operation.CHARGE]
    assert len(charges) > 1
    assert len({line.key for line in charges}) == 1
    assert [line.effect for line in charges].count(True) == 1

    assert [shop.hear(order, Shipment.DELIVERED, "event-1") for _ in range(2)] == [True, False]
    assert shop.wait_for_end(order) == ("delivered", "completed")
    assert providers.effects(order) == [Operation.CHARGE, Operation.RESERVE, Operation.MAIL]
    assert shop.cancel(order) == 409


@pytest.mark.every_database("mysql")
@pytest.mark.time_limit(180)
def test_what_is_cancelled_or_brought_back_is_undone(site: Site) -> None:
    shop, providers = site.shop, site.providers
    site.worker()
    cancelled, returned, declined = (
        shop.place("bob@example.com"),
        shop.place("cem@example.com"),
        shop.place("eve@example.com", [Item("gold bar", 1, 9_000_000)]),
    )
    shop.wait_for_stage(cancelled, "awaiting-delivery")
    shop.wait_for_stage(returned, "awaiting-delivery")

    assert shop.cancel(cancelled) == 202
    shop.hear(returned, Shipment.RETURNED, "event-2")

    assert shop.wait_for_end(cancelled) == ("cancelled", "cancelled")
    assert shop.wait_for_end(returned) == ("returned", "failed")
    assert shop.wait_for_end(declined) == ("placed", "failed")
    undone = [Operation.CHARGE, Operation.RESERVE, Operation.RELEASE, Operation.REFUND]
    assert [providers.effects(order) for order in (cancelled, returned, declined)] == [undone, undone, []]


@pytest.mark.time_limit(180)
def test_the_edges_of_the_application(site: Site) -> None:
    shop, providers = site.shop, site.providers
    assert shop.http.post("/orders", json={"customer": "ada@example.com", "items": []}).status_code == 422
    assert shop.http.get("/orders/none").status_code == 404
    assert shop.cancel("none") == 404
    with pytest.raises(httpx.HTTPStatusError, match="404"):
        shop.hear("none", Shipment.DELIVERED, "event-1")
    site.worker()

    orders = [shop.place("ada@example.com") for _ in range(6)]
    with ThreadPoolExecutor() as threads:
        reports = [threads.submit(shop.hear, order, Shipment.DELIVERED, f"event of {order}") for order in orders]
        cancels = [threads.submit(shop.cancel, order) for order in orders]

    assert all(report.result() for report in reports)
    for order, cancelled in zip(orders, cancels, strict=True):
        expected = ("cancelled", "cancelled") if cancelled.result() == 202 else ("delivered", "completed")
        assert shop.wait_for_end(order) == expected
        effects = providers.effects(order)
        assert effects.count(Operation.CHARGE) - effects.count(Operation.REFUND) == (cancelled.result() == 409)
