"""Performing: which attempts are to be made now, which are in flight, and what becomes of their outcomes.

Steps and compensations are performed alike. This module knows nothing of who waits for them.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator
from datetime import timedelta
from functools import partial
from heapq import heappop, heappush
from itertools import count
from types import CoroutineType
from typing import Any, Final

import msgspec

from outlast.engine.decision import Entropy, StepCall
from outlast.engine.frames import StepFrame, inside
from outlast.engine.replaying import Journal, Recorded
from outlast.engine.retry import Again, judge
from outlast.engine.runtime import RunTime
from outlast.engine.stepcontext import StepContext
from outlast.errors import DefinitionError, Failure, StepFailed, ValueNotStorable
from outlast.model.failures import decode_failure, encode_failure, failure_of
from outlast.model.ids import RunId
from outlast.model.journal import Kind, Phase, Record
from outlast.model.options import OnCancel, RetryPolicy
from outlast.model.values import Shape

INTERRUPTED: Final = Failure(type="StepInterrupted", message="the worker died while it ran")

NOT_BEGUN: Final = "is not performed"
"""How an action does that waits for its first attempt."""

_order: Final = count()
"""Of retries that are due at one time the first is first. One for all runs: it would be an object of each."""


class Action(msgspec.Struct, kw_only=True, eq=False):
    """A step or a compensation that is to be performed. `shape` is None when its value is not kept."""

    name: str
    kind: Kind
    function: Callable[[Any], Any]
    make_context: Callable[[int], StepContext]
    is_awaited: bool
    policy: RetryPolicy
    shape: Shape[Any] | None
    timeout: timedelta | None = None
    on_cancel: OnCancel = "finish"
    is_transactional: bool = False
    is_wanted: Callable[[], bool] = lambda: True
    attempts: int = 0
    """Attempts that are used up."""
    due_at: int | None = None

    def recall(self, recorded: Recorded | None) -> None:
        """Take over the attempts that the journal knows of."""
        if recorded is not None and recorded.retry is not None:
            self.attempts = recorded.retry.attempt
            self.due_at = recorded.retry.due_at


TooBig = Callable[[str], str | None]
"""Says why a text is too big to be stored; None of one that is not."""


def any_size(_: str) -> None:
    """Take texts of any size."""


class Outcome(msgspec.Struct):
    """The recorded end of an action: its value, or why it failed."""

    record: Record
    value: Any = None
    failed: StepFailed | None = None
    misuse: DefinitionError | None = None


class Unstorable(Exception):
    """An attempt returned what cannot be stored, so it has failed for good. `reason` says why."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Report(msgspec.Struct):
    """How an attempt ended, and when that was told. `error` is None when it returned `value`. An `outcome` that is in the
    journal already comes before all that is not, so it was told at 0."""

    action: Action
    attempt: int
    at: int
    value: Any = None
    error: BaseException | None = None
    interrupted: bool = False
    outcome: Outcome | None = None


