from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from outlast.client.access import Access, Local
from outlast.client.commits import after_commit
from outlast.errors import SchemaBehind, WrongColour
from support.fake_database import FakeDatabase


async def test_the_tables_are_looked_at_until_they_are_right_and_then_no_more() -> None:
    """A process that found old tables goes on by itself once they are migrated: nobody restarts it."""
    database: Any = FakeDatabase(behind=True)
    access = Access(database, migrates=False)

    with pytest.raises(SchemaBehind):
        await access.ready("get")
    database.behind = False
    await access.ready("get")
    await access.ready("get")

    assert database.asked == ["open", "check", "open", "check"]


async def test_old_tables_are_migrated_where_that_is_wanted() -> None:
    database: Any = FakeDatabase(behind=True)

    await Access(database, migrates=True).ready("get")

    assert database.asked == ["open", "check", "migrate"]


async def test_first_calls_of_one_moment_open_once() -> None:
    database: Any = FakeDatabase(behind=True)
    access = Access(database, migrates=True)

    await asyncio.gather(*(access.ready("get") for _ in range(20)))

    assert database.asked == ["open", "check", "migrate"]


def test_the_blocking_side_does_the_same() -> None:
    database: Any = FakeDatabase(behind=True)

    with pytest.raises(SchemaBehind):
        Access(database, migrates=False).ready_blocking("get")
    access = Access(database, migrates=True)
    access.ready_blocking("get")
    access.ready_blocking("get")

    assert database.asked == ["check", "check", "migrate"]


async def test_a_blocking_call_where_a_loop_runs_names_the_awaited_form() -> None:
    database: Any = FakeDatabase()

    with pytest.raises(WrongColour, match=r"await app\.get\(\.\.\.\)"):
        Access(database, migrates=False).ready_blocking("get")

    assert database.asked == []


def test_one_app_serves_several_loops_one_after_the_other() -> None:
    database: Any = FakeDatabase()
    access = Access(database, migrates=False)

    asyncio.run(access.ready("get"))
    access.forget()
    asyncio.run(access.ready("get"))

    assert database.asked == ["open", "check", "open", "check"]


def test_a_worker_on_a_closed_loop_is_not_asked() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    called: list[str] = []
    worker: Any = object()

    Local(worker, loop).call(lambda: called.append("called"))

    assert called == []


@pytest.fixture
def session() -> Iterator[Session]:
    engine = create_engine("sqlite://")
    with Session(engine) as session:
        yield session
    engine.dispose()


def commit(session: Session) -> None:
    session.commit()


def roll_back(session: Session) -> None:
    session.rollback()


@pytest.mark.parametrize("end", [commit, roll_back])
def test_an_action_waits_for_the_end_of_the_outermost_transaction(
    session: Session, end: Callable[[Session], None]
) -> None:
    done: list[str] = []
    session.execute(text("select 1"))
    after_commit(session, lambda: done.append("first"))
    with session.begin_nested():
        after_commit(session, lambda: done.append("second"))
    assert done == []

    end(session)
    assert done == ["first", "second"]

    session.execute(text("select 1"))
    end(session)
    assert done == ["first", "second"]


def test_what_cannot_tell_is_not_asked_to() -> None:
    done: list[str] = []

    after_commit(object(), lambda: done.append("never"))

    assert done == []
