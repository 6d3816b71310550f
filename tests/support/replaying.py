"""A run without a database: journal in, decisions out.

A `Rehearsal` is what a store and a worker are to a run, kept in memory: its journal, its signals, a clock that the test
moves. A `Turn` drives one execution; the test says which step ends when, and how. Whatever the engine answers is checked
against what it owes the worker.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Callable, Sequence
from datetime import timedelta
from random import Random
from typing import Any

from outlast.engine.decision import Finished, Held, Parked, Progress, RunFacts, StepCall, Working
from outlast.engine.definition import workflow_of
from outlast.engine.execution import Execution
from outlast.errors import Failure
from outlast.model import ids
from outlast.model.durations import Duration, to_us
from outlast.model.journal import Kind, Phase, Record
from outlast.model.options import Retry
from outlast.model.run import Status, Stop, StopKind
from outlast.model.signal import Signal, StoredSignal
from outlast.ports.store import Wait

START = 1_767_225_600_000_000
"""2026-01-01T00:00Z."""


TX = "the transaction"
"""What transactional steps are given."""


class Rehearsal:
    """One run and all that is remembered of it between two turns."""

    def __init__(
        self,
        workflow: object,
        input: object = None,
        *,
        timeout: Duration | None = None,
        retry: Retry | None = None,
    ) -> None:
        self.workflow = workflow_of(workflow)
        self.input = self.workflow.input_shape.encode(input, "input")
        self.run_id = ids.RunId("run-1")
        self.deadline_at = None if timeout is None else START + to_us(timeout, what="timeout")
        self.retry = retry or Retry()
        self.journal: list[Record] = []
        self.now = START
        self.signals: list[StoredSignal] = []
        self.skew = 0
        """By how much the worker's clock is behind the database's."""
        self.stop: Stop | None = None
        self.waits: tuple[Wait, ...] = ()
        self.status = Status.RUNNING
        self.custom_status: str | None = None
        self.performed: list[str] = []
        self.entropy = Random(1)
        self.most = 10**9
        """Characters of the longest text that the database takes."""

    # What happens to it between two turns.

    def advance(self, duration: Duration) -> None:
        self.now += to_us(duration, what="duration")

    def send(
        self, signal: Signal[Any], payload: object = None, *, key: str | None = None, at: int | None = None
    ) -> None:
        text = signal.shape.encode(payload, "payload")
        created_at = self.now if at is None else at
        self.signals.append(StoredSignal(len(self.signals) + 1, ids.topic(signal.name, key), text, created_at))

    def ask_stop(self, kind: StopKind = StopKind.CANCEL, message: str = "Cancelled.") -> Stop:
        self.stop = Stop(kind, Failure(type=f"stop.{kind}", message=message), self.now)
        return self.stop

    def replaced(self, workflow: object) -> Rehearsal:
        """The same run after other code was deployed."""
        other = self.cut(len(self.journal))
        other.workflow = workflow_of(workflow)
        return other

    def cut(self, length: int) -> Rehearsal:
        """The same run if its worker had died when only so much of its journal was durable."""
        other = copy.copy(self)
        other.journal = self.journal[:length]
        other.signals = list(self.signals)
        other.performed, other.waits = [], ()
        other.status = (
            Status.COMPENSATING if any(r.kind is Kind.COMPENSATION for r in other.journal) else Status.RUNNING
        )
        return other

    # Turns.

    @property
    def facts(self) -> RunFacts:
        return RunFacts(
            id=self.run_id,
            workflow=self.workflow.name,
            version=self.workflow.version,
            status=self.status,
            input=self.input,
            custom_status=self.custom_status,
            created_at=START,
            started_at=START,
            deadline_at=self.deadline_at,
            signal_cursor=0,
        )

    def execution(self) -> Execution:
        return Execution(
            self.workflow,
            self.facts,
            self.journal,
            now=lambda: self.now,
            entropy=self.entropy,
            default_retry=self.retry,
            too_big=lambda text: f"at most {self.most}" if len(text) > self.most else None,
        )

    def begin(self, *, kept: Execution | None = None, lapses: int = 0) -> Turn:
        """Begin a turn and go on until steps are in flight, or it is over; with `kept`, on the execution in memory."""
        execution = kept or self.execution()
        topics = {wait.topic for wait in self.waits}
        execution.resume(signals=self.read(self.waits), topics=topics, stop=self.stop, lapses=lapses)
        turn = Turn(self, execution)
        turn.run()
        return turn

    def turn(self, *, kept: Execution | None = None, lapses: int = 0) -> Turn:
        """Make a whole turn, performing its steps as they were asked for."""
        turn = self.begin(kept=kept, lapses=lapses)
        while isinstance(turn.state, Working):
            turn.perform(next(iter(turn.in_flight)))
        return turn

    def end(self, *, keep: bool = False) -> Finished | Held:
        """Make turns, moving the clock to the next deadline, until the run has ended or is held."""
        turn = self.turn()
        while isinstance(turn.state, Parked):
            if not self.is_due(turn.state):
                self.now = self.next_time(turn.state)
            if not keep:
                turn.execution.close()
            turn = self.turn(kept=turn.execution if keep else None)
        assert isinstance(turn.state, Finished | Held)
        return turn.state

    def is_due(self, parked: Parked) -> bool:
        return bool(self.read(parked.waits)) or (parked.due_at is not None and parked.due_at <= self.now)

    def next_time(self, parked: Parked) -> int:
        """When something happens to the parked run."""
        times = [signal.created_at for signal in self.signals for wait in parked.waits if _is_for(signal, wait)]
        if parked.due_at is not None:
            times.append(parked.due_at)
        assert times, f"it waits for ever: {parked}"
        return min(times)

    def read(self, waits: Sequence[Wait]) -> list[StoredSignal]:
        """The signals stored until now that may end one of these waits."""
        stored = [signal for signal in self.signals if signal.created_at <= self.now + self.skew]
        return [signal for signal in stored if any(_is_for(signal, wait) for wait in waits)]

    # What is recorded.

    @property
    def names(self) -> list[str]:
        """The names of the records, in order."""
        return [record.name for record in self.journal]

    @property
    def log(self) -> list[str]:
        """The records, told briefly."""
        return [f"{record.name} {record.phase}" for record in self.journal]

    def record(self, name: str, phase: Phase | None = None) -> Record:
        (found,) = [r for r in self.journal if r.name == name and phase in (None, r.phase)]
        return found


class Turn:
    """One turn of one execution."""

    def __init__(self, rehearsal: Rehearsal, execution: Execution) -> None:
        self.rehearsal = rehearsal
        self.execution = execution
        self.in_flight: dict[str, StepCall] = {}
        self.progress: Progress
        self.settled: Record

    @property
    def state(self) -> Working | Parked | Finished | Held:
        return self.progress.state

    @property
    def calls(self) -> list[str]:
        """The names of the calls that are in flight."""
        return list(self.in_flight)

    def run(self) -> Progress:
        """Let the execution go on, and check what it answers."""
        self.progress = progress = self.execution.run()
        run = self.rehearsal
        _check(progress, run.journal, self.in_flight)
        run.journal += progress.records
        self.in_flight |= {call.name: call for call in progress.calls}
        run.status, run.custom_status = progress.status, progress.custom_status
        if isinstance(progress.state, Parked):
            run.waits = progress.state.waits
        return progress

    def perform(self, name: str) -> Progress:
        """Perform an attempt for real, and report how it ended."""
        call = self.in_flight[name]
        self.rehearsal.performed.append(name)
        try:
            value = performed(call)
        except BaseException as error:  # noqa: BLE001
            return self.raises(name, error)
        return self.commits(name, value) if call.is_transactional else self.returns(name, value)

    def returns(self, name: str, value: object = None) -> Progress:
        """Report that an attempt returned."""
        self.execution.step_returned(self.in_flight.pop(name), value)
        return self.run()

    def commits(self, name: str, value: object = None) -> Progress:
        """Report that a transactional attempt returned, and that its transaction was committed."""
        self.settles(name, value)
        return self.was_committed(name)

    def settles(self, name: str, value: object = None) -> Record:
        """Ask for the record of a transactional attempt that has returned."""
        self.settled = self.execution.step_settled(self.in_flight[name], value)
        return self.settled

    def was_committed(self, name: str) -> Progress:
        """The record that was asked for is in the journal."""
        self.rehearsal.journal.append(self.settled)
        self.execution.step_recorded(self.in_flight.pop(name))
        return self.run()

    def raises(self, name: str, error: BaseException) -> Progress:
        """Report that an attempt raised."""
        self.execution.step_raised(self.in_flight.pop(name), error)
        return self.run()

    def gives_back(self, name: str) -> None:
        """Report that a shutdown cut an attempt short."""
        self.execution.step_given_back(self.in_flight.pop(name))

    def finished(self) -> Finished:
        assert isinstance(self.state, Finished), self.state
        return self.state

    def parked(self) -> Parked:
        assert isinstance(self.state, Parked), self.state
        return self.state

    def held(self) -> Held:
        assert isinstance(self.state, Held), self.state
        return self.state


def performed(call: StepCall) -> Any:
    """Make an attempt: in a loop of its own, as a worker does on the application's."""

    async def awaited() -> Any:
        value = call.invoke(TX) if call.is_transactional else call.invoke()
        return await value if inspect.isawaitable(value) else value

    return asyncio.run(awaited())


