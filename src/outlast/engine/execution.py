"""One run, driven by its journal: what is recorded is replayed, what is new is decided and recorded.

A turn calls `resume` once, then `run` whenever something has happened. `run` goes through these stages, as far as it can:

    replay      recorded deliveries are handed to the code one at a time; the code comes to rest after each
    frontier    everything recorded has been delivered and asked for; only from here on anything new is done
    deliveries  what has happened since, by the time at which it happened, again one at a time
    ending      the code has returned, raised or been stopped: steps in flight finish, completed ones are undone
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from types import FrameType
from typing import Any, Final

from outlast.engine.code import AskedStep, Code
from outlast.engine.decision import Entropy, Held, Parked, Progress, RunFacts, State, StepCall, Working
from outlast.engine.definition import Workflow
from outlast.engine.ending import Ending
from outlast.engine.performing import TooBig, any_size
from outlast.engine.replaying import Journal, latest
from outlast.engine.runtime import RunTime
from outlast.engine.stops import timed_out
from outlast.errors import DefinitionError, JournalMismatch, OutlastError, ValueUnreadable
from outlast.model.failures import failure_of
from outlast.model.journal import Record
from outlast.model.options import Retry
from outlast.model.run import Status, Stop, StopKind
from outlast.model.signal import StoredSignal

_WORKING: Final = Working(None)


class Execution:
    """A run in memory. It may be kept while the run is parked, as long as nobody else takes it up."""

    def __init__(
        self,
        workflow: Workflow[Any, Any],
        facts: RunFacts,
        records: Sequence[Record],
        *,
        now: Callable[[], int],
        entropy: Entropy,
        default_retry: Retry,
        too_big: TooBig = any_size,
    ) -> None:
        """`too_big` is asked of each result, before it is recorded."""
        self._facts = facts
        self._journal = Journal(facts.id, records)
        since = latest(records, facts.started_at)
        self._time = RunTime(now, self._journal, started_at=facts.started_at, since=since)
        self._code = Code(workflow, facts, self._journal, self._time, entropy=entropy, default_retry=default_retry)
        self._ending = Ending(workflow, facts, self._code, self._journal, self._time)
        self._performing = self._code.performing
        self._performing.too_big = too_big
        self._requested: Stop | None = None
        self._is_replaying = True
        self._goes_on = False
        """Whether the code was still to ask for something when `run` answered last."""
        self._lapses = 0

    # What the worker tells it.

    def resume(
        self,
        *,
        signals: Sequence[StoredSignal] = (),
        topics: Collection[str] | None = None,
        read_at: int | None = None,
        stop: Stop | None = None,
        lapses: int = 0,
    ) -> None:
        """Begin a turn, also on an execution kept in memory since the run was parked.

        `signals` are those that were read, at `read_at`, from the lines named by `topics`. A wait for signals ends by its
        deadline only when all of its lines were read after it. Without `topics` the lines of all waits that were open
        before this turn count as read, without `read_at` they were read now.
        """
        self._lapses = lapses
        self._code.waits.begin_turn(signals, topics=topics, read_at=read_at)
        if stop is not None:
            self.request_stop(stop)

    def request_stop(self, stop: Stop) -> None:
        """The run was asked to stop. A recorded reason stays the reason, but terminating ends the undoing too."""
        self._time.observe(stop.at)
        if self._ending.stop is not None or self._journal.stop is not None:
            if stop.kind is StopKind.TERMINATE:
                self._ending.terminate(stop)
        elif self._requested is None or stop.kind is StopKind.TERMINATE:
            self._requested = stop

    def step_returned(self, call: StepCall, value: object) -> None:
        """An attempt returned; call `run` next."""
        self._performing.returned(call, value)

    def step_raised(self, call: StepCall, error: BaseException) -> None:
        """An attempt raised, or timed out (TimeoutError); call `run` next."""
        self._performing.raised(call, error)

    def step_settled(self, call: StepCall, value: object) -> Record:
        """A transactional attempt returned: give the record that is to be committed in its transaction.

        Until it is known what became of it (`step_recorded`, or `step_raised` when nothing was committed) `run` is not
        called.
        When nothing was committed and the attempt goes on, the record is forgotten, and the next one is given here.
        Raises what keeps it from being recorded so: a misuse, or a result that cannot be stored.
        """
        return self._performing.settle(call, value)

    def step_recorded(self, call: StepCall) -> None:
        """The record of a transactional attempt was committed; call `run` next."""
        self._performing.recorded(call)

    def step_given_back(self, call: StepCall) -> None:
        """An attempt was cut short by a shutdown: nothing is recorded, and it does not count."""
        self._performing.given_back(call)

    def close(self) -> None:
        """Drop the code where it stands; the execution is not used any more."""
        self._code.close()

    # What it answers.

    def run(self) -> Progress:
        """Go on as far as possible. It must be called from a plain callback, never inside an asyncio task.

        That of a plain workflow may be called on a thread, always the same one, on which it has to be closed as well.
        Nothing else is called meanwhile, but `recorded_meanwhile`.
        """
        if self._is_replaying and self._journal.trouble is None:
            self._replay()
        calls: tuple[StepCall, ...] = ()
        if self._journal.trouble is None and self._ending.finished is None:
            calls = self._go_on()
        if self._journal.trouble is not None:
            return self._held(self._journal.trouble)
        return Progress(self._journal.take_new(), calls, self._state(), self._status, self._code.custom_status)

    def recorded_meanwhile(self) -> tuple[Record, ...]:
        """Return what the `run` under way has recorded by now, the first part of what it will answer. From any thread.

        Nothing of a `run` that replays: it may still find that the journal is not that of its code.
        """
        return self._journal.new if self._goes_on else ()

    def _held(self, trouble: OutlastError) -> Progress:
        """Give nothing out, whatever had been decided before the trouble was found."""
        self._code.close()
        return Progress((), (), Held(failure_of(trouble)), self._facts.status, self._facts.custom_status)

    def _go_on(self) -> tuple[StepCall, ...]:
        self._deliver()
        self._ending.look()
        self._goes_on = self._is_going_on
        if self._goes_on:
            calls = self._performing.calls()
            if calls or self._waits_for_something:
                return calls
            self._goes_on = False
            self._code.note(DefinitionError(
                f"Run {self._facts.id!r} waits for something that nothing will ever give it: no step, sleep, wait or timer "
                f"is left, but its code waits in {_told(self._code.loop.standing())}. What a driver, a thread or any "
                "real I/O answers belongs in a step: `await ctx.step('name', fn)` or a function with @step. What other code "
                "tells it, instead of a future, an event or a queue, is a signal: ctx.wait_for."
            ).with_traceback(self._code.loop.behind()))  # fmt: skip
        self._ending.go_on(self._lapses)
        self._lapses = 0
        if self._ending.finished is not None:
            self._code.close()
        return self._performing.calls()

    @property
    def _is_going_on(self) -> bool:
        """True while the code may still ask for something."""
        return not (self._code.is_over or self._ending.has_begun)

    @property
    def _waits_for_something(self) -> bool:
        code, performing = self._code, self._performing
        return performing.is_busy or code.waits.has_live or performing.next_retry is not None or code.timers.has_live

    @property
    def _status(self) -> Status:
        if self._ending.finished is not None:
            return self._ending.finished.status
        return Status.COMPENSATING if self._ending.is_undoing else Status.RUNNING

    def _state(self) -> State:
        if self._ending.finished is not None:
            return self._ending.finished
        waits = self._code.waits
        if self._performing.is_busy:
            if not self._goes_on or (self._waits_for_steps_alone and not self._performing.has_retries):
                return _WORKING
            return Working(self._due(waits.next_due))
        if self._goes_on:
            return Parked(Status.SUSPENDED, self._due(waits.next_deadline), waits.listed())
        return Parked(Status.COMPENSATING, self._performing.next_retry, ())

    def _due(self, wait: int | None) -> int | None:
        """When there is something to do again, if nothing happens before."""
        due = (self._performing.next_retry, self._code.timers.next_due, wait, self._facts.deadline_at)
        return min((at for at in due if at is not None), default=None)

    # Replay.

    def _replay(self) -> None:
        """Run the code up to the last thing that is recorded. What does not fit becomes the journal's `trouble`."""
        self._is_replaying = False
        try:
            if self._journal.shows_no_code and self._is_stopped_already:
                self._ending.replay()
                return
            self._code.start()
            self._code.rest()
            while self._fits and self._journal.deliver_next(self._code.found):
                self._code.rest()
            if self._code.fatal is not None and self._journal.next_unmatched not in (None, self._journal.stop):
                raise self._journal.mismatched_next(self._code.fatal)
            if self._journal.trouble is None:
                self._journal.check_all_asked(self._code.found)
                self._ending.replay()
        except (JournalMismatch, ValueUnreadable, DefinitionError) as trouble:
            self._journal.note(trouble)

    @property
    def _is_stopped_already(self) -> bool:
        at = self._stop_at
        return self._journal.stop is not None or (at is not None and at <= self._time.now())

    @property
    def _fits(self) -> bool:
        return self._journal.trouble is None and self._code.fatal is None

    # Deliveries.

    def _deliver(self) -> None:
        """Hand to the code what has happened, one at a time, by the time at which it happened."""
        if self._lapses and self._is_going_on:
            self._performing.count_lapses(self._lapses)
            self._lapses = 0
        while self._is_going_on and (deliver := self._next()) is not None:
            if deliver():
                self._code.rest()

    def _next(self) -> Callable[[], bool] | None:
        """Choose what happened first. Of what happened at the same time a stop comes last."""
        if self._waits_for_steps_alone:
            return self._deliver_report if self._performing.next_report is not None else None
        waits, timers = self._code.waits, self._code.timers
        candidates = (
            (self._performing.next_report, self._deliver_report),
            (waits.next_signal, waits.take_next_signal),
            (timers.next_due, timers.fire_next),
            (waits.next_due, waits.end_next_due),
            (self._stop_at, self._deliver_stop),
        )
        now, first, chosen = self._time.now(), None, None
        for at, deliver in candidates:
            if at is not None and at <= now and (first is None or at < first):
                first, chosen = at, deliver
        return chosen

    @property
    def _waits_for_steps_alone(self) -> bool:
        code = self._code
        return not (code.timers.has_live or code.waits.has_live or self._requested or self._facts.deadline_at)

    def _deliver_report(self) -> bool:
        outcome = self._performing.record_next(may_retry=True)
        if outcome is None:
            return False  # Another attempt follows, of which the code knows nothing.
        asked = self._journal.asker(outcome.record.name)
        assert isinstance(asked, AskedStep)
        asked.arm(outcome.record)
        if outcome.misuse is not None:
            self._code.note(outcome.misuse)
        else:
            asked.settle(outcome.value, outcome.failed)
        self._journal.answered(outcome.record.name)
        return True

    @property
    def _stop_at(self) -> int | None:
        """When the run was asked to stop, or passes its deadline, whichever comes first."""
        requested_at = None if self._requested is None else self._requested.at
        return min((at for at in (self._facts.deadline_at, requested_at) if at is not None), default=None)

    def _deliver_stop(self) -> bool:
        requested, deadline_at = self._requested, self._facts.deadline_at
        if requested is not None and (deadline_at is None or requested.at <= deadline_at):
            self._ending.begin(requested)
        elif deadline_at is not None:
            self._ending.begin(timed_out(deadline_at, self._facts.created_at))
        return True


def _told(frame: FrameType | None) -> str:
    if frame is None:
        return "a future"
    return f"{frame.f_code.co_qualname} (line {frame.f_lineno} of {frame.f_globals.get('__name__')})"
