"""Transactional steps in Django's atomic block: what they write by the ORM, what they start and their entry are one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.db import Error, connection

from outlast import RunFailed
from outlast.integrations.django import app
from outlast.integrations.django.tending import mend
from support.fix_django import Site

pytestmark = [pytest.mark.usefixtures("django_outlast"), pytest.mark.every_database("mariadb")]


def booked(how: str) -> tuple[Any, set[str], set[str]]:
    """Run the workflow to its end in a worker; return its result, the orders and the runs that were started."""
    from support.django_orders.models import Order
    from support.django_orders.workflows import book_order

    async def work() -> object:
        async with app.working():
            try:
                return await app.start_and_wait(book_order, how, id="booking", wait="30s")
            except RunFailed as failed:
                return failed

    result = asyncio.run(work())
    orders = {order.id for order in Order.objects.all() if not order.id.endswith("-packed")}
    return result, orders, {str(run.id) for run in app.blocking.list().runs} - {"booking"}


@pytest.mark.parametrize("how", ["well", "confines"])
def test_rows_runs_and_the_entry_commit_together(how: str) -> None:
    assert booked(how) == (how, {"o-1"}, {"o-1"})


def test_an_attempt_that_raises_leaves_nothing_of_its_own() -> None:
    assert booked("raises") == ("raises", {"o-2"}, {"o-2"})


def test_an_error_of_the_database_that_was_caught_fails_the_attempts_and_says_what_to_do() -> None:
    result, orders, runs = booked("catches")

    assert isinstance(result, RunFailed)
    assert "savepoint" in str(result)
    assert (orders, runs) == (set(), set())


def test_a_step_may_not_commit_by_itself() -> None:
    result, orders, runs = booked("commits")

    assert isinstance(result, RunFailed)
    assert "forbidden when an 'atomic' block is active" in str(result)
    assert (orders, runs) == (set(), set())


def test_steps_that_await_the_orm_leave_no_connection_behind() -> None:
    from support.django_orders.workflows import count_orders, opened

    async def work() -> object:
        async with app.working():
            return await app.start_and_wait(count_orders, wait="30s")

    opened.clear()

    assert asyncio.run(work()) == 0
    assert [each.connection for each in opened] == [None]


@pytest.mark.parametrize("django_site", ["postgresql", "mysql"], indirect=True)
def test_a_connection_that_the_server_has_ended_is_replaced(django_site: Site) -> None:
    from support.django_orders.models import Order

    Order.objects.count()
    driver: Any = connection.connection
    driver.close()
    with pytest.raises(Error):
        Order.objects.count()

    mend()

    assert Order.objects.count() == 0
    assert connection.connection is not driver


def test_a_connection_that_still_works_after_an_error_is_kept() -> None:
    from support.django_orders.models import Order

    driver = connection.connection
    with pytest.raises(Error), connection.cursor() as cursor:
        cursor.execute("select * from no_such_table")

    mend()

    assert connection.connection is driver
    assert Order.objects.count() == 0