def outcome(workflow: object, input: object = None) -> Finished | Held:
    """Run a workflow to its end and return how it ended."""
    return Rehearsal(workflow, input).end()


def ended(workflow: object, input: object = None) -> Any:
    """Run a workflow to its end and return its output, which is checked to be the same after a crash anywhere."""
    run = Rehearsal(workflow, input)
    state = run.end()
    assert isinstance(state, Finished)
    assert state.output is not None, state
    for_every_crash(run, lambda again: again.end() == state)
    return run.workflow.output_shape.decode(state.output, "output")


def for_every_crash(run: Rehearsal, holds: Callable[[Rehearsal], bool], *, after: str | None = None) -> None:
    """Check something of the run as it would be after a crash at every point of its journal, at first `after` this one."""
    first = 0 if after is None else run.log.index(after) + 1
    for length in range(first, len(run.journal) + 1):
        again = run.cut(length)
        again.now = again.journal[-1].recorded_at if again.journal else START
        assert holds(again), f"after a crash with {length} records: {run.log[:length]}"


def microseconds(duration: Duration | timedelta) -> int:
    return to_us(duration, what="duration", allow_negative=True)


def _is_for(signal: StoredSignal, wait: Wait) -> bool:
    is_new = signal.id > wait.after_id or (wait.after_at is not None and signal.created_at > wait.after_at)
    return signal.topic == wait.topic and is_new


def _check(progress: Progress, journal: Sequence[Record], in_flight: dict[str, StepCall]) -> None:
    """Hold the engine to what the worker builds on."""
    state = progress.state
    everything = [*journal, *progress.records]
    assert [record.seq for record in everything] == list(range(len(everything)))
    final = [record.name for record in everything if record.phase.is_final]
    assert len(final) == len(set(final)), "two outcomes under one name"
    calls = [call.name for call in progress.calls]
    assert not set(calls) & set(final), "a call for what is recorded"
    assert not set(calls) & set(in_flight), "a call for what is in flight"
    if isinstance(state, Held):
        assert not progress.records
        assert not progress.calls
    if isinstance(state, Parked | Finished | Held):
        assert not progress.calls
        assert not in_flight
    else:
        assert calls or in_flight