class Performing:
    """The actions of one run."""

    def __init__(self, run_id: RunId, journal: Journal, time: RunTime, entropy: Entropy) -> None:
        self._run_id = run_id
        self._journal = journal
        self._time = time
        self._entropy = entropy
        self._queue: list[Action] = []
        self._retries: list[tuple[int, int, Action]] = []
        self._reports: list[Report] = []
        self._in_flight: dict[str, Action] = {}
        self._misused: dict[str, DefinitionError] = {}
        self._settled: dict[str, Outcome] = {}
        self.too_big: TooBig = any_size

    # What is to be done.

    def enqueue(self, action: Action) -> None:
        """Perform it as soon as all that is recorded has been delivered, or when its next attempt is due."""
        if action.due_at is None:
            self._queue.append(action)
        else:
            heappush(self._retries, (action.due_at, next(_order), action))

    def forget_waiting(self) -> None:
        """Perform nothing of what was asked for so far."""
        self._queue.clear()
        self._retries.clear()

    def count_lapses(self, lapses: int) -> None:
        """Count workers that died as used attempts of what would be given out now: that is what may have been in flight.

        What has no attempt left by this has failed.
        """
        for action in self._due():
            action.attempts += lapses
            if action.attempts >= action.policy.attempts:
                self._reports.append(Report(action, action.attempts, self._time.now(), interrupted=True))
            else:
                self._queue.append(action)

    def calls(self) -> tuple[StepCall, ...]:
        """Give out every attempt that is to be made now."""
        if not self._queue and not self._retries:
            return ()
        calls: list[StepCall] = []
        for action in self._due():
            action.due_at = None
            self._in_flight[action.name] = action
            calls.append(self._call(action, action.attempts + 1))
        return tuple(calls)

    def first_waiting(self) -> str | None:
        """Name the first action that is to be performed."""
        return next((f"{action.kind} {action.name!r}" for action in self._queue), None)

    def standing(self, name: str) -> str:
        """Say how a step does whose code has returned, in a clause of a sentence."""
        if name in self._in_flight:
            return "is in flight: that attempt ends and is recorded"
        if any(action.name == name for _, _, action in self._retries):
            return "is not tried again"
        return NOT_BEGUN if any(action.name == name for action in self._queue) else "has ended"

    @property
    def has_retries(self) -> bool:
        """Whether anything waits for its next attempt."""
        return bool(self._retries)

    @property
    def next_retry(self) -> int | None:
        """When the next retry is due."""
        while self._retries and not self._retries[0][2].is_wanted():
            heappop(self._retries)
        return self._retries[0][0] if self._retries else None

    @property
    def is_busy(self) -> bool:
        """True while an attempt is in flight, or its outcome was told and not recorded yet."""
        return bool(self._in_flight or self._reports)

    def _due(self) -> list[Action]:
        now = self._time.now() if self._retries else 0
        while self._retries and self._retries[0][0] <= now:
            self._queue.append(heappop(self._retries)[2])
        due = [action for action in self._queue if action.is_wanted()]
        self._queue.clear()
        return due

    def _call(self, action: Action, attempt: int) -> StepCall:
        context = action.make_context(attempt)
        return StepCall(
            name=action.name,
            kind=action.kind,
            attempt=attempt,
            invoke=partial(_await_inside if action.is_awaited else _call_inside, self._run_id, action, context),
            is_async=action.is_awaited,
            timeout=action.timeout,
            on_cancel=action.on_cancel,
            stop_flag=context.request_stop,
            is_transactional=action.is_transactional,
            attempts=action.policy.attempts,
        )

    # What has been done.

    def misuse(self, name: str, error: DefinitionError) -> None:
        """Note what an attempt in flight did wrong: it ends the run, whatever the function makes of the error."""
        if name in self._in_flight:
            self._misused.setdefault(name, error)

    def returned(self, call: StepCall, value: object) -> None:
        """An attempt returned."""
        action = self._in_flight.pop(call.name)
        self._reports.append(Report(action, call.attempt, self._time.now(), value))

    def raised(self, call: StepCall, error: BaseException) -> None:
        """An attempt raised, or what it had done in its transaction was not committed."""
        action = self._in_flight.pop(call.name)
        self._settled.pop(call.name, None)
        self._reports.append(Report(action, call.attempt, self._time.now(), error=error))

    def settle(self, call: StepCall, value: object) -> Record:
        """An attempt returned in a transaction that is to be committed with this record: see `Execution.step_settled`.

        Nothing is changed before it is known what became of the transaction.
        """
        action = self._in_flight[call.name]
        misuse = self._misused.get(call.name)
        if misuse is not None:
            raise misuse
        text: str | None = None
        kept: Any = None
        if action.shape is not None:
            try:
                text, kept = self._settle(action.shape, value, f"result of step {action.name!r}")
            except Exception as error:
                discard(value)
                raise Unstorable(error) from error
        record = self._journal.draft(
            action.kind, Phase.DONE, action.name, at=self._time.now(), attempt=call.attempt, payload=text
        )
        self._settled[call.name] = Outcome(record, kept)
        return record

    def recorded(self, call: StepCall) -> None:
        """The record that `settle` gave was committed."""
        action, outcome = self._in_flight.pop(call.name), self._settled.pop(call.name)
        self._journal.adopt(outcome.record)
        self._reports.insert(0, Report(action, call.attempt, 0, outcome=outcome))

    def given_back(self, call: StepCall) -> None:
        """An attempt was cut short and does not count."""
        action = self._in_flight.pop(call.name)
        action.attempts = call.attempt - 1
        self._queue.append(action)

    @property
    def next_report(self) -> int | None:
        """When the next outcome to be recorded was told."""
        return self._reports[0].at if self._reports else None

    def record_next(self, *, may_retry: bool) -> Outcome | None:
        """Record the next outcome; return it if it is the action's end, None if another attempt follows."""
        report = self._reports.pop(0)
        action = report.action
        if report.outcome is not None:
            return report.outcome
        if report.interrupted:
            return self._gave_up(report, INTERRUPTED)
        error = self._misused.pop(action.name, report.error)
        if error is None:
            return self._completed(report)
        if isinstance(error, DefinitionError):
            return self._gave_up(report, failure_of(error), misuse=error)
        if isinstance(error, Unstorable):
            return self._gave_up(report, failure_of(error.reason))
        verdict = judge(error, report.attempt, action.policy, self._entropy)
        if isinstance(verdict, Again) and may_retry and action.is_wanted():
            self._retry(report, verdict)
            return None
        return self._gave_up(report, verdict.failure)

    def _completed(self, report: Report) -> Outcome:
        action = report.action
        text: str | None = None
        value: Any = None
        if action.shape is not None:
            try:
                text, value = self._settle(action.shape, report.value, f"result of step {action.name!r}")
            except Exception as error:  # noqa: BLE001  the value's own code too: a dead proxy raises when it is asked for its class
                discard(report.value)
                return self._gave_up(report, failure_of(error))
        return Outcome(self._final(report, Phase.DONE, text), value)

    def _settle(self, shape: Shape[Any], value: object, where: str) -> tuple[str, Any]:
        text, kept = shape.settle(value, where)
        return self.fitting(text, where), kept

    def fitting(self, text: str, where: str) -> str:
        """Return what is to be recorded. Raises ValueNotStorable where the database would not take it."""
        reason = self.too_big(text)
        if reason is not None:
            raise ValueNotStorable(where, reason)
        return text

    def _gave_up(self, report: Report, failure: Failure, *, misuse: DefinitionError | None = None) -> Outcome:
        record = self._final(report, Phase.FAILED, encode_failure(failure))
        return Outcome(record, failed=step_failed(record), misuse=misuse)

    def _final(self, report: Report, phase: Phase, payload: str | None) -> Record:
        action = report.action
        return self._journal.add(
            action.kind, phase, action.name, at=self._time.now(), attempt=report.attempt, payload=payload
        )

    def _retry(self, report: Report, again: Again) -> None:
        action, now = report.action, self._time.now()
        action.attempts = report.attempt
        action.due_at = now + again.delay
        self._journal.add(
            action.kind,
            Phase.RETRY,
            action.name,
            at=now,
            attempt=report.attempt,
            due_at=action.due_at,
            payload=encode_failure(again.failure),
        )
        self.enqueue(action)


