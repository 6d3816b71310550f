"""The admin shows runs and what their journals say, and changes nothing. Views of both colours start runs."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.management import call_command
from django.db import connections
from django.test import AsyncClient, Client
from django.test.utils import CaptureQueriesContext

from outlast.integrations.django import app

TAGS = re.compile(r"(<[^>]+>|\s)+")


@pytest.fixture
def client(django_site: Any) -> Client:
    from django.contrib.auth.models import User

    call_command("migrate", verbosity=0)
    client = Client()
    client.force_login(User.objects.create_superuser("ada", "ada@example.com", "secret"))
    return client


def text_of(client: Client, url: str) -> str:
    response = client.get(url)
    assert response.status_code == 200, response
    return TAGS.sub(" ", response.content.decode())


FIELD = re.compile(r'class="form-row field-(\w+)".*?class="readonly">(.*?)</div>', re.DOTALL)


def fields_of(client: Client, run: str) -> dict[str, str]:
    """What a run's page shows beside each name."""
    page = client.get(f"/admin/outlast/run/{run}/change/").content.decode()
    return {name: html.unescape(TAGS.sub(" ", shown)).strip() for name, shown in FIELD.findall(page)}


@pytest.mark.every_database("mariadb")
def test_the_list_shows_runs_newest_first_and_finds_them(client: Client) -> None:
    from support.django_orders.workflows import fulfil, wait

    app.blocking.start_many(fulfil, ["a", "b"], ids=["order-a", "order-b"])
    app.blocking.start(wait, id="waiting")

    everything = text_of(client, "/admin/outlast/run/")
    found = text_of(client, "/admin/outlast/run/?q=order-")
    pending = text_of(client, "/admin/outlast/run/?status__exact=completed")

    assert everything.index("waiting") < everything.index("order-b") < everything.index("order-a")
    assert "order-a" in found
    assert "waiting" not in found
    assert "order-a" not in pending


def test_the_list_says_of_each_run_what_there_is_to_search_and_filter_by(client: Client) -> None:
    from support.django_orders.workflows import fulfil, wait

    app.blocking.start(fulfil, "a", id="order-a")
    app.blocking.start(wait, id="waiting")

    page = client.get("/admin/outlast/run/").content.decode()
    columns = list(dict.fromkeys(re.findall(r'<th scope="col" class="[^"]*\bcolumn-(\w+)', page)))

    assert columns == ["id", "workflow", "version", "status", "created_at", "updated_at", "due_at"]
    assert "The beginning of an id, or the name of a workflow" in page
    assert "status__exact=completed" in page
    with CaptureQueriesContext(connections["default"]) as asked:
        assert listed(client, q="order-") == ["order-a"]
    counts = [query for query in asked.captured_queries if "COUNT(" in query["sql"]]
    assert len(counts) == 1, "what is found is counted, all runs are not"
    assert listed(client, q="wait") == ["waiting"]
    assert listed(client, q="fulfil") == ["order-a"]
    assert listed(client, q="ulfil") == listed(client, q="rder-") == []


def listed(client: Client, **options: str) -> list[str]:
    """The ids that the list shows."""
    page = client.get("/admin/outlast/run/", options).content.decode()
    return re.findall(r'href="/admin/outlast/run/([\w-]+)/change/', page)


def test_who_may_look_needs_one_permission_which_is_all_there_is(client: Client) -> None:
    from django.contrib.auth.models import Permission, User

    bob = User.objects.create_user("bob", is_staff=True)
    (may_view,) = Permission.objects.filter(content_type__app_label="outlast")
    looking = Client()

    looking.force_login(bob)
    assert looking.get("/admin/outlast/run/").status_code == 403
    bob.user_permissions.add(may_view)
    assert looking.get("/admin/outlast/run/").status_code == 200
    assert may_view.codename == "view_run"


def test_runs_can_be_asked_for_by_their_times(client: Client) -> None:
    """Such as by a report of the project's own."""
    from outlast.integrations.django.models import Run
    from support.django_orders.workflows import wait

    app.blocking.start(wait, id="waiting")
    run = app.blocking.get("waiting")
    assert run is not None

    (row,) = Run.objects.filter(created_at=run.created_at, finished_at=None)
    assert (row.created_at, row.finished_at) == (run.created_at, None)
    assert not Run.objects.filter(created_at__lt=run.created_at).exists()
    assert Run.objects.filter(created_at__lt=run.created_at + timedelta(microseconds=1)).exists()


