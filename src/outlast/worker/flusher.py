"""Group commit: one flush in flight, and what gathers meanwhile forms the next.

Nothing waits for company and there is no timer: a lone writer is taken at once. Writers are asked what they have to write
when a batch is formed, not when they ask for a place in it, so that all they have by then goes along.

A caller may have a transaction open in which it cancelled one of the runs, started one by the same id, or sent a signal that
many are about to wait for. Whoever waits for that is set aside and tried again beside the others, who go on; starts are left
to whoever asked for them, where they wait in nobody's way (`client.grouping`).
Held by tests/faults/test_callers_transactions.py.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from outlast.errors import DatabaseBusy, DatabaseUnavailable, LeaseLost
from outlast.model.ids import RunId
from outlast.model.journal import Record
from outlast.ports.database import Database, HeldUp
from outlast.ports.store import Batch, FlushOutcome, Lease, NewRun, RunWrite

logger: Final = logging.getLogger("outlast.worker")

_MOST: Final = 500
"""Writers in one batch: it bounds how long the others wait behind it."""

_BESIDE: Final = 4
"""Batches of those set aside that are tried at once: each waits for locks, and has a connection meanwhile."""

_PATIENCE: Final = 5.0
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0


@dataclass(frozen=True, slots=True)
class Staged:
    """What one writer writes for its run in one batch."""

    id: RunId
    records: tuple[Record, ...]
    write: RunWrite | None


class Writer(Protocol):
    """Someone with something to write for one run. All of it is called from plain callbacks of the loop."""

    def take(self) -> Staged:
        """Hand over what is to be written now. Called once for each `Flusher.write`."""
        ...

    def written(self, lost: bool, ready: bool) -> None:
        """It is durable; or, when `lost`, the run is not this worker's any more and nothing of it was written. `ready`:
        the parked run can be claimed at once."""
        ...

    def refused(self, error: Exception) -> None:
        """It was not written and never will be."""
        ...


class Starter(Protocol):
    """Someone who starts a run that is leased to this worker from the first moment."""

    run: NewRun

    def started(self, at: int, signal_cursor: int) -> None:
        """The run was created at this time and is this worker's."""
        ...

    def not_started(self) -> None:
        """The run was not created here: its id is taken, or it could not be written."""
        ...

    def held_up(self) -> None:
        """It was not written: another transaction may have its id."""
        ...

    def unsure(self) -> None:
        """The run is durable and this worker's, but what else was answered is lost: hand it back to be claimed."""
        ...

    def unanswered(self, why: DatabaseUnavailable) -> None:
        """The database does not answer; it goes on being asked."""
        ...


@dataclass(slots=True)
class _Group:
    """One batch and who is in it."""

    starters: list[Starter]
    writers: list[tuple[Writer, Staged]]
    is_repeated: bool = False
    """An answer was lost, so this was sent more than once, and any of the tries may be the one that was written."""
    is_held_up: bool = False
    """Others had a lock that all of it needs."""

    @property
    def name(self) -> RunId:
        return self.starters[0].run.id if self.starters else self.writers[0][1].id

    def batch(self) -> Batch:
        return Batch(
            starts=tuple([starter.run for starter in self.starters]),
            records=tuple([(staged.id, record) for _, staged in self.writers for record in staged.records]),
            writes=tuple([staged.write for _, staged in self.writers if staged.write is not None]),
        )

    def __len__(self) -> int:
        return len(self.starters) + len(self.writers)

    @property
    def topics(self) -> frozenset[str]:
        """What the first writer's run is about to wait for: all others' too, when it was set aside."""
        return _topics(self.writers[0][1]) if self.writers else frozenset()

    def suspects(self) -> list[_Group]:
        """Return the parts that may each be held up by one lock, or this group alone when it is one of them."""
        parking: dict[frozenset[str], _Group] = {}
        for one in self.writers:
            parking.setdefault(_topics(one[1]), _Group([], [], self.is_repeated)).writers.append(one)
        starting = [_Group(self.starters, [], self.is_repeated)] if self.starters else []
        parts = [*starting, *parking.values()]
        return parts if len(parts) > 1 else [self] if self.topics or len(self) == 1 else self.singly()

    def singly(self) -> list[_Group]:
        return [_Group([one], [], self.is_repeated) for one in self.starters] + [
            _Group([], [one], self.is_repeated) for one in self.writers
        ]


