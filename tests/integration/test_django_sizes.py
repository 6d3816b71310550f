"""A value that MySQL takes not at once is refused on Django's connections too, with what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from django.db import connections, transaction

from outlast import RunFailed
from outlast.errors import ValueNotStorable
from outlast.integrations.django import app
from outlast.integrations.django.testing import drain
from support.fix_django import Site, connected_to, entry_of
from support.probing import Tables

pytestmark = [
    pytest.mark.parametrize("django_site", ["sqlite"], indirect=True),
    pytest.mark.usefixtures("site_on_a_frugal_server"),
]

REFUSED = r"cannot be stored: .* max_allowed_packet = 1,048,576 .* Store less"
FAR_TOO_LONG = "x" * 2_000_000


@pytest.fixture
def site_on_a_frugal_server(django_site: Site, frugal_url: str) -> Iterator[None]:
    """The project there instead of where it was made."""
    with connected_to({"default": entry_of(frugal_url)}):
        app.forget()
        from support.django_orders.models import Order

        with connections["default"].schema_editor() as editor:
            editor.create_model(Order)
        app.blocking.migrate()
        yield
        app.forget()


def test_an_input_is_refused_and_the_callers_transaction_goes_on(frugal_url: str) -> None:
    """The server would cut the connection, which looks as if it were away, and end the caller's transaction with it."""
    from support.django_orders.models import Order
    from support.django_orders.workflows import fulfil

    with pytest.raises(ValueNotStorable, match=REFUSED):
        app.blocking.start(fulfil, FAR_TOO_LONG, id="alone")
    with transaction.atomic():
        Order.objects.create(id="o-1")
        with pytest.raises(ValueNotStorable, match=REFUSED):
            app.blocking.start(fulfil, FAR_TOO_LONG, id="joined")
        app.blocking.start(fulfil, "x" * 900_000, id="fits")

    assert Order.objects.filter(id="o-1").exists()
    assert Tables(frugal_url)("select id from {runs}") == [("fits",)]


def test_a_result_fails_its_step_for_good_wherever_the_run_is_performed() -> None:
    """In a worker, which has connections of its own, and in a test, where all goes over Django's."""
    from support.django_orders.workflows import draw_picture, opened

    async def work() -> None:
        async with app.working():
            with pytest.raises(RunFailed, match=REFUSED):
                await app.start_and_wait(draw_picture, 2_000_000, id="in-worker", wait="30s")

    opened.clear()
    asyncio.run(work())
    drained = app.blocking.start(draw_picture, 2_000_000, id="drained")
    drain()

    with pytest.raises(RunFailed, match=REFUSED):
        drained.result()
    assert len(opened) == 2
