"""One turn of one run: drives its execution from plain callbacks, makes its records durable, performs its steps.

The order that everything rests on: what an effect could have seen is durable before the effect begins. So calls wait for
the records that were given before them, while the code itself goes on at once. Held by tests/unit/worker/test_turn.py.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from outlast.engine.decision import Finished, Held, Parked, Progress, State, StepCall, Working
from outlast.errors import Failure
from outlast.model.failures import encode_failure, failure_of, in_ascii
from outlast.model.ids import RunId
from outlast.model.journal import Kind, Record
from outlast.model.run import Status, Stop, StopKind
from outlast.model.signal import StoredSignal
from outlast.ports.store import Batch, Lease, RunWrite, Wait
from outlast.worker.drivable import Drivable
from outlast.worker.flusher import Staged, Writer
from outlast.worker.granting import NO_GRANTS, Asking, Grant, Grants
from outlast.worker.steps import Attempt, Ending, GivenBack, Raised, Recorded, Returned
from outlast.worker.telling import attempt_failed, run_ended
from outlast.worker.workplace import Workplace

logger: Final = logging.getLogger("outlast.worker")

_EFFECTS: Final = frozenset({Kind.STEP, Kind.COMPENSATION})
_UNWRITABLE_PAUSE: Final = 30.0


@dataclass(frozen=True, slots=True)
class Released:
    """The worker stops: another may go on with the run at once."""


TurnState: TypeAlias = State | Released


class Host(Protocol):
    """What a turn needs of the tenure it happens in."""

    def write(self, writer: Writer) -> None:
        """Give it a place in the next flush."""
        ...

    def leaving(self, turn: Turn) -> None:
        """Nothing of the run executes any more; its last write is under way."""
        ...

    def staying(self, turn: Turn) -> None:
        """The last write was refused, so it was not the last."""
        ...

    @property
    def lease(self) -> Lease:
        """What every write proves."""
        ...

    def lose(self) -> None:
        """The lease was found to be over."""
        ...

    def ended(self, turn: Turn, *, lost: bool, ready: bool) -> None:
        """The turn's last write is durable (or the run was `lost`); `turn.state` says how it ended."""
        ...


