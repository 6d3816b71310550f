"""A transaction of the application's in which a step runs: marked at its beginning, so that its end can tell whether it is
still the same one.

The mark is a savepoint. A function that commits or rolls back the transaction itself takes the savepoint with it, whatever
it does afterwards, and a transaction that the database has given up takes no further statement. In both cases releasing
the savepoint fails, and nothing is recorded. Held by tests/integration/test_transactional_steps.py.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from sqlalchemy import text
from sqlalchemy.exc import PendingRollbackError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from outlast.errors import DatabaseBusy, NotATransaction, OutlastError, TransactionAborted, TransactionEnded
from outlast.ports.database import MakeOp
from outlast.ports.operation import Op, Statement
from outlast.stores.basis import Basis
from outlast.stores.databases.joining import join, join_blocking
from outlast.stores.databases.loaded import is_a

T = TypeVar("T")
_MARK: Final = Statement(text("savepoint outlast_step"))
_RELEASE: Final = Statement(text("release savepoint outlast_step"))


async def mark(tx: object, basis: Basis) -> None:
    """Mark the transaction behind `tx`. Raises NotATransaction when there is none, or it is not on our database."""
    try:
        await join(tx, _marking, basis, read_committed=False)
    except Exception as error:
        raise _unfit(error, basis) from error


def mark_blocking(tx: object, basis: Basis) -> None:
    """The same, blocking."""
    try:
        join_blocking(tx, _marking, basis, read_committed=False)
    except Exception as error:
        raise _unfit(error, basis) from error


async def join_marked(tx: object, make: MakeOp[T], basis: Basis) -> T:
    """Run an op in the transaction that was marked. Raises TransactionEnded when it is another one by now, and
    TransactionAborted when the database takes nothing more in it."""
    released = _Released(make)
    try:
        return await join(tx, released.make, basis, read_committed=False)
    except Exception as error:
        raise released.judged(error, basis) from error


def join_marked_blocking(tx: object, make: MakeOp[T], basis: Basis) -> T:
    """The same, blocking."""
    released = _Released(make)
    try:
        return join_blocking(tx, released.make, basis, read_committed=False)
    except Exception as error:
        raise released.judged(error, basis) from error


def _marking() -> Op[None]:
    yield _MARK


class _Released(Generic[T]):
    """An op after the release of the mark, and how far it came."""

    def __init__(self, make: MakeOp[T]) -> None:
        self._make = make
        self._is_released = False

    def make(self) -> Op[T]:
        yield _RELEASE
        self._is_released = True
        return (yield from self._make())

    def judged(self, error: Exception, basis: Basis) -> Exception:
        if self._is_released:
            return _unfit(error, basis)
        if _is_broken(error) or basis.dialect.is_aborted(error):
            return TransactionAborted(
                "An error of the database was caught inside of the step's function. After one the database commits nothing "
                "more of that transaction, so nothing was recorded: let such errors out of the function, or confine "
                "them with a savepoint."
            )
        if basis.dialect.trouble(error) is not None:
            return error
        return TransactionEnded(
            "The step's function committed or rolled back its transaction itself, so its entry could not be committed with "
            "what it wrote; the step is not tried again, because that may be committed already. Leave the commit to "
            "outlast; to take back a part, use a savepoint."
        )


def _is_broken(error: Exception) -> bool:
    """Tell whether a library refused the statement itself, because an earlier one of the transaction had failed."""
    return isinstance(error, PendingRollbackError) or is_a(error, "django.db.transaction", "TransactionManagementError")


def _unfit(error: Exception, basis: Basis) -> Exception:
    """Return what to raise for an error of our own statements in the application's transaction."""
    if isinstance(error, OutlastError) or basis.dialect.trouble(error) is not None:
        return error
    if isinstance(error, PoolTimeout):
        return DatabaseBusy(
            f"Your pool gave no connection in time ({error}). Every transactional step that runs has one: give the pool at "
            "least as many as steps run at once, WorkerOptions(concurrency=...), and some for whoever else uses it."
        )
    if isinstance(error, UnicodeEncodeError):
        return NotATransaction(
            f"What transactions= gave has a connection that cannot send every text ({error}), so the step's result was not "
            "recorded. outlast needs UTF-8: ?client_encoding=utf8 in the URL of an engine over psycopg, ?charset=utf8mb4 "
            "in that of one on MySQL."
        )
    return NotATransaction(
        f"What transactions= gave cannot be used for outlast's tables ({type(error).__name__}: {error}). It has to be a "
        "transaction on the database in which they are."
    )
