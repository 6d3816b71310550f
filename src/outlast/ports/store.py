"""The store: what is remembered between two turns, as verbs that return operations.

Rules for every verb. Times are microseconds by the database's clock (or the test clock that replaces it). A write of a
worker MUST prove the worker's lease in the transaction that writes, and touch a run only while that worker owns it. A verb
that reports False, "lost" or "not accepted" MUST have written nothing about that run.

What is made for every run or signal is a struct: a frozen dataclass takes ten times as long to make. Those that can be in no
circle are none of the garbage collector's business (`gc=False`), which else looks at each of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from outlast.model.ids import RunId, WorkerId
from outlast.model.journal import Record
from outlast.model.run import Status, Stop, StopKind
from outlast.model.signal import StoredSignal
from outlast.ports.operation import Op


@dataclass(frozen=True, slots=True)
class Lease:
    """A worker's right to write: valid while the store still has this epoch for it."""

    worker: WorkerId
    epoch: int


class NewRun(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A run to be created. `timeout` is microseconds from its creation."""

    id: RunId
    workflow: str
    version: int
    input: str
    priority: int = 0
    timeout: int | None = None


class StartOutcome(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What became of one start: the run that has this id now, created by this call or not."""

    id: RunId
    workflow: str
    version: int
    input: str
    status: Status
    created: bool
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A run as the store keeps it. `error` and `held` are stored failures (see `outlast.model.failures`); `unknown_status`
    is what stands there when `status` is UNKNOWN."""

    id: RunId
    workflow: str
    version: int
    status: Status
    priority: int
    input: str
    output: str | None
    error: str | None
    custom_status: str | None
    held: str | None
    stop: Stop | None
    owner: str | None
    due_at: int | None
    deadline_at: int | None
    turns: int
    lapses: int
    created_at: int
    started_at: int | None
    updated_at: int
    finished_at: int | None
    unknown_status: str | None = None


@dataclass(frozen=True, slots=True)
class RunDetails:
    """A run with its journal and the topics it waits for, all of one moment."""

    run: StoredRun
    journal: tuple[Record, ...] = ()
    waiting_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs to list. Empty fields do not filter. `created_after` is included and `created_before` is not: two spans of
    time that touch share no run and miss none. `after` is the (created_at, id) of the last run of the page before."""

    statuses: tuple[Status, ...] = ()
    workflow: str | None = None
    version: int | None = None
    created_after: int | None = None
    created_before: int | None = None
    limit: int = 100
    after: tuple[int, str] | None = None


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What a waiting caller needs: status and, once terminal, the stored output or error and, where it was looked up, the
    time of the end; `held` why it is held back now."""

    status: Status
    output: str | None
    error: str | None
    workflow: str
    version: int
    held: str | None = None
    finished_at: int | None = None


class NewSignal(msgspec.Struct, frozen=True, gc=False):
    """A signal to be sent. `dedupe_id` is the caller's id or one made for this call, so that a repeat changes nothing."""

    name: str
    topic: str
    dedupe_id: str
    payload: str


class SignalOutcome(msgspec.Struct, frozen=True, gc=False):
    """What became of one signal. `topic` is that of the signal that has this name and id now."""

    id: int
    topic: str
    created: bool
    woken: int


class Wait(msgspec.Struct, frozen=True, gc=False):
    """A topic a parked run waits for. A signal counts when its id is above `after_id`, or when it was recorded after
    `after_at` (None: by id alone)."""

    topic: str
    after_id: int
    after_at: int | None = None


class ClaimedRun(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A run that this worker now owns, with all that a turn needs. `records` is None when the caller said that it still
    holds the run in memory and nothing has happened to it since (`Claim.cached`).

    `signals` are those of the waits that the run was last parked with; `topics` MUST name the topics of all these waits, and
    `read_at` be no later than the reading. Without them a wait could end by its deadline although a signal had come in time:
    a run that was taken back in the middle of a turn may wait for more than it was parked with.
    """

    id: RunId
    workflow: str
    version: int
    status: Status
    input: str
    custom_status: str | None
    created_at: int
    started_at: int
    deadline_at: int | None
    signal_cursor: int
    turns: int
    lapses: int
    stop: Stop | None
    records: tuple[Record, ...] | None
    signals: tuple[StoredSignal, ...]
    topics: frozenset[str] = frozenset()
    read_at: int = 0


class ClaimRequest(msgspec.Struct, frozen=True):
    """What to claim: at most `limit` runs of these (workflow, version) pairs. `cached` maps runs held in memory to the
    `turns` they had when they were parked."""

    lease: Lease
    limit: int
    workflows: tuple[tuple[str, int], ...]
    cached: Mapping[RunId, int]


class Claim(msgspec.Struct, frozen=True):
    """The claimed runs by priority, then due time; the database's time; and when the next parked run is due, if known.

    `passed_by` MUST be True when a run was left out because somebody else had it locked, and nobody tells when it is free:
    or it would lie there until the poll, though a worker was told in time that it is due.
    """

    runs: tuple[ClaimedRun, ...]
    now: int
    next_due: int | None
    passed_by: bool = False


class RunWrite(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What one flush does to one run that the worker owns.

    status: the status to have from now on. A terminal one ends the run: `output`/`error` are set, owner and waits go.
    keep: True leaves the run with the worker; False parks it (status suspended, compensating) until `due_at` or a wait.
    due_at: when the parked run is due; None with waits only. A due time in the past makes it claimable at once.
    waits: replaces the run's waits when it is parked.
    custom_status: written when `sets_custom_status`, None clears it.
    held: why a parked run is held back (stored failure), None otherwise.
    progressed: True sets `lapses` back to 0.
    turns: the run's `turns` in the turn that writes. A write that arrives in a later turn MUST change nothing of the run,
        which then counts as lost; None writes in any turn.
    """

    id: RunId
    status: Status
    keep: bool = True
    due_at: int | None = None
    waits: tuple[Wait, ...] = ()
    output: str | None = None
    error: str | None = None
    sets_custom_status: bool = False
    custom_status: str | None = None
    held: str | None = None
    progressed: bool = False
    turns: int | None = None


class Batch(msgspec.Struct, frozen=True):
    """Everything one flush writes: runs started already leased to this worker, journal records, run writes.

    A run appears in `writes` at most once; records of a run are in `seq` order. A flush repeated after a lost reply MUST
    change nothing the second time.
    """

    starts: tuple[NewRun, ...] = ()
    records: tuple[tuple[RunId, Record], ...] = ()
    writes: tuple[RunWrite, ...] = ()
    is_joined: bool = False
    """Written at the end of a transaction of the application's, which may wait long for a run's row. Where such a wait with
    the worker's row would hold up the lease's renewal, the runs' rows MUST be asked for first. It starts nothing."""


class FlushOutcome(msgspec.Struct, frozen=True, gc=False):
    """What the flush did. `started` lists the ids that were created (others existed already: nothing was written for
    them); `started_at` is the database's time used for them and `signal_cursor` their cursor; `lost` the runs in `writes`
    that this worker does not own any more; `ready` the parked ones that are claimable at once."""

    started: tuple[RunId, ...] = ()
    started_at: int = 0
    signal_cursor: int = 0
    lost: tuple[RunId, ...] = ()
    ready: tuple[RunId, ...] = ()


@dataclass(frozen=True, slots=True)
class Renewal:
    """The answer to a renewal: the database's time, and the stop requests of this worker's runs."""

    now: int
    stops: tuple[tuple[RunId, Stop], ...]


@dataclass(frozen=True, slots=True)
class StopOutcome:
    """What became of a stop request: the run's status, and whether this request is the one that counts."""

    status: Status
    accepted: bool


@dataclass(frozen=True, slots=True)
class Reaped:
    """Which workers were found to be gone, and how many runs of theirs can be claimed now.

    Of each worker it tells for how many microseconds the lease had been over; None where its row was gone already.
    """

    runs: int
    workers: tuple[tuple[WorkerId, int | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """How many runs of a workflow are overdue, of those that were looked at."""

    workflow: str
    version: int
    runs: int


class Store(Protocol):
    """The verbs. Those that take a lease raise LeaseLost (from inside the op) when it is over."""

    def start(
        self, runs: Sequence[NewRun], *, together: bool = True, waits: bool = True
    ) -> Op[tuple[StartOutcome, ...]]:
        """Create each run unless its id is taken; report in the same order. Two starts of one id MUST leave one run.

        `together` keeps all of them in one transaction, so that the caller may still refuse them all; without it each is
        for itself, and a store may commit sooner.

        An id may belong to a run of a transaction that has not ended yet. Without `waits`, the database MUST refuse the
        statement then, as it does when a lock is not to be had, within a few hundredths of a second: whoever asks has others
        to start beside it. MUST NOT be used in a caller's transaction.
        """
        ...

    def get(self, run_id: RunId, *, journal: bool) -> Op[RunDetails | None]:
        """Read one run; with its journal when asked."""
        ...

    def list(self, wanted: RunFilter) -> Op[tuple[StoredRun, ...]]:
        """Read a page of runs by (created_at, id)."""
        ...

    def outcomes(self, run_ids: Sequence[RunId]) -> Op[Mapping[RunId, Outcome]]:
        """Read how far runs are; unknown ids are missing from the answer."""
        ...

    def waiting_for(self, run_ids: Sequence[RunId]) -> Op[Mapping[RunId, tuple[str, ...]]]:
        """Read the topics that runs wait for, in the order of their waits; those that wait for none are missing from the
        answer, and so MUST be those that are not parked or are claimable."""
        ...

    def request_stop(self, run_id: RunId, kind: StopKind, failure: str) -> Op[StopOutcome | None]:
        """Ask a run to stop, `failure` being the stored reason; None when there is no such run.

        One conditional write: a cancel is accepted on pending, running and suspended runs that have no stop request; a
        terminate also on compensating runs and after a cancel, whose reason it replaces. A parked run becomes claimable.
        """
        ...

    def send(self, signals: Sequence[NewSignal]) -> Op[tuple[SignalOutcome, ...]]:
        """Store each signal once and wake the parked runs that wait for its topic. Holds the topics' locks to commit."""
        ...

    def register(self, worker: WorkerId, *, lease_us: int, host: str) -> Op[Lease]:
        """Make a new worker row with a fresh lease."""
        ...

    def renew(self, lease: Lease, *, lease_us: int) -> Op[Renewal]:
        """Extend the lease, also when it is late, unless it was taken over."""
        ...

    def retire(self, lease: Lease) -> Op[int]:
        """Hand all runs of this worker back, claimable at once and with no lapse counted, and forget the worker."""
        ...

    def disown(self, lease: Lease, held: Sequence[RunId]) -> Op[int]:
        """Hand back the runs of this worker that are not among `held`, claimable at once and with no lapse counted.

        The answer to a claim may be lost after its COMMIT: those runs are owned by a worker that does not know of them, and
        its lease goes on being renewed, so nobody else would ever take them.
        """
        ...

    def give_back(self, lease: Lease, run_ids: Collection[RunId]) -> Op[tuple[RunId, ...]]:
        """Hand those of these runs back that are this worker's, claimable at once and with no lapse counted; return which.

        Waits for nobody: one that others have locked is left for another call.
        """
        ...

    def reap(self, *, sparing: WorkerId | None = None, waits: bool = True) -> Op[Reaped]:
        """End the leases that are over, make their runs claimable and count a lapse on each; return what was found.

        From the fourth lapse in a row a run is claimable only after 10 s, then 1 min, then 5 min.

        `sparing` is the worker that asks: it is there, so its own lease is not over as long as nobody else has ended it.

        The worker's row MUST be locked so that a flush in flight is waited for, and looked at again under that lock.
        Runs whose owner has no row count as lapsed too. Without `waits`, workers and runs that somebody has locked are left
        for a later call.
        """
        ...

    def claim(self, request: ClaimRequest) -> Op[Claim]:
        """Take due runs. A run MUST go to one claimer only."""
        ...

    def unclaimed(self, workflows: Sequence[tuple[str, int]], *, overdue: int) -> Op[tuple[Unclaimed, ...]]:
        """Tell of runs that are due for at least `overdue` microseconds and of none of these workflows, nor of one that a
        worker has a run of now. It MUST cost the same whatever waits: what is looked at may be limited."""
        ...

    def retry_held(self, workflows: Sequence[tuple[str, int]], *, before: int, within: int, limit: int) -> Op[int]:
        """Make at most `limit` held runs of these workflows due now, which would be due `within` so many microseconds, and
        were last tried before the instant `before`; return how many. Looks at a limited number, those that are due next."""
        ...

    def flush(self, lease: Lease, batch: Batch) -> Op[FlushOutcome]:
        """Write a batch, all or nothing, fenced by the lease."""
        ...

    def flushed(self, lease: Lease, batch: Batch) -> Op[bool]:
        """Tell whether this batch was written, after its reply was lost."""
        ...
