"""Transactional steps whose transactions others are in the way of: what the database refuses is not the step's failure."""

from __future__ import annotations

import sqlite3
import threading
from typing import Any

import psycopg
import pymysql
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import sessionmaker

from outlast import Context, Outlast, RunFailed, StepContext, transactional_step, workflow
from support.callers import blocking_engine, blocking_url, kind_of
from support.payment_places import PLACES, Place, in_places
from support.payments import payments
from support.probing import Tables

REFUSALS = {
    "postgresql": ("40001", "40P01"),
    "mysql": (1213, 1205),
    "mariadb": (1213, 1205, 1020),
    "sqlite": (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_BUSY_SNAPSHOT),
}


def refused(place: Place, code: Any, tx: Any) -> Any:
    """Have the server refuse a statement, through whatever the application sends its statements with."""
    kind = kind_of(place.url)
    if kind == "sqlite":
        raise error_of(kind, code)
    if kind == "postgresql":
        return place.source.execute(tx, f"do $$ begin raise exception 'refused' using errcode = '{code}'; end $$")
    return place.source.execute(tx, f"signal sqlstate '40001' set mysql_errno = {code}")


def error_of(kind: str, code: Any) -> Exception:
    """Return a driver's error as a COMMIT raises it."""
    if kind == "postgresql":
        return psycopg.errors.lookup(code)("refused")
    if kind == "sqlite":
        error = sqlite3.OperationalError("database is locked")
        error.sqlite_errorcode = code
        return error
    return pymysql.OperationalError(code, "refused")


@in_places(*PLACES)
async def test_a_function_that_the_database_refuses_is_called_again_without_an_attempt_of_its_own(place: Place) -> None:
    codes = list(REFUSALS[kind_of(place.url)])

    def meet_others(tx: Any, _: StepContext) -> Any:
        return refused(place, codes.pop(), tx) if codes else None

    shop = place.shop(meet_others, retry=False)
    async with place.app(shop) as app:
        assert await app.start_and_wait(shop, id="o-1", wait="30s") == "paid"

    assert place.attempts == [1] * (1 + len(REFUSALS[kind_of(place.url)]))
    assert payments(place.url) == [("o-1", "attempt 1")]
    assert place.recorded() == [("o-1", "pay", "done", 1)]


@in_places(*PLACES)
async def test_a_commit_that_the_database_refuses_is_made_again_without_an_attempt_of_its_own(place: Place) -> None:
    kind = kind_of(place.url)
    error = error_of(kind, REFUSALS[kind][0])

    def refuse() -> None:
        raise error

    place.breaking.before = refuse
    shop = place.shop(retry=False)
    async with place.app(shop) as app:
        assert await app.start_and_wait(shop, id="o-1", wait="30s") == "paid"

    assert place.attempts == [1, 1]
    assert payments(place.url) == [("o-1", "attempt 1")]
    assert place.recorded() == [("o-1", "pay", "done", 1)]


@in_places("postgresql, sessionmaker", "mysql, PyMySQL")
async def test_what_a_step_asked_for_itself_is_its_own_failure(place: Place) -> None:
    """A lock that it would not wait for: the step knows what to do then."""
    code: Any = "55P03" if kind_of(place.url) == "postgresql" else 3572

    def no_wait(tx: Any, _: StepContext) -> Any:
        return refused(place, code, tx)

    shop = place.shop(no_wait, retry=False)
    async with place.app(shop) as app:
        with pytest.raises(RunFailed, match=str(code) if isinstance(code, int) else "refused"):
            await app.start_and_wait(shop, id="o-1", wait="30s")

    assert place.attempts == [1]


@pytest.mark.parametrize("server", ["postgres_url", "mysql_url", "mariadb_url"])
async def test_two_steps_that_change_what_both_have_read_both_succeed(
    server: str, request: pytest.FixtureRequest
) -> None:
    """PostgreSQL cannot serialize them, MySQL and MariaDB see a deadlock. What the one that lost starts has the same id."""
    url = request.getfixturevalue(server)
    engine = blocking_engine(url).execution_options(isolation_level="SERIALIZABLE")
    with engine.begin() as connection:
        connection.execute(text("create table counter (id int primary key, value int)"))
        connection.execute(text("insert into counter values (1, 0)"))
    both_have_read = threading.Barrier(2)
    tries: list[str] = []

    @workflow("told")
    async def told(ctx: Context) -> None: ...

    @transactional_step(retry=False)
    def count(session: Any, s: StepContext) -> int:
        value: int = session.scalar(text("select value from counter where id = 1"))
        app.blocking.start(told, tx=session)
        tries.append(s.run_id)
        if tries.count(s.run_id) == 1:
            both_have_read.wait(30)
        session.execute(text("update counter set value = :value where id = 1"), {"value": value + 1})
        return s.attempt

    @workflow("shop")
    async def shop(ctx: Context) -> int:
        attempt: int = await count()
        return attempt

    app = Outlast(url, workflows=[shop, told], transactions=sessionmaker(engine))
    async with app:
        runs = [await app.start(shop) for _ in range(2)]
        assert [await run.result(timeout="60s") for run in runs] == [1, 1]
    counted = Tables(url)("select value from counter")
    engine.dispose()

    assert counted == [(2,)]
    assert len(tries) > 2
    assert Tables(url)("select count(*) from {runs}") == [(4,)]
    assert Tables(url)("select phase, attempt from {journal} where name = 'count'") == [("done", 1)] * 2


async def test_a_pool_that_has_no_connection_left_is_called_busy(postgres_url: str) -> None:
    engine = create_engine(blocking_url(postgres_url), pool_size=1, max_overflow=0, pool_timeout=0.05)
    attempts: list[int] = []

    @transactional_step(retry=False)
    def pay(session: Any, s: StepContext) -> None:
        attempts.append(s.attempt)

    @workflow("shop")
    async def shop(ctx: Context) -> None:
        await pay()

    async with Outlast(postgres_url, workflows=[shop], transactions=sessionmaker(engine)) as app:
        with engine.connect(), pytest.raises(RunFailed, match=r"DatabaseBusy: Your pool gave no connection in time"):
            await app.start_and_wait(shop, wait="30s")
        await app.start_and_wait(shop, wait="30s")
    engine.dispose()

    assert attempts == [1]
