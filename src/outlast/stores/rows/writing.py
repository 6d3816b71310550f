"""Write runs: what one flush does to each of them.

Where a statement is a round trip, many runs are written by one. They are found by their key, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import BigInteger, ColumnElement, SmallInteger, Text, Update, and_, bindparam, case, or_, update
from sqlalchemy.types import TypeEngine

from outlast.model.run import TERMINAL
from outlast.ports.operation import Op, Params, Statement
from outlast.ports.store import Lease, RunWrite
from outlast.stores.basis import Basis

_GIVEN: Final[Mapping[str, TypeEngine[Any]]] = {
    "run_id": Text(),
    "status": Text(),
    "keep": SmallInteger(),
    "ends": SmallInteger(),
    "awaited": SmallInteger(),
    "due": BigInteger(),
    "output": Text(),
    "error": Text(),
    "sets_custom_status": SmallInteger(),
    "custom_status": Text(),
    "held": Text(),
    "progressed": SmallInteger(),
}
"""What is given for each run."""

_SIZES: Final = (64, 16, 4)
"""Runs in one statement. There are few sizes, so that each is put together once; what is not needed is filled up."""

_MOST_TEXT: Final = 100_000
"""Characters in one statement of many runs: as bytes they stay within what any server takes at once."""

_NOBODY: Final[Params] = {**dict.fromkeys(_GIVEN), "run_id": "", "keep": 0, "ends": 0, "awaited": 0}
"""No run is named by the empty text."""


class Writes:
    """The statements that write runs, for one and for many."""

    def __init__(self, basis: Basis) -> None:
        runs = basis.tables.runs
        parameters = {name: bindparam(name, type_=kind) for name, kind in _GIVEN.items()}
        self._one = _write(basis, update(runs), parameters)
        self._many: list[tuple[int, Update]] = []
        for size in _SIZES:
            made = basis.dialect.update_many(runs, _GIVEN, size)
            if made is not None:
                many, new = made
                self._many.append((size, _write(basis, many, {name: new.c[name] for name in _GIVEN})))

    def apply(self, lease: Lease, writes: Sequence[RunWrite], awaited: set[str], now: int) -> Op[None]:
        """Write runs that are locked and this worker's."""
        common = {"worker": lease.worker, "at": now}
        rows = [_params(write, write.id in awaited) for write in sorted(writes, key=lambda write: write.id)]
        if not self._many:
            yield Statement(self._one, [{**row, **common} for row in rows])
            return
        for some in _in_groups(rows):
            yield self._statement(some, common)

    def _statement(self, rows: Sequence[Params], common: Params) -> Statement:
        if len(rows) == 1:
            return Statement(self._one, {**rows[0], **common})
        size, many = min((size, many) for size, many in self._many if size >= len(rows))
        filled = [*rows, *[_NOBODY] * (size - len(rows))]
        params = {f"{name}_of_{place}": row[name] for place, row in enumerate(filled) for name in _GIVEN}
        return Statement(many, {**params, **common})


def _write(basis: Basis, writing: Update, given: Mapping[str, ColumnElement[Any]]) -> Update:
    runs, now = basis.tables.runs, bindparam("at", type_=BigInteger)
    keep, ends = given["keep"] == 1, given["ends"] == 1
    due_at = given["due"]
    # A stop that came while the turn was on its way to here would otherwise be found at the due time only, or never.
    # Held by tests/race/test_stop.py.
    wakes: ColumnElement[bool] = or_(runs.c.stop_unseen == 1, due_at <= now, given["awaited"] == 1)
    parks_ready = and_(~keep, ~ends, wakes)
    return writing.where(runs.c.id == given["run_id"], runs.c.owner == bindparam("worker", type_=Text)).values(
        status=given["status"],
        owner=case((keep, runs.c.owner)),
        ready=case((parks_ready, 1), else_=0),
        due_at=case((or_(keep, ends), None), (parks_ready, now), else_=due_at),
        output=case((ends, given["output"]), else_=runs.c.output),
        error=case((ends, given["error"]), else_=runs.c.error),
        custom_status=case((given["sets_custom_status"] == 1, given["custom_status"]), else_=runs.c.custom_status),
        held=given["held"],
        lapses=case((given["progressed"] == 1, 0), else_=runs.c.lapses),
        finished_at=case((ends, now), else_=runs.c.finished_at),
        updated_at=now,
    )


def _params(write: RunWrite, awaited: bool) -> Params:
    ends = write.status in TERMINAL
    return {
        "run_id": write.id,
        "status": str(write.status),
        "keep": int(write.keep and not ends),
        "ends": int(ends),
        "awaited": int(awaited),
        "due": write.due_at,
        "output": write.output,
        "error": write.error,
        "sets_custom_status": int(write.sets_custom_status),
        "custom_status": write.custom_status,
        "held": write.held,
        "progressed": int(write.progressed),
    }


def _in_groups(rows: Sequence[Params]) -> Iterator[Sequence[Params]]:
    """Divide what is to be written into what one statement takes. A row of much text goes alone."""
    group: list[Params] = []
    room = _MOST_TEXT
    for row in rows:
        text = sum(len(value) for value in row.values() if isinstance(value, str))
        if group and (text > room or len(group) == _SIZES[0]):
            yield group
            group, room = [], _MOST_TEXT
        group.append(row)
        room -= text
    if group:
        yield group
