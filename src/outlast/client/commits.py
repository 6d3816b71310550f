"""Doing something once the caller's own transaction has ended."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

_WAITING: Final = "outlast.after_commit"


def after_commit(tx: object, action: Callable[[], object]) -> None:
    """Call `action` when the session's outermost transaction has ended; never, when `tx` cannot tell.

    Only sessions tell. After a commit on a bare connection the database's notice or the worker's own look finds what was
    written. A rollback calls it too: it costs one look that finds nothing.
    """
    session = _session(tx)
    if session is None:
        return
    if _WAITING not in session.info:
        session.info[_WAITING] = []
        event.listen(session, "after_transaction_end", _ended)
    session.info[_WAITING].append(action)


def _ended(session: Session, transaction: SessionTransaction) -> None:
    # The end of a savepoint, or of the flush inside a commit, is not yet the end.
    if transaction.parent is None:
        actions: list[Callable[[], object]] = session.info[_WAITING]
        session.info[_WAITING] = []
        for action in actions:
            action()


def _session(tx: object) -> Session | None:
    """Return the session behind what may be passed as one: awaited or not, or the registry that knows a thread's own."""
    # Looked up, not imported: SQLAlchemy's asyncio module asks for greenlet, and whoever has no such session needs neither.
    awaiting: Any = sys.modules.get("sqlalchemy.ext.asyncio")
    if isinstance(tx, scoped_session) or (awaiting is not None and isinstance(tx, awaiting.async_scoped_session)):
        tx = cast("Callable[[], object]", tx)()
    if awaiting is not None and isinstance(tx, awaiting.AsyncSession):
        return cast("AsyncSession", tx).sync_session
    return tx if isinstance(tx, Session) else None
