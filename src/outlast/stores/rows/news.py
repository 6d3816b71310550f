"""Find the signals for waits where a join reads the whole history of a topic.

Each wait is told in one look whether its topic has anything newer; those that have are read by ranges of the index on
signals (topic, id), a fixed number of waits in one statement. What counts as a signal for one, `outlast.stores.waits` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    CompoundSelect,
    Integer,
    Text,
    and_,
    bindparam,
    func,
    literal_column,
    or_,
    select,
    union_all,
)

from outlast.model.signal import StoredSignal
from outlast.ports.operation import Op, Statement
from outlast.stores.basis import Basis
from outlast.stores.tables import Query
from outlast.stores.waits import LATE_IDS, PER_WAIT

_AT_ONCE: Final = 16
"""Waits whose signals one statement reads. It is planned anew each time, which takes longer with each of them."""

_NEVER: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class StoredWait:
    """A row of `waits`, and the newest signal of its topic (0: none)."""

    run_id: str
    topic: str
    after_id: int
    after_at: int | None
    newest: int

    @property
    def low(self) -> int:
        """Every signal for it has a higher id."""
        return self.after_id if self.after_at is None else self.after_id - LATE_IDS


class News:
    """What there is for the waits of some runs."""

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        self._waits = _waits(basis)
        self._signals: CompoundSelect[Any] = union_all(*(_branch(basis, place) for place in range(_AT_ONCE)))

    def waits(self, run_ids: Sequence[str]) -> Op[Sequence[StoredWait]]:
        """Read the waits of these runs."""
        found = yield Statement(self._waits, {"run_ids": self._basis.dialect.listed(run_ids)})
        return [StoredWait(*row) for row in found.rows]

    def signals(self, waits: Sequence[StoredWait]) -> Op[list[tuple[StoredWait, StoredSignal]]]:
        """Read the signals for these waits, in the order of their ids for each of them."""
        read: list[tuple[StoredWait, StoredSignal]] = []
        for some in _in_groups([wait for wait in waits if wait.newest > wait.low]):
            found = yield Statement(self._signals, _params(some))
            for row in found.rows:
                place: int = row[0]
                wait = some[place]
                read.append((wait, StoredSignal(row[1], wait.topic, row[2], row[3])))
        return read

    def awaited(self, run_ids: Sequence[str]) -> Op[set[str]]:
        """Tell which of these runs wait for a signal that is there already."""
        waits = yield from self.waits(run_ids)
        awaited = {wait.run_id for wait in waits if wait.newest > wait.after_id}
        unsure = [wait for wait in waits if wait.run_id not in awaited]
        late = yield from self.signals(unsure)
        return awaited | {wait.run_id for wait, _ in late}


def _waits(basis: Basis) -> Query:
    waits, signals = basis.tables.waits, basis.tables.signals
    # By the topic as well, which is the same for all: else MySQL sorts the topic's history, or reads every signal.
    last: Query = (
        select(signals.c.id)
        .where(signals.c.topic == waits.c.topic)
        .order_by(signals.c.topic.desc(), signals.c.id.desc())
        .limit(1)
    )
    newest = basis.dialect.by_index(last, signals, f"{basis.tables.name}_signals_topic").correlate(waits)
    found = func.coalesce(newest.scalar_subquery(), 0)
    columns = (waits.c.run_id, waits.c.topic, waits.c.after_id, waits.c.after_at, found)
    return select(*columns).where(basis.dialect.is_among(waits.c.run_id, "run_ids")).order_by(waits.c.run_id)


def _branch(basis: Basis, place: int) -> Query:
    signals = basis.tables.signals

    def given(name: str) -> Any:  # noqa: ANN401 - a parameter of this branch
        return bindparam(f"{name}_{place}", type_=Text if name == "topic" else BigInteger)

    counts = or_(signals.c.id > given("after_id"), signals.c.created_at > given("after_at"))
    chosen: Query = (
        select(literal_column(str(place), Integer), signals.c.id, signals.c.payload, signals.c.created_at)
        .where(and_(signals.c.topic == given("topic"), signals.c.id > given("low"), counts))
        .order_by(signals.c.id)
        .limit(PER_WAIT)
    )
    return basis.dialect.by_index(chosen, signals, f"{basis.tables.name}_signals_topic")


def _params(waits: Sequence[StoredWait]) -> dict[str, object]:
    params: dict[str, object] = {}
    for place in range(_AT_ONCE):
        wait = waits[place] if place < len(waits) else StoredWait("", "", _NEVER, None, 0)
        params[f"topic_{place}"] = wait.topic
        params[f"low_{place}"] = wait.low
        params[f"after_id_{place}"] = wait.after_id
        params[f"after_at_{place}"] = _NEVER if wait.after_at is None else wait.after_at
    return params


def _in_groups(waits: Sequence[StoredWait]) -> Iterator[Sequence[StoredWait]]:
    for first in range(0, len(waits), _AT_ONCE):
        yield waits[first : first + _AT_ONCE]
