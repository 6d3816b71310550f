"""Run operations as transactions of our own, or inside a caller's; try again what is safe to try again."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from outlast.errors import DatabaseBusy, DatabaseUnavailable
from outlast.ports.database import HeldUp, MakeOp, Notice
from outlast.ports.operation import Op
from outlast.ports.transactions import Transactions
from outlast.stores.basis import Basis
from outlast.stores.databases.joining import join, join_blocking
from outlast.stores.databases.kinds.registry import after_commit, is_open
from outlast.stores.databases.marking import join_marked, join_marked_blocking, mark, mark_blocking
from outlast.stores.databases.origin import Origin
from outlast.stores.databases.roads import BlockingRoad, Listener, OutcomeUnknown, OwnTransactions, Road
from outlast.stores.dialects.base import Trouble
from outlast.stores.migrations.runner import LATEST, check_schema, found_version, migrate
from outlast.stores.migrations.script import script
from outlast.stores.sql import SqlStore

T = TypeVar("T")
_log = logging.getLogger("outlast.database")
_PATIENCE = 30.0
_SILENCE = 1.0
"""Seconds without an answer after which somebody is told, while the database is opened."""
_FIRST_DELAY = 0.005
_LONGEST_DELAY = 0.5


class SqlDatabase:
    """`outlast.ports.database.Database` over an awaiting and a blocking road."""

    def __init__(
        self,
        basis: Basis,
        road: Road,
        blocking_road: BlockingRoad,
        *,
        listener: Listener | None,
        separate: Callable[[], SqlDatabase],
        is_lasting: bool = True,
        own: OwnTransactions | None = None,
        can_write: Callable[[], bool] | None = None,
        is_absent: Callable[[], bool] | None = None,
    ) -> None:
        """`own` begins transactions over connections of ours, on the roads that have them. `can_write` tells, where there
        can be one writer alone, whether nobody writes now. `is_absent` tells, where connecting would make the database,
        whether there is none yet."""
        self._basis = basis
        self._store = _store(basis)
        self._road = road
        self._blocking_road = blocking_road
        self._listener = listener
        self._separate = separate
        self._origin = Origin(basis, lambda: self.place)
        self._is_lasting = is_lasting
        self.place: str = basis.dialect.name
        """What to call it in messages; without a password."""
        self._has_told_of_reading = False
        self._own = own
        self._can_write = can_write
        self._is_absent = is_absent
        self._most: int | None = None

    @property
    def is_lasting(self) -> bool:
        return self._is_lasting

    @property
    def store(self) -> SqlStore:
        return self._store

    def too_big(self, text: str) -> str | None:
        return self._basis.dialect.too_big(text, self._most)

    def _check_server(self) -> Op[None]:
        yield from self._basis.dialect.check_server()
        self._most = yield from self._basis.dialect.most_at_once()

    async def open(self) -> None:
        attempts = _Attempts(self._basis, self.place, True, _PATIENCE, opens=True)
        silence = asyncio.get_running_loop().call_later(_SILENCE, attempts.tell)
        try:
            await self._attempt(self._check_server, attempts)
        finally:
            silence.cancel()

    async def close(self) -> None:
        if self._listener is not None:
            await self._listener.close()
        if self._own is not None:
            await self._own.close()
        await self._road.close()

    def close_blocking(self) -> None:
        if self._own is not None:
            self._own.close_blocking()
        self._blocking_road.close()

    async def run(
        self, make: MakeOp[T], *, repeatable: bool = True, patience: float = _PATIENCE, waits: bool = True
    ) -> T:
        return await self._attempt(make, _Attempts(self._basis, self.place, repeatable, patience, waits=waits))

    async def _attempt(self, make: MakeOp[T], attempts: _Attempts) -> T:
        while True:
            try:
                return await self._road.transact(make, timeout=attempts.left)
            except Exception as error:  # noqa: BLE001 - the dialect says which are worth another attempt
                self._tell_of_reading(error)
                delay = attempts.next_delay(error)
            await asyncio.sleep(delay)

    def run_blocking(self, make: MakeOp[T], *, repeatable: bool = True, patience: float = _PATIENCE) -> T:
        return self._attempt_blocking(make, _Attempts(self._basis, self.place, repeatable, patience))

    def _attempt_blocking(self, make: MakeOp[T], attempts: _Attempts) -> T:
        while True:
            try:
                return self._blocking_road.transact(make)
            except Exception as error:  # noqa: BLE001 - the dialect says which are worth another attempt
                self._tell_of_reading(error)
                delay = attempts.next_delay(error)
            time.sleep(delay)

    def _tell_of_reading(self, error: Exception) -> None:
        """Say once that no writes are taken: they are tried for long, and who starts a worker there would see nothing."""
        if not self._has_told_of_reading and self._basis.dialect.only_reads(_cause(error)):
            self._has_told_of_reading = True
            _log.warning("The database %s takes no writes (%s). They are tried on.", self.place, _told(error))

    async def join(self, tx: object, make: MakeOp[T], *, read_committed: bool = False) -> T:
        return await join(tx, make, self._basis, read_committed=read_committed, origin=self._origin)

    def join_blocking(self, tx: object, make: MakeOp[T], *, read_committed: bool = False) -> T:
        return join_blocking(tx, make, self._basis, read_committed=read_committed, origin=self._origin)

    @property
    def transactions(self) -> Transactions:
        own = Transactions() if self._own is None else self._own.transactions
        has_one_writer = self._basis.dialect.write_lock(self._basis.tables) is not None
        return replace(own, has_one_writer=has_one_writer)

    async def mark(self, tx: object) -> None:
        await mark(tx, self._basis)

    def mark_blocking(self, tx: object) -> None:
        mark_blocking(tx, self._basis)

    async def join_marked(self, tx: object, make: MakeOp[T]) -> T:
        return await join_marked(tx, make, self._basis)

    def join_marked_blocking(self, tx: object, make: MakeOp[T]) -> T:
        return join_marked_blocking(tx, make, self._basis)

    def is_conflict(self, error: BaseException) -> bool:
        return self._basis.dialect.is_conflict(error)

    def after_commit(self, tx: object, action: Callable[[], object]) -> bool:
        return after_commit(tx, action) or self._listener is not None

    def is_open(self, tx: object) -> bool:
        return is_open(tx)

    def can_migrate_beside(self) -> bool:
        return self._can_write is None or self._can_write()

    async def migrate(self) -> tuple[int, ...]:
        applied = await self.run(lambda: migrate(self._basis))
        self._origin.learn(await self.run(self._origin.read))
        return applied

    def migrate_blocking(self) -> tuple[int, ...]:
        applied = self.run_blocking(lambda: migrate(self._basis))
        self._origin.learn(self.run_blocking(self._origin.read))
        return applied

    async def schema_version(self) -> tuple[int, int]:
        if self._is_absent is not None and self._is_absent():
            return 0, LATEST
        await self.run(self._basis.dialect.check_server)
        return await self.run(lambda: found_version(self._basis, span="read")), LATEST

    def migration_statements(self, since: int) -> tuple[str, ...]:
        return script(self._basis.dialect.name, self._basis.tables.name, since=since)

    def schema_version_blocking(self) -> tuple[int, int]:
        if self._is_absent is not None and self._is_absent():
            return 0, LATEST
        self.run_blocking(self._basis.dialect.check_server)
        return self.run_blocking(lambda: found_version(self._basis, span="read")), LATEST

    async def check_schema(self) -> None:
        await self.run(lambda: check_schema(self._basis))
        self._origin.learn(await self.run(self._origin.read))

    def check_schema_blocking(self) -> None:
        # For awaiting callers `open` has asked this.
        attempts = _Attempts(self._basis, self.place, True, _PATIENCE, opens=True)
        self._attempt_blocking(self._check_server, attempts)
        self.run_blocking(lambda: check_schema(self._basis))
        self._origin.learn(self.run_blocking(self._origin.read))

    async def listen(self, notice: Notice) -> None:
        if self._listener is not None:
            await self._listener.listen(notice)

    def separate(self) -> SqlDatabase:
        other = self._separate()
        other.place = self.place
        return other


@lru_cache(maxsize=16)
def _store(basis: Basis) -> SqlStore:
    """Return the statements over a basis: made and compiled once, however many handles are opened on it."""
    return SqlStore(basis)


class _Attempts:
    """Decide after a failure: raise, or how long to wait before the next attempt."""

    def __init__(
        self,
        basis: Basis,
        place: str,
        repeatable: bool = True,
        patience: float = _PATIENCE,
        *,
        waits: bool = True,
        opens: bool = False,
    ) -> None:
        """`place` names the database. While it is being opened, somebody is told at once that it does not answer."""
        self._dialect = basis.dialect
        self._repeatable = repeatable
        self._waits = waits and repeatable
        self._patience = patience
        self._until = time.monotonic() + patience
        self._delays = _delays()
        self._place = place
        self._opens = opens
        self._why: tuple[Exception, Trouble] | None = None

    @property
    def left(self) -> float:
        return max(self._until - time.monotonic(), 0.0)

    def next_delay(self, error: Exception) -> float:
        """Return the delay before another attempt. Raises the error when it is about the operation itself."""
        if isinstance(error, DatabaseUnavailable):
            raise error  # Explained already.
        refusal = self._dialect.refusal(_cause(error))
        if refusal is not None:
            raise DatabaseUnavailable(refusal) from error
        absent = self._dialect.absent(_cause(error))
        if absent is not None:
            raise DatabaseUnavailable(
                f"There is no table {absent}; the app's database is {self._place}. If that is another one, a connection was "
                "switched (USE) and came back to your pool like that; it is closed now. Switch each back before it is given "
                "back, or give outlast a URL. Otherwise its tables are gone, and `outlast migrate` makes them."
            ) from error
        trouble = Trouble.LOST if isinstance(error, OutcomeUnknown) else self._dialect.trouble(error)
        if trouble is None:
            raise error
        if isinstance(error, OutcomeUnknown) and not self._repeatable:
            raise DatabaseUnavailable(
                "The connection to the database broke while a transaction was being committed; whether it was is not "
                "known here."
            ) from error.__cause__
        if trouble is Trouble.HELD and not self._waits:
            raise HeldUp(f"Another transaction holds what this one needs: {_told(error)}") from error
        delay = next(self._delays)
        if self._why is None or not isinstance(error, TimeoutError):
            # That the last attempt was cut short says less than why there were several.
            self._why = error, trouble
        if delay >= self.left:
            raise self._given_up(*self._why) from error
        self.tell(error)
        return delay

    def tell(self, error: Exception | None = None) -> None:
        """Say once that the database which is being opened does not answer: otherwise nobody would hear of it for long."""
        if self._opens:
            why = "no answer yet" if error is None else _told(error)
            _log.warning("The database %s cannot be reached (%s). Trying for %g s.", self._place, why, self._patience)
            self._opens = False

    def _given_up(self, error: Exception, trouble: Trouble) -> DatabaseUnavailable:
        spent = f"for {self._patience:g} s: {_told(error)}"
        if trouble is Trouble.LOST and self._dialect.only_reads(error):
            return DatabaseUnavailable(
                f"The database {self._place} takes no writes, as a replica or one that was set to only read; it was tried "
                f"{spent}. Give outlast the primary; an app that only looks takes worker=False, migrate=False."
            )
        if trouble is Trouble.LOST:
            return DatabaseUnavailable(f"The database {self._place} could not be reached {spent}")
        return DatabaseBusy(f"{self._dialect.in_the_way} {spent}")


def _cause(error: Exception) -> BaseException:
    return error.__cause__ if isinstance(error, OutcomeUnknown) and error.__cause__ else error


def _told(error: Exception) -> str:
    cause = _cause(error)
    return f"{type(cause).__name__}: {cause}"


def _delays() -> Iterator[float]:
    delay = _FIRST_DELAY
    while True:
        yield delay * random.uniform(0.5, 1.0)
        delay = min(delay * 2, _LONGEST_DELAY)