@pytest.mark.every_database("mariadb")
def test_the_detail_shows_values_and_the_journal(client: Client) -> None:
    from support.django_orders.workflows import fulfil

    app.blocking.start(fulfil, "<o>", id="order-1")
    async_to_sync(app.drain)()

    with CaptureQueriesContext(connections["default"]) as asked:
        shown = text_of(client, "/admin/outlast/run/order-1/change/")

    assert sum("journal" in query["sql"] for query in asked.captured_queries) == 1, "once for all fields"
    assert "&#x27;&lt;o&gt;&#x27;" in shown, "the input, escaped"
    assert re.search(r"pack step done 1 1 2\d{3}-", shown), shown


def test_the_detail_names_the_signals_and_times_that_a_run_waits_for(client: Client) -> None:
    """The journal showed the stored text, with a line break between a signal's name and its key."""
    from support.django_orders.workflows import wait_long

    app.blocking.start(wait_long, id="order-1")
    async_to_sync(app.drain)()

    shown = text_of(client, "/admin/outlast/run/order-1/change/")

    assert re.search(r"either first open - poked\[2\], 2\d{3}-\d\d-\d\d \d\d:", shown), shown


def test_every_field_of_the_detail_says_what_is_known(client: Client) -> None:
    from support.django_orders.workflows import fail, fulfil, wait_long

    app.blocking.start(fulfil, "o", id="done")
    app.blocking.start(wait_long, id="waiting")
    app.blocking.start(fail, id="failed")
    async_to_sync(app.drain)()

    done, waiting, failed = (fields_of(client, run) for run in ("done", "waiting", "failed"))

    at_first = {"id": "done", "workflow": "fulfil", "version": "1", "status": "Completed", "custom_status": "-"}
    at_last = {"waiting_for": "-", "held": "-", "input": "'o'", "output": "1", "failure": "-"}
    assert {**done, **at_first, **at_last} == done
    assert (waiting["status"], waiting["custom_status"]) == ("Suspended", "on its way")
    assert waiting["waiting_for"] == "poked[2]"
    assert failed["failure"].startswith("outlast.errors.StepFailed: Step 'look_in_stock' gave up after 1 attempt")
    assert "workflows.py" in failed["failure"]
    assert re.search(r"look_in_stock step failed 1 LookupError: nothing in stock 2\d{3}-", failed["journal"])


def test_the_detail_shows_why_a_run_is_held(client: Client) -> None:
    """It showed the error as Python writes such a value."""
    from outlast.integrations.django.tables import table_name
    from support.django_orders.workflows import poked, wait

    app.blocking.start(wait, id="order-1")
    async_to_sync(app.drain)()
    with connections["default"].cursor() as cursor:
        cursor.execute(f"update {table_name('journal')} set name = 'of-other-code'")
    app.blocking.signal(poked)
    async_to_sync(app.drain)()

    assert fields_of(client, "order-1")["held"].startswith("outlast.errors.JournalMismatch: Run 'order-1'")


def test_the_detail_shows_why_a_run_failed(client: Client) -> None:
    from support.django_orders.workflows import fail

    app.blocking.start(fail, id="order-1")
    async_to_sync(app.drain)()

    assert "LookupError: nothing in stock" in text_of(client, "/admin/outlast/run/order-1/change/")


def test_the_admin_changes_nothing(client: Client) -> None:
    from support.django_orders.workflows import wait

    app.blocking.start(wait, id="waiting")

    assert client.get("/admin/outlast/run/add/").status_code == 403
    assert client.post("/admin/outlast/run/waiting/change/", {"status": "completed"}).status_code == 403
    assert client.post("/admin/outlast/run/waiting/delete/", {"post": "yes"}).status_code == 403
    kept = app.blocking.get("waiting")
    assert kept is not None
    assert kept.status == "pending"
    page = client.get("/admin/outlast/run/waiting/change/").content.decode()
    assert not re.search(r'type="submit" value="Save|class="deletelink"', page)
    assert "Add run" not in client.get("/admin/outlast/run/").content.decode()


@pytest.mark.every_database("mariadb")
def test_a_request_is_one_block_under_atomic_requests(client: Client) -> None:
    connections["default"].settings_dict["ATOMIC_REQUESTS"] = True
    client.raise_request_exception = False

    assert client.get("/orders/o-1").json() == {"created": True}
    assert client.get("/orders/o-2?fail").status_code == 500

    assert [run.id for run in app.blocking.list().runs] == ["o-1"]


def test_a_view_that_awaits_starts_a_run(client: Client) -> None:
    async def request() -> object:
        return (await AsyncClient().get("/awaiting/o-1")).json()

    assert async_to_sync(request)() == {"created": True}
    assert [run.id for run in app.blocking.list().runs] == ["o-1"]
