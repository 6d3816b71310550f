"""An op over Django's own connection is one transaction, and whoever asked for it is told what became of it."""

from __future__ import annotations

import psycopg
import pytest
from django.db import Error, connection
from sqlalchemy import text

from outlast.integrations.django.database import basis_of
from outlast.integrations.django.road import DjangoRoad
from outlast.ports.operation import Op, Span, Statement
from outlast.stores.databases.roads import OutcomeUnknown
from support.fix_django import Site

pytestmark = pytest.mark.usefixtures("django_site")


class Undone(Exception):
    """What ends an op."""


@pytest.fixture
def road(django_site: Site) -> DjangoRoad:
    return DjangoRoad("default", basis_of("default", "outlast"))


def orders() -> list[str]:
    from support.django_orders.models import Order

    return sorted(Order.objects.values_list("id", flat=True))


def writing(*ids: str, fails: bool = False) -> Op[None]:
    for each in ids:
        yield Statement(text("insert into django_orders_order (id) values (:id)"), {"id": each}, span="write")
    if fails:
        raise Undone


def test_an_op_that_fails_leaves_nothing_behind_and_the_connection_as_it_was(road: DjangoRoad) -> None:
    with pytest.raises(Undone):
        road.transact(lambda: writing("o-1", "o-2", fails=True))
    with pytest.raises(Error):
        road.transact(lambda: writing("o-3", "o-3"))

    road.transact(lambda: writing("o-4", "o-5"))
    assert orders() == ["o-4", "o-5"]
    assert connection.get_autocommit()


@pytest.mark.parametrize("django_site", ["sqlite"], indirect=True)
def test_a_transaction_that_sqlite_took_back_itself_hides_no_error(road: DjangoRoad) -> None:
    """As it does when the disk is full."""

    def op() -> Op[None]:
        yield from writing("o-1")
        yield Statement(text("rollback"))
        raise Undone

    with pytest.raises(Undone):
        road.transact(op)


def test_closing_it_closes_the_connection_of_this_thread(road: DjangoRoad) -> None:
    road.transact(lambda: writing("o-1"))
    assert connection.connection is not None

    road.close()

    assert connection.connection is None


def end_connection(site: Site, pid: int) -> None:
    """Have the server end it, and return when that has come about."""
    with psycopg.connect(site.url, autocommit=True) as server:
        server.execute("select pg_terminate_backend(%s)", [pid])
        while server.execute("select 1 from pg_stat_activity where pid = %s", [pid]).fetchone():
            pass


@pytest.mark.parametrize("django_site", ["postgresql"], indirect=True)
@pytest.mark.parametrize("when", ["before its end", "at its end"])
def test_only_a_connection_that_is_lost_at_the_commit_leaves_it_open_what_became_of_it(
    when: str, road: DjangoRoad, django_site: Site
) -> None:
    """What was surely not committed is tried again by whoever asked; the rest is not, or a signal might be sent twice."""

    def op() -> Op[None]:
        found = yield Statement(text("select pg_backend_pid()"), span="write")
        end_connection(django_site, found.rows[0][0])
        if when == "before its end":
            yield from writing("o-1")

    with pytest.raises(OutcomeUnknown if when == "at its end" else Error):
        road.transact(op)

    road.transact(lambda: writing("o-2"))
    assert orders() == ["o-2"]


@pytest.mark.parametrize("django_site", ["postgresql"], indirect=True)
@pytest.mark.parametrize("span", ["alone", "session"])
def test_of_a_statement_that_commits_by_itself_nobody_knows(span: Span, road: DjangoRoad) -> None:
    with pytest.raises(OutcomeUnknown):
        road.transact(lambda: ending_itself(span))


def ending_itself(span: Span) -> Op[None]:
    yield Statement(text("select pg_terminate_backend(pg_backend_pid())"), span=span)
