"""Doing something once a session's own transaction is committed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

Action: TypeAlias = Callable[[], object]
_WAITING: Final = "outlast.after_commit"


def after_session_commit(tx: object, action: Action) -> bool:
    """Call `action` when the session's outermost transaction is committed; not at all when that, or the savepoint in which
    the session is now, is rolled back or closed. Return False when `tx` is no session."""
    session = _session(tx)
    if session is None:
        return False
    transaction = session.get_nested_transaction() or session.get_transaction()
    if transaction is not None:
        if _WAITING not in session.info:
            session.info[_WAITING] = []
            event.listen(session, "after_commit", _committed)
            event.listen(session, "after_soft_rollback", _rolled_back)
            event.listen(session, "after_transaction_end", _ended)
        _waiting(session).append((transaction, action))
    return True


def is_within(transaction: SessionTransaction, outer: SessionTransaction) -> bool:
    """Tell whether a transaction of a session is this one, or a savepoint somewhere inside of it."""
    inner: SessionTransaction | None = transaction
    while inner is not None and inner is not outer:
        inner = inner.parent
    return inner is outer


def _waiting(session: Session) -> list[tuple[SessionTransaction, Action]]:
    waiting: list[tuple[SessionTransaction, Action]] = session.info[_WAITING]
    return waiting


def _committed(session: Session) -> None:
    # A savepoint's release says the same, and its transaction is then still the innermost one.
    if session.get_nested_transaction() is None:
        waiting, session.info[_WAITING] = _waiting(session), []
        for _, action in waiting:
            action()


def _rolled_back(session: Session, ended: SessionTransaction) -> None:
    session.info[_WAITING] = [one for one in _waiting(session) if not is_within(one[0], ended)]


def _ended(session: Session, ended: SessionTransaction) -> None:
    # A session that is closed with a transaction open says neither of the two.
    if ended.parent is None:
        session.info[_WAITING] = []


def _session(tx: object) -> Session | None:
    """Return the session behind what may be passed as one: awaited or not, or the registry that knows a thread's own."""
    # Looked up, not imported: SQLAlchemy's asyncio module asks for greenlet, and whoever has no such session needs neither.
    awaiting: Any = sys.modules.get("sqlalchemy.ext.asyncio")
    if isinstance(tx, scoped_session) or (awaiting is not None and isinstance(tx, awaiting.async_scoped_session)):
        tx = cast("Callable[[], object]", tx)()
    if awaiting is not None and isinstance(tx, awaiting.AsyncSession):
        return cast("AsyncSession", tx).sync_session
    return tx if isinstance(tx, Session) else None
