"""What a run records.

A journal is append-only. A `Record` is one row of it; its `seq` is both its key and the order in which replay hands
completions to the workflow's code. What people look at is an `Entry`: the records of one name, folded (`entries`).

An author's call leaves these records, by kind:

    step          [retry]* then done | failed         one row for a step that succeeds at once
    sleep, timer  open (deadline) then done           timer: one the code made through asyncio (`$timer:n`)
    wait, first   open (deadlines) then done
    commit, now, random, uuid                         done, written with whatever is written next
    stop          done (`$stop`: the reason that decides the end)
    compensation  [retry]* then done | failed         `$compensate:<step>`
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from outlast.errors import Failure
from outlast.model.times import to_datetime


class Kind(StrEnum):
    """What an entry is about."""

    STEP = "step"
    SLEEP = "sleep"
    TIMER = "timer"
    WAIT = "wait"
    FIRST = "first"
    COMMIT = "commit"
    NOW = "now"
    RANDOM = "random"
    UUID = "uuid"
    STOP = "stop"
    COMPENSATION = "compensation"
    UNKNOWN = "unknown"
    """What a newer outlast recorded, or what was damaged. Never written: the run is held until somebody knows it."""


class Phase(StrEnum):
    """How far the entry had come when the record was made."""

    OPEN = "open"
    RETRY = "retry"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The same as `Kind.UNKNOWN`."""

    @property
    def is_final(self) -> bool:
        """True when nothing more is recorded under this name."""
        return self in (Phase.DONE, Phase.FAILED)


class Record(msgspec.Struct, frozen=True, gc=False):
    """One row of a journal. `payload` is JSON text whose form belongs to the kind and phase; None means none at all,
    which is not the text `null`. A struct, since each step makes one: a frozen dataclass takes ten times as long."""

    seq: int
    kind: Kind
    phase: Phase
    name: str
    attempt: int = 0
    due_at: int | None = None
    payload: str | None = None
    recorded_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What the journal says under one name.

    attempts: how many of a step or a compensation are recorded; None for what is not attempted.
    due_at: a deadline, or the time of the next attempt.
    result: what a step returned, a signal brought, a clock or a random number gave. Of the classes that the stored text
        names, otherwise plain: what a step's code declares is not known here. None while there is none.
    failure: why an attempt failed or a run is stopped; of the last attempt, also while the next one is awaited.
    payload: the text of either as it is stored, in a form of its own for each kind.
    """

    position: int
    name: str
    kind: Kind
    phase: Phase
    attempts: int | None
    due_at: datetime | None
    result: object = None
    failure: Failure | None = None
    payload: str | None
    recorded_at: datetime


def entries(records: Iterable[Record]) -> tuple[Entry, ...]:
    """Fold records into entries, in the order of each name's first record."""
    folded: dict[str, Entry] = {}
    for record in records:
        before = folded.get(record.name)
        folded[record.name] = Entry(
            position=record.seq if before is None else before.position,
            name=record.name,
            kind=record.kind,
            phase=record.phase,
            attempts=_attempts(record, before),
            due_at=None if record.due_at is None else to_datetime(record.due_at),
            payload=record.payload,
            recorded_at=to_datetime(record.recorded_at),
        )
    return tuple(folded.values())


def _attempts(record: Record, before: Entry | None) -> int | None:
    if record.kind not in _ATTEMPTED:
        return None
    return max(record.attempt, (before.attempts if before else None) or 0)


_ATTEMPTED: Final = frozenset({Kind.STEP, Kind.COMPENSATION})
