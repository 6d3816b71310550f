"""A store's verbs with their arguments, ready to be done, by one or by several at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from outlast.errors import LeaseLost
from outlast.model.ids import RunId
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
    Renewal,
    RunDetails,
    RunFilter,
    RunWrite,
    SignalOutcome,
    StartOutcome,
    StopOutcome,
    Store,
    StoredRun,
    Unclaimed,
)
from outlast.testing.contract.desk import LEASE_US, Verb


def starting(*runs: NewRun) -> Verb[tuple[StartOutcome, ...]]:
    return lambda store: store.start(runs)


def sending(*signals: NewSignal) -> Verb[tuple[SignalOutcome, ...]]:
    return lambda store: store.send(signals)


def signalling(topic: str, dedupe_id: str, payload: str = "null", *, name: str = "") -> Verb[tuple[SignalOutcome, ...]]:
    """Send one signal, named as its topic is unless said otherwise."""
    return sending(NewSignal(name or topic.partition("\n")[0], topic, dedupe_id, payload))


def stopping(run_id: str, kind: StopKind = StopKind.CANCEL, message: str = "why") -> Verb[StopOutcome | None]:
    failure = f'{{"type":"t","message":"{message}"}}'
    return lambda store: store.request_stop(RunId(run_id), kind, failure)


def claiming(lease: Lease, *, limit: int = 10, workflows: tuple[tuple[str, int], ...] = (("work", 1),)) -> Verb[Claim]:
    return lambda store: store.claim(ClaimRequest(lease, limit, workflows, {}))


def flushing(lease: Lease, batch: Batch) -> Verb[FlushOutcome]:
    return lambda store: store.flush(lease, batch)


def writing(lease: Lease, *writes: RunWrite) -> Verb[FlushOutcome]:
    return flushing(lease, Batch(writes=writes))


def renewing(lease: Lease) -> Verb[Renewal]:
    return lambda store: store.renew(lease, lease_us=LEASE_US)


def retiring(lease: Lease) -> Verb[int]:
    return lambda store: store.retire(lease)


def disowning(lease: Lease, *held: str) -> Verb[int]:
    return lambda store: store.disown(lease, [RunId(run_id) for run_id in held])


def giving_back(lease: Lease, *run_ids: str) -> Verb[tuple[RunId, ...]]:
    return lambda store: store.give_back(lease, {RunId(run_id) for run_id in run_ids})


def reading(run_id: str, *, journal: bool = True) -> Verb[RunDetails | None]:
    return lambda store: store.get(RunId(run_id), journal=journal)


def listing(wanted: RunFilter) -> Verb[tuple[StoredRun, ...]]:
    return lambda store: store.list(wanted)


def waiting(run_ids: Sequence[str]) -> Verb[Mapping[RunId, tuple[str, ...]]]:
    return lambda store: store.waiting_for([RunId(run_id) for run_id in run_ids])


def neglecting(*workflows: tuple[str, int], overdue: int) -> Verb[tuple[Unclaimed, ...]]:
    """Ask for runs that are overdue and of none of these workflows."""
    return lambda store: store.unclaimed(workflows, overdue=overdue)


def retrying_held(*workflows: tuple[str, int], before: int, within: int = 600_000_000, limit: int = 10) -> Verb[int]:
    return lambda store: store.retry_held(workflows, before=before, within=within, limit=limit)


def asking_after(lease: Lease, batch: Batch) -> Verb[bool]:
    """Ask whether a batch was written."""
    return lambda store: store.flushed(lease, batch)


def reaping(store: Store) -> Op[int]:
    """End the leases that are over; answer how many runs that gave back."""
    return (yield from store.reap()).runs


def or_lost(verb: Verb[Any]) -> Verb[str]:
    """Do the verb; answer "written", or "lost" when the lease was over."""

    def do(store: Store) -> Op[str]:
        try:
            yield from verb(store)
        except LeaseLost:
            return "lost"
        return "written"

    return do
