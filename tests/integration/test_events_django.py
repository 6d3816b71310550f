"""Django's signals as events, published in the block that they are sent in: by the project's app, and by one of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.db.models.signals import post_delete, post_save
from django.dispatch import Signal
from django.test import override_settings

from outlast import Outlast
from outlast.integrations.events_django import publish_on_signal
from support.fix_django import Site


@pytest.fixture
def project(django_site: Site) -> Iterator[Outlast]:
    from outlast.integrations.django import app as of_project

    with override_settings(OUTLAST={"WORKFLOWS": ["support.django_orders.mapped"]}):
        of_project.blocking.migrate()
        yield of_project
        of_project.forget()


@pytest.fixture(params=["the project's app", "an app of its own"])
def app(request: pytest.FixtureRequest, django_site: Site) -> Iterator[Outlast]:
    from support.django_orders import mapped

    if request.param == "the project's app":
        yield request.getfixturevalue("project")
    else:
        own = Outlast(django_site.url, workflows=[mapped.watch], worker=False)
        own.blocking.migrate()
        yield own
        own.blocking.close()


@pytest.fixture
def connected(app: Outlast) -> Iterator[None]:
    """Saving an order and deleting it are events."""
    from support.django_orders.mapped import OrderGone, OrderSaved
    from support.django_orders.models import Order

    saved = publish_on_signal(app, post_save, lambda *, sender, instance, **_: OrderSaved(instance.id), sender=Order)
    deleted = publish_on_signal(app, post_delete, lambda *, sender, instance, **_: OrderGone(instance.id), sender=Order)
    yield
    assert post_save.disconnect(saved, sender=Order)
    assert post_delete.disconnect(deleted, sender=Order)


def orders() -> Any:
    from support.django_orders.models import Order

    return Order.objects


def written(app: Outlast) -> list[str]:
    return [run.id for run in app.blocking.list().runs]


class Undone(Exception):
    """What makes a block roll back."""


@pytest.mark.every_database("mysql")
@pytest.mark.usefixtures("connected")
def test_a_signal_in_a_block_starts_and_signals_with_the_block(app: Outlast) -> None:
    with transaction.atomic():
        orders().create(id="7")
    with transaction.atomic():
        orders().get(id="7").delete()

    from support.django_orders.mapped import gone

    assert written(app) == ["watch-7"]
    assert not app.blocking.signal(gone, "7", key="7", id="7").created


@pytest.mark.every_database("mysql")
@pytest.mark.usefixtures("connected")
def test_a_block_that_is_rolled_back_takes_what_its_signals_started(app: Outlast) -> None:
    with suppress(Undone), transaction.atomic():
        orders().create(id="7")
        raise Undone
    with transaction.atomic():
        orders().create(id="8")
        with suppress(Undone), transaction.atomic():
            orders().create(id="9")
            raise Undone

    assert written(app) == ["watch-8"]


@pytest.mark.usefixtures("connected")
def test_a_signal_outside_of_a_block_is_published_and_warned_of_once(
    app: Outlast, caplog: pytest.LogCaptureFixture
) -> None:
    with transaction.atomic():
        orders().create(id="6")
    assert caplog.text == ""

    orders().create(id="7")
    orders().create(id="8")

    assert written(app) == ["watch-6", "watch-7", "watch-8"]
    assert caplog.text.count("OrderSaved is published on a signal of Django's that was sent outside of") == 1


@pytest.mark.usefixtures("connected")
def test_autocommit_switched_off_is_a_transaction_as_well(app: Outlast, caplog: pytest.LogCaptureFixture) -> None:
    transaction.set_autocommit(False)
    try:
        orders().create(id="6")
        transaction.rollback()
        orders().create(id="7")
        transaction.commit()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)

    assert (written(app), caplog.text) == (["watch-7"], "")


@pytest.mark.usefixtures("connected")
def test_an_error_reaches_the_block(app: Outlast) -> None:
    from outlast import RunIdConflict
    from support.django_orders.mapped import watch

    app.blocking.start(watch, "other", id="watch-7")

    with pytest.raises(RunIdConflict), transaction.atomic():
        orders().create(id="7")

    assert orders().count() == 0


def test_a_signal_that_means_no_event_publishes_nothing_and_one_uid_connects_once(
    app: Outlast, caplog: pytest.LogCaptureFixture
) -> None:
    from support.django_orders.mapped import OrderSaved

    said: list[object] = []
    mine = Signal()

    # What the project sends, and the sender: not what Django adds.
    def event_of(*, sender: object, order: str | None) -> OrderSaved | None:
        said.append(sender)
        return None if order is None else OrderSaved(order)

    for _ in range(2):
        publish_on_signal(app, mine, event_of, uid="orders")

    mine.send("shop", order=None)
    assert (said, written(app), caplog.text) == (["shop"], [], "")
    with transaction.atomic():
        mine.send("shop", order="7")
    assert (said, written(app)) == (["shop", "shop"], ["watch-7"])


@pytest.mark.every_database("mysql")
@pytest.mark.parametrize("awaits", [False, True], ids=["blocking", "awaited"])
def test_the_projects_app_publishes_in_the_block_without_being_passed_it(project: Outlast, awaits: bool) -> None:
    from support.django_orders.mapped import OrderGone, OrderSaved, gone

    def publish(*events: object) -> None:
        if awaits:
            async_to_sync(project.publish)(*events)
        else:
            project.blocking.publish(*events)

    with suppress(Undone), transaction.atomic():
        publish(OrderSaved("undone"))
        publish(OrderSaved("undone-too"), OrderGone("undone"))
        raise Undone
    with transaction.atomic():
        publish(OrderSaved("7"))
    publish(OrderSaved("8"), OrderGone("8"))

    assert written(project) == ["watch-7", "watch-8"]
    assert project.blocking.signal(gone, "undone", key="undone", id="undone").created
    assert not project.blocking.signal(gone, "8", key="8", id="8").created


def test_the_projects_app_calls_handlers_and_knows_what_it_maps(project: Outlast) -> None:
    from support.django_orders.mapped import OrderGone, OrderSaved

    told: list[object] = []
    project.on(OrderSaved)(told.append)

    project.blocking.publish(OrderSaved("7"))

    assert told == [OrderSaved("7")]
    assert project.mapped_events == {OrderSaved, OrderGone}
