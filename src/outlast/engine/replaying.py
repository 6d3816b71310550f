"""The journal of one run while its code runs: what is recorded, what was asked for again, and what is added.

Records with an answer that took time (a step's result, a signal, a deadline that passed) are deliveries: the execution hands
them to the code one at a time, in the order they were recorded. All others are found by name when the code asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Final, Protocol, TypeVar

from outlast.errors import JournalMismatch, OutlastError, ValueUnreadable
from outlast.model.failures import failure_of
from outlast.model.ids import RunId
from outlast.model.journal import Kind, Phase, Record
from outlast.model.origins import origin

X = TypeVar("X", bound=OutlastError)

MEND_TYPE: Final = (
    "The run is held and goes on by itself when code that can read it is deployed: restore the old type, or let the new one "
    "take what is stored too (a field with a default, a union). Or end the run with app.terminate(id)."
)
MEND_TEXT: Final = (
    "The run is held until this can be read: deploy the version of outlast that wrote it, mend what is damaged in the "
    "database, or end the run with app.terminate(id)."
)

_INLINE: Final = frozenset({Kind.COMMIT, Kind.RANDOM, Kind.UUID})


class Recorded:
    """What the journal holds under one name."""

    __slots__ = ("final", "first", "opened", "retry")

    def __init__(self, record: Record) -> None:
        self.first: Record = record
        self.opened: Record | None = None
        self.retry: Record | None = None
        self.final: Record | None = None
        self.add(record)

    def add(self, record: Record) -> None:
        match record.phase:
            case Phase.OPEN:
                self.opened = record
            case Phase.RETRY:
                self.retry = record
            case Phase.DONE | Phase.FAILED:
                self.final = record
            case Phase.UNKNOWN:
                pass  # The journal has noted it.


class Asker(Protocol):
    """What the code waits for under one name."""

    def answer(self, record: Record) -> bool:
        """Give the code the recorded answer; False when it has stopped waiting for it, and could never have got it."""
        ...


class Journal:
    """What is recorded of one run, and what is new."""

    def __init__(self, run_id: RunId, records: Sequence[Record]) -> None:
        self._run_id = run_id
        self._next_seq = len(records)
        self._new: list[Record] = []
        self._unasked: dict[str, Recorded] = {}
        self._deliveries: list[Record] = []
        """What is still to be handed to the code, the next one last."""
        self.stop: Record | None = None
        """The record of the stop, which comes after every delivery."""
        self.after_stop: list[Record] = []
        """Outcomes of steps that were in flight when the run was stopped."""
        self.compensations: dict[str, Recorded] = {}
        self.readings: dict[str, Record] = {}
        """What the code saw when it looked at the clock. Nothing depends on whether it looks."""
        self.delivered_at: int = 0
        """When what was delivered last was recorded."""
        self.asking: Callable[[], FrameType | None] = _nowhere
        """Tells which line of the application's code asks now."""
        self.trouble: OutlastError | None = None
        """Why the run cannot go on with this code. It stands, whatever the code makes of the error."""
        self._askers: dict[str, Asker | None] = {}
        for seq, record in enumerate(records):
            if record.seq != seq:
                self.note(ValueUnreadable(f"the journal of run {run_id!r}", f"entry {seq} is missing", mend=MEND_TEXT))
                break
            self._read(record)
        self._deliveries.reverse()

    def _read(self, record: Record) -> None:
        if record.kind is Kind.UNKNOWN or record.phase is Phase.UNKNOWN:
            self.unreadable(record, "this version of outlast does not know what that is")
            return
        if record.kind is Kind.STOP:
            self.stop = record
            return
        if record.kind is Kind.NOW:
            self.readings[record.name] = record
            return
        known = self.compensations if record.kind is Kind.COMPENSATION else self._unasked
        recorded = known.get(record.name)
        if recorded is None:
            known[record.name] = Recorded(record)
        else:
            recorded.add(record)
        if record.kind is Kind.COMPENSATION or not record.phase.is_final or record.kind in _INLINE:
            return
        if self.stop is None:
            self._deliveries.append(record)
        else:
            self.after_stop.append(record)

    # What is recorded.

    @property
    def shows_no_code(self) -> bool:
        """True when nothing is recorded that code must have been run for; a run may be stopped before it begins."""
        return not (self._unasked or self.readings or self.compensations or self.trouble)

    @property
    def is_behind(self) -> bool:
        """True while recorded things have not been handed to the code: nothing new can come before them."""
        return bool(self._deliveries) or self.stop is not None

    @property
    def next_unmatched(self) -> Record | None:
        """The first thing recorded that the code has not come to."""
        if self._deliveries:
            return self._deliveries[-1]
        return next((recorded.first for recorded in self._unasked.values()), self.stop)

    def is_taken(self, name: str) -> bool:
        """Whether the code has used this name before."""
        return name in self._askers

    def expect(self, name: str, asker: Asker | None) -> None:
        """The code has used this name; `asker` is told of its delivery."""
        self._askers[name] = asker

    def deliver_next(self, found: Callable[[], str | BaseException]) -> bool:
        """Hand the next recorded delivery to whoever asked for it; False when there is none.

        Raises JournalMismatch when the code, which has come to rest, did not ask for it; `found` says what it did instead.
        """
        if not self._deliveries:
            return False
        record = self._deliveries[-1]
        asker = self._askers.get(record.name)
        if asker is None or not asker.answer(record):
            raise self.mismatched(record, found())
        self._deliveries.pop()
        self.answered(record.name)
        self.delivered_at = record.recorded_at
        return True

    def answered(self, name: str) -> None:
        """Let go of who asked for this, and of the answer: a run of many steps must not keep all of their results."""
        self._askers[name] = None

    def asker(self, name: str) -> Asker | None:
        """Return who asked for this."""
        return self._askers.get(name)

    def askers(self) -> Iterator[Asker]:
        """Give all who wait."""
        return (asker for asker in self._askers.values() if asker is not None)

    def look_up(self, kind: Kind, name: str) -> Recorded | None:
        """Return what is recorded under a name that the code asks for now. Raises JournalMismatch for another kind."""
        recorded = self._unasked.pop(name, None)
        if recorded is not None and recorded.first.kind is not kind:
            raise self.mismatched(recorded.first, f"{kind} {name!r}")
        return recorded

    def look_up_reached(self, kind: Kind, name: str) -> Recorded | None:
        """The same for what is recorded the moment the code reaches it: it cannot be missing before later records."""
        recorded = self.look_up(kind, name)
        if recorded is None and self.is_behind:
            raise self.mismatched_next(f"{kind} {name!r} before it")
        return recorded

    def check_all_asked(self, found: Callable[[], str | BaseException]) -> None:
        """Raise JournalMismatch when something recorded was never asked for; `found` says what the code did instead."""
        for recorded in self._unasked.values():
            raise self.mismatched(recorded.first, found())

    def mismatched_next(self, found: str | BaseException) -> JournalMismatch:
        """Note that the code does something that cannot come before what is recorded next."""
        later = self.next_unmatched
        assert later is not None
        return self.mismatched(later, found)

    def mismatched(self, record: Record, found: str | BaseException) -> JournalMismatch:
        """Note that the code does not match a record: what it asks for instead, or what it raised."""
        recorded = f"{record.kind} {record.name!r}"
        if isinstance(found, str):
            frame = self.asking()
            place = "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
            return self.note(JournalMismatch(self._run_id, record.seq, recorded, found, place=place))
        failure = failure_of(found)
        place = str(origin(failure) or "")
        mismatch = JournalMismatch(self._run_id, record.seq, recorded, str(failure), place=place, has_raised=True)
        mismatch.__cause__ = found
        return self.note(mismatch)

    def unreadable(self, record: Record, reason: str, *, mend: str = MEND_TEXT) -> ValueUnreadable:
        """Note that a record cannot be read, and what to do about it."""
        where = f"entry {record.seq} of the journal of run {self._run_id!r}, {record.kind} {record.name!r},"
        return self.note(ValueUnreadable(where, reason, mend=mend))

    def note(self, trouble: X) -> X:
        """Note why the run cannot go on; the first reason stays."""
        if self.trouble is None:
            self.trouble = trouble
        return trouble

    # What is new.

    def add(
        self,
        kind: Kind,
        phase: Phase,
        name: str,
        *,
        at: int,
        attempt: int = 0,
        due_at: int | None = None,
        payload: str | None = None,
    ) -> Record:
        """Append a record."""
        record = Record(self._next_seq, kind, phase, name, attempt, due_at, payload, at)
        self._next_seq += 1
        self._new.append(record)
        return record

    def draft(self, kind: Kind, phase: Phase, name: str, *, at: int, attempt: int, payload: str | None) -> Record:
        """Make the record that comes next, for whoever commits it. Nothing is appended; nothing may be until it is known
        what became of it."""
        assert not self._new
        return Record(self._next_seq, kind, phase, name, attempt, None, payload, at)

    def adopt(self, record: Record) -> None:
        """A drafted record was committed: it is in the journal."""
        assert record.seq == self._next_seq
        self._next_seq += 1

    @property
    def new(self) -> tuple[Record, ...]:
        """The records added since the last time they were taken. One look, so that another thread may ask."""
        return tuple(self._new)

    def take_new(self) -> tuple[Record, ...]:
        """Return the records added since the last time."""
        new, self._new = self._new, []
        return tuple(new)


def latest(records: Iterable[Record], since: int) -> int:
    """Return the latest time that records were made at: the run has lived until then."""
    return max((record.recorded_at for record in records), default=since)


def _nowhere() -> None:
    """No code runs yet."""
