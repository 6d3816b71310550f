"""What is around a plain step function: to Django's connections it is what a request is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial

from django.db import Error, close_old_connections, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from outlast.integrations.django.relay import Relay
from outlast.integrations.django.transactions import is_of_test
from outlast.worker.threads import Around


class StepConnections:
    """Calls plain step functions, on their threads, and gives Django's connections back after each: closed when they are
    broken or older than CONN_MAX_AGE, as after a request. Those that are kept are closed with the worker."""

    def __init__(self, inner: Around | None = None) -> None:
        """`inner` is what the project itself puts around its steps."""
        self._inner = inner
        self._lock = threading.Lock()
        self._kept: set[BaseDatabaseWrapper] = set()
        self._is_closed = False
        self._relay: Relay | None = None

    def __call__(self, work: Callable[[], object]) -> object:
        inner, relay = self._inner, self._relay
        if inner is not None:
            return self._called(lambda: inner(work), relay)
        return self._called(work, relay)

    def _called(self, work: Callable[[], object], relay: Relay | None) -> object:
        if relay is not None:
            return relay.work(partial(_within_test, work))
        mine = _connected()
        with self._lock:
            self._kept.difference_update(mine)
        close_old_connections()
        try:
            return work()
        finally:
            close_old_connections()
            self._keep()

    @contextmanager
    def relayed(self) -> Generator[None, None, None]:
        """Have step functions called on the thread of Django's async methods of whoever calls this: a test's own thread,
        whose transaction no other connection sees."""
        former, self._relay = self._relay, Relay()
        try:
            yield
        finally:
            self._relay = former

    def open(self) -> None:
        """Keep connections from now on."""
        self._is_closed = False

    def close(self) -> None:
        """Close what is kept; a function that still runs closes its own."""
        with self._lock:
            self._is_closed = True
            kept, self._kept = self._kept, set()
        for connection in kept:
            connection.inc_thread_sharing()
            connection.close()
            connection.dec_thread_sharing()

    def _keep(self) -> None:
        mine = _connected()
        with self._lock:
            if not self._is_closed:
                self._kept.update(mine)
                return
        for connection in mine:
            connection.close()


def _connected() -> list[BaseDatabaseWrapper]:
    return [connection for connection in connections.all(initialized_only=True) if connection.connection is not None]


def _within_test(work: Callable[[], object]) -> object:
    """Call a function inside of a test's transaction so that an error of the database ends the step and not the test."""
    with ExitStack() as savepoints:
        for connection in connections.all(initialized_only=True):
            if is_of_test(connection):
                savepoints.enter_context(_savepoint(connection))
        return work()


@contextmanager
def _savepoint(connection: BaseDatabaseWrapper) -> Generator[None, None, None]:
    """Take back what was written only when the database refuses to go on. Other errors of a step leave its writes, as they
    do outside of tests, where each of them has committed."""
    mark = connection.savepoint()
    assert mark is not None
    try:
        yield
        connection.savepoint_commit(mark)
    except BaseException as error:
        if isinstance(error, Error) or connection.needs_rollback:
            connection.needs_rollback = False
            connection.savepoint_rollback(mark)
        connection.savepoint_commit(mark)
        raise
