"""A workflow's code while it runs: its tasks, what it asks for, and whether it may go on.

This is the `Host` that `Context` and `Step` speak to, and the one that the event loop asks for time. Questions are looked
up in the journal at once; what it does not answer yet is left with the part that will: `performing`, `timers`, `waiting`.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, TypeVar
from uuid import UUID

import msgspec

from outlast.engine.calls import CallToBeAwaited
from outlast.engine.conditions import Condition
from outlast.engine.context import Context
from outlast.engine.decision import Entropy, RunFacts
from outlast.engine.definition import Workflow
from outlast.engine.eventloop import TooManyHandles, WorkflowLoop, running_loop, workflow_loop
from outlast.engine.frames import current_step
from outlast.engine.host import StepRequest, Won
from outlast.engine.performing import Action, Performing, step_failed
from outlast.engine.replaying import MEND_TYPE, Journal
from outlast.engine.runtime import RunTime
from outlast.engine.saga import Saga, Slot
from outlast.engine.stepcontext import StepContext
from outlast.engine.stops import wind_up
from outlast.engine.timers import Timer, Timers
from outlast.engine.unfinished import Unfinished, unfinished
from outlast.engine.waiting import Waiting, Waits
from outlast.errors import DefinitionError, StepFailed, ValueUnreadable, WorkflowIOError
from outlast.model.journal import Kind, Phase, Record
from outlast.model.options import USUAL_RETRY, Retry
from outlast.model.storable import check_storable_once
from outlast.model.values import Shape

T = TypeVar("T")

logger: Final = logging.getLogger("outlast.engine")

_MOST_QUESTIONS: Final = 100_000
"""So often code may call its context and its event loop before it waits."""

_MOST_REFUSALS: Final = 100
"""After so many the code is not refused any more: it catches whatever is raised, and goes round in a circle."""


class AskedStep:
    """A step that the code waits for."""

    __slots__ = ("_journal", "_shape", "_slot", "delivery", "future", "name")

    def __init__(
        self,
        journal: Journal,
        name: str,
        shape: Shape[Any],
        slot: Slot | None,
        future: asyncio.Future[Any],
        *,
        delivery: int,
    ) -> None:
        self._journal = journal
        self._shape = shape
        self._slot = slot
        self.name: str = name
        self.future: asyncio.Future[Any] = future
        self.delivery: int = delivery
        """The number of the delivery after which it was asked for."""

    def is_wanted(self) -> bool:
        """False when whoever waited was cancelled."""
        return not self.future.done()

    def arm(self, record: Record) -> None:
        """The step has ended; if it has completed it can be undone."""
        if self._slot is not None and record.phase is Phase.DONE:
            self._slot.arm(record.payload)

    def answer(self, record: Record) -> bool:
        self.arm(record)
        if record.phase is Phase.FAILED:
            self.settle(None, step_failed(record))
            return True
        try:
            value = self._shape.decode(record.payload or "", f"result of step {self.name!r}")
        except ValueUnreadable as error:
            raise self._journal.unreadable(record, str(error), mend=MEND_TYPE) from error
        self.settle(value, None)
        return True

    def settle(self, value: object, failed: StepFailed | None) -> None:
        """Tell the code, if it still waits."""
        if self.future.done():
            return
        if failed is None:
            self.future.set_result(value)
        else:
            self.future.set_exception(failed)


class Code:
    """The code of one run."""

    def __init__(
        self,
        workflow: Workflow[Any, Any],
        facts: RunFacts,
        journal: Journal,
        time: RunTime,
        *,
        entropy: Entropy,
        default_retry: Retry,
    ) -> None:
        self._workflow = workflow
        self._facts = facts
        self._journal = journal
        self._time = time
        self._entropy = entropy
        self._default_retry = default_retry.over(USUAL_RETRY)
        digest = zlib.crc32(facts.id.encode("utf-8", "surrogatepass"))
        self.loop: WorkflowLoop = workflow_loop(self, first_order=digest << 20 | digest & 0xFFFFF)
        self.performing: Performing = Performing(facts.id, journal, time, entropy)
        self.saga: Saga = Saga(facts.id, journal, self._default_retry)
        self.timers: Timers = Timers(journal, time, self.loop)
        self.waits: Waits = Waits(journal, time, self.loop, cursor=facts.signal_cursor, since=facts.created_at)
        self.custom_status = facts.custom_status
        self.main: asyncio.Task[Any] | None = None
        journal.asking = self.loop.asking
        self.fatal: DefinitionError | None = None
        """The first misuse. It ends the run, whatever the code makes of the error."""
        self.left: tuple[Unfinished, ...] = ()
        """The tasks that had not ended when the code returned."""
        self._is_stopping = False
        self._is_cut_short = False
        """Stopped before it returned, which is told when it asks for a step all the same."""
        self._calls: list[CallToBeAwaited] = []
        self._most_calls = 16
        self._questions = 0
        self._refusals = 0
        self._helpers: dict[Kind, int] = {}

    # What the execution does with it.

    def start(self) -> None:
        """Make the code's main task. Raises ValueUnreadable for an input that cannot be read."""
        value = None
        if self._workflow.has_input:
            try:
                value = self._workflow.input_shape.decode(self._facts.input, f"input of run {self._facts.id!r}")
            except ValueUnreadable as error:
                raise ValueUnreadable(error.where, error.reason, mend=MEND_TYPE) from error.__cause__
        ctx = Context(self, self._facts.id, self._facts.workflow, self._facts.version)
        # A context of its own: nothing of whoever drives this run is seen by it, and nothing of it by others.
        self.main = self.loop.create_task(self._workflow.begin(ctx, value), context=contextvars.Context())

    def rest(self) -> None:
        """Let the code go on until it waits. When its main task has ended the others end too."""
        self._time.begin_delivery()
        self._questions = 0
        try:
            self.loop.run_ready()
        except TooManyHandles:
            self._is_stopping = True
            self._never_waits("it made the event loop turn a million times in one go. "
                "Look for a loop around asyncio.sleep(0) or around an event that is set already.")  # fmt: skip
            self.loop.drop()
        if self.is_over and not self._is_stopping:
            self.stop()

    @property
    def is_over(self) -> bool:
        """True when the main task has ended."""
        return self.main is not None and self.main.done()

    def stop(self) -> None:
        """End the code: it is cancelled, and may not ask for anything any more."""
        is_going_on = self.loop.forget_ended()
        if is_going_on and not self._is_stopping:
            if self._has_returned:
                self.left = self._left_behind()
            else:
                self._is_cut_short = True
        self._is_stopping = True
        self.performing.forget_waiting()
        if is_going_on:
            wind_up(self.loop, self.main)

    @property
    def _has_returned(self) -> bool:
        return (
            self.main is not None and self.main.done() and not self.main.cancelled() and self.main.exception() is None
        )

    def _left_behind(self) -> tuple[Unfinished, ...]:
        steps = {id(asked.future): asked for asked in self._journal.askers() if isinstance(asked, AskedStep)}
        return unfinished(self.loop.tasks, steps, self._time.delivery, self.performing.standing)

    def forgotten_call(self) -> CallToBeAwaited | None:
        """Return a call that the code has never awaited, if there is one: it did nothing."""
        self._forget_begun()
        return self._calls[0] if self._calls else None

    def close(self) -> None:
        """Drop the code where it stands."""
        self._is_stopping = True
        self._is_cut_short = False
        self._forget_begun()
        while self._calls:
            self._calls.pop().close()
        self.loop.drop()
        self.loop.leave()
        self.timers.drop()

    def found(self) -> str | BaseException:
        """Say what the code asks for that is not recorded, or give what it raised instead."""
        if self.main is not None and self.main.done():
            error = None if self.main.cancelled() else self.main.exception()
            return "the end of the workflow" if error is None else error
        return self.performing.first_waiting() or "nothing of that name"

    # What the code asks for: see `Host`.

    def check(self, call: str) -> bool:
        if running_loop() is not self.loop and self._refusals < _MOST_REFUSALS:
            self._misused(call)
        return self._may_go_on()

    def stall(self) -> asyncio.Future[Any]:
        return self.loop.create_future()

    def refuse(self, message: str) -> NoReturn:
        raise self.note(DefinitionError(f"{message} (run {self._facts.id!r})"))

    def note_call(self, call: CallToBeAwaited) -> None:
        self._calls.append(call)
        if len(self._calls) > self._most_calls:
            self._forget_begun()
            self._most_calls = max(16, 2 * len(self._calls))

    def _forget_begun(self) -> None:
        self._calls = [call for call in self._calls if call.cr_is_forgotten]

    def ask_step(self, request: StepRequest) -> asyncio.Future[Any]:
        if self._is_cut_short:
            self._tell_refused(request.name)
        if not self._may_use(request.name):
            return self.stall()
        recorded = self._journal.look_up(Kind.STEP, request.name)
        if recorded is None and request.shape.is_described:
            self._check_result(request)
        options = request.options
        slot = self.saga.reserve(request.name, options, request.shape)
        asked = AskedStep(
            self._journal, request.name, request.shape, slot, self.loop.create_future(), delivery=self._time.delivery
        )  # fmt: skip
        self._journal.expect(request.name, asked)
        if recorded is None or recorded.final is None:
            action = Action(
                name=request.name,
                kind=Kind.STEP,
                function=request.function,
                make_context=lambda attempt: StepContext(self._facts.id, request.name, attempt),
                is_awaited=request.is_awaited,
                policy=self._default_retry if options.retry is None else options.retry.over(self._default_retry),
                shape=request.shape,
                timeout=options.timeout,
                on_cancel=options.on_cancel,
                is_transactional=request.is_transactional,
                is_wanted=asked.is_wanted,
            )
            action.recall(recorded)
            self.performing.enqueue(action)
        return asked.future

    def ask_sleep(self, name: str, *, delay: int | None, until: int | None) -> asyncio.Future[None]:
        self._may_use(name)
        return self.timers.ask_sleep(name, delay=delay, until=until)

    def ask_wait(self, kind: Kind, name: str, conditions: Sequence[Condition[Any]]) -> asyncio.Future[Won]:
        self._may_use(name)
        return self.waits.ask(kind, name, conditions).future

    def abandon(self, name: str) -> None:
        waited = self._journal.asker(name)
        if isinstance(waited, Waiting):
            self.waits.abandon(waited)
        elif isinstance(waited, Timer):
            waited.is_live = False

    def commit(self, name: str) -> None:
        if not self._may_use(name):
            return
        if self._journal.look_up_reached(Kind.COMMIT, name) is None:
            self._journal.add(Kind.COMMIT, Phase.DONE, name, at=self._time.now())
        self._journal.expect(name, None)
        self.saga.commit()

    def now(self) -> int:
        return self._time.seen() if self._may_go_on() else self._time.now()

    def random(self) -> float:
        return self._helper(Kind.RANDOM, float, self._entropy.random)

    def uuid(self) -> UUID:
        return self._helper(Kind.UUID, UUID, lambda: UUID(bytes=self._entropy.randbytes(16), version=4))

    def set_custom_status(self, text: str | None) -> None:
        if self._may_go_on():
            self.custom_status = text

    # What the event loop asks for: see `LoopHost`.

    def refuse_call(self, call: str) -> asyncio.Future[Any]:
        self._refused(self.note(WorkflowIOError(call).with_traceback(self.loop.behind())))
        return self.stall()

    def loop_time(self) -> float:
        return self.now() / 1e6

    def start_timer(self, handle: asyncio.TimerHandle, delay: float | None) -> None:
        if self._may_go_on():
            self.timers.start_timer(handle, delay)

    def drop_timer(self, handle: asyncio.TimerHandle) -> None:
        self.timers.drop_timer(handle)

    def report_unhandled(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not self._is_stopping and not self._journal.is_behind and isinstance(error, Exception):
            logger.error("In run %r: %s", self._facts.id, context.get("message"), exc_info=error)

    # Inside.

    def _may_go_on(self) -> bool:
        """Raise what keeps the code from asking for anything."""
        self._questions += 1
        if self._questions > _MOST_QUESTIONS:
            self._never_waits(f"it called its context or its event loop {_MOST_QUESTIONS:,} times in one go.")
        trouble = self._journal.trouble or self.fatal
        if trouble is None and not self._is_stopping:
            return True
        return self._refused(trouble or asyncio.CancelledError())

    def _refused(self, error: BaseException) -> bool:
        """Raise the error.

        Code that catches it, whatever it is, and goes round would hold up every other run of this process. After so many
        refusals the answer is False instead: the code gets what lets it go on to its next `await`, where it stays.
        """
        if self._refusals >= _MOST_REFUSALS:
            return False
        self._refusals += 1
        raise error

    def _tell_refused(self, name: str) -> None:
        """Say once that a step of code that has been stopped is not performed: as in a `finally`, where none would look."""
        self._is_cut_short = False
        logger.warning(
            "The code of run %r of workflow %r has been stopped: its step %r is not performed, nor is any after it. "
            "What must be done whatever happens belongs into the compensate= of a step.",
            self._facts.id, self._facts.workflow, name,
        )  # fmt: skip

    def _never_waits(self, what: str) -> None:
        self.note(DefinitionError(f"The code of run {self._facts.id!r} never waits: {what}"))

    def _may_use(self, name: str) -> bool:
        may_go_on = self._may_go_on()
        if may_go_on and self._journal.is_taken(name):
            self.refuse(
                f"The name {name!r} is used twice. Names are unique in a run, over steps, sleeps, waits and commits: "
                f"give the second call a name of its own, for a step `.named({name + '-2'!r})`."
            )
        return may_go_on

    def _check_result(self, request: StepRequest) -> None:
        """Refuse a step before its effect when nothing that it may return can be stored."""
        try:
            check_storable_once(f"the result of step {request.name!r}", request.shape)
        except DefinitionError as error:
            self.refuse(str(error))

    def _helper(self, kind: Kind, read: Callable[[Any], T], make: Callable[[], T]) -> T:
        if not self._may_go_on():
            return make()
        number = self._helpers.get(kind, 0)
        self._helpers[kind] = number + 1
        name = f"${kind}:{number}"
        recorded = self._journal.look_up_reached(kind, name)
        if recorded is None:
            value = make()
            self._journal.add(kind, Phase.DONE, name, at=self._time.now(), payload=msgspec.json.encode(value).decode())
            return value
        try:
            return read(msgspec.json.decode(recorded.first.payload or ""))
        except (ValueError, TypeError, msgspec.MsgspecError) as error:
            raise self._journal.unreadable(recorded.first, str(error)) from error

    def _misused(self, call: str) -> NoReturn:
        frame = current_step()
        if frame is None:
            raise self.note(DefinitionError(
                f"{call} was called outside the code of run {self._facts.id!r}: on a thread, in a callback or after its "
                "turn. A context can be used by its own workflow's code alone."
            ))  # fmt: skip
        error = DefinitionError(
            f"{call} was called inside step {frame.step!r}. A step may not use the workflow's context, because what happens "
            "in it is not replayed: return a value, and let the workflow go on from there."
        )
        if frame.run_id == self._facts.id:
            self.performing.misuse(frame.step, error)
        raise error

    def note(self, error: DefinitionError) -> DefinitionError:
        """Note a misuse; the first one stays."""
        if self.fatal is None:
            self.fatal = error
        return error
