"""Write a worker's batch as one statement over arrays: fence, starts, records, run writes and waits together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from sqlalchemy import TextClause

from outlast.model.ids import RunId
from outlast.model.run import TERMINAL
from outlast.ports.operation import Op, Params, Statement
from outlast.ports.store import Batch, FlushOutcome, Lease, RunWrite, Wait
from outlast.stores.arrays.starting import AT_ONCE, start_params
from outlast.stores.basis import Basis
from outlast.stores.waits import LATE_IDS
from outlast.stores.workers import lease_lost, leased

T = TypeVar("T")

# Every part depends on `fence`, so with a lease that is over none of them finds a row. The fence holds the worker's row
# against whoever would end the lease (`for update`, or its deletion) until we commit; while one of them holds it, this
# statement waits there, and then finds no row. Held by tests/race/test_fence.py.
#
# Each part goes from its array to a table by the table's key, one row after the other and in the order of the array, which
# is also the order in which rows are locked. No statistics can make a planner do it another way: `= any(array[x])` can be
# looked up in an index but not merged or hashed, and the owner is compared in a form that is no reason to read the index of
# owned runs. And `(x in (select ...)) is true` is looked up in a small hash, where a bare `in` would become a join of every
# row with every other. Held by tests/plans.
_FENCE: Final = """
with {fence} as materialized (
  select {now} as now from {workers} where id = cast(:worker as text) and epoch = cast(:lease_epoch as integer)
  for key share
)
"""

# A start may meet the run of a transaction that has not ended, and the batch holds what others wait for. Whoever ends the
# lease is waited for all the same, since only he knows what becomes of it.
_LIMITED: Final = """
fence as materialized (
  select now{limit} from held
)
"""

_STARTED: Final = """
started as (
  insert into {runs} (
    id, workflow, version, status, priority, input, owner, ready, deadline_at, stop_unseen, signal_cursor,
    turns, lapses, created_at, started_at, updated_at
  )
  select new.id, new.workflow, new.version, 'running', new.priority, new.input, cast(:worker as text), 0,
    fence.now + new.timeout, 0,
    (select coalesce(max(id), 0) from {signals}), 1, 0, fence.now, fence.now, fence.now
  from fence, unnest(
    cast(:ids as text[]), cast(:workflows as text[]), cast(:versions as integer[]), cast(:priorities as integer[]),
    cast(:inputs as text[]), cast(:timeouts as bigint[])
  ) new (id, workflow, version, priority, input, timeout)
  on conflict (id) do nothing
  returning id
)
"""

# A stop that came while the turn was on its way to here (`stop_unseen`) would otherwise be found at the due time only, or
# never. When this statement waited for the request's lock, it reads the row as the request left it.
# Held by tests/race/test_stop.py.
#
# A worker gives a link up and writes again on another one; what it had sent on the first may still arrive when the same
# worker has the run in a later turn, under the same lease. Held by tests/faults/test_late_messages.py.
_WRITTEN: Final = """
written as (
  update {runs} runs set
    status = new.status,
    owner = case when new.keep then runs.owner end,
    ready = case when {parks} and ({wakes}) then 1 else 0 end,
    due_at = case when not {parks} then null when {wakes} then fence.now else new.due_at end,
    output = case when new.ends then new.output else runs.output end,
    error = case when new.ends then new.error else runs.error end,
    custom_status = case when new.sets_custom_status then new.custom_status else runs.custom_status end,
    held = new.held,
    lapses = case when new.progressed then 0 else runs.lapses end,
    finished_at = case when new.ends then fence.now else runs.finished_at end,
    updated_at = fence.now
  from fence, unnest(
    cast(:write_ids as text[]), cast(:statuses as text[]), cast(:keeps as boolean[]), cast(:ends as boolean[]),
    cast(:dues as bigint[]), cast(:outputs as text[]), cast(:errors as text[]), cast(:sets as boolean[]),
    cast(:custom_statuses as text[]), cast(:helds as text[]), cast(:progresses as boolean[]),
    cast(:wait_counts as integer[]), cast(:write_turns as integer[])
  ) new (id, status, keep, ends, due_at, output, error, sets_custom_status, custom_status, held, progressed, waits, turns)
  where runs.id = any(array[new.id]) and coalesce(runs.owner, '') = cast(:worker as text)
    and runs.turns = coalesce(new.turns, runs.turns)
  returning runs.id, runs.ready, new.keep, new.waits
)
"""
_PARKS: Final = "(not new.keep and not new.ends)"
_WAKES: Final = "(runs.stop_unseen = 1 or new.due_at <= fence.now)"
_WAKES_OR_AWAITED: Final = "(runs.stop_unseen = 1 or new.due_at <= fence.now or new.id in (select run_id from awaited))"

# The topics are locked before this statement begins, so a signal is either seen here or its sender will see the wait.
# Held by tests/race/test_signals.py.
_AWAITED: Final = """
asked as materialized (
  select new.* from fence, unnest(
    cast(:wait_run_ids as text[]), cast(:positions as integer[]), cast(:topics as text[]), cast(:after_ids as bigint[]),
    cast(:after_ats as bigint[])
  ) new (run_id, position, topic, after_id, after_at)
  join {runs} runs on runs.id = any(array[new.run_id]) and coalesce(runs.owner, '') = cast(:worker as text)
),
awaited as materialized (
  select asked.run_id from asked
  where exists (
    select 1 from {signals} signals
    where signals.topic = asked.topic
      and signals.id > asked.after_id - case when asked.after_at is null then 0 else {late_ids} end
      and (signals.id > asked.after_id or signals.created_at > asked.after_at)
  )
)
"""

# Waits are replaced by place: those that are left over go, the others were written over. So no row is deleted and
# inserted by one statement.
_WAITED: Final = """
waited as (
  insert into {waits} (run_id, position, topic, after_id, after_at)
  select run_id, position, topic, after_id, after_at from asked where (run_id in (select id from written)) is true
  on conflict (run_id, position) do update
  set topic = excluded.topic, after_id = excluded.after_id, after_at = excluded.after_at
)
"""
_UNWAITED: Final = """
unwaited as (
  delete from {waits} waits using written
  where waits.run_id = any(array[written.id]) and waits.position >= written.waits and not written.keep
)
"""

# The records of a run that is also written wait for that: its row may have been given away by the time its lock is ours,
# and then the run is lost and none of its records may be there.
_IS_OWNED: Final = """exists (
    select 1 from {runs} runs
    where runs.id = any(array[new.run_id]) and coalesce(runs.owner, '') = cast(:worker as text)
  )"""
_IS_WRITTEN: Final = "new.run_id in (select id from written)"

_RECORDED: Final = """
recorded as (
  insert into {journal} (run_id, seq, kind, phase, name, attempt, due_at, payload, recorded_at)
  select new.run_id, new.seq, new.kind, new.phase, new.name, new.attempt, new.due_at, new.payload,
    case when new.recorded_at = 0 then fence.now else new.recorded_at end
  from fence, unnest(
    cast(:record_run_ids as text[]), cast(:seqs as integer[]), cast(:kinds as text[]), cast(:phases as text[]),
    cast(:record_names as text[]), cast(:attempts as integer[]), cast(:record_dues as bigint[]),
    cast(:payloads as text[]), cast(:record_times as bigint[]), cast(:with_writes as boolean[])
  ) new (run_id, seq, kind, phase, name, attempt, due_at, payload, recorded_at, with_write)
  where case when new.with_write then {is_written} else {is_owned} end
  on conflict (run_id, seq) do nothing
)
"""

_TOLD: Final = """
select fence.now, (select coalesce(max(id), 0) from {signals}), {started_ids}, {written_ids}, {ready_ids} from fence
"""
_NONE: Final = "cast(array[] as text[])"


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a batch holds. A part that has nothing to do would still cost its preparation, which a lone step would feel."""

    starts: bool
    records: bool
    writes: bool
    waits: bool


