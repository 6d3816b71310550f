"""What waits for a session's commit: done once, after it, and not at all when what it is about was rolled back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from outlast.stores.databases.kinds.registry import after_commit


@pytest.fixture
def session() -> Iterator[Session]:
    engine = create_engine("sqlite://")
    with Session(engine) as session:
        session.execute(text("select 1"))
        yield session
    engine.dispose()


class Undone(Exception):
    """What makes a caller roll back."""


def test_an_action_waits_for_the_commit_of_the_outermost_transaction(session: Session) -> None:
    done: list[str] = []
    assert after_commit(session, lambda: done.append("first"))
    with session.begin_nested():
        assert after_commit(session, lambda: done.append("second"))
    assert done == []

    session.commit()
    assert done == ["first", "second"]

    session.execute(text("select 1"))
    session.commit()
    assert done == ["first", "second"]


def test_it_comes_after_the_commit_and_not_with_it(session: Session) -> None:
    order: list[str] = []
    assert session.bind is not None
    event.listen(session.bind, "commit", lambda _: order.append("commit"))
    after_commit(session, lambda: order.append("action"))

    session.commit()

    assert order == ["commit", "action"]


def close(session: Session) -> None:
    session.close()


def roll_back(session: Session) -> None:
    session.rollback()


@pytest.mark.parametrize("end", [close, roll_back])
def test_an_action_of_a_transaction_that_is_not_committed_is_forgotten(
    session: Session, end: Callable[[Session], None]
) -> None:
    done: list[str] = []
    after_commit(session, lambda: done.append("never"))

    end(session)
    session.execute(text("select 1"))
    session.commit()

    assert done == []


def test_a_rolled_back_savepoint_takes_its_actions_with_it_and_no_others(session: Session) -> None:
    done: list[str] = []
    after_commit(session, lambda: done.append("outside"))
    with suppress(Undone), session.begin_nested():
        after_commit(session, lambda: done.append("undone"))
        with session.begin_nested():
            after_commit(session, lambda: done.append("undone with it"))
        raise Undone
    with session.begin_nested():
        after_commit(session, lambda: done.append("kept"))

    session.commit()

    assert done == ["outside", "kept"]


def test_a_commit_that_fails_does_nothing(session: Session) -> None:
    done: list[str] = []
    after_commit(session, lambda: done.append("never"))

    @event.listens_for(session, "before_commit")
    def fail(_: Session) -> None:
        raise Undone

    with pytest.raises(Undone):
        session.commit()
    session.rollback()
    event.remove(session, "before_commit", fail)
    session.execute(text("select 1"))
    session.commit()

    assert done == []


def test_a_registry_tells_by_its_own_session(session: Session) -> None:
    done: list[str] = []
    registry = scoped_session(sessionmaker(session.get_bind()))
    registry.execute(text("select 1"))
    after_commit(registry, lambda: done.append("done"))

    registry.commit()
    registry.remove()

    assert done == ["done"]


def test_awaiting_sessions_are_not_asked_about_where_nobody_has_loaded_them(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLAlchemy's asyncio module needs greenlet, which an application without awaiting sessions may not have."""
    monkeypatch.delitem(sys.modules, "sqlalchemy.ext.asyncio", raising=False)
    done: list[str] = []

    assert after_commit(session, lambda: done.append("done"))
    assert not after_commit(object(), lambda: done.append("never"))
    session.commit()

    assert done == ["done"]


def test_what_cannot_tell_is_not_asked_to() -> None:
    done: list[str] = []

    assert not after_commit(object(), lambda: done.append("never"))

    assert done == []