class Flusher:
    """Write for all turns under one lease, on one loop.

    Reports nothing that is not durable. While the database is away it keeps trying: only the database can tell whether
    the lease is over. Then `on_lease_lost` is called once, and whoever waits hears nothing more from here.
    """

    def __init__(
        self,
        database: Database,
        lease: Lease,
        *,
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context,
        on_lease_lost: Callable[[], None],
    ) -> None:
        self._database = database
        self._lease = lease
        self._loop = loop
        self._context = context
        self._on_lease_lost = on_lease_lost
        self._writers: deque[Writer] = deque()
        self._starters: deque[Starter] = deque()
        self._aside: deque[_Group] = deque()
        self._task: asyncio.Task[None] | None = None
        self._beside: set[asyncio.Task[None]] = set()
        self._tried: list[_Group] = []
        """Those set aside that are being tried just now."""
        self._is_closed = False
        self._is_held = False
        self._pid = os.getpid()

    def write(self, writer: Writer) -> None:
        """Give a writer a place in the next batch. It MUST have at most one at a time."""
        self._writers.append(writer)
        self._begin()

    def start(self, starter: Starter) -> None:
        """Give a start a place in the next batch."""
        self._starters.append(starter)
        self._begin()

    def hold(self) -> None:
        """Form no new batch until `release`: more writers come at once."""
        self._is_held = True

    def release(self) -> None:
        """Go on after `hold`."""
        self._is_held = False
        if self._writers or self._starters:
            self._begin()

    def abandon(self) -> None:
        """Take no more and write no more; whoever waits is neither told that it was written nor that it was not."""
        self._is_closed = True
        self._writers.clear()
        self._starters.clear()
        self._aside.clear()
        for task in (self._task, *self._beside):
            if task is not None:
                task.cancel()

    def _begin(self) -> None:
        if self._task is None and not self._is_closed and not self._is_held:
            # The task starts in the next pass of the loop: whoever else is ready in this one comes along.
            self._task = self._loop.create_task(self._flush_all(), name="outlast-flush", context=self._context)

    async def _flush_all(self) -> None:
        try:
            while (self._writers or self._starters) and not self._is_held and os.getpid() == self._pid:
                group = self._next()
                if group:
                    await self._flush(group)
        except LeaseLost:
            self._lose()
        finally:
            self._task = None

    def _set_aside(self, group: _Group) -> None:
        self._aside.append(group)
        if len(self._beside) < _BESIDE and not self._is_closed:
            task = self._loop.create_task(self._flush_aside(), name="outlast-flush-aside", context=self._context)
            self._beside.add(task)

    async def _flush_aside(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            while self._aside and os.getpid() == self._pid:
                if self._aside[0].is_held_up:
                    await asyncio.sleep(_FIRST_PAUSE)
                if self._aside:
                    await self._try(self._aside.popleft())
        except LeaseLost:
            self._lose()
        finally:
            self._beside.discard(
                task
            )  # Here, so that whoever is set aside in this pass of the loop gets a task of its own.

    async def _try(self, group: _Group) -> None:
        self._tried.append(group)
        try:
            await self._flush(group)
        finally:
            self._tried.remove(group)

    def _follow(self, one: tuple[Writer, Staged]) -> bool:
        """Have a writer wait with those set aside that are about to wait for the same; say whether there are any."""
        topics = _topics(one[1])
        if not topics:
            return False
        for group in self._aside:
            if group.topics == topics and len(group) < _MOST:
                group.writers.append(one)
                return True
        if any(group.topics == topics for group in self._tried):
            self._set_aside(_Group([], [one], is_held_up=True))
            return True
        return False

    def _lose(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._loop.call_soon(self._on_lease_lost, context=self._context)

    def _next(self) -> _Group:
        starters = [self._starters.popleft() for _ in range(min(len(self._starters), _MOST))]
        group = _Group(starters, [])
        for _ in range(min(len(self._writers), _MOST - len(starters))):
            writer = self._writers.popleft()
            try:
                one = writer, writer.take()
                if not (self._beside and self._follow(one)):
                    group.writers.append(one)
            except Exception as error:
                self._loop.call_soon(_tell, writer.refused, error, context=self._context)
        return group

    async def _flush(self, group: _Group) -> None:
        try:
            outcome = await self._send(group)
        except LeaseLost:
            raise
        except DatabaseBusy as error:
            parts = group.suspects()
            if group.starters and isinstance(error, HeldUp) and not group.is_repeated:
                self._loop.call_soon(_leave, group.starters, context=self._context)
                parts = [part for part in parts if not part.starters]
            elif len(parts) == 1:
                self._tell_starters(group, error)
                parts[0].is_held_up = True
            for part in parts:
                self._set_aside(part)
        except Exception as error:
            if len(group) > 1:
                # One item that the database refuses must not strand the others.
                for one in group.singly():
                    await self._flush(one)
                return
            logger.exception("The database refused to record run %r.", group.name)
            self._loop.call_soon(_refuse, group, error, context=self._context)
        else:
            self._loop.call_soon(_deliver, group, outcome, context=self._context)

    async def _send(self, group: _Group) -> FlushOutcome | None:
        """Write a group once; None when it is known to be written but its outcome is lost."""
        store, lease, batch = self._database.store, self._lease, group.batch()
        pause = 0.0
        while True:
            try:
                return await self._database.run(lambda: store.flush(lease, batch), repeatable=False, patience=_PATIENCE)
            except DatabaseBusy:
                raise
            except DatabaseUnavailable as error:
                if not pause:
                    logger.warning(
                        "The database does not answer; trying on until it does or the lease is over: %s", error
                    )
                self._tell_starters(group, error)
            group.is_repeated = True
            if await self._was_written(group, batch):
                return None
            pause = min(max(pause * 2, _FIRST_PAUSE), _LONGEST_PAUSE)
            await asyncio.sleep(pause)

    async def _was_written(self, group: _Group, batch: Batch) -> bool:
        """Ask until there is an answer: writing again without one might write over what others did since.

        Held by tests/e2e/test_worker_outages.py, which fails every write before its COMMIT and after it.
        """
        store, lease = self._database.store, self._lease
        while True:
            try:
                return await self._database.run(lambda: store.flushed(lease, batch), patience=_PATIENCE)
            except DatabaseUnavailable as error:
                self._tell_starters(group, error)
                await asyncio.sleep(_LONGEST_PAUSE)

    def _tell_starters(self, group: _Group, why: DatabaseUnavailable) -> None:
        for starter in (*group.starters, *self._starters):
            _tell(starter.unanswered, why)


def _topics(staged: Staged) -> frozenset[str]:
    waits = () if staged.write is None else staged.write.waits
    return frozenset([wait.topic for wait in waits]) if waits else frozenset()


def _deliver(group: _Group, outcome: FlushOutcome | None) -> None:
    if outcome is None:
        for starter in group.starters:
            _tell(starter.unsure)
        for writer, _ in group.writers:
            # Whether it can be claimed at once is among what was lost: have somebody look.
            _tell(writer.written, False, True)
        return
    started, lost, ready = frozenset(outcome.started), frozenset(outcome.lost), frozenset(outcome.ready)
    for starter in group.starters:
        if starter.run.id in started:
            _tell(starter.started, outcome.started_at, outcome.signal_cursor)
        elif group.is_repeated:
            # Its id is taken: by somebody else, or by an earlier try that arrived after we had asked for it. Then the run is
            # this worker's, and nobody else's, for ever. Held by tests/faults/test_late_messages.py.
            _tell(starter.unsure)
        else:
            _tell(starter.not_started)
    for writer, staged in group.writers:
        _tell(writer.written, staged.id in lost, staged.id in ready)


def _leave(starters: Sequence[Starter]) -> None:
    for starter in starters:
        _tell(starter.held_up)


def _refuse(group: _Group, error: Exception) -> None:
    for starter in group.starters:
        _tell(starter.not_started)
    for writer, _ in group.writers:
        _tell(writer.refused, error)


def _tell(hear: Callable[..., None], *facts: object) -> None:
    """Let one hear; its failure is not the others'."""
    try:
        hear(*facts)
    except Exception:
        logger.exception("Going on after a flush failed.")