class FlushByArrays:
    """One statement; with waits, one transaction that locks their topics first."""

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        self._statements: dict[_Parts, TextClause] = {}

    def flush(self, lease: Lease, batch: Batch) -> Op[FlushOutcome]:
        waits = [
            (write.id, position, wait)
            for write in batch.writes
            if not write.keep and write.status not in TERMINAL
            for position, wait in enumerate(write.waits)
        ]
        statement = self._statement(_Parts(bool(batch.starts), bool(batch.records), bool(batch.writes), bool(waits)))
        params: dict[str, object] = {
            **leased(lease),
            **(start_params(batch.starts) if batch.starts else {}),
            **(_record_params(batch) if batch.records else {}),
            **(_write_params(batch.writes) if batch.writes else {}),
            **(_wait_params(waits) if waits else {}),
        }
        locks = self._basis.dialect.topic_locks(self._basis.tables, (wait.topic for _, _, wait in waits), shared=True)
        if locks is not None:
            yield locks
        written = yield Statement(statement, params, span="alone")
        if not written.rows:
            raise lease_lost(lease)
        return _outcome(batch, written.rows[0])

    def _statement(self, parts: _Parts) -> TextClause:
        found = self._statements.get(parts)
        if found is None:
            found = self._statements[parts] = self._basis.worded(
                _joined(parts),
                fence="held" if parts.starts else "fence",
                limit=AT_ONCE,
                parks=_PARKS,
                wakes=_WAKES_OR_AWAITED if parts.waits else _WAKES,
                late_ids=str(LATE_IDS),
                is_owned=_IS_OWNED,
                is_written=_IS_WRITTEN if parts.writes else "false",
                started_ids="array(select id from started)" if parts.starts else _NONE,
                written_ids="array(select id from written)" if parts.writes else _NONE,
                ready_ids="array(select id from written where ready = 1)" if parts.writes else _NONE,
            )
        return found


