"""How a run ends: its code has returned, raised, been misused or been stopped.

Steps in flight finish and are recorded first. Then a stopped run undoes what it has completed, one compensation at a time.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from outlast.engine.code import AskedStep, Code
from outlast.engine.decision import Finished, RunFacts
from outlast.engine.definition import Workflow
from outlast.engine.host import DONE
from outlast.engine.performing import Action, Outcome, Performing, step_failed
from outlast.engine.replaying import Journal
from outlast.engine.runtime import RunTime
from outlast.engine.stops import STOP, decode_stop, encode_stop, final_status, gave_up_undoing, told, with_inner
from outlast.engine.unfinished import lost_step, tell
from outlast.errors import DefinitionError, Failure, StepFailed
from outlast.model.failures import failure_of
from outlast.model.journal import Kind, Phase
from outlast.model.run import Status, Stop, StopKind


class Ending:
    """The end of one run."""

    def __init__(
        self, workflow: Workflow[Any, Any], facts: RunFacts, code: Code, journal: Journal, time: RunTime
    ) -> None:
        self._workflow = workflow
        self._facts = facts
        self._code = code
        self._journal = journal
        self._time = time
        self._performing: Performing = code.performing
        self.stop: Stop | None = None
        """The recorded reason, which decides whatever the code makes of it."""
        self.is_undoing: bool = False
        self.finished: Finished | None = None
        self._terminated: Stop | None = None
        self._output: str | None = None
        self._undo: Action | None = None
        self._undo_failed: StepFailed | None = None

    @property
    def has_begun(self) -> bool:
        """True once the run is to end otherwise than by its code's return."""
        return self.stop is not None or self._code.fatal is not None

    # What begins it.

    def begin(self, stop: Stop) -> None:
        """Record the reason to stop, and end the code."""
        self._record_stop(stop)
        self._code.stop()

    def terminate(self, stop: Stop) -> None:
        """Do not undo, or undo no further."""
        self._terminated = stop

    def replay(self) -> None:
        """Go on from a recorded reason. Raises JournalMismatch when the code would undo something else than was undone."""
        record = self._journal.stop
        if record is None:
            return
        try:
            self.stop = decode_stop(record.payload or "", record.recorded_at)
        except msgspec.MsgspecError as error:
            raise self._journal.unreadable(record, str(error)) from error
        self._code.stop()
        for late in self._journal.after_stop:
            asked = self._journal.asker(late.name)
            if isinstance(asked, AskedStep):
                asked.arm(late)
        self._code.saga.check()
        for undone in self._journal.compensations.values():
            if undone.final is not None and undone.final.phase is Phase.FAILED:
                self._undo_failed = step_failed(undone.final)

    def look(self) -> None:
        """See whether the code has ended by itself, and how."""
        main = self._code.main
        if self._code.fatal is not None:
            self._fail_misused()
        elif self.stop is None and self._output is None and main is not None and main.done():
            error = asyncio.CancelledError("the code cancelled itself") if main.cancelled() else main.exception()
            if error is not None:
                self._fail(told(error), self._forgotten("also never awaited"))
            elif (misuse := self._left_undone()) is not None:
                self._code.note(misuse)
                self._fail_misused()
            else:
                tell(self._facts, self._code.left)
                self._complete(main.result())

    def _left_undone(self) -> DefinitionError | None:
        """Return what to say of a call that the code made, and did not await before it returned."""
        return self._forgotten("has returned and never awaited") or lost_step(self._code.left)

    def _forgotten(self, how: str) -> DefinitionError | None:
        call = self._code.forgotten_call()
        if call is None:
            return None
        return DefinitionError(
            f"The code {how} its call of {call.cr_name} ({call.cr_place}), which so has done nothing. Write `await` before "
            "it; in a plain `def` put `ctx.do(...)` around it."
        )

    def _complete(self, value: object) -> None:
        value = None if value is DONE else value
        try:
            self._output = self._performing.fitting(self._workflow.output_shape.encode(value, "output"), "output")
        except Exception as error:  # noqa: BLE001  the value's own code too may raise, when it is looked at
            self._fail(error)

    def _fail_misused(self) -> None:
        if self._code.fatal is not None and self.stop is None:
            self._fail(self._code.fatal)

    def _fail(self, error: BaseException, why: DefinitionError | None = None) -> None:
        failure = failure_of(error)
        if why is not None:
            failure = with_inner(failure, failure_of(why))
        self.begin(Stop(StopKind.FAILURE, failure, self._time.now()))

    # What happens until it is over.

    def go_on(self, lapses: int) -> None:
        """Record what steps in flight came to, undo what there is to undo, and finish when nothing is left to do."""
        self._fail_misused()
        if not self.is_undoing:
            self._code.stop()
        while self._performing.next_report is not None:
            self._record_next()
        if self._performing.is_busy:
            return
        # One of the steps that were still in flight may have been misused.
        self._fail_misused()
        if self.stop is None:
            self.finished = Finished(Status.COMPLETED, self._output, None)
        else:
            self._finish_stopped(self.stop, lapses)

    def _record_next(self) -> None:
        outcome = self._performing.record_next(may_retry=self.is_undoing and self._terminated is None)
        if outcome is None:
            return
        asked = self._journal.asker(outcome.record.name)
        if isinstance(asked, AskedStep):
            asked.arm(outcome.record)
            if outcome.misuse is not None:
                self._code.note(outcome.misuse)
        else:
            self._record_undone(outcome)

    def _record_undone(self, outcome: Outcome) -> None:
        self._undo = None
        self._undo_failed = outcome.failed
        if outcome.failed is None:
            self._code.saga.undone()

    def _finish_stopped(self, stop: Stop, lapses: int) -> None:
        if stop.kind is StopKind.TERMINATE:
            self._finish(Status.CANCELLED, stop.failure)
        elif self._terminated is not None:
            self._finish(Status.CANCELLED, with_inner(self._terminated.failure, stop.failure))
        elif self._undo_failed is not None:
            self._finish(Status.COMPENSATION_FAILED, with_inner(stop.failure, gave_up_undoing(self._undo_failed)))
        elif self._undo is None and not self._undo_next(stop, lapses):
            self._finish(final_status(stop.kind), stop.failure)

    def _undo_next(self, stop: Stop, lapses: int) -> bool:
        self._undo = self._code.saga.next(stop.failure)
        if self._undo is None:
            return False
        self.is_undoing = True
        self._performing.enqueue(self._undo)
        if lapses:
            self._performing.count_lapses(lapses)
            self.go_on(0)
        return True

    def _finish(self, status: Status, failure: Failure) -> None:
        self.finished = Finished(status, None, failure)

    def _record_stop(self, stop: Stop) -> None:
        self.stop = stop
        self._journal.add(Kind.STOP, Phase.DONE, STOP, at=self._time.now(), payload=encode_stop(stop))
