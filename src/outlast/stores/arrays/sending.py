"""Send signals as one statement over arrays, after the locks on their topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Text, bindparam, select

from outlast.ports.operation import Op, Statement
from outlast.ports.store import NewSignal, SignalOutcome
from outlast.stores.basis import Basis
from outlast.stores.tables import Query

# `made` draws the ids in the callers' order. `parked` locks the runs by id before they are changed, as everyone does. A run
# that waits for two of the signals counts for the first, which found it parked. Only what was created wakes anybody.
_SEND: Final = """
with given as materialized (
  select * from unnest(
    cast(:topics as text[]), cast(:names as text[]), cast(:dedupe_ids as text[]), cast(:payloads as text[])
  ) with ordinality as g (topic, name, dedupe_id, payload, place)
),
made as (
  insert into {signals} (topic, name, dedupe_id, payload, created_at)
  select topic, name, dedupe_id, payload, {now} from given order by place
  on conflict (name, dedupe_id) do nothing
  returning id, topic, name, dedupe_id
),
waiting as materialized (
  select waits.run_id, min(made.id) as signal_id
  from made join {waits} waits on waits.topic = any(array[made.topic])
  group by waits.run_id
),
parked as materialized (
  select runs.id from {runs} runs
  where runs.id = any(array(select run_id from waiting)) and runs.owner is null and runs.ready = 0
    and runs.finished_at is null
  order by runs.id || ''
  for no key update
),
woken as (
  update {runs} runs set ready = 1, due_at = {now}, updated_at = {now}
  where runs.id = any(array(select id from parked)) and runs.owner is null and runs.ready = 0
  returning runs.id
)
select made.id, made.name, made.dedupe_id,
  (
    select count(*) from waiting
    where waiting.signal_id = made.id and (waiting.run_id in (select id from woken)) is true
  ),
  (select {notice} where exists (select 1 from woken))
from made
"""


class SendByArrays:
    """Insert what is new and wake whom it concerns; read what was sent before."""

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        signals = basis.tables.signals
        self._send = basis.worded(_SEND, notice=basis.notice("ready"))
        self._earlier: Query = select(signals.c.id, signals.c.topic).where(
            signals.c.name == bindparam("name", type_=Text), signals.c.dedupe_id == bindparam("dedupe_id", type_=Text)
        )

    def send(self, signals: Sequence[NewSignal]) -> Op[tuple[SignalOutcome, ...]]:
        locks = self._basis.dialect.topic_locks(self._basis.tables, (signal.topic for signal in signals), shared=False)
        if locks is not None:
            yield locks
        made = yield Statement(
            self._send,
            {
                "topics": [signal.topic for signal in signals],
                "names": [signal.name for signal in signals],
                "dedupe_ids": [signal.dedupe_id for signal in signals],
                "payloads": [signal.payload for signal in signals],
            },
        )
        rows = {(row[1], row[2]): row for row in made.rows}
        outcomes: list[SignalOutcome] = []
        for signal in signals:
            # A signal that occurs twice was created by its first occurrence only.
            row = rows.pop((signal.name, signal.dedupe_id), None)
            outcomes.append((yield from self._earlier_outcome(signal)) if row is None else _created(signal, row))
        return tuple(outcomes)

    def _earlier_outcome(self, signal: NewSignal) -> Op[SignalOutcome]:
        found = yield Statement(self._earlier, {"name": signal.name, "dedupe_id": signal.dedupe_id})
        signal_id, topic = found.rows[0]
        return SignalOutcome(signal_id, topic, created=False, woken=0)


def _created(signal: NewSignal, row: Sequence[Any]) -> SignalOutcome:
    return SignalOutcome(row[0], signal.topic, created=True, woken=row[3])
