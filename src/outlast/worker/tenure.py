"""What a worker does under one lease: its turns, the starts under way, and the flusher they share.

When the lease is lost all of it is dropped at once, and a new tenure begins under a new lease. Held by
tests/e2e/test_worker_lapses.py, where a zombie comes back to runs that others have taken.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from outlast.engine.decision import Finished, Held, Parked, RunFacts
from outlast.model.failures import encode_failure
from outlast.model.ids import RunId
from outlast.model.run import Status, Stop
from outlast.ports.store import ClaimedRun, Lease, NewRun, Outcome, StartOutcome
from outlast.worker.beginning import Beginning
from outlast.worker.bodies import Body
from outlast.worker.drivable import Drivable, Unusable
from outlast.worker.flusher import Flusher, Writer
from outlast.worker.plainturn import PlainTurn
from outlast.worker.starting import Start
from outlast.worker.turn import Turn
from outlast.worker.turnover import Turnover
from outlast.worker.workplace import Workplace

logger: Final = logging.getLogger("outlast.worker")

_MANY_LAPSES: Final = 3


@dataclass(slots=True)
class _Desk:
    """One turn's place, with what the turn itself need not know."""

    turn: Turn
    workflow: str
    version: int
    turns: int
    next: ClaimedRun | None = None
    """The run was claimed again before the answer to its parking came."""


