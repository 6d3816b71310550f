"""Domain events that are recorded on SQLAlchemy's objects, published in the transaction that saves them.

What is written goes through the session's own connection right before its commit, so the rows, the runs and the signals are
there together or not at all. Works for sessions of either colour.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias, TypeVar

from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction, UOWTransaction
from sqlalchemy.util import await_only

from outlast.app import Outlast
from outlast.errors import InvalidArgument, WrongColour
from outlast.stores.databases.kinds.session_commits import is_within

T = TypeVar("T")
Pull: TypeAlias = Callable[[Any], Iterable[object]]

_MOST_ROUNDS: Final = 100
_BEGINS_TO_BELONG: Final = (
    "pending_to_persistent",
    "deleted_to_persistent",
    "detached_to_persistent",
    "loaded_as_persistent",
)
_BELONGS_NO_MORE: Final = ("persistent_to_detached", "persistent_to_deleted", "persistent_to_transient")


def publish_on_commit(app: Outlast, sessions: object, *, of: type[T], events: Callable[[T], Iterable[object]]) -> None:
    """Publish what the objects of these sessions recorded, whenever one of them commits.

    sessions: a sessionmaker, async_sessionmaker, scoped_session or Session class, or one session.
    of: the class of the objects that record events: an aggregate's base, a mixin. A session keeps them in memory for as long
        as they belong to it, because one that records an event and changes nothing else would otherwise be forgotten.
    events: hands over the events that an object has recorded, and forgets them. It must touch no mapped attribute.

    The events of one object keep their order; those of several are in no order of their own, but all runs are started before
    any signal is sent. Events that nothing maps are passed over. What was recorded inside a savepoint or transaction that
    is rolled back is forgotten. An error in publishing is raised by the commit, which has then not happened: roll back.

    Handlers of `app.on` are called before the commit; what they record is published too. Of a Session that is not awaited
    they have to be plain functions, and it cannot be committed where an event loop runs (WrongColour).
    """
    _Recorded(app, of, events).listen(_target(sessions))


class _Recorded:
    """Events on their way from objects to the commit. Each stays with the transaction in which it was recorded."""

    def __init__(self, app: Outlast, of: type, events: Pull) -> None:
        self._app = app
        self._of = of
        self._events = events

    def listen(self, target: Any) -> None:  # noqa: ANN401  whatever SQLAlchemy takes for sessions
        for begins in _BEGINS_TO_BELONG:
            event.listen(target, begins, self._keep)
        for ends in _BELONGS_NO_MORE:
            event.listen(target, ends, self._let_go)
        event.listen(target, "after_flush", self._flushed)
        event.listen(target, "after_transaction_create", self._begun)
        event.listen(target, "before_commit", self._committing)
        event.listen(target, "after_soft_rollback", self._rolled_back)
        event.listen(target, "after_transaction_end", self._ended)

    # A session holds what is unchanged by a weak reference.

    def _keep(self, session: Session, one: object) -> None:
        if isinstance(one, self._of):
            self._on(session).kept[id(one)] = one

    def _let_go(self, session: Session, one: object) -> None:
        self._on(session).kept.pop(id(one), None)

    # While the transaction is open.

    def _flushed(self, session: Session, _context: UOWTransaction) -> None:
        # What was saved may be let go of by everybody before the commit.
        self._collect(session, [*session.new, *session.dirty, *session.deleted], _innermost(session))

    def _begun(self, session: Session, transaction: SessionTransaction) -> None:
        if transaction.nested:
            # What was recorded before a savepoint outlives it.
            self._collect(session, session.identity_map.values(), transaction.parent)

    def _rolled_back(self, session: Session, ended: SessionTransaction) -> None:
        self._collect(session, session.identity_map.values(), ended)
        mine = self._on(session)
        mine.waiting = [one for one in mine.waiting if not is_within(one[0], ended)]

    def _ended(self, session: Session, ended: SessionTransaction) -> None:
        if ended.parent is None:
            self._on(session).waiting = []

    # At its end.

    def _committing(self, session: Session) -> None:
        # The release of a savepoint says the same, and its transaction is then still the innermost one.
        if session.get_nested_transaction() is not None:
            return
        mine = self._on(session)
        for _ in range(_MOST_ROUNDS):
            session.flush()
            self._collect(session, session.identity_map.values(), _innermost(session))
            recorded = [one for _, one in mine.waiting if self._app.maps(type(one))]
            if recorded:
                self._publish(session, recorded)
            mine.waiting = []
            if not recorded:
                return
        raise InvalidArgument(
            f"After {_MOST_ROUNDS} rounds of publishing, handlers of the events still record further ones. Have one of them "
            "stop, or publish in a workflow what never ends."
        )

    def _publish(self, session: Session, recorded: list[object]) -> None:
        awaiting = _awaiting_session(session)
        if awaiting is not None:
            await_only(self._app.publish(*recorded, tx=awaiting))
            return
        try:
            self._app.blocking.publish(*recorded, tx=session)
        except WrongColour as error:
            error.add_note(
                "It was called by the commit of a Session. Commit that on a thread without a loop, or use an AsyncSession."
            )
            raise

    def _collect(self, session: Session, objects: Iterable[object], inside: SessionTransaction | None) -> None:
        if inside is not None:
            ours = [one for one in objects if isinstance(one, self._of)]
            self._on(session).waiting += [(inside, recorded) for one in ours for recorded in self._events(one)]

    def _on(self, session: Session) -> _OnSession:
        mine: _OnSession | None = session.info.get(self)
        if mine is None:
            mine = session.info[self] = _OnSession()
        return mine


class _OnSession:
    """What belongs to one session: the objects it must not forget, and the events that wait for its commit."""

    def __init__(self) -> None:
        self.kept: dict[int, object] = {}
        self.waiting: list[tuple[SessionTransaction, object]] = []


def _innermost(session: Session) -> SessionTransaction | None:
    return session.get_nested_transaction() or session.get_transaction()


def _target(sessions: Any) -> Any:  # noqa: ANN401  whatever has sessions
    """Return what SQLAlchemy listens to: its events are those of the session inside an awaiting one."""
    # Looked up, not imported: it asks for greenlet, and whoever has no awaiting session needs none.
    awaiting: Any = sys.modules.get("sqlalchemy.ext.asyncio")
    if awaiting is None:
        return sessions
    if isinstance(sessions, awaiting.async_scoped_session):
        sessions = sessions.session_factory
    if isinstance(sessions, awaiting.AsyncSession):
        return sessions.sync_session
    if isinstance(sessions, awaiting.async_sessionmaker):
        inner = sessions.kw.get("sync_session_class") or sessions.class_.sync_session_class
        if isinstance(inner, type):
            # A class of its own: listening to Session itself would hear every session there is.
            inner = type(f"Publishing{inner.__name__}", (inner,), {})
            sessions.configure(sync_session_class=inner)
        return inner
    return sessions


def _awaiting_session(session: Session) -> object | None:
    awaiting: Any = sys.modules.get("sqlalchemy.ext.asyncio")
    found: object | None = None if awaiting is None else awaiting.async_session(session)
    return found
