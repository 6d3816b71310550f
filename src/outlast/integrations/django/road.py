"""Operations of ours over Django's own connections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from typing import Any, Final, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from sqlalchemy import text

from outlast.integrations.django.relay import Relay
from outlast.integrations.django.transactions import is_open
from outlast.ports.database import MakeOp
from outlast.ports.operation import Result, Span, Statement, pump
from outlast.stores.basis import Basis
from outlast.stores.databases import django_statements
from outlast.stores.databases.mysql import LIMITS
from outlast.stores.databases.peeking import first_span
from outlast.stores.databases.roads import OutcomeUnknown, Road
from outlast.stores.dialects.base import Trouble

T = TypeVar("T")

_ISOLATION: Final[Mapping[Span, Statement]] = {
    "write": Statement(text("set transaction isolation level read committed")),
    "read": Statement(text("set transaction isolation level repeatable read")),
}
_LIMITS: Final = Statement(
    text(
        "select set_config('lock_timeout', '500ms', true), "
        "set_config('idle_in_transaction_session_timeout', '10s', true)"
    )
)
"""Nobody waits long inside of one attempt, and a process that is stopped in the middle keeps its locks no longer."""

_SQLITE: Final[Mapping[Span, Statement]] = {
    "write": Statement(text("begin immediate")),
    "read": Statement(text("begin")),
}
_COMMIT: Final = Statement(text("commit"))
_ROLLBACK: Final = Statement(text("rollback"))


class DjangoRoad:
    """Blocking callers: each op is a transaction on the thread's own connection, which Django opens and closes.

    In a test of Django's TestCase, whose transaction never commits, it is a savepoint instead. Where the caller has a
    transaction open the op must not be part of it: it goes over a connection of a thread of its own.
    """

    def __init__(self, alias: str, basis: Basis) -> None:
        self._alias = alias
        self._basis = basis

    def transact(self, make: MakeOp[T]) -> T:
        connection = connections[self._alias]
        return self._apart(make) if is_open(connection) else self._transact(connection, make)

    def close(self) -> None:
        """Close the thread's connection, unless it is in the middle of a caller's transaction."""
        connection = connections[self._alias]
        if not connection.in_atomic_block:
            connection.close()

    def _transact(self, connection: BaseDatabaseWrapper, make: MakeOp[T]) -> T:
        span, made = first_span(make)
        may_be_committed = span in ("alone", "session")

        def execute(statement: Statement) -> Result:
            return django_statements.execute(connection, statement)

        try:
            if may_be_committed:
                return pump(made(), execute)
            with self._begun(connection, span):
                value = pump(made(), execute)
                may_be_committed = True
        except Exception as error:
            if span == "session" and not connection.in_atomic_block:
                connection.close()  # and with it whatever it still has locked
            if self._basis.dialect.trouble(error) is Trouble.LOST:
                connection.close_if_unusable_or_obsolete()  # Inside of a block it leaves it alone.
                if may_be_committed:
                    raise OutcomeUnknown from error
            raise
        return value

    @contextmanager
    def _begun(self, connection: BaseDatabaseWrapper, span: Span) -> Generator[None, None, None]:
        """Have a transaction around an op; in a test of TestCase's a savepoint."""
        if connection.vendor == "sqlite" and not connection.in_atomic_block:
            with _sqlite_transaction(connection, _SQLITE[span]):
                yield
            return
        is_whole = not connection.in_atomic_block
        has_limits = is_whole and span == "write" and connection.vendor == "mysql"
        with _limited(connection) if has_limits else nullcontext(), transaction.atomic(using=self._alias):
            if is_whole:
                # Before its first statement, from where on it would stay as it is.
                django_statements.execute(connection, _ISOLATION[span])
                if span == "write" and connection.vendor == "postgresql":
                    django_statements.execute(connection, _LIMITS)
            yield

    def _apart(self, make: MakeOp[T]) -> T:
        outcome: Future[T] = Future()

        def work() -> None:
            try:
                outcome.set_result(self._transact(connections[self._alias], make))
            except BaseException as error:  # noqa: BLE001 - it goes to whoever waits
                outcome.set_exception(error)
            finally:
                connections[self._alias].close()

        thread = threading.Thread(target=work, name="outlast-apart")
        thread.start()
        thread.join()
        return outcome.result()


@contextmanager
def _limited(connection: BaseDatabaseWrapper) -> Generator[None, None, None]:
    """Limit what a transaction waits for locks. On MySQL the limit is the connection's, so it is set back."""
    django_statements.execute(connection, LIMITS.begin)
    try:
        yield
    finally:
        if connection.connection is not None and LIMITS.end is not None:
            try:
                django_statements.execute(connection, LIMITS.end)
            except Exception:  # noqa: BLE001 - what happened to the transaction is what the caller hears
                connection.close()


@contextmanager
def _sqlite_transaction(connection: Any, begin: Statement) -> Generator[None, None, None]:  # noqa: ANN401 - Django's
    """Begin as our own connections do. An atomic block would read first and be refused when it then writes."""
    django_statements.execute(connection, begin)
    try:
        yield
        django_statements.execute(connection, _COMMIT)
    except BaseException:
        if connection.connection is not None and connection.connection.in_transaction:
            django_statements.execute(connection, _ROLLBACK)
        raise


class SensitiveRoad:
    """Awaiting callers: the same, on the thread on which Django's own async methods work for the caller."""

    def __init__(self, road: DjangoRoad) -> None:
        self._road = road

    async def transact(self, make: MakeOp[T], *, timeout: float) -> T:
        # A thread cannot be interrupted; the database's own waits are bounded.
        del timeout
        work: Callable[[MakeOp[T]], T] = self._road.transact
        return await sync_to_async(work, thread_sensitive=True)(make)

    async def close(self) -> None:
        """Leave the connections to Django."""


class RelayedRoad:
    """Awaiting callers on another loop: the same as on the loop where this was made, which must be running."""

    def __init__(self, road: Road) -> None:
        self._road = road
        self._relay = Relay()

    async def transact(self, make: MakeOp[T], *, timeout: float) -> T:
        return await asyncio.wrap_future(self._relay.submit(lambda: self._road.transact(make, timeout=timeout)))

    async def close(self) -> None:
        """Leave the connections to Django."""
