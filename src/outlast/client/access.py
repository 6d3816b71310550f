"""The way to the database, ready when first needed, and to the worker of this process, if there is one."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from outlast.client.untaken import Untaken
from outlast.engine.eventloop import WorkflowLoop, running_loop
from outlast.errors import AppClosed, InvalidArgument, SchemaBehind, WorkflowIOError, WrongColour
from outlast.model.ids import RunId
from outlast.model.times import to_datetime
from outlast.ports.clock import Clock
from outlast.ports.database import Database
from outlast.ports.local import LocalWorker
from outlast.ports.store import Outcome


@dataclass(frozen=True, slots=True)
class Local:
    """The worker of this process and the loop it works on."""

    worker: LocalWorker
    loop: asyncio.AbstractEventLoop

    def call(self, function: Callable[[], object]) -> None:
        """Call a function on the worker's loop, from any thread; not at all when that loop is closed."""
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError:
            return


_FIRST_LOOK: Final = 0.002
_LAST_LOOKS: Final = 0.25
"""Seconds between two looks at a caller's transaction that nothing tells the end of. A look reads an attribute or two."""


class Access:
    """Both clients' way out. Safe from any thread and from any number of event loops.

    The tables are checked (and brought up to date, where `migrates`) until they were found to be right once. A failure is
    not kept: the next call looks again, so nobody has to restart after a migration.

    An app that was closed stays closed until it is opened again: what came late would otherwise connect once more, and on a
    database in memory that is another, empty one.
    """

    def __init__(self, database: Database, *, migrates: bool | None, clock: Clock | None = None) -> None:
        """`migrates`: None asks the environment. `clock`: a test's."""
        if migrates is not None and type(migrates) is not bool:
            raise InvalidArgument(f"migrate is True, False or, for what OUTLAST_ENV says, None; {migrates!r} is not.")
        self.database = database
        self.migrates: bool = os.environ.get("OUTLAST_ENV") != "production" if migrates is None else migrates
        self._clock = clock
        self.local: Local | None = None
        self.untaken: Untaken = Untaken()
        self.is_open: bool = False
        """Inside of `async with`."""
        self.is_closed: bool = False
        self._is_ready = False
        self._locks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()
        self._blocking_lock = threading.Lock()

    def time(self) -> datetime:
        """Return about the present time, for messages: by the test's clock, or else by this host's."""
        return datetime.now(UTC) if self._clock is None else to_datetime(self._clock.now())

    async def ready(self, verb: str, tx: object = None) -> None:
        """Return once the database can be used for this verb. Raises AppClosed, SchemaBehind and DatabaseUnavailable.

        While the caller has a transaction open the tables are never changed inside it, and beside it only where we need not
        wait for that transaction, since it waits for us.
        """
        loop = asyncio.get_running_loop()
        if isinstance(loop, WorkflowLoop):
            raise WorkflowIOError(f"app.{verb}(...)")
        if self._is_ready:
            return
        self._refuse_closed()
        async with self._locks.setdefault(loop, asyncio.Lock()):
            if not self._is_ready:
                await self.database.open()
                try:
                    await self.database.check_schema()
                except SchemaBehind as behind:
                    self._may_migrate(behind, tx)
                    await self.database.migrate()
                    await self.database.check_schema()
                self._is_ready = True
        self._locks.pop(loop, None)

    def ready_blocking(self, verb: str, tx: object = None) -> None:
        """The same, blocking. Raises WrongColour where a loop runs."""
        self.refuse_in_loop(verb)
        if self._is_ready:
            return
        self._refuse_closed()
        with self._blocking_lock:
            if not self._is_ready:
                try:
                    self.database.check_schema_blocking()
                except SchemaBehind as behind:
                    self._may_migrate(behind, tx)
                    self.database.migrate_blocking()
                    self.database.check_schema_blocking()
                self._is_ready = True

    def open_blocking(self) -> None:
        """Be ready for blocking calls, also in an app that was closed."""
        was_closed, self.is_closed = self.is_closed, False
        try:
            self.ready_blocking("open")
        except BaseException:
            self.is_closed = was_closed
            raise

    def _may_migrate(self, behind: SchemaBehind, tx: object) -> None:
        if not self.migrates:
            raise behind
        if tx is not None and not self.database.can_migrate_beside():
            behind.add_note(
                "They could not be made now, because this call joins a transaction that is open. End it, and see to the "
                "tables before the first one: open the app (`async with app: ...`, `with app.blocking: ...`), or call "
                "`await app.migrate()` or `app.blocking.migrate()` where the program starts."
            )
            raise behind

    def refuse_in_loop(self, verb: str) -> None:
        """Raise when a loop runs on this thread: blocking would stop it."""
        loop = running_loop()
        if isinstance(loop, WorkflowLoop):
            raise WorkflowIOError(f"app.blocking.{verb}(...)")
        if loop is not None:
            raise WrongColour(verb)

    def forget(self) -> None:
        """Look at the tables again before the next call: the database was disconnected."""
        self._is_ready = False

    def closed(self) -> None:
        """Let there be no next call when the app was open, or when its database in memory ends here. An app that nobody
        opened connects again when it is needed."""
        self.forget()
        self.is_closed = self.is_closed or self.is_open or not self.database.is_lasting
        self.is_open = False

    def _refuse_closed(self) -> None:
        if self.is_closed:
            raise AppClosed

    def worker_here(self) -> LocalWorker | None:
        """Return this process's worker when it works on the running loop: only there its methods may be called."""
        local = self.local
        return local.worker if local is not None and local.loop is asyncio.get_running_loop() else None

    def wake(self, tx: object = None) -> None:
        """Have the worker of this process look for due runs: now, or when the caller's transaction has committed."""
        local = self.local
        if local is None:
            return
        if tx is None:
            local.worker.wake()
        else:
            self._after_commit(local, tx, local.worker.wake)

    def stop_requested(self, run_id: RunId, tx: object = None) -> None:
        """Have the worker of this process look at a stop request, once it is committed."""
        local = self.local
        if local is None:
            return

        def look() -> None:
            local.worker.stop_requested(run_id)
            local.worker.wake()

        if tx is None:
            local.call(look)
        else:
            self._after_commit(local, tx, lambda: local.call(look))

    def _after_commit(self, local: Local, tx: object, action: Callable[[], object]) -> None:
        if not self.database.after_commit(tx, action):
            local.call(lambda: self._look_for_end(local, tx, action, _FIRST_LOOK))

    def _look_for_end(self, local: Local, tx: object, action: Callable[[], object], delay: float) -> None:
        """Act when the caller's transaction has ended, and nothing tells of that: look for it, less and less often. A
        transaction that begins on the same connection between two looks hides the end; the worker's poll finds it then."""
        if self.database.is_open(tx):
            later = min(2 * delay, _LAST_LOOKS)
            local.loop.call_later(delay, self._look_for_end, local, tx, action, later)
        else:
            action()

    @contextmanager
    def watching(self, run_id: RunId, told: threading.Event) -> Generator[None, None, None]:
        """Set `told` when the worker of this process records the run's end; for a thread other than the worker's."""
        local = self.local
        if local is None:
            yield
            return
        watched: list[asyncio.Future[Outcome]] = []

        def watch() -> None:
            future = local.worker.watch(run_id)
            future.add_done_callback(lambda _: told.set())
            watched.append(future)

        local.call(watch)
        try:
            yield
        finally:
            local.call(lambda: [future.cancel() for future in watched])
