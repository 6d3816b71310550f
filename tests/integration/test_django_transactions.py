"""The verbs in Django's own transaction, joined without being passed: both commit, or neither does."""

from __future__ import annotations

import threading
from contextlib import closing, suppress
from typing import Any

import psycopg
import pytest
from asgiref.sync import async_to_sync
from django.db import OperationalError, connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from outlast import (
    InvalidArgument,
    IsolationRefused,
    NotATransaction,
    Outlast,
    ResultTimeout,
    RunIdConflict,
    SchemaBehind,
    Status,
    WrongColour,
)
from outlast.integrations.django import APART, app
from outlast.integrations.django.testing import drain
from outlast.stores.databases.kinds import registry
from support.fix_django import Site
from support.probing import connect_mysql

pytestmark = [pytest.mark.usefixtures("django_outlast"), pytest.mark.every_database("mysql")]


class Undone(Exception):
    """What makes a caller roll back."""


def orders() -> set[str]:
    from support.django_orders.models import Order

    return set(Order.objects.values_list("id", flat=True))


def runs() -> set[str]:
    """The runs that others see: over a connection of another thread."""
    found: list[set[str]] = []

    def look() -> None:
        found.append({run.id for run in app.blocking.list().runs})
        connections.close_all()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return found[0]


def order_and_start(order: str, **options: Any) -> None:
    from support.django_orders.models import Order
    from support.django_orders.workflows import fulfil

    Order.objects.create(id=order)
    app.blocking.start(fulfil, order, id=order, **options)


def test_a_run_begins_with_the_block_that_started_it() -> None:
    with transaction.atomic():
        order_and_start("o-1")
        seen_before = runs()

    assert (seen_before, runs(), orders()) == (set(), {"o-1"}, {"o-1"})


def test_a_block_that_is_rolled_back_leaves_no_run_and_no_row() -> None:
    with suppress(Undone), transaction.atomic():
        order_and_start("o-1")
        raise Undone

    assert (runs(), orders()) == (set(), set())


def test_a_savepoint_that_is_rolled_back_takes_its_run_and_no_other() -> None:
    with transaction.atomic():
        order_and_start("o-1")
        with suppress(Undone), transaction.atomic():
            order_and_start("o-2")
            raise Undone
        with transaction.atomic():
            order_and_start("o-3")

    assert (runs(), orders()) == ({"o-1", "o-3"}, {"o-1", "o-3"})


def test_set_rollback_counts_as_well() -> None:
    with transaction.atomic():
        order_and_start("o-1")
        transaction.set_rollback(True)

    assert runs() == set()


def test_outside_of_a_block_each_verb_commits_by_itself() -> None:
    order_and_start("o-1")

    assert runs() == {"o-1"}


def test_many_starts_join_together() -> None:
    from support.django_orders.workflows import fulfil

    with transaction.atomic():
        app.blocking.start_many(fulfil, ["a", "b"], ids=["o-1", "o-2"])
        assert runs() == set()

    assert runs() == {"o-1", "o-2"}


def test_a_signal_and_a_cancel_are_taken_back_with_the_block() -> None:
    from support.django_orders.workflows import poked, wait

    run = app.blocking.start(wait)
    with suppress(Undone), transaction.atomic():
        app.blocking.signal(poked, id="s-1")
        assert app.blocking.cancel(run.id).accepted
        raise Undone

    kept = app.blocking.get(run.id)
    assert kept is not None
    assert kept.stop_requested is None
    assert app.blocking.signal(poked, id="s-1").created


def test_a_block_sees_what_it_has_started_and_nobody_else_does() -> None:
    with transaction.atomic():
        order_and_start("o-1")

        mine = app.blocking.get("o-1")

        assert mine is not None
        assert mine.status is Status.PENDING
        assert [run.id for run in app.blocking.list().runs] == ["o-1"]
        assert runs() == set()


def test_a_conflict_leaves_the_block_usable() -> None:
    from support.django_orders.workflows import fulfil

    order_and_start("o-1")
    with transaction.atomic():
        with pytest.raises(RunIdConflict):
            app.blocking.start(fulfil, "another", id="o-1")
        order_and_start("o-2")

    assert runs() == {"o-1", "o-2"}


