"""The shop as a Django project: a web process, a worker process, and the providers, over HTTP. One worker is killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from examples.shop.orders import Item, Shipment
from examples.shop.processes import Server, until
from examples.shop.providers import Operation
from examples.shop.remote import RemoteProviders, RemoteShop
from support.processes import ROOT, ChildProcess, StartProcess

MANAGE = "examples/django_shop/manage.py"
UNDONE = [Operation.CHARGE, Operation.RESERVE, Operation.RELEASE, Operation.REFUND]


@dataclass
class Project:
    """The processes of a shop, and what its customers and providers see."""

    start: StartProcess
    environment: dict[str, str]
    shop: RemoteShop
    providers: RemoteProviders
    workers: list[ChildProcess] = field(default_factory=list)

    def manage(self, *arguments: str) -> str:
        done = self.start("-W", "error", MANAGE, *arguments, env=self.environment)
        assert done.wait(timeout=120) == 0, done.output
        return done.output

    def work(self) -> ChildProcess:
        worker = self.start(MANAGE, "outlast_worker", env=self.environment)
        worker.wait_for("works in process")
        self.workers.append(worker)
        return worker


@pytest.fixture
def environment(shared_database_url: str) -> dict[str, str]:
    return {"SHOP_DATABASE_URL": shared_database_url, "SHOP_LEASE": "2s", "SHOP_REVIEW_AFTER": "0s"}


@pytest.fixture
def project(environment: dict[str, str], tmp_path: Path, start_process: StartProcess) -> Iterator[Project]:
    with ExitStack() as stack:
        ledger = {"PROVIDERS_LEDGER": str(tmp_path / "ledger.jsonl")}
        providers = stack.enter_context(Server("examples.shop.providers:api", tmp_path / "providers.log", ledger))
        environment["SHOP_PROVIDERS_URL"] = providers.url
        web = Server("examples.django_shop.asgi:application", tmp_path / "web.log", environment)
        made = Project(start_process, environment, RemoteShop(web.http), RemoteProviders(providers.http))
        made.manage("migrate", "--verbosity", "0")
        stack.enter_context(web)
        yield made


@pytest.mark.every_database("mysql")
@pytest.mark.time_limit(180)
def test_a_worker_that_dies_in_a_step_leaves_an_order_that_another_one_fulfils_once(project: Project) -> None:
    first = project.work()
    project.providers.hold(Operation.CHARGE)
    order = project.shop.place("ada@example.com")
    until("the card is charged", lambda: project.providers.effects(order) == [Operation.CHARGE])
    first.kill()
    project.providers.release(Operation.CHARGE)

    project.work()
    project.shop.wait_for_stage(order, "awaiting-delivery")
    heard = [project.shop.hear(order, Shipment.DELIVERED, "event-1") for _ in range(2)]
    end = project.shop.wait_for_end(order)

    assert (heard, end) == ([True, False], ("delivered", "completed"))
    assert project.providers.effects(order) == [Operation.CHARGE, Operation.RESERVE, Operation.MAIL]
    charges = [line for line in project.providers.seen(order) if line.operation is Operation.CHARGE]
    assert len(charges) == 2, "the charge was asked for again"
    assert len({line.key for line in charges}) == 1
    assert project.shop.cancel(order) == 409
    assert "completed" in project.manage("outlast_status")


@pytest.mark.every_database("mariadb")
@pytest.mark.time_limit(180)
def test_orders_that_are_cancelled_or_come_back_are_undone(project: Project) -> None:
    project.work()
    cancelled, returned = project.shop.place("bob@example.com"), project.shop.place("cem@example.com")
    for order in (cancelled, returned):
        project.shop.wait_for_stage(order, "awaiting-delivery")

    assert project.shop.cancel(cancelled) == 202
    project.shop.hear(returned, Shipment.RETURNED, "event-1")

    assert project.shop.wait_for_end(cancelled) == ("cancelled", "cancelled")
    assert project.shop.wait_for_end(returned) == ("returned", "failed")
    for order in (cancelled, returned):
        assert project.providers.effects(order) == UNDONE


@pytest.mark.time_limit(180)
def test_what_the_shop_refuses_leaves_nothing_behind_and_its_worker_ends_when_told(project: Project) -> None:
    worker = project.work()

    assert project.shop.http.get("/orders/none").status_code == 404
    assert project.shop.cancel("none") == 404
    with pytest.raises(httpx.HTTPStatusError, match="404"):
        project.shop.hear("none", Shipment.DELIVERED, "event-1")
    declined = project.shop.place("ada@example.com", [Item("gold bar", 1, 9_000_000)])

    assert project.shop.wait_for_end(declined) == ("placed", "failed")
    assert project.providers.effects(declined) == []
    worker.terminate()
    assert worker.wait() == 0, worker.output


@pytest.mark.every_database("mysql")
@pytest.mark.time_limit(180)
def test_its_checks_and_its_own_tests_pass(environment: dict[str, str], start_process: StartProcess) -> None:
    for arguments in [
        ("check", "--database", "default", "--fail-level", "WARNING"),
        ("makemigrations", "--check", "--dry-run"),
        ("test", "examples.django_shop.orders.tests"),
    ]:
        done = start_process("-W", "error", MANAGE, *arguments, env=environment, cwd=ROOT)
        assert done.wait(timeout=120) == 0, done.output
