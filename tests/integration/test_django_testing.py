"""Runs executed inside of Django's test cases: in their transaction, on their thread."""

from __future__ import annotations

import asyncio
import threading
import unittest
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

from outlast import InvalidArgument, Status
from outlast.integrations.django import app
from outlast.integrations.django.testing import OutlastTests, drain
from outlast.testing import ManualClock

pytestmark = [pytest.mark.usefixtures("django_outlast"), pytest.mark.every_database("mysql")]


def passed(case: type[unittest.TestCase]) -> int:
    """Run a test case as a test runner does; return how many tests passed."""
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    assert result.errors + result.failures == [], result.errors + result.failures
    return result.testsRun


def test_moving_a_clock_that_a_test_has_not_says_how_it_gets_one() -> None:
    with pytest.raises(AttributeError, match=r"write `clock = ManualClock\(\)` in the test class"):
        OutlastTests().clock.advance("2d")


def order_ids() -> list[str]:
    from support.django_orders.models import Order

    return list(Order.objects.order_by("id").values_list("id", flat=True))


# ruff: noqa: PT009, PT027 - what stands here is written for Django's own test runner
class Cases:
    """Out of pytest's sight: each is run by a test of its own, inside of the fixture's database."""

    class Drained(OutlastTests):
        def test_a_run_is_executed_with_what_the_test_wrote(self) -> None:
            from support.django_orders.models import Order
            from support.django_orders.workflows import fulfil

            Order.objects.create(id="o-1")
            run = app.blocking.start(fulfil, "o-1")

            self.assertEqual(self.drain(), 1)

            self.assertEqual(run.result(timeout="10s"), 2)
            self.assertEqual(order_ids(), ["o-1", "o-1-packed"])

        def test_another_test_sees_nothing_of_it(self) -> None:
            self.assertEqual((order_ids(), app.blocking.list().runs, self.drain()), ([], (), 0))

        def test_a_run_of_a_block_begins_after_the_block(self) -> None:
            from support.django_orders.workflows import fulfil

            with transaction.atomic():
                run = app.blocking.start(fulfil, "o-1")
                with self.assertRaisesRegex(InvalidArgument, "after the block"):
                    self.drain()

            self.assertEqual(self.drain(), 1)
            self.assertEqual(run.result(timeout="10s"), 1)

        def test_a_run_of_a_block_that_is_rolled_back_never_was(self) -> None:
            from support.django_orders.workflows import fulfil

            with transaction.atomic():
                app.blocking.start(fulfil, "o-1")
                transaction.set_rollback(True)

            self.assertEqual(self.drain(), 0)

        def test_a_step_that_breaks_the_database_fails_alone(self) -> None:
            from support.django_orders.models import Order
            from support.django_orders.workflows import fulfil

            Order.objects.create(id="o-1-packed")
            bad, good = app.blocking.start(fulfil, "o-1", id="bad"), app.blocking.start(fulfil, "o-2", id="good")

            self.drain()

            self.assertEqual(good.result(timeout="10s"), 1)
            kept = app.blocking.get(bad.id)
            assert kept is not None
            self.assertEqual(kept.status, Status.SUSPENDED, "it is tried again in a second")

        def test_a_signal_wakes_a_run_that_waits(self) -> None:
            from support.django_orders.workflows import poked, wait

            run = app.blocking.start(wait)
            self.drain()
            app.blocking.signal(poked)
            self.drain()

            self.assertEqual(run.result(timeout="10s"), "poked")

        async def test_an_async_test_awaits_the_same(self) -> None:
            from support.django_orders.models import Order
            from support.django_orders.workflows import fulfil

            await Order.objects.acreate(id="o-1")
            run = await app.start(fulfil, "o-1")

            assert await app.drain() == 1

            self.assertEqual(await run.result(timeout="10s"), 2)

    class Clocked(OutlastTests):
        clock = ManualClock()

        def test_time_passes_when_the_test_says_so(self) -> None:
            from support.django_orders.workflows import sleep

            run = app.blocking.start(sleep)
            self.drain()
            self.clock.advance(timedelta(days=7))
            self.drain()

            self.assertEqual(run.result(timeout="10s"), "awake")


@pytest.mark.parametrize("kind", [TestCase, TransactionTestCase])
@pytest.mark.parametrize("case", [Cases.Drained, Cases.Clocked])
def test_runs_are_executed_in(kind: type[Any], case: type[Any]) -> None:
    call_command("migrate", verbosity=0)  # TransactionTestCase empties the tables of all apps.

    here: Any = type("Here", (case, kind), {})
    assert passed(here) == len([name for name in dir(case) if name.startswith("test_")])
    assert (order_ids(), app.blocking.list().runs) == ([], ())


def test_outside_of_test_cases_too_plain_steps_are_called_on_the_thread_that_drains() -> None:
    from support.django_orders.workflows import note_thread, threads

    app.blocking.start(note_thread)
    threads.clear()

    drain()

    assert threads == [threading.get_ident()]
    assert connection.connection is not None


def test_a_worker_gives_the_connections_of_its_steps_back() -> None:
    """Each step is to Django's connections what a request is, and none is left open with its thread."""
    from support.django_orders.workflows import fulfil, opened

    async def work() -> None:
        async with app.working():
            handles = await app.start_many(fulfil, ["a", "b", "c"])
            for handle in handles:
                await handle.result(timeout="30s")

    opened.clear()
    asyncio.run(work())

    assert opened
    assert [each.connection for each in opened] == [None] * len(opened)


def test_kept_connections_are_closed_with_the_worker() -> None:
    from support.django_orders.workflows import fulfil, opened

    connection.settings_dict["CONN_MAX_AGE"] = None

    async def work() -> list[bool]:
        async with app.working():
            await app.start_and_wait(fulfil, "a")
            return [each.connection is not None for each in opened]

    opened.clear()

    assert asyncio.run(work()) == [True]
    assert [each.connection for each in opened] == [None]