def _joined(parts: _Parts) -> str:
    """Put the parts together. One that names another's rows comes after it."""
    held = (
        (True, _FENCE),
        (parts.starts, _LIMITED),
        (parts.starts, _STARTED),
        (parts.waits, _AWAITED),
        (parts.writes, _WRITTEN),
        (parts.waits, _WAITED),
        (parts.writes, _UNWAITED),
        (parts.records, _RECORDED),
    )
    return ",".join(text for is_held, text in held if is_held) + _TOLD


def _outcome(batch: Batch, row: Sequence[Any]) -> FlushOutcome:
    now, cursor, started, owned, ready = row
    found = set(owned)
    lost = tuple(write.id for write in batch.writes if write.id not in found)
    return FlushOutcome(tuple(map(RunId, started)), now, cursor, lost, tuple(map(RunId, ready)))


def _record_params(batch: Batch) -> Params:
    records = batch.records
    written = {write.id for write in batch.writes}
    return {
        "record_run_ids": [run_id for run_id, _ in records],
        "seqs": [record.seq for _, record in records],
        "kinds": [record.kind.value for _, record in records],
        "phases": [record.phase.value for _, record in records],
        "record_names": [record.name for _, record in records],
        "attempts": [record.attempt for _, record in records],
        "record_dues": _filled([record.due_at for _, record in records]),
        "payloads": _filled([record.payload for _, record in records]),
        "record_times": [record.recorded_at for _, record in records],
        "with_writes": [run_id in written for run_id, _ in records],
    }


def _write_params(writes: Iterable[RunWrite]) -> Params:
    ordered = sorted(writes, key=lambda write: write.id)
    ends = [write.status in TERMINAL for write in ordered]
    return {
        "write_ids": [write.id for write in ordered],
        "statuses": [write.status.value for write in ordered],
        "keeps": [write.keep and not end for write, end in zip(ordered, ends, strict=True)],
        "ends": ends,
        "dues": _filled([write.due_at for write in ordered]),
        "outputs": _filled([write.output for write in ordered]),
        "errors": _filled([write.error for write in ordered]),
        "sets": [write.sets_custom_status for write in ordered],
        "custom_statuses": _filled([write.custom_status for write in ordered]),
        "helds": _filled([write.held for write in ordered]),
        "progresses": [write.progressed for write in ordered],
        "write_turns": _filled([write.turns for write in ordered]),
        "wait_counts": [0 if end else len(write.waits) for write, end in zip(ordered, ends, strict=True)],
    }


def _wait_params(waits: Sequence[tuple[RunId, int, Wait]]) -> Mapping[str, object]:
    return {
        "wait_run_ids": [run_id for run_id, _, _ in waits],
        "positions": [position for _, position, _ in waits],
        "topics": [wait.topic for _, _, wait in waits],
        "after_ids": [wait.after_id for _, _, wait in waits],
        "after_ats": [wait.after_at for _, _, wait in waits],
    }


def _filled(column: list[T | None]) -> list[T | None]:
    """Return a column; an empty one when nothing is in it, which `unnest` fills up. A driver looks at each element twice."""
    return [] if column.count(None) == len(column) else column
