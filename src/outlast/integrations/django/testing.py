"""For tests of a Django project: run what is due, inside of the test and of its transaction.

class OrderTests(OutlastTests, TestCase):
    def test_an_order_is_packed(self) -> None:
        run = app.blocking.start(fulfil, order.pk)
        self.drain()
        self.assertEqual(run.result(), "packed")
"""

from __future__ import annotations

import unittest
from typing import Any, ClassVar, NoReturn

from asgiref.sync import async_to_sync
from django.db import connections
from sqlalchemy import delete

from outlast.errors import InvalidArgument
from outlast.integrations.django.application import app
from outlast.integrations.django.conf import read_config
from outlast.integrations.django.database import basis_of
from outlast.integrations.django.transactions import is_of_test, is_open
from outlast.ports.operation import Statement
from outlast.stores.databases import django_statements


def drain() -> int:
    """Run everything that is due until nothing is; return how many turns were begun.

    All of it happens on this thread and over its connection, plain steps included: they see what the test has written, and
    what they write goes with the test. Runs that are due later stay as they are. Raises InvalidArgument inside of an atomic
    block of the test's own: what was started there has not begun before the block is left.

    An `async def` test awaits `app.drain()` instead.
    """
    if is_open(connections[read_config().database]):
        raise InvalidArgument(
            "drain() was called inside of transaction.atomic(). A run begins when the block that started it is left: "
            "call it after the block."
        )
    return async_to_sync(app.drain)()


class _NoClock:
    """Stands for the database's own clock, and says so when a test would move it."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"These tests go by the database's own clock, which has no {name!r}. To move time write "
            "`clock = ManualClock()` in the test class, with ManualClock from outlast.testing."
        )


class OutlastTests(unittest.TestCase):
    """Stands before Django's TestCase or TransactionTestCase: `class OrderTests(OutlastTests, TestCase)`.

    clock: replaces the database's clock in these tests, such as `outlast.testing.ManualClock()`. Default none.

    After a test of TransactionTestCase, whose rows are committed, all that outlast wrote is deleted; Django's own clean-up
    leaves tables alone that are not of its models.
    """

    clock: ClassVar[Any] = _NoClock()

    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(_clear)
        if not isinstance(self.clock, _NoClock | None):
            self.enterContext(app.clocked(self.clock))

    def drain(self) -> int:
        """Run everything that is due; see `drain` of this module."""
        return drain()


def _clear() -> None:
    config = read_config()
    connection = connections[config.database]
    if is_of_test(connection):
        return  # The test's transaction is rolled back.
    tables = basis_of(config.database, config.schema).tables
    for table in (tables.waits, tables.journal, tables.signals, tables.runs, tables.workers):
        django_statements.execute(connection, Statement(delete(table)))