def test_the_connection_may_also_be_passed_by_another_app(django_site: Site) -> None:
    """An Outlast that was made by hand knows no current block."""
    from support.django_orders.workflows import fulfil

    other = Outlast(django_site.url, workflows=[fulfil], migrate=False)
    other.blocking.list()
    with suppress(Undone), transaction.atomic():
        other.blocking.start(fulfil, "o-1", id="o-1", tx=connection)
        raise Undone
    with transaction.atomic():
        other.blocking.start(fulfil, "o-2", id="o-2", tx=connections["default"])
    other.blocking.close()

    assert runs() == {"o-2"}


def test_what_is_no_open_transaction_of_django_is_refused(django_site: Site) -> None:
    from support.django_orders.workflows import fulfil

    for wrong, advice in [
        (connection, r"transaction\.atomic\(\)"),
        (transaction.atomic(), "needs nothing passed"),
        (connections, r"connections\['default'\]"),
    ]:
        with pytest.raises(NotATransaction, match=advice):
            app.blocking.start(fulfil, "o-1", tx=wrong)

    assert runs() == set()


def test_apart_from_the_block_a_run_stays_when_the_block_goes() -> None:
    from support.django_orders.workflows import fulfil

    with suppress(Undone), transaction.atomic():
        # On SQLite nothing may be written in the block before, or the two would wait for each other.
        app.blocking.start(fulfil, "o-1", id="o-1", tx=APART)
        raise Undone

    assert runs() == {"o-1"}


def test_a_block_does_not_wait_for_a_run_that_waits_for_it() -> None:
    with transaction.atomic():
        order_and_start("o-1")
        with pytest.raises(InvalidArgument, match="after the block"):
            app.blocking.result("o-1")
        with pytest.raises(ResultTimeout):
            app.blocking.result("o-1", timeout="1ms")
    drain()

    with transaction.atomic():
        assert app.blocking.result("o-1") == 2


def test_autocommit_switched_off_is_a_transaction_too() -> None:
    transaction.set_autocommit(False)
    try:
        order_and_start("o-1")
        assert registry.is_open(connection), "nobody tells of the commit, so the worker of this process looks for it"
        assert not registry.after_commit(connection, Undone)
        transaction.rollback()
        assert not registry.is_open(connection)
        order_and_start("o-2")
        transaction.commit()
    finally:
        transaction.set_autocommit(True)

    assert runs() == {"o-2"}


def test_a_view_that_awaits_commits_by_itself_and_its_sync_part_joins() -> None:
    from support.django_orders.workflows import fulfil

    async def view() -> None:
        await app.start(fulfil, "o-1", id="o-1")
        handles = await app.start_many(fulfil, ["o-2"], ids=["o-2"])
        assert (await app.get("o-2")) is not None
        assert await app.drain() == 2
        assert await handles[0].result(timeout="10s") == 1

    async_to_sync(view)()

    assert runs() == {"o-1", "o-2"}


def test_a_blocking_verb_where_a_loop_runs_is_refused_before_django_is_asked() -> None:
    from support.django_orders.workflows import fulfil

    async def view() -> None:
        with pytest.raises(WrongColour):
            app.blocking.start(fulfil, "o-1")

    async_to_sync(view)()


def test_a_lone_start_on_sqlite_and_postgresql_is_one_transaction_of_one_write() -> None:
    """Django's query log shows what a verb costs."""
    from support.django_orders.workflows import fulfil

    app.blocking.list()
    with CaptureQueriesContext(connection) as queries:
        app.blocking.start(fulfil, "o-1", id="o-1")

    written = [
        query["sql"] for query in queries if "outlast" in query["sql"].lower() and "insert" in query["sql"].lower()
    ]
    assert len(written) == 1, list(queries)


def test_a_block_is_not_migrated_in(django_site: Site) -> None:
    """It could wait for the very transaction it is in; and `manage.py migrate` is what makes tables here."""
    from support.django_orders.workflows import fulfil

    with connection.cursor() as cursor:
        if django_site.database == "postgresql":
            cursor.execute("drop schema outlast cascade")
        else:
            for table in ("waits", "journal", "signals", "runs", "workers", "migrations"):
                cursor.execute(f"drop table outlast_{table}")
    app.forget()

    with pytest.raises(SchemaBehind) as behind, transaction.atomic():
        app.blocking.start(fulfil, "o-1")

    assert "Run `python manage.py migrate`" in str(behind.value)


