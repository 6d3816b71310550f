"""Take due runs as one statement, with the fence, the wake-up and what the runs wait for in it."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from outlast.model.signal import StoredSignal
from outlast.ports.operation import Op, Statement
from outlast.ports.store import Claim, ClaimRequest
from outlast.stores.basis import Basis
from outlast.stores.claiming import (
    CLAIMED_COLUMNS,
    KNOWN,
    NOTHING_READ,
    Read,
    claimed,
    pairs_of,
    read_records,
)
from outlast.stores.journal import Journal
from outlast.stores.runs import MOST_COUNTED
from outlast.stores.waits import LATE_IDS, PER_WAIT
from outlast.stores.workers import lease_lost, leased

# Of two sources: `ready` runs, by the partial index in its order, and parked runs that are `due`, the earliest ones. The
# best of both are `picked` and `taken`. What is due and left stays where it is, unlike in a claim by rows, which makes it
# ready. But whoever looked just now has passed it by, since it was locked here, and is told.
#
# Everything that this reads is as old as its beginning, but a row that was changed since then is locked, and returned, as
# it is now. Who had such a run in a turn meanwhile has counted the turn: then it is not taken, since its waits would be
# those of before. The same row's old and new `turns` are compared by the update, which looks the run up anyway.
# Held by tests/race/test_claim.py.
#
# The conditions `(select now from fence)` are looked at once; without a lease nothing is read.
_CLAIM: Final = """
with fence as materialized (
  select {now} as now from {workers} where id = cast(:worker as text) and epoch = cast(:lease_epoch as integer)
  for key share
),
ready as materialized (
  select runs.id, runs.priority, runs.due_at, runs.turns from {runs} runs
  where runs.ready = 1 and (select now from fence) is not null and {is_ours}
  order by runs.priority, runs.due_at, runs.id
  limit cast(:limit as integer)
  for no key update skip locked
),
due as materialized (
  select runs.id, runs.priority, runs.due_at, runs.turns from {runs} runs
  where runs.ready = 0 and runs.due_at <= (select now from fence) and runs.owner is null and {is_ours}
  order by runs.due_at
  limit greatest(cast(:limit as integer), {least})
  for no key update skip locked
),
picked as materialized (
  select id, priority, due_at, turns from (
    select id, priority, due_at, turns from ready union all select id, priority, due_at, turns from due
  ) found
  order by priority, due_at, id
  limit cast(:limit as integer)
),
taken as (
  update {runs} runs set
    owner = cast(:worker as text),
    status = case when runs.status = 'compensating' then 'compensating' else 'running' end,
    ready = 0,
    due_at = null,
    stop_unseen = 0,
    turns = case when runs.turns between 0 and {most_turns} then runs.turns else 1 end + 1,
    started_at = coalesce(runs.started_at, fence.now),
    updated_at = fence.now
  from fence, picked
  where runs.id = any(array[picked.id]) and runs.turns = picked.turns and runs.owner is null
  returning {columns}, picked.priority as place, coalesce(picked.due_at, 0) as was_due_at
)
select fence.now,
  (select min(runs.due_at) from {runs} runs where runs.ready = 0 and runs.due_at > (select now from fence)),
  (select {notice} where exists (select 1 from due where (due.id in (select id from picked)) is not true)),
  taken.*,
  case when taken.turns > 0 then (
    select cast(json_agg(json_build_array(waits.topic, signals.id, signals.payload, signals.created_at)) as text)
    from {waits} waits left join {signals} signals
      on signals.topic = waits.topic
      and signals.id > waits.after_id - case when waits.after_at is null then 0 else {late_ids} end
      and (signals.id > waits.after_id or signals.created_at > waits.after_at)
      and signals.id <= coalesce((
        select later.id from {signals} later where later.topic = waits.topic and later.id > waits.after_id
        order by later.id limit 1 offset {per_wait} - 1
      ), 9223372036854775807)
    where waits.run_id = taken.id
  ) end
from fence left join taken on true
"""
_OURS: Final = "((runs.workflow || '@' || runs.version) = any(cast(:workflows as text[])) and runs.status in ({known}))"

_LEAST: Final = 200
"""How many of the earliest parked runs that are due are looked at, so that the most urgent of them is taken first."""

_Waited: TypeAlias = tuple[str, int | None, str | None, int | None]
_waits = msgspec.json.Decoder(list[_Waited])
_RUN: Final = slice(3, 3 + len(CLAIMED_COLUMNS))
_PLACE, _DUE, _WAITS = range(_RUN.stop, _RUN.stop + 3)


class ClaimByArrays:
    """One statement; one more for the journals of runs that the worker does not remember."""

    def __init__(self, basis: Basis, journal: Journal) -> None:
        self._journal = journal
        columns = ["runs.turns - 1 as turns" if name == "turns" else f"runs.{name}" for name in CLAIMED_COLUMNS]
        self._claim = basis.worded(
            _CLAIM.replace("{is_ours}", _OURS),
            known=", ".join(f"'{status}'" for status in KNOWN),
            columns=", ".join(columns),
            least=str(_LEAST),
            most_turns=str(MOST_COUNTED),
            late_ids=str(LATE_IDS),
            per_wait=str(PER_WAIT),
            notice=basis.notice("ready"),
        )

    def claim(self, request: ClaimRequest) -> Op[Claim]:
        params = {**leased(request.lease), "workflows": pairs_of(request.workflows), "limit": request.limit}
        # In a transaction, though it is one statement: when its answer is lost and it arrives late, nobody commits it.
        # Held by tests/faults/test_late_messages.py.
        answered = yield Statement(self._claim, params)
        if not answered.rows:
            raise lease_lost(request.lease)
        now, next_due = answered.rows[0][:2]
        found = sorted(
            (row for row in answered.rows if row[3] is not None), key=lambda row: (row[_PLACE], row[_DUE], row[3])
        )
        rows = [row[_RUN] for row in found]
        records = yield from read_records(self._journal, rows, request)
        read = [_read(row[_WAITS]) for row in found]
        return Claim(
            tuple([claimed(row, now, records, each) for row, each in zip(rows, read, strict=True)]), now, next_due
        )


def _read(waits: str | None) -> Read:
    if waits is None:
        return NOTHING_READ
    topics: set[str] = set()
    # Two waits of one run may name one topic.
    signals: dict[int, StoredSignal] = {}
    for topic, signal_id, payload, created_at in _waits.decode(waits):
        topics.add(topic)
        if signal_id is not None and payload is not None and created_at is not None:
            signals[signal_id] = StoredSignal(signal_id, topic, payload, created_at)
    return frozenset(topics), tuple([one for _, one in sorted(signals.items())])
