"""Send signals row by row.

The unique index on (name, dedupe_id) stores each once; the one on waits (topic) finds whom to wake.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Insert, Text, Update, bindparam, select

from outlast.ports.operation import Op, Statement
from outlast.ports.store import NewSignal, SignalOutcome
from outlast.stores.basis import Basis
from outlast.stores.tables import Query, has_no_worker, has_state


class SendByRow:
    """Insert each signal unless its id was used; wake the parked runs that wait for its topic."""

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        signals = basis.tables.signals
        self._insert: Insert = basis.dialect.insert_if_absent(signals).values(
            topic=bindparam("topic", type_=Text),
            name=bindparam("name", type_=Text),
            dedupe_id=bindparam("dedupe_id", type_=Text),
            payload=bindparam("payload", type_=Text),
            created_at=basis.now,
        )
        self._stored: Query = select(signals.c.id, signals.c.topic).where(
            signals.c.name == bindparam("name", type_=Text), signals.c.dedupe_id == bindparam("dedupe_id", type_=Text)
        )
        self._wake = _wake(basis)

    def send(self, signals: Sequence[NewSignal]) -> Op[tuple[SignalOutcome, ...]]:
        locks = self._basis.dialect.topic_locks(self._basis.tables, (signal.topic for signal in signals), shared=False)
        if locks is not None:
            yield locks
        outcomes: tuple[SignalOutcome, ...] = ()
        for signal in signals:
            outcomes += ((yield from self._send_one(signal)),)
        return outcomes

    def _send_one(self, signal: NewSignal) -> Op[SignalOutcome]:
        key: dict[str, object] = {"name": signal.name, "dedupe_id": signal.dedupe_id}
        made = yield Statement(self._insert, {**key, "topic": signal.topic, "payload": signal.payload})
        stored = yield Statement(self._stored, key)
        signal_id, topic = stored.rows[0]
        if made.affected != 1:
            return SignalOutcome(signal_id, topic, created=False, woken=0)
        woken = yield Statement(self._wake, {"topic": signal.topic})
        return SignalOutcome(signal_id, topic, created=True, woken=woken.affected)


def _wake(basis: Basis) -> Update:
    runs, waits = basis.tables.runs, basis.tables.waits
    # As a join, and not by a sub-select, for which MariaDB would read all runs.
    return (
        basis.dialect.update_of_waiting(runs)
        .where(waits.c.topic == bindparam("topic", type_=Text), runs.c.id == waits.c.run_id)
        .where(has_no_worker(runs), has_state(runs, 0), runs.c.finished_at.is_(None))
        .values(ready=1, due_at=basis.now, updated_at=basis.now)
    )
