"""Waits: for signals, for times, for whichever comes first.

A signal goes to one wait of a run. Those of one topic are taken in the order of their ids; which wait gets one is decided by
when things were recorded, never by when somebody looked.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Any, Final, TypeVar

import msgspec

from outlast.engine.conditions import Condition
from outlast.engine.eventloop import WorkflowLoop
from outlast.engine.host import Won
from outlast.engine.replaying import Journal, Recorded
from outlast.engine.runtime import RunTime
from outlast.engine.timers import LATEST, Deadlines
from outlast.errors import ValueUnreadable
from outlast.model.journal import Kind, Phase, Record
from outlast.model.signal import StoredSignal
from outlast.ports.store import Wait


class _Ended(msgspec.Struct, omit_defaults=True):
    """How a wait ended, as stored: the place of the condition that won, and the signal it took."""

    winner: int
    signal: int | None = None
    payload: str | None = None


T = TypeVar("T")

_encoder: Final = msgspec.json.Encoder()
_plan_decoder: Final = msgspec.json.Decoder(list[str | int])
_ended_decoder: Final = msgspec.json.Decoder(_Ended)


class _Topic:
    """One line of signals, and who waits for the next of them."""

    __slots__ = ("consumed", "hot", "inbox", "waiting")

    def __init__(self) -> None:
        self.inbox: deque[StoredSignal] = deque()
        self.consumed: int | None = None
        self.waiting: dict[Waiting, None] = {}
        self.hot: int | None = None
        """The signal by which this topic stands in the heap of those that have both a signal and a wait."""


class Waiting:
    """One wait. Its plan has a topic or a deadline for each of its conditions, fixed when the code first came to it."""

    __slots__ = (
        "_waits",
        "conditions",
        "deadline",
        "future",
        "is_live",
        "is_old",
        "kind",
        "name",
        "plan",
        "topics",
    )

    def __init__(
        self, waits: Waits, kind: Kind, name: str, conditions: Sequence[Condition[Any]], plan: list[str | int]
    ) -> None:
        self._waits = waits
        self.kind: Kind = kind
        self.name: str = name
        self.conditions: Sequence[Condition[Any]] = conditions
        self.plan: list[str | int] = plan
        self.deadline: int | None = min((due for due in plan if isinstance(due, int)), default=None)
        self.topics: dict[str, None] = dict.fromkeys(topic for topic in plan if isinstance(topic, str))
        self.future: asyncio.Future[Won] = waits.loop.create_future()
        self.is_live: bool = True
        self.is_old: bool = False
        """Whether the code waited already before this turn: only then may its topics' signals have been read."""

    def takes(self, signal: StoredSignal) -> bool:
        """Whether a signal was stored in time for this wait."""
        return self.deadline is None or signal.created_at <= self.deadline

    def answer(self, record: Record) -> bool:
        return self._waits.replay(self, record)

    def end(self, ended: _Ended) -> None:
        """Tell the code how the wait ended."""
        self.is_live = False
        if self.future.done():
            return
        condition = self.conditions[ended.winner]
        value: Any = None
        try:
            if condition.shape is not None:
                value = condition.shape.decode(ended.payload or "", f"payload of {condition.label}")
        except ValueUnreadable as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(Won(ended.winner, value))


