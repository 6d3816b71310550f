"""OUTLAST["DATABASE"] may name another alias than "default": then tables, blocks and the admin's runs are on that one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections, transaction
from django.test import Client, override_settings

from outlast.integrations.django import app
from support.fix_django import Site, connected_to, entry_of

pytestmark = [
    pytest.mark.parametrize("django_site", ["sqlite"], indirect=True),
    pytest.mark.usefixtures("django_site", "_apart"),
]


@pytest.fixture
def _apart(django_site: Site, tmp_path: Path) -> Iterator[None]:
    databases = {"default": entry_of(django_site.url), "flows": entry_of(f"sqlite:///{tmp_path}/flows.db")}
    with override_settings(OUTLAST={"DATABASE": "flows", "SCHEMA": "billing"}), connected_to(databases):
        yield


class Elsewhere:
    """A router by which the tables are not made here."""

    def allow_migrate(self, db: str, app_label: str, **_: Any) -> bool:
        return app_label != "outlast"


def migrate(*arguments: str, database: str) -> None:
    call_command("migrate", "outlast", *arguments, database=database, verbosity=0)


def tables(alias: str) -> set[str]:
    return {name for name in connections[alias].introspection.table_names() if name.startswith("billing_")}


def test_its_migrations_make_tables_there_and_nowhere_else() -> None:
    migrate(database="default")
    assert tables("default") == set()

    migrate(database="flows")
    assert "billing_runs" in tables("flows")

    migrate("zero", database="default")
    assert "billing_runs" in tables("flows")
    migrate("zero", database="flows")
    assert tables("flows") == set()


def test_a_router_of_the_projects_is_asked() -> None:
    with override_settings(DATABASE_ROUTERS=[Elsewhere()]):
        migrate(database="flows")

    assert tables("flows") == set()


def test_verbs_join_its_blocks_and_no_others() -> None:
    from support.django_orders.workflows import wait

    migrate(database="flows")
    with suppress(LookupError), transaction.atomic(using="flows"):
        app.blocking.start(wait, id="taken back")
        raise LookupError
    with suppress(LookupError), transaction.atomic(using="default"):
        app.blocking.start(wait, id="kept")
        raise LookupError

    assert [run.id for run in app.blocking.list().runs] == ["kept"]


def test_the_admin_and_the_status_look_there() -> None:
    from django.contrib.auth.models import User

    from support.django_orders.workflows import wait

    call_command("migrate", verbosity=0)
    migrate(database="flows")
    app.blocking.start(wait, id="run-1")
    client, out = Client(), StringIO()
    client.force_login(User.objects.create_superuser("ada", "ada@example.com", "secret"))

    listed = client.get("/admin/outlast/run/").content.decode()
    shown = client.get("/admin/outlast/run/run-1/change/")
    call_command("outlast_status", stdout=out)

    assert "run-1" in listed
    assert shown.status_code == 200
    assert "outlast in 'billing' of DATABASES['flows']: version 1, up to date." in out.getvalue()
    assert out.getvalue().split()[-2:] == ["pending", "1"]