def discard(value: object) -> None:
    """Close what nobody will await. Only its type is looked at, which no value can answer for itself."""
    if type(value) in {CoroutineType, _Rest}:
        closing: Any = value
        closing.close()


def step_failed(record: Record) -> StepFailed:
    """Rebuild the error of a step from its record: the same on the first run and on every replay."""
    return StepFailed(record.name, record.attempt, decode_failure(record.payload or ""))


async def _await_inside(run_id: RunId, action: Action, context: StepContext, *tx: object) -> object:
    with inside(_frame(run_id, action, context)):
        value = action.function(context, *tx)
        return await value if inspect.isawaitable(value) else value


def _call_inside(run_id: RunId, action: Action, context: StepContext, *tx: object) -> object:
    frame = _frame(run_id, action, context)
    with inside(frame):
        value = action.function(context, *tx)
    return _Rest(frame, value) if inspect.isawaitable(value) else value


def _frame(run_id: RunId, action: Action, context: StepContext) -> StepFrame:
    # One for each call: a function that is called again in its attempt counts from the beginning, so that it gives what it
    # starts the same ids.
    return StepFrame(run_id, action.name, context.idempotency_key, context.attempt)


class _Rest:
    """Await what a plain function returned, which was made on a thread, in the context it is awaited in."""

    __slots__ = ("_frame", "_rest")

    def __init__(self, frame: StepFrame, rest: Awaitable[object]) -> None:
        self._frame = frame
        self._rest = rest

    def __await__(self) -> Generator[Any, Any, object]:
        with inside(self._frame):
            return (yield from self._rest.__await__())

    def close(self) -> None:
        discard(self._rest)
