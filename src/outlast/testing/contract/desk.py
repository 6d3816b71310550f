"""A case, and the desk at which it is worked: one store in one colour, a clock that stands still."""

from __future__ import annotations

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

from outlast.errors import LeaseLost
from outlast.model.ids import RunId, WorkerId
from outlast.model.journal import Kind, Phase, Record
from outlast.model.run import Status
from outlast.ports.clock import Clock
from outlast.ports.database import Database
from outlast.ports.operation import Op
from outlast.ports.store import (
    Batch,
    Claim,
    ClaimedRun,
    ClaimRequest,
    FlushOutcome,
    Lease,
    NewRun,
    RunDetails,
    RunWrite,
    StartOutcome,
    Store,
    Wait,
)
from outlast.testing.clock import ManualClock

T = TypeVar("T")
Verb: TypeAlias = Callable[[Store], Op[T]]
Colour: TypeAlias = Literal["awaiting", "blocking"]
OpenStore: TypeAlias = Callable[[Clock | None], Database]
SECOND = 1_000_000
LEASE_US = 30 * SECOND


class ContractBroken(AssertionError):
    """A store did not do what the contract says."""


@dataclass(frozen=True, slots=True)
class Case:
    """One sentence of the contract and how it is checked."""

    name: str
    script: Callable[[Desk], None]

    def __str__(self) -> str:
        return self.name

    def check(self, open_store: OpenStore, colour: Colour) -> None:
        """Raise ContractBroken, or whatever the store raised, when the sentence does not hold."""
        with desk(open_store, colour) as made:
            self.script(made)


def cases(*scripts: Callable[[Desk], None]) -> tuple[Case, ...]:
    """Name each case by its function."""
    return tuple(Case(script.__name__, script) for script in scripts)


def same(found: object, wanted: object) -> None:
    """Raise ContractBroken unless the two are equal."""
    if found != wanted:
        raise ContractBroken(f"found {found!r}, wanted {wanted!r}")


