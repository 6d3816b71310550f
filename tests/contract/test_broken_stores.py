"""The contract is worth what it catches: each of these stores is broken in one way, and one named case says so."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from outlast.model.ids import RunId, WorkerId
from outlast.model.journal import Record
from outlast.model.run import StopKind
from outlast.ports.clock import Clock
from outlast.ports.operation import Op
from outlast.ports.store import (
    Batch,
    Claim,
    ClaimRequest,
    FlushOutcome,
    Lease,
    NewRun,
    NewSignal,
    RunDetails,
    RunFilter,
    RunWrite,
    SignalOutcome,
    StartOutcome,
    StopOutcome,
    StoredRun,
)
from outlast.stores.basis import Basis, make_basis
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database
from outlast.stores.dialects.sqlite import SQLite
from outlast.stores.sql import SqlStore
from outlast.testing.store_contract import Case, ContractBroken, store_contract

_fresh = itertools.count()


class ForgetsSignalIds(SqlStore):
    def send(self, signals: Sequence[NewSignal]) -> Op[tuple[SignalOutcome, ...]]:
        return super().send([replace(one, dedupe_id=str(next(_fresh))) for one in signals])


class FoldsKeys(SqlStore):
    def send(self, signals: Sequence[NewSignal]) -> Op[tuple[SignalOutcome, ...]]:
        return super().send([replace(one, topic=one.topic.lower()) for one in signals])


class LooksForNoMissedSignal(SqlStore):
    def flush(self, lease: Lease, batch: Batch) -> Op[FlushOutcome]:
        writes = [
            replace(write, waits=tuple(replace(w, after_id=2**60) for w in write.waits)) for write in batch.writes
        ]
        return super().flush(lease, replace(batch, writes=tuple(writes)))


class KeepsNoWaits(SqlStore):
    def flush(self, lease: Lease, batch: Batch) -> Op[FlushOutcome]:
        writes = tuple(replace(write, waits=()) for write in batch.writes)
        return super().flush(lease, replace(batch, writes=writes))


class FencesNothing(SqlStore):
    def flush(self, lease: Lease, batch: Batch) -> Op[FlushOutcome]:
        yield from super().register(lease.worker, lease_us=1, host="")
        return (yield from super().flush(lease, batch))


class ReapsTooEarly(SqlStore):
    def register(self, worker: WorkerId, *, lease_us: int, host: str) -> Op[Lease]:
        return super().register(worker, lease_us=lease_us - 2_000, host=host)


class ReapsTooLate(SqlStore):
    def register(self, worker: WorkerId, *, lease_us: int, host: str) -> Op[Lease]:
        return super().register(worker, lease_us=lease_us * 2, host=host)


class RetiresWithALapse(SqlStore):
    def retire(self, lease: Lease) -> Op[int]:
        yield from super().retire(lease)
        yield from super().register(lease.worker, lease_us=-1, host="")
        return (yield from super().reap()).runs


class KeepsLapses(SqlStore):
    def flush(self, lease: Lease, batch: Batch) -> Op[FlushOutcome]:
        writes = tuple(replace(write, progressed=False) for write in batch.writes)
        return super().flush(lease, replace(batch, writes=writes))


class ShowsNothing(SqlStore):
    def flush(self, lease: Lease, batch: Batch) -> Op[FlushOutcome]:
        writes = tuple(replace(write, sets_custom_status=False) for write in batch.writes)
        return super().flush(lease, replace(batch, writes=writes))


class ConfusesNullAndNothing(SqlStore):
    def flush(self, lease: Lease, batch: Batch) -> Op[FlushOutcome]:
        records = tuple((run_id, _without_null(record)) for run_id, record in batch.records)
        return super().flush(lease, replace(batch, records=records))


def _without_null(record: Record) -> Record:
    return replace(record, payload=None if record.payload == "null" else record.payload)


class WritesForRunsOfOthers(SqlStore):
    """Its answer is right; what it wrote is not."""

    def __init__(self, basis: Basis) -> None:
        super().__init__(basis)
        self._leases: list[Lease] = []

    def register(self, worker: WorkerId, *, lease_us: int, host: str) -> Op[Lease]:
        lease = yield from super().register(worker, lease_us=lease_us, host=host)
        self._leases.append(lease)
        return lease

    def flush(self, lease: Lease, batch: Batch) -> Op[FlushOutcome]:
        outcome = yield from super().flush(lease, batch)
        for other in self._leases:
            lost: list[RunWrite] = [write for write in batch.writes if write.id in outcome.lost]
            if other != lease and lost:
                yield from super().flush(other, Batch(writes=tuple(lost)))
        return outcome


class ForgetsPriorities(SqlStore):
    def start(
        self, runs: Sequence[NewRun], *, together: bool = True, waits: bool = True
    ) -> Op[tuple[StartOutcome, ...]]:
        return super().start([replace(run, priority=0) for run in runs], together=together, waits=waits)


class ForgetsTimeouts(SqlStore):
    def start(
        self, runs: Sequence[NewRun], *, together: bool = True, waits: bool = True
    ) -> Op[tuple[StartOutcome, ...]]:
        return super().start([replace(run, timeout=None) for run in runs], together=together, waits=waits)


class SaysThatEveryStartCreates(SqlStore):
    def start(
        self, runs: Sequence[NewRun], *, together: bool = True, waits: bool = True
    ) -> Op[tuple[StartOutcome, ...]]:
        outcomes = yield from super().start(runs, together=together, waits=waits)
        return tuple(replace(one, created=True) for one in outcomes)


class ClaimsOneTooMany(SqlStore):
    def claim(self, request: ClaimRequest) -> Op[Claim]:
        return super().claim(replace(request, limit=request.limit + 1))


class TrustsAnyCache(SqlStore):
    def claim(self, request: ClaimRequest) -> Op[Claim]:
        claim = yield from super().claim(replace(request, cached={}))
        runs = (replace(run, records=None) if run.id in request.cached else run for run in claim.runs)
        return replace(claim, runs=tuple(runs))


class BringsNoSignals(SqlStore):
    def claim(self, request: ClaimRequest) -> Op[Claim]:
        claim = yield from super().claim(request)
        return replace(claim, runs=tuple(replace(run, signals=()) for run in claim.runs))


class TerminatesNothing(SqlStore):
    def request_stop(self, run_id: RunId, kind: StopKind, failure: str) -> Op[StopOutcome | None]:
        return super().request_stop(run_id, StopKind.CANCEL, failure)


class ListsFromTheStart(SqlStore):
    def list(self, wanted: RunFilter) -> Op[tuple[StoredRun, ...]]:
        return super().list(dataclasses.replace(wanted, after=None))


class ReadsNoWaits(SqlStore):
    def get(self, run_id: RunId, *, journal: bool) -> Op[RunDetails | None]:
        details = yield from super().get(run_id, journal=journal)
        return details and dataclasses.replace(details, waiting_for=())


class SaysThatNothingWasFlushed(SqlStore):
    def flushed(self, lease: Lease, batch: Batch) -> Op[bool]:
        yield from super().flushed(lease, batch)
        return False


BROKEN = {
    ForgetsSignalIds: "the_same_signal_id_stores_nothing_the_second_time",
    FoldsKeys: "keys_are_compared_exactly",
    LooksForNoMissedSignal: "a_signal_that_is_there_already_makes_the_run_claimable",
    KeepsNoWaits: "a_signal_wakes_the_runs_that_wait_for_its_topic",
    FencesNothing: "a_worker_whose_lease_is_over_can_write_nothing",
    ReapsTooEarly: "a_lease_counts_until_its_last_microsecond",
    ReapsTooLate: "a_lease_that_is_over_is_reaped_and_its_runs_count_a_lapse",
    RetiresWithALapse: "a_worker_that_retires_hands_its_runs_back_without_a_lapse",
    KeepsLapses: "progress_sets_lapses_back_and_nothing_else_does",
    ShowsNothing: "what_a_run_shows_is_set_kept_and_cleared",
    ConfusesNullAndNothing: "no_payload_and_a_null_are_two_things",
    WritesForRunsOfOthers: "a_run_of_another_worker_is_lost_and_nothing_of_it_is_written",
    ForgetsPriorities: "smaller_priorities_come_first_then_what_was_due_first",
    ForgetsTimeouts: "a_new_run_is_pending_and_has_what_it_was_given",
    SaysThatEveryStartCreates: "an_id_that_is_taken_is_left_as_it_is",
    ClaimsOneTooMany: "a_claim_takes_no_more_than_its_limit",
    TrustsAnyCache: "a_claim_brings_the_journal_unless_the_run_is_held_in_memory_as_it_is",
    BringsNoSignals: "a_claim_brings_the_signals_that_the_run_waits_for_by_id",
    TerminatesNothing: "a_compensating_run_is_terminated_but_not_cancelled",
    ListsFromTheStart: "runs_are_listed_oldest_first_and_page_by_page",
    ReadsNoWaits: "a_parked_run_tells_what_it_waits_for_in_order",
    SaysThatNothingWasFlushed: "whether_a_flush_was_written_can_be_asked",
}


@pytest.mark.parametrize("broken, case", BROKEN.items(), ids=[kind.__name__ for kind in BROKEN])
def test_a_broken_store_fails_a_named_case(broken: type[SqlStore], case: str) -> None:
    def open_broken(clock: Clock | None) -> SqlDatabase:
        database = open_database("sqlite://", clock=clock)
        database._store = broken(make_basis("outlast", SQLite, clock))
        return database

    with pytest.raises(ContractBroken):
        _case(case).check(open_broken, "blocking")


def test_no_two_cases_share_a_name() -> None:
    names = [case.name for case in store_contract]

    assert len(set(names)) == len(names)


def _case(name: str) -> Case:
    return next(case for case in store_contract if case.name == name)