class Waits:
    """The waits of one run, and the signals that it has not taken."""

    def __init__(self, journal: Journal, time: RunTime, loop: WorkflowLoop, *, cursor: int, since: int) -> None:
        self.loop = loop
        self._journal = journal
        self._time = time
        self._cursor = cursor
        self._since = since
        self._topics: dict[str, _Topic] = {}
        self._hot: list[tuple[int, int, str]] = []
        self._live: dict[Waiting, None] = {}
        self._deadlines: Deadlines[Waiting] = Deadlines()
        self._undecided: list[Waiting] = []
        self._read_until = since
        self._read_topics: Collection[str] | None = None

    # A turn begins.

    def begin_turn(
        self, signals: Iterable[StoredSignal], *, topics: Collection[str] | None, read_at: int | None
    ) -> None:
        """Take in the signals that were read from these topics, all of them if it is None, and when they were read."""
        self._read_until = read_at or 0
        for signal in sorted(signals, key=lambda signal: signal.id):
            self._time.observe(signal.created_at)
            self._read_until = max(self._read_until, signal.created_at)
            topic = self._topic(signal.topic)
            if not topic.inbox or topic.inbox[-1].id < signal.id:
                topic.inbox.append(signal)
                self._heat(signal.topic)
        if read_at is None:
            self._read_until = self._time.now()
        self._read_topics = topics
        for waiting in self._live:
            waiting.is_old = True
        undecided, self._undecided = self._undecided, []
        for waiting in undecided:
            self._await_deadline(waiting)

    # The code asks.

    def ask(self, kind: Kind, name: str, conditions: Sequence[Condition[Any]]) -> Waiting:
        """Wait for the first of these conditions."""
        recorded = self._journal.look_up_reached(kind, name)
        plan = self._new_plan(kind, name, conditions) if recorded is None else self._recorded_plan(recorded, conditions)
        waiting = Waiting(self, kind, name, conditions, plan)
        self._journal.expect(name, waiting)
        if recorded is None or recorded.final is None:
            waiting.is_old = recorded is not None
            self._live[waiting] = None
            for topic in waiting.topics:
                self._topic(topic).waiting[waiting] = None
                self._heat(topic)
            self._await_deadline(waiting)
        return waiting

    def abandon(self, waiting: Waiting) -> None:
        """Nobody waits for it any more."""
        waiting.is_live = False
        self._live.pop(waiting, None)
        for topic in waiting.topics:
            self._topic(topic).waiting.pop(waiting, None)

    # What can be answered now, by the time at which it was decided.

    @property
    def next_signal(self) -> int | None:
        """When the next signal that a wait can have was stored."""
        while self._hot:
            at, signal_id, name = self._hot[0]
            topic = self._topics[name]
            head = self._head(topic)
            if head is not None and head.id == signal_id and self._taker(topic, head) is not None:
                return at
            heappop(self._hot)
            if topic.hot == signal_id:
                topic.hot = None
        return None

    def take_next_signal(self) -> bool:
        """Give that signal to the wait that has waited longest; or an older one for which it waits as well."""
        topic = self._topics[self._hot[0][2]]
        head = self._head(topic)
        waiting = None if head is None else self._taker(topic, head)
        assert waiting is not None
        place, signal = min(self._candidates(waiting), key=lambda candidate: candidate[1].id)
        self._end(waiting, _Ended(place, signal.id, signal.payload))
        return True

    @property
    def next_due(self) -> int | None:
        """When the next deadline of a wait is that can be decided in this turn."""
        while (earliest := self._deadlines.earliest()) is not None:
            due, waiting = earliest
            if not waiting.topics or (due <= self._read_until and self._were_read(waiting)):
                return due
            self._deadlines.pop()
            self._undecided.append(waiting)
        return None

    def _were_read(self, waiting: Waiting) -> bool:
        """Whether all signals that may end the wait are known: one stored before its deadline wins over time."""
        return waiting.is_old and (self._read_topics is None or waiting.topics.keys() <= set(self._read_topics))

    def end_next_due(self) -> bool:
        """End that wait by the earliest of its timers, the first listed one if several are as early."""
        earliest = self._deadlines.earliest()
        assert earliest is not None
        due, waiting = earliest
        self._deadlines.pop()
        self._end(waiting, _Ended(waiting.plan.index(due)))
        return True

    # The turn ends.

    @property
    def has_live(self) -> bool:
        """Whether the code waits for anything here."""
        return bool(self._live)

    @property
    def next_deadline(self) -> int | None:
        """When the next deadline is, whether it can be decided in this turn or not."""
        decidable = self.next_due
        undecided = [
            waiting.deadline for waiting in self._undecided if waiting.is_live and waiting.deadline is not None
        ]
        return min(undecided if decidable is None else [*undecided, decidable], default=None)

    def listed(self) -> tuple[Wait, ...]:
        """Return the topics that the run waits for now."""
        names = dict.fromkeys(topic for waiting in self._live for topic in waiting.topics)
        return tuple(self._listed(name, self._topics[name]) for name in names)

    # Replay.

    def replay(self, waiting: Waiting, record: Record) -> bool:
        """Answer a wait from the journal; False when the code gave it up. Raises JournalMismatch when the code waits for
        something else in the place of what won."""
        if not waiting.is_live:
            return False
        ended = self._read(_ended_decoder, record)
        if ended.winner >= len(waiting.plan) or not _is_same(waiting, ended.winner):
            raise self._journal.mismatched(record, f"a wait for {_described(waiting.conditions)}")
        self._consume(waiting, ended)
        waiting.end(ended)
        return True

    # Inside.

    def _new_plan(self, kind: Kind, name: str, conditions: Sequence[Condition[Any]]) -> list[str | int]:
        now = self._time.now()
        plan = [_planned(condition, now) for condition in conditions]
        due_at = min((due for due in plan if isinstance(due, int)), default=None)
        self._journal.add(kind, Phase.OPEN, name, at=now, due_at=due_at, payload=_encoder.encode(plan).decode())
        return plan

    def _recorded_plan(self, recorded: Recorded, conditions: Sequence[Condition[Any]]) -> list[str | int]:
        plan = self._read(_plan_decoder, recorded.first)
        if recorded.final is None and [_topic_of(part) for part in plan] != [part.topic for part in conditions]:
            raise self._journal.mismatched(recorded.first, f"a wait for {_described(conditions)}")
        return plan

    def _read(self, decoder: msgspec.json.Decoder[T], record: Record) -> T:
        try:
            return decoder.decode(record.payload or "")
        except msgspec.MsgspecError as error:
            raise self._journal.unreadable(record, str(error)) from error

    def _end(self, waiting: Waiting, ended: _Ended) -> None:
        payload = _encoder.encode(ended).decode()
        self._journal.add(waiting.kind, Phase.DONE, waiting.name, at=self._time.now(), payload=payload)
        self._journal.answered(waiting.name)
        self.abandon(waiting)
        self._consume(waiting, ended)
        for topic in waiting.topics:
            self._heat(topic)
        waiting.end(ended)

    def _consume(self, waiting: Waiting, ended: _Ended) -> None:
        topic = waiting.plan[ended.winner]
        if isinstance(topic, str):
            self._topic(topic).consumed = ended.signal

    def _await_deadline(self, waiting: Waiting) -> None:
        if waiting.deadline is not None:
            self._deadlines.add(waiting.deadline, waiting)

    def _topic(self, name: str) -> _Topic:
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = _Topic()
        return topic

    def _head(self, topic: _Topic) -> StoredSignal | None:
        """Return the topic's next signal. What was taken before, or was stored before the run was, is dropped."""
        while topic.inbox:
            signal = topic.inbox[0]
            if topic.consumed is None:
                is_new = signal.id > self._cursor or signal.created_at > self._since
            else:
                is_new = signal.id > topic.consumed
            if is_new:
                return signal
            topic.inbox.popleft()
        return None

    def _taker(self, topic: _Topic, signal: StoredSignal) -> Waiting | None:
        return next((waiting for waiting in topic.waiting if waiting.takes(signal)), None)

    def _candidates(self, waiting: Waiting) -> Iterator[tuple[int, StoredSignal]]:
        for place, topic in enumerate(waiting.plan):
            head = self._head(self._topics[topic]) if isinstance(topic, str) else None
            if head is not None and waiting.takes(head):
                yield place, head

    def _heat(self, name: str) -> None:
        topic = self._topics[name]
        head = self._head(topic)
        if head is not None and topic.waiting and topic.hot != head.id:
            topic.hot = head.id
            heappush(self._hot, (head.created_at, head.id, name))

    def _listed(self, name: str, topic: _Topic) -> Wait:
        return Wait(name, self._cursor, self._since) if topic.consumed is None else Wait(name, topic.consumed)


def _planned(condition: Condition[Any], now: int) -> str | int:
    if condition.topic is not None:
        return condition.topic
    due = condition.until if condition.until is not None else now + (condition.delay or 0)
    return min(due, LATEST)


def _topic_of(part: str | int) -> str | None:
    return part if isinstance(part, str) else None


def _is_same(waiting: Waiting, place: int) -> bool:
    """Whether the code waits at this place for what is recorded there."""
    return place < len(waiting.conditions) and _topic_of(waiting.plan[place]) == waiting.conditions[place].topic


def _described(conditions: Sequence[Condition[Any]]) -> str:
    return ", ".join(condition.label for condition in conditions)