class Tenure:
    """Take runs, give each a turn, and take leave of them, under one lease."""

    def __init__(self, place: Workplace, lease: Lease, *, on_lease_lost: Callable[[Tenure], None]) -> None:
        self.lease = lease
        self.is_over: bool = False
        self.owns_strays: bool = False
        """An answer was lost: runs may be owned that have no turn. None is started here until they are handed back."""
        self.given_up: set[RunId] = set()
        """Claimed runs that found no slot, and are still to be handed back."""
        self._place = place
        self._on_lease_lost = on_lease_lost
        self._flusher = Flusher(
            place.database, lease, loop=place.loop, context=place.context, on_lease_lost=self.lose
        )  # fmt: skip
        self._desks: dict[RunId, _Desk] = {}
        self._leaving: set[RunId] = set()
        """Runs whose last write is under way: they have a desk, but execute nothing."""
        self._starts: dict[RunId, Start] = {}
        self._stops: dict[RunId, Stop] = {}
        self._claimed = Beginning(self, place, self._flusher)
        self._turnover = Turnover(place.concurrency)
        self._tasks: set[asyncio.Task[None]] = set()

    # What the worker asks.

    @property
    def free(self) -> int:
        """How many more runs may begin; less than none when runs were claimed ahead."""
        return self.slots - len(self._claimed)

    @property
    def room(self) -> int:
        """How many more runs may be claimed: also those that will be able to begin when they are here."""
        return self.free + self._turnover.ahead(time.monotonic())

    @property
    def slots(self) -> int:
        """How many slots have neither a run nor a start.

        A run that only waits for its last write takes no slot, so that the next ones can be claimed meanwhile. But as many
        again as there are slots are the most, or a slow database would be given ever more to write.
        """
        concurrency, desks = self._place.concurrency, len(self._desks)
        executing = max(desks - len(self._leaving), desks - concurrency)
        return concurrency - executing - len(self._starts)

    @property
    def is_idle(self) -> bool:
        """True when no turn and no start is under way."""
        return not (self._desks or self._starts or self._claimed)

    @property
    def held(self) -> tuple[RunId, ...]:
        """All runs that this worker knows it owns."""
        return (*self._desks, *self._starts, *self._claimed, *self.given_up)

    def can_start(self, run: NewRun) -> bool:
        """Say whether a new run could begin here at once."""
        return (
            self.free > 0
            and not (self.is_over or self.owns_strays or self._place.is_stopping or self.holds(run.id))
            and (run.workflow, run.version) in self._place.workflows
        )

    def holds(self, run_id: RunId) -> bool:
        """Say whether this run has a turn or a start under way here now."""
        return run_id in self._desks or run_id in self._starts

    def take(self, runs: Iterable[ClaimedRun]) -> None:
        """Begin the turns of claimed runs, in this order, from callbacks of the loop."""
        self._claimed.add(runs)
        # What is kept for runs that are still on their way is needed no longer than until they are here.
        expected = {*self._starts, *self._claimed}
        self._stops = {run_id: stop for run_id, stop in self._stops.items() if run_id in expected}

    def start(self, run: NewRun) -> asyncio.Future[StartOutcome | None]:
        """Create a run with the next flush and begin its turn right after."""
        start = Start(self._place, self, run, self._tasks)
        self._starts[run.id] = start
        self._flusher.start(start)
        return start.outcome

    def request_stop(self, run_id: RunId, stop: Stop) -> None:
        """Pass a stop request on to the run's turn. A plain callback of the loop.

        A run that has no turn yet is on its way here: claimed or started, and the answer has not come. The request may have
        been made after that, so nothing else would tell the turn of it.
        """
        desk = self._desks.get(run_id)
        if desk is None:
            self._stops[run_id] = stop
        else:
            desk.turn.request_stop(stop)

    def lose(self) -> None:
        """Drop everything: the lease is over and nothing can be written any more. A plain callback of the loop."""
        if self.is_over:
            return
        self.is_over = True
        logger.warning(
            "Worker %s lost its lease: it was away for longer than the lease lasts. Others go on with its %d runs; "
            "it goes on under another name.", self.lease.worker, len(self._desks),
        )  # fmt: skip
        self._drop_all()
        self._on_lease_lost(self)

    # Shutting down.

    def settle(self) -> None:
        """Have every turn notice that the worker stops."""
        self._claimed.go_on()
        for desk in list(self._desks.values()):
            desk.turn.settle()

    def cut(self) -> None:
        """Cut short the steps that still run."""
        for desk in list(self._desks.values()):
            desk.turn.cut()

    def abandon(self) -> None:
        """Give back whatever still has not ended."""
        for desk in list(self._desks.values()):
            desk.turn.abandon()

    def close(self) -> None:
        """Write nothing more and forget what is left. A plain callback of the loop."""
        if not self.is_over:
            self.is_over = True
            self._drop_all()

    def _drop_all(self) -> None:
        self._flusher.abandon()
        for desk in list(self._desks.values()):
            desk.turn.drop()
        self._desks.clear()
        self._leaving.clear()
        self._claimed.forget()
        for start in list(self._starts.values()):
            start.not_started()

    # What turns and starts report.

    def write(self, writer: Writer) -> None:
        self._flusher.write(writer)

    def leaving(self, turn: Turn) -> None:
        self._leaving.add(turn.id)
        self._turnover.left(time.monotonic())
        self._slot_freed()

    def staying(self, turn: Turn) -> None:
        self._leaving.discard(turn.id)

    def start_ended(self, run_id: RunId, *, is_stray: bool = False) -> None:
        self._starts.pop(run_id, None)
        if is_stray:
            self.owns_strays = True
            self._place.look()
        self._slot_freed()

    def begin_started(self, run: NewRun, at: int, signal_cursor: int) -> None:
        if self.is_over or self._place.is_stopping:
            return  # Retiring hands it back.
        facts = RunFacts(
            id=run.id, workflow=run.workflow, version=run.version, status=Status.RUNNING, input=run.input,
            custom_status=None, created_at=at, started_at=at,
            deadline_at=None if run.timeout is None else at + run.timeout, signal_cursor=signal_cursor,
        )  # fmt: skip
        try:
            execution = self._place.execution(facts, ())
        except Exception as error:
            execution = Unusable(error)
        self._seat(run.workflow, run.version, 1, facts, execution).begin(stop=self._stops.pop(run.id, None))

    def ended(self, turn: Turn, *, lost: bool, ready: bool) -> None:
        desk = self._desks.pop(turn.id)
        self._leaving.discard(turn.id)
        place, state = self._place, turn.state
        if not isinstance(state, Held):
            place.goes_on(turn.id)
        if isinstance(state, Parked) and not lost and desk.next is None:
            place.parked.put(turn.id, turn.execution, desk.turns)
        else:
            turn.execution.close()
        if isinstance(state, Finished) and not lost:
            error = None if state.failure is None else encode_failure(state.failure)
            place.run_ended(turn.id, Outcome(state.status, state.output, error, desk.workflow, desk.version))
        elif ready:
            place.look()
        elif isinstance(state, Parked) and state.due_at is not None:
            place.look_at(state.due_at)
        if desk.next is not None:
            self.take([desk.next])
        self._slot_freed()

    def _slot_freed(self) -> None:
        self._claimed.go_on()
        self._place.slot_freed()

    # Beginning turns.

    def begin(self, run: ClaimedRun, kept: Drivable | None) -> None:
        desk = self._desks.get(run.id)
        if desk is not None:
            # The claim overtook the answer to this run's own parking. Held by tests/unit/worker/test_tenure.py.
            desk.next = run
            return
        facts = RunFacts(
            id=run.id, workflow=run.workflow, version=run.version, status=run.status, input=run.input,
            custom_status=run.custom_status, created_at=run.created_at, started_at=run.started_at,
            deadline_at=run.deadline_at, signal_cursor=run.signal_cursor,
        )  # fmt: skip
        if run.lapses >= _MANY_LAPSES:
            logger.warning(
                "Run %r was lost %d times in a row, each time with its worker. If its code ends the process, see to that; "
                "if it is to be given up: terminate.", run.id, run.lapses,
            )  # fmt: skip
        execution = kept or self._replay(run, facts)
        turn = self._seat(run.workflow, run.version, run.turns, facts, execution)
        stop = _later(run.stop, self._stops.pop(run.id, None))
        turn.begin(signals=run.signals, topics=run.topics, read_at=run.read_at, stop=stop, lapses=run.lapses)

    def give_up(self, runs: list[ClaimedRun]) -> None:
        for run in runs:
            if run.id in self._desks:
                self.begin(run, None)
            else:
                self.given_up.add(run.id)
        self._turnover.disappointed(time.monotonic())
        self._place.look()

    def _replay(self, run: ClaimedRun, facts: RunFacts) -> Drivable:
        if run.records is None:
            return Unusable(LookupError(f"run {run.id!r} came without its journal, but is not in memory"))
        self._place.parked.drop(run.id)
        try:
            return self._place.execution(facts, run.records)
        except Exception as error:
            return Unusable(error)

    def _seat(self, workflow: str, version: int, turns: int, facts: RunFacts, execution: Drivable) -> Turn:
        if isinstance(execution, Body):
            turn: Turn = PlainTurn(
                self, self._place, facts.id, execution, status=facts.status, custom_status=facts.custom_status, turns=turns
            )  # fmt: skip
        else:
            turn = Turn(
                self, self._place, facts.id, execution, status=facts.status, custom_status=facts.custom_status, turns=turns
            )  # fmt: skip
        self._desks[facts.id] = _Desk(turn, workflow, version, turns)
        self._place.turns += 1
        return turn


def _later(one: Stop | None, other: Stop | None) -> Stop | None:
    """Return the request that counts: a terminate may have replaced a cancel."""
    if one is None or other is None:
        return one or other
    return other if other.at >= one.at else one
