"""A Django process that dies around the commit of a block: the order is there if and only if its run is."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from support.processes import StartProcess

MANAGE = "examples/django_shop/manage.py"
ORDER = """
import os, signal
from django.db import transaction
from examples.django_shop.orders.models import Order
from examples.django_shop.orders.workflows import fulfil_order
from outlast.integrations.django import app

with transaction.atomic():
    Order.objects.create(id="1", customer="ada@example.com", items=[], total=1)
    app.blocking.start(fulfil_order, "1", id="order-1")
    if "{moment}" == "before":
        os.kill(os.getpid(), signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""
LOOK = """
from examples.django_shop.orders.models import Order
from outlast.integrations.django import app

print("found", Order.objects.count(), len(app.blocking.list().runs))
"""


@pytest.mark.time_limit(120)
@pytest.mark.parametrize(
    "database, moment",
    [(database, moment) for database in ("sqlite", "postgresql", "mysql", "mariadb") for moment in ("before", "after")],
)
def test_an_order_and_its_run_survive_a_death_together_or_not_at_all(
    *,
    database: str,
    moment: str,
    tmp_path: Path,
    start_process: StartProcess,
    request: pytest.FixtureRequest,
) -> None:
    fixture = "postgres_url" if database == "postgresql" else f"{database}_url"
    url: str = f"sqlite:///{tmp_path}/shop.db" if database == "sqlite" else request.getfixturevalue(fixture)
    environment = {"SHOP_DATABASE_URL": url}
    assert start_process(MANAGE, "migrate", "--verbosity", "0", env=environment).wait(timeout=90) == 0

    caller = start_process(MANAGE, "shell", "-c", ORDER.format(moment=moment), env=environment)
    assert caller.wait(timeout=60) == -signal.SIGKILL, caller.output

    look = start_process(MANAGE, "shell", "-c", LOOK, env=environment)
    assert look.wait(timeout=60) == 0, look.output
    assert ("found 0 0" if moment == "before" else "found 1 1") in look.output