def test_on_postgresql_a_signal_is_refused_in_a_stricter_block(django_site: Site) -> None:
    from support.django_orders.workflows import poked

    if django_site.database != "postgresql":
        with transaction.atomic():
            assert app.blocking.signal(poked).created
        return
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("set transaction isolation level repeatable read")
        with pytest.raises(IsolationRefused):
            app.blocking.signal(poked)


def test_the_worker_of_this_process_is_woken_by_the_commit_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from support.django_orders.workflows import fulfil

    app.blocking.list()
    woken: list[str] = []
    monkeypatch.setattr(app._access, "local", _Local(woken))

    with suppress(Undone), transaction.atomic():
        app.blocking.start(fulfil, "o-1")
        raise Undone
    with transaction.atomic():
        app.blocking.start(fulfil, "o-2")
        with suppress(Undone), transaction.atomic():
            app.blocking.start(fulfil, "o-3")
            raise Undone
        assert woken == []

    assert woken == ["woken"]


def end_connection(site: Site) -> None:
    """Have the server end Django's connection, as a restart does."""
    is_mysql = connection.vendor == "mysql"
    with connection.cursor() as cursor:
        cursor.execute("select connection_id()" if is_mysql else "select pg_backend_pid()")
        pid = cursor.fetchone()[0]
    if is_mysql:
        with closing(connect_mysql(site.url)) as other, other.cursor() as killer:
            killer.execute("kill %s", [pid])
    else:
        with psycopg.connect(site.url, autocommit=True) as server:
            server.execute("select pg_terminate_backend(%s)", [pid])


@pytest.mark.parametrize("django_site", ["postgresql", "mysql", "mariadb"], indirect=True)
def test_a_connection_that_the_server_ended_is_replaced_outside_of_a_block(django_site: Site) -> None:
    from support.django_orders.workflows import fulfil

    app.blocking.list()
    end_connection(django_site)

    assert app.blocking.start(fulfil, "o-1", id="o-1").created
    end_connection(django_site)
    assert app.blocking.get("o-1") is not None


@pytest.mark.parametrize("django_site", ["postgresql", "mysql", "mariadb"], indirect=True)
def test_in_a_block_the_loss_of_the_connection_is_the_callers(django_site: Site) -> None:
    from support.django_orders.workflows import fulfil

    def start_while_the_server_goes() -> None:
        with transaction.atomic():
            end_connection(django_site)
            app.blocking.start(fulfil, "o-1", id="o-1")

    with pytest.raises(OperationalError):
        start_while_the_server_goes()

    assert app.blocking.get("o-1") is None


@pytest.mark.parametrize("django_site", ["mysql", "mariadb"], indirect=True)
def test_a_verb_does_not_wait_long_for_a_lock_and_leaves_the_connection_as_it_was(django_site: Site) -> None:
    """Django's connections wait for a lock for 50 seconds, longer than a verb may take in all its attempts."""
    from support.django_orders.workflows import wait

    app.blocking.start(wait, id="w-1")
    with closing(connect_mysql(django_site.url, autocommit=False)) as other, other.cursor() as holder:
        holder.execute("select id from outlast_runs where id = 'w-1' for update")
        waited: list[Exception] = []

        def watch(execute: Any, *arguments: Any) -> Any:
            try:
                return execute(*arguments)
            except OperationalError as error:
                waited.append(error)
                if len(waited) == 2:
                    other.rollback()
                raise

        with connection.execute_wrapper(watch):
            assert app.blocking.cancel("w-1").accepted

    assert [error.args[0] for error in waited] == [1205, 1205]
    with connection.cursor() as cursor:
        cursor.execute("select @@session.innodb_lock_wait_timeout = @@global.innodb_lock_wait_timeout")
        assert cursor.fetchone() == (1,)


def test_closing_the_blocking_side_leaves_an_open_block_alone() -> None:
    with transaction.atomic():
        order_and_start("o-1")
        app.blocking.close()
        order_and_start("o-2")

    assert runs() == {"o-1", "o-2"}


class _Local:
    """A worker that notes when it is woken."""

    def __init__(self, woken: list[str]) -> None:
        self.worker = self
        self._woken = woken

    def wake(self) -> None:
        self._woken.append("woken")
