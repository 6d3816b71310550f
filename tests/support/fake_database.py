"""A database of dicts, for tests of what stands above the stores: it remembers what it was asked, and fails on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from outlast.errors import SchemaBehind
from outlast.model.failures import decode_failure
from outlast.model.ids import RunId
from outlast.model.run import Status, Stop, StopKind
from outlast.ports.operation import Op, Result, pump
from outlast.ports.store import (
    NewRun,
    NewSignal,
    Outcome,
    RunDetails,
    RunFilter,
    SignalOutcome,
    StartOutcome,
    StopOutcome,
    StoredRun,
)

T = TypeVar("T")


class FakeStore:
    """The verbs a client uses. Each takes effect when its op is run to its end."""

    def __init__(self) -> None:
        self.runs: dict[RunId, NewRun] = {}
        self.ends: dict[RunId, Outcome] = {}
        self.signals: dict[tuple[str, str], NewSignal] = {}
        self.stops: dict[RunId, Stop] = {}
        self.batches: list[int] = []
        self.filters: list[RunFilter] = []
        self.looks: list[tuple[RunId, ...]] = []

    def start(
        self, runs: Sequence[NewRun], *, together: bool = True, waits: bool = True
    ) -> Op[tuple[StartOutcome, ...]]:
        self.batches.append(len(runs))
        outcomes: list[StartOutcome] = []
        for run in runs:
            created = run.id not in self.runs
            kept = self.runs.setdefault(run.id, run)
            outcomes.append(
                StartOutcome(
                    id=run.id,
                    workflow=kept.workflow,
                    version=kept.version,
                    input=kept.input,
                    status=Status.PENDING,
                    created=created,
                    created_at=0,
                )
            )
        yield from ()
        return tuple(outcomes)

    def end(self, run_id: str, status: Status, *, output: str | None = None, error: str | None = None) -> Outcome:
        run = self.runs[RunId(run_id)]
        outcome = self.ends[run.id] = Outcome(status, output, error, run.workflow, run.version)
        return outcome

    def outcomes(self, run_ids: Sequence[RunId]) -> Op[Mapping[RunId, Outcome]]:
        self.looks.append(tuple(run_ids))
        yield from ()
        return {
            run.id: self.ends.get(run.id, Outcome(Status.RUNNING, None, None, run.workflow, run.version))
            for run in self.runs.values()
            if run.id in run_ids
        }

    def waiting_for(self, run_ids: Sequence[RunId]) -> Op[Mapping[RunId, tuple[str, ...]]]:
        yield from ()
        return {}

    def get(self, run_id: RunId, *, journal: bool) -> Op[RunDetails | None]:
        yield from ()
        run = self.runs.get(run_id)
        return None if run is None else RunDetails(self._stored(run))

    def list(self, wanted: RunFilter) -> Op[tuple[StoredRun, ...]]:
        self.filters.append(wanted)
        yield from ()
        after = wanted.after or (-1, "")
        found = [self._stored(run) for run in sorted(self.runs.values(), key=lambda run: run.id)]
        return tuple(run for run in found if (run.created_at, str(run.id)) > after)[: wanted.limit]

    def send(self, signals: Sequence[NewSignal]) -> Op[tuple[SignalOutcome, ...]]:
        yield from ()
        outcomes: list[SignalOutcome] = []
        for signal in signals:
            created = (signal.name, signal.dedupe_id) not in self.signals
            kept = self.signals.setdefault((signal.name, signal.dedupe_id), signal)
            outcomes.append(SignalOutcome(len(self.signals), kept.topic, created, woken=1 if created else 0))
        return tuple(outcomes)

    def request_stop(self, run_id: RunId, kind: StopKind, failure: str) -> Op[StopOutcome | None]:
        yield from ()
        if run_id not in self.runs:
            return None
        accepted = run_id not in self.stops
        self.stops.setdefault(run_id, Stop(kind, decode_failure(failure), 0))
        return StopOutcome(Status.RUNNING, accepted)

    def _stored(self, run: NewRun) -> StoredRun:
        end = self.ends.get(run.id)
        return StoredRun(
            id=run.id,
            workflow=run.workflow,
            version=run.version,
            status=end.status if end else Status.PENDING,
            priority=run.priority,
            input=run.input,
            output=end.output if end else None,
            error=end.error if end else None,
            custom_status=None,
            held=None,
            stop=self.stops.get(run.id),
            owner=None,
            due_at=None,
            deadline_at=run.timeout,
            turns=0,
            lapses=0,
            created_at=0,
            started_at=None,
            updated_at=0,
            finished_at=None,
        )


@dataclass
class FakeDatabase:
    """Runs each op at once. `joined` are the transactions that were joined; `behind` makes the tables too old."""

    store: FakeStore = field(default_factory=FakeStore)
    behind: bool = False
    joined: list[object] = field(default_factory=list[object])
    asked: list[str] = field(default_factory=list[str])
    before: Callable[[], object] = lambda: None
    is_lasting: bool = True
    opens: list[bool] = field(default_factory=list[bool])

    async def open(self) -> None:
        self.asked.append("open")

    async def close(self) -> None:
        self.asked.append("close")

    def close_blocking(self) -> None:
        self.asked.append("close_blocking")

    async def run(
        self, make: Callable[[], Op[T]], *, repeatable: bool = True, patience: float = 30.0, waits: bool = True
    ) -> T:
        return self.run_blocking(make)

    def run_blocking(self, make: Callable[[], Op[T]], *, repeatable: bool = True, patience: float = 30.0) -> T:
        self.before()
        return pump(make(), lambda _: Result())

    async def join(self, tx: object, make: Callable[[], Op[T]], *, read_committed: bool = False) -> T:
        return self.join_blocking(tx, make, read_committed=read_committed)

    def join_blocking(self, tx: object, make: Callable[[], Op[T]], *, read_committed: bool = False) -> T:
        self.joined.append(tx)
        self.asked.append("join read committed" if read_committed else "join")
        return pump(make(), lambda _: Result())

    async def check_schema(self) -> None:
        self.check_schema_blocking()

    def check_schema_blocking(self) -> None:
        self.asked.append("check")
        if self.behind:
            raise SchemaBehind("outlast", 0, 1)

    def after_commit(self, tx: object, action: Callable[[], object]) -> bool:
        """Tell nobody: whether the transaction goes on is in `opens`, one answer for each look."""
        return False

    def is_open(self, tx: object) -> bool:
        return bool(self.opens) and self.opens.pop(0)

    async def migrate(self) -> tuple[int, ...]:
        return self.migrate_blocking()

    def migrate_blocking(self) -> tuple[int, ...]:
        self.asked.append("migrate")
        self.behind = False
        return (1,)

    def can_migrate_beside(self) -> bool:
        return True

    async def listen(self, notice: Callable[[str], None]) -> None: ...

    def separate(self) -> FakeDatabase:
        return self