class Desk(ABC):
    """What a case works with. `do` runs one verb as one transaction in the desk's colour."""

    def __init__(self, database: Database, open_store: OpenStore, clock: ManualClock) -> None:
        self.clock = clock
        self._database = database
        self._open_store = open_store
        self._counter = itertools.count(1)

    @abstractmethod
    def do(self, verb: Verb[T]) -> T: ...

    @abstractmethod
    def together(self, verbs: Sequence[Verb[Any]]) -> list[Any]:
        """Run verbs at the same time, each over a handle of its own, and return their answers in order."""

    @abstractmethod
    def joined(self, verb: Verb[T], *, commits: bool = True) -> T:
        """Run a verb at the end of a marked transaction that the database gives to the application, as a step does."""

    @property
    @abstractmethod
    def gives_transactions(self) -> bool:
        """False for a database that has none to give in this colour; applications bring their own there."""

    # ---- what most cases need

    def worker(self, name: str = "") -> Lease:
        """Register a new worker."""
        worker = WorkerId(name or f"worker-{next(self._counter)}")
        return self.do(lambda store: store.register(worker, lease_us=LEASE_US, host="here"))

    def start(self, *runs: NewRun) -> tuple[StartOutcome, ...]:
        return self.do(lambda store: store.start(runs))

    def claim(self, lease: Lease, *, limit: int = 10, **cached: int) -> Claim:
        held = {RunId(run_id): turns for run_id, turns in cached.items()}
        return self.do(lambda store: store.claim(ClaimRequest(lease, limit, (("work", 1),), held)))

    def claim_one(self, lease: Lease) -> ClaimedRun:
        """Claim exactly one run."""
        claimed = self.claim(lease).runs
        same(len(claimed), 1)
        return claimed[0]

    def begin(self, run_id: str, lease: Lease) -> ClaimedRun:
        """Start a run and have this worker claim it."""
        self.start(new_run(run_id))
        claimed = self.claim_one(lease)
        same(claimed.id, run_id)
        return claimed

    def flush(self, lease: Lease, batch: Batch) -> FlushOutcome:
        return self.do(lambda store: store.flush(lease, batch))

    def park(self, lease: Lease, run_id: str, *waits: Wait, due_at: int | None = None) -> FlushOutcome:
        return self.flush(lease, Batch(writes=(parked(run_id, *waits, due_at=due_at),)))

    def get(self, run_id: str) -> RunDetails:
        """Read a run that must be there, with its journal."""
        found = self.do(lambda store: store.get(RunId(run_id), journal=True))
        if found is None:
            raise ContractBroken(f"run {run_id!r} is not there")
        return found

    def refused(self, verb: Verb[Any]) -> None:
        """See that a verb raises LeaseLost."""
        try:
            answer = self.do(verb)
        except LeaseLost:
            return
        raise ContractBroken(f"it was not refused, though the lease is over; it answered {answer!r}")

    def later(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(f"{int(seconds * 1000)}ms")

    @property
    def now(self) -> int:
        return self.clock.now()


class _BlockingDesk(Desk):
    def do(self, verb: Verb[T]) -> T:
        return self._database.run_blocking(lambda: verb(self._database.store))

    def together(self, verbs: Sequence[Verb[Any]]) -> list[Any]:
        handles = [self._open_store(self.clock) for _ in verbs]
        with ThreadPoolExecutor(len(verbs)) as threads:
            futures = [
                threads.submit(handle.run_blocking, _making(handle, verb))
                for handle, verb in zip(handles, verbs, strict=True)
            ]
            answers = [future.result() for future in futures]
        for handle in handles:
            if handle is not self._database:
                handle.close_blocking()
        return answers

    def joined(self, verb: Verb[T], *, commits: bool = True) -> T:
        database, begin = self._database, self._database.transactions.blocking
        assert begin is not None
        answers: list[T] = []
        with suppress(_RolledBack), begin() as tx:
            database.mark_blocking(tx)
            answers.append(database.join_marked_blocking(tx, lambda: verb(database.store)))
            if not commits:
                raise _RolledBack
        return answers[0]

    @property
    def gives_transactions(self) -> bool:
        return self._database.transactions.blocking is not None


class _RolledBack(Exception):
    """Ends an application's transaction without a commit."""


class _AwaitingDesk(Desk):
    def __init__(self, database: Database, open_store: OpenStore, clock: ManualClock, runner: asyncio.Runner) -> None:
        super().__init__(database, open_store, clock)
        self._runner = runner

    def do(self, verb: Verb[T]) -> T:
        return self._runner.run(self._do(verb))

    async def _do(self, verb: Verb[T]) -> T:
        return await self._database.run(lambda: verb(self._database.store))

    def together(self, verbs: Sequence[Verb[Any]]) -> list[Any]:
        return self._runner.run(self._together(verbs))

    def joined(self, verb: Verb[T], *, commits: bool = True) -> T:
        return self._runner.run(self._joined(verb, commits))

    async def _joined(self, verb: Verb[T], commits: bool) -> T:
        database, begin = self._database, self._database.transactions.awaiting
        assert begin is not None
        answers: list[T] = []
        with suppress(_RolledBack):
            async with begin() as tx:
                await database.mark(tx)
                answers.append(await database.join_marked(tx, lambda: verb(database.store)))
                if not commits:
                    raise _RolledBack
        return answers[0]

    @property
    def gives_transactions(self) -> bool:
        return self._database.transactions.awaiting is not None

    async def _together(self, verbs: Sequence[Verb[Any]]) -> list[Any]:
        handles = [self._open_store(self.clock) for _ in verbs]
        pairs = zip(handles, verbs, strict=True)
        answers = await asyncio.gather(*(handle.run(_making(handle, verb)) for handle, verb in pairs))
        for handle in handles:
            if handle is not self._database:
                await handle.close()
        return list(answers)


def _making(handle: Database, verb: Verb[T]) -> Callable[[], Op[T]]:
    return lambda: verb(handle.store)


@contextmanager
def desk(open_store: OpenStore, colour: Colour) -> Generator[Desk]:
    """Set up a desk over fresh tables."""
    clock = ManualClock()
    database = open_store(clock)
    if colour == "blocking":
        database.migrate_blocking()
        try:
            yield _BlockingDesk(database, open_store, clock)
        finally:
            database.close_blocking()
        return
    with asyncio.Runner() as runner:
        runner.run(_opened(database))
        try:
            yield _AwaitingDesk(database, open_store, clock, runner)
        finally:
            runner.run(_closed(database))


async def _opened(database: Database) -> None:
    await database.open()
    await database.migrate()


async def _closed(database: Database) -> None:
    await database.close()


# ---- values that most cases need


def new_run(
    run_id: str,
    *,
    workflow: str = "work",
    version: int = 1,
    input: str = '{"n":1}',
    priority: int = 0,
    timeout: int | None = None,
) -> NewRun:
    """Return a run to be started."""
    return NewRun(id=RunId(run_id), workflow=workflow, version=version, input=input, priority=priority, timeout=timeout)


def step(seq: int, name: str, payload: str | None = "1") -> Record:
    """Return the record of a step that succeeded at once."""
    return Record(seq, Kind.STEP, Phase.DONE, name, attempt=1, payload=payload)


def kept(run_id: str, status: Status = Status.RUNNING, *, progressed: bool = False) -> RunWrite:
    """Return a write that leaves the run with its worker."""
    return RunWrite(id=RunId(run_id), status=status, progressed=progressed)


def showing(run_id: str, text: str | None) -> RunWrite:
    """Return a write that sets what the run shows."""
    return RunWrite(id=RunId(run_id), status=Status.RUNNING, sets_custom_status=True, custom_status=text)


def parked(
    run_id: str,
    *waits: Wait,
    due_at: int | None = None,
    status: Status = Status.SUSPENDED,
    held: str | None = None,
) -> RunWrite:
    """Return a write that parks the run."""
    return RunWrite(id=RunId(run_id), status=status, keep=False, waits=waits, due_at=due_at, held=held)


def finished(
    run_id: str, status: Status = Status.COMPLETED, *, output: str | None = "1", error: str | None = None
) -> RunWrite:
    """Return a write that ends the run."""
    return RunWrite(id=RunId(run_id), status=status, keep=False, output=output, error=error)