class Turn:
    """Drive one run until it parks, ends, is held, or is given back. A writer to the flusher."""

    __slots__ = (
        "_attempts", "_calls", "_covered", "_custom_status", "_due_at", "_grants", "_host", "_is_dropped", "_is_over",
        "_is_writing", "_lapses", "_place", "_records", "_status", "_stop", "_stored_custom_status", "_stored_status",
        "_taken", "_timer", "_turns", "execution", "id", "state",
    )  # fmt: skip

    def __init__(
        self,
        host: Host,
        place: Workplace,
        run_id: RunId,
        execution: Drivable,
        *,
        status: Status,
        custom_status: str | None,
        turns: int | None = None,
    ) -> None:
        self.id: RunId = run_id
        self.execution: Drivable = execution
        self.state: TurnState = Working(None)
        self._host = host
        self._place = place
        self._status = self._stored_status = status
        self._custom_status = self._stored_custom_status = custom_status
        self._turns = turns
        self._lapses = 0
        self._stop: Stop | None = None
        self._records: list[Record] = []
        self._calls: list[StepCall] = []
        self._covered: list[StepCall] = []
        self._attempts: dict[str, Attempt] = {}
        self._taken: tuple[Record, ...] = ()
        self._grants = NO_GRANTS
        self._timer: asyncio.TimerHandle | None = None
        self._due_at: int | None = None
        self._is_writing = False
        self._is_over = False
        self._is_dropped = False

    def begin(
        self,
        *,
        signals: tuple[StoredSignal, ...] = (),
        topics: frozenset[str] = frozenset(),
        read_at: int | None = None,
        stop: Stop | None = None,
        lapses: int = 0,
    ) -> None:
        """Start the turn. Raises nothing: a run whose code or journal cannot be used is held."""
        self._lapses = lapses
        self._stop = stop
        try:
            self.execution.resume(signals=signals, topics=topics, read_at=read_at, stop=stop, lapses=lapses)
        except Exception as error:
            self._break(error)
        else:
            self._advance()

    def request_stop(self, stop: Stop) -> None:
        """Pass on a request to stop, once. After the last write it is the store that sees it."""
        if self._is_over or stop == self._stop:
            return
        self._stop = stop
        if isinstance(self.state, Held):
            # Going on, it might record what comes after something that could not be.
            self._cannot_go_on(self.state.failure)
            return
        try:
            self.execution.request_stop(stop)
        except Exception as error:
            self._break(error)
            return
        self._tell_attempts()
        self._advance()

    def settle(self) -> None:
        """Do what the present state asks for; the worker calls it too, when it begins to stop."""
        if self._is_over or self._is_writing or self._grants.current is not None:
            return  # It goes on when that is durable.
        if isinstance(self.state, Working):
            if self._place.is_stopping and not self._attempts:
                self.state = Released()
            elif not self._records:
                self._start(self._calls)
                if not self._has_changed():
                    self._check_that_something_comes()
                    return
        self._ask()

    def cut(self) -> None:
        """Cut short what still runs: the shutdown's time is over."""
        for attempt in list(self._attempts.values()):
            attempt.cut()

    def abandon(self) -> None:
        """Give the run back with what is recorded so far, whatever its steps still do."""
        if not self._is_over:
            self._drop_attempts()
            self.state = Released()
            self.settle()

    def drop(self) -> None:
        """Forget the turn: the lease is over, and nothing of it can be written any more."""
        self._is_over = self._is_dropped = True
        self._disarm()
        self._drop_attempts()
        self.execution.close()

    # The flusher's side.

    def take(self) -> Staged:
        """Hand over all that is to be written by now."""
        if self._grants.current is not None:
            return Staged(self.id, (), None)  # All of it is in that transaction, and the flush would wait for it.
        records = self._taken = tuple(self._records)
        self._records.clear()
        if isinstance(self.state, Working):
            self._covered, self._calls = self._calls, []
            return Staged(self.id, records, self._keeping(records))
        self._is_over = True
        self._disarm()
        self._host.leaving(self)
        return Staged(self.id, records, self._leaving(self.state, records))

    def written(self, lost: bool, ready: bool) -> None:
        """Go on: begin the steps that waited for this write, or end the turn."""
        if self._is_dropped:
            return
        self._is_writing = False
        self._taken = ()
        if lost:
            self._is_over = True
            self._disarm()
            self._drop_attempts()
        if self._is_over:
            if not lost and isinstance(self.state, Finished) and self.state.failure is not None:
                run_ended(self.id, self.state.status, self.state.failure)
            self._host.ended(self, lost=lost, ready=ready)
            return
        self._start(self._covered)
        self.settle()

    def refused(self, error: Exception) -> None:
        """Hold the run: what it records cannot be stored, and nobody must find it running for ever."""
        if self._is_dropped:
            return
        self._is_writing = False
        self._taken = ()
        if self._is_over:
            self._host.staying(self)
        # The refusal may well quote what was refused.
        failure = in_ascii(self.state.failure if isinstance(self.state, Held) else failure_of(error))
        if isinstance(self.state, Held) and failure == self.state.failure:
            logger.error("Run %r could not even be held; trying again in %g s.", self.id, _UNWRITABLE_PAUSE)
            self._is_over = True
            self._timer = self._place.call_later(_UNWRITABLE_PAUSE, self._hold_again)
            return
        self._records.clear()
        self._is_over = False
        self._hold(failure)

    # Driving.

    def _advance(self, raised: tuple[StepCall, BaseException] | None = None) -> None:
        """Hand the code all that can be handed to it, then do what it asks for."""
        if self._is_over or self._grants.current is not None:
            if raised is not None:
                attempt_failed(self.id, *raised, ())
            return
        self._place.driving = self.id
        try:
            progress = self.execution.run()
        except Exception as error:
            self._break(error)
            return
        finally:
            self._place.driving = None
        self._note(progress, progress.records, raised)
        self._follow(progress.state)

    def _note(
        self, progress: Progress, records: tuple[Record, ...], raised: tuple[StepCall, BaseException] | None
    ) -> None:
        """Take over what the code, which is at rest, asks for; `records` are those that are not known yet."""
        self._status = progress.status
        self._custom_status = progress.custom_status
        self._calls += progress.calls
        if records:
            self._record(records)
        if raised is not None:
            attempt_failed(self.id, *raised, progress.records)

    def _record(self, records: tuple[Record, ...]) -> None:
        self._records += records
        if self._attempts and any(record.kind is Kind.STOP for record in records):
            self._tell_attempts()

    def _follow(self, state: State) -> None:
        """Go where the code has come to."""
        if isinstance(state, Held):
            self._cannot_go_on(state.failure)
            return
        self.state = state
        self._arm(state.due_at if isinstance(state, Working) else None)
        self.settle()

    def _check_that_something_comes(self) -> None:
        """A turn that waits for nothing would keep its run for ever, without anybody noticing."""
        if not self._attempts and self._due_at is None and isinstance(self.state, Working) and not self._is_writing:
            self._break(RuntimeError("the turn goes on, but neither a step nor a time will make it"))

    def _start(self, calls: list[StepCall]) -> None:
        if not calls or self._place.is_stopping:
            calls.clear()
            return
        given = tuple(calls)
        calls.clear()
        try:
            for call in given:
                self._attempts[call.name] = (
                    self._place.transactional.perform(self.id, call, self._attempt_ended, self._settles)
                    if call.is_transactional
                    else self._place.steps.perform(self.id, call, self._attempt_ended)
                )
        except Exception as error:
            self._break(error)

    def _attempt_ended(self, call: StepCall, ending: Ending) -> None:
        grants = self._grants
        if grants.current is None:
            self._hear(call, ending)
        elif grants.current is not call:
            grants.late.append((call, ending))
        else:
            grants.current = None
            self._hear(call, ending)
            self._go_on_after_grant()

    def _hear(self, call: StepCall, ending: Ending) -> None:
        del self._attempts[call.name]
        raised: BaseException | None = None
        try:
            match ending:
                case Returned(value):
                    self.execution.step_returned(call, value)
                case Recorded():
                    # What went along with it is durable too.
                    del self._records[: self._grants.included]
                    self._lapses = 0
                    self.execution.step_recorded(call)
                case Raised(error):
                    self.execution.step_raised(call, error)
                    raised = error
                case GivenBack():
                    self.execution.step_given_back(call)
                    self.settle()
                    return
        except Exception as broken:
            self._break(broken)
        else:
            self._advance(None if raised is None else (call, raised))

    def _settles(self, attempt: Asking, value: object) -> None:
        """A transactional step's function has returned `value`: let it write that and commit, when its turn comes."""
        if self._grants is NO_GRANTS:
            self._grants = Grants()
        self._grants.asking.append((attempt, value))
        self._give_grant()

    def _give_grant(self) -> None:
        while self._grants.current is None and (asking := self._grants.next_asking()) is not None:
            attempt, value = asking
            try:
                entry = self.execution.step_settled(attempt.call, value)
            except Exception as error:
                attempt.refuse(error)
                continue
            self._grants.current, self._grants.included = attempt.call, len(self._records)
            attempt.grant(self._grant(entry))

    def _grant(self, entry: Record) -> Grant:
        """Return what goes along with a step's record: all that might not be durable, and a proof that the run is ours.

        It writes to the run's row, so giving the run back waits for it, and after that it finds no run of ours.
        """
        records = (*self._taken, *self._records, entry)
        proof = RunWrite(id=self.id, status=self._stored_status, progressed=self._lapses > 0, turns=self._turns)
        batch = Batch(records=tuple([(self.id, record) for record in records]), writes=(proof,), is_joined=True)
        return Grant(self.id, self._host.lease, batch, entry, self._host.lose, self._grant_given_back)

    def _grant_given_back(self) -> None:
        self._grants.current = None
        self._advance()
        self._go_on_after_grant()

    def _go_on_after_grant(self) -> None:
        """Do what had to wait for the end of the transaction."""
        grants = self._grants
        while grants.late and grants.current is None:
            self._hear(*grants.late.popleft())
        self._give_grant()

    def _tell_attempts(self) -> None:
        for attempt in list(self._attempts.values()):
            attempt.request_stop()

    def _drop_attempts(self) -> None:
        for attempt in self._attempts.values():
            attempt.drop()
        self._attempts.clear()
        self._grants.clear()

    def _arm(self, due_at: int | None) -> None:
        if due_at != self._due_at:
            self._disarm()
            self._due_at = due_at
            if due_at is not None:
                self._timer = self._place.call_at(due_at, self._due)

    def _due(self) -> None:
        self._timer = self._due_at = None
        self._advance()

    def _disarm(self) -> None:
        self._due_at = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # What cannot go on.

    def _break(self, error: Exception) -> None:
        logger.error("Run %r cannot be driven.", self.id, exc_info=error)
        self._cannot_go_on(failure_of(error))

    def _cannot_go_on(self, failure: Failure) -> None:
        """Hold the run, unless it is to be terminated: ending it where it stands needs nothing of its code."""
        stop = self._stop
        if stop is not None and stop.kind is StopKind.TERMINATE:
            self._give_up(Finished(Status.CANCELLED, None, stop.failure))
        else:
            logger.warning("Run %r is held and tried again later: %s", self.id, failure)
            self._hold(failure)

    def _hold(self, failure: Failure) -> None:
        self._give_up(Held(failure))

    def _give_up(self, state: Finished | Held) -> None:
        self._drop_attempts()
        self._disarm()
        self._calls.clear()
        self._covered.clear()
        self._custom_status = self._stored_custom_status
        self.state = state
        self.settle()

    def _hold_again(self) -> None:
        self._timer = None
        self._is_over = False
        self.settle()

    # What is written.

    def _ask(self) -> None:
        if not self._is_writing:
            self._is_writing = True
            self._host.write(self)

    def _has_changed(self) -> bool:
        return self._status != self._stored_status or self._custom_status != self._stored_custom_status

    def _keeping(self, records: tuple[Record, ...]) -> RunWrite | None:
        """Return what changes in the run's row while the turn goes on: mostly nothing."""
        progressed = self._progressed(records)
        if not progressed and not self._has_changed():
            return None
        return self._write(self._status, keep=True, progressed=progressed)

    def _leaving(self, state: Parked | Finished | Held | Released, records: tuple[Record, ...]) -> RunWrite:
        progressed = self._progressed(records)
        match state:
            case Parked(status, due_at, waits):
                return self._write(status, due_at=due_at, waits=waits, progressed=progressed)
            case Finished(status, output, failure):
                error = None if failure is None else encode_failure(failure)
                return self._write(status, output=output, error=error, progressed=progressed)
            case Held(failure):
                until = self._place.hold_until(self.id)
                return self._write(self._parked, due_at=until, held=encode_failure(failure), progressed=progressed)
            case Released():
                return self._write(self._parked, due_at=0, progressed=progressed)

    def _progressed(self, records: tuple[Record, ...]) -> bool:
        """Say whether lapses start from zero again: a step's end is recorded, so not every lapse is the same step's."""
        if not self._lapses or not any(record.kind in _EFFECTS for record in records):
            return False
        self._lapses = 0
        return True

    @property
    def _parked(self) -> Status:
        return Status.COMPENSATING if self._status is Status.COMPENSATING else Status.SUSPENDED

    def _write(
        self, status: Status, *, keep: bool = False, due_at: int | None = None, waits: tuple[Wait, ...] = (),
        output: str | None = None, error: str | None = None, held: str | None = None, progressed: bool,
    ) -> RunWrite:  # fmt: skip
        sets_custom_status = self._custom_status != self._stored_custom_status
        self._stored_status = status
        self._stored_custom_status = self._custom_status
        return RunWrite(
            id=self.id, status=status, keep=keep, due_at=due_at, waits=waits, output=output, error=error,
            sets_custom_status=sets_custom_status, custom_status=self._custom_status, held=held, progressed=progressed,
            turns=self._turns,
        )  # fmt: skip
