"""The store: every verb of the port, put together from the groups of statements."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from outlast.model.ids import RunId, WorkerId
from outlast.model.run import StopKind
from outlast.ports.operation import Op
from outlast.ports.store import (
    Batch,
    Claim,
    ClaimRequest,
    FlushOutcome,
    Lease,
    NewRun,
    NewSignal,
    Outcome,
    Reaped,
    Renewal,
    RunDetails,
    RunFilter,
    SignalOutcome,
    StartOutcome,
    StopOutcome,
    StoredRun,
    Unclaimed,
)
from outlast.stores.arrays.claiming import ClaimByArrays
from outlast.stores.arrays.flushing import FlushByArrays
from outlast.stores.arrays.sending import SendByArrays
from outlast.stores.arrays.starting import StartByArrays
from outlast.stores.basis import Basis
from outlast.stores.flushed import Flushed
from outlast.stores.inspecting import Inspecting
from outlast.stores.journal import Journal
from outlast.stores.neglected import Neglected
from outlast.stores.rows.claiming import ClaimByRow
from outlast.stores.rows.flushing import FlushByRow
from outlast.stores.rows.sending import SendByRow
from outlast.stores.rows.starting import StartByRow
from outlast.stores.runs import Runs
from outlast.stores.workers import Workers


class SqlStore:
    """`outlast.ports.store.Store` over one installation. It holds statements only, so any number of threads may use it."""

    def __init__(self, basis: Basis) -> None:
        journal = Journal(basis)
        self._runs = Runs(basis, journal)
        self._inspecting = Inspecting(basis)
        self._workers = Workers(basis)
        self._flushed = Flushed(basis)
        self._neglected = Neglected(basis)
        if basis.dialect.has_arrays:
            self._starting: StartByArrays | StartByRow = StartByArrays(basis)
            self._sending: SendByArrays | SendByRow = SendByArrays(basis)
            self._flushing: FlushByArrays | FlushByRow = FlushByArrays(basis)
            self._claiming: ClaimByArrays | ClaimByRow = ClaimByArrays(basis, journal)
        else:
            self._starting = StartByRow(basis)
            self._sending = SendByRow(basis)
            self._flushing = FlushByRow(basis, journal)
            self._claiming = ClaimByRow(basis, journal)

    def start(
        self, runs: Sequence[NewRun], *, together: bool = True, waits: bool = True
    ) -> Op[tuple[StartOutcome, ...]]:
        return self._starting.start(runs, together=together, waits=waits)

    def get(self, run_id: RunId, *, journal: bool) -> Op[RunDetails | None]:
        return self._runs.get(run_id, journal=journal)

    def list(self, wanted: RunFilter) -> Op[tuple[StoredRun, ...]]:
        return self._inspecting.list(wanted)

    def outcomes(self, run_ids: Sequence[RunId]) -> Op[Mapping[RunId, Outcome]]:
        return self._runs.outcomes(run_ids)

    def waiting_for(self, run_ids: Sequence[RunId]) -> Op[Mapping[RunId, tuple[str, ...]]]:
        return self._runs.waiting_for(run_ids)

    def request_stop(self, run_id: RunId, kind: StopKind, failure: str) -> Op[StopOutcome | None]:
        return self._runs.request_stop(run_id, kind, failure)

    def send(self, signals: Sequence[NewSignal]) -> Op[tuple[SignalOutcome, ...]]:
        return self._sending.send(signals)

    def register(self, worker: WorkerId, *, lease_us: int, host: str) -> Op[Lease]:
        return self._workers.register(worker, lease_us=lease_us, host=host)

    def renew(self, lease: Lease, *, lease_us: int) -> Op[Renewal]:
        return self._workers.renew(lease, lease_us=lease_us)

    def retire(self, lease: Lease) -> Op[int]:
        return self._workers.retire(lease)

    def disown(self, lease: Lease, held: Sequence[RunId]) -> Op[int]:
        return self._workers.disown(lease, held)

    def give_back(self, lease: Lease, run_ids: Collection[RunId]) -> Op[tuple[RunId, ...]]:
        return self._workers.give_back(lease, run_ids)

    def reap(self, *, sparing: WorkerId | None = None, waits: bool = True) -> Op[Reaped]:
        return self._workers.reap(sparing, waits=waits)

    def claim(self, request: ClaimRequest) -> Op[Claim]:
        return self._claiming.claim(request)

    def unclaimed(self, workflows: Sequence[tuple[str, int]], *, overdue: int) -> Op[tuple[Unclaimed, ...]]:
        return self._neglected.unclaimed(workflows, overdue=overdue)

    def retry_held(self, workflows: Sequence[tuple[str, int]], *, before: int, within: int, limit: int) -> Op[int]:
        return self._neglected.retry_held(workflows, before=before, within=within, limit=limit)

    def flush(self, lease: Lease, batch: Batch) -> Op[FlushOutcome]:
        return self._flushing.flush(lease, batch)

    def flushed(self, lease: Lease, batch: Batch) -> Op[bool]:
        return self._flushed.flushed(lease, batch)
