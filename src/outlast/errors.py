"""Every error outlast raises, in one tree.

OutlastError
├── Programming mistakes, raised at definition, at start-up or at the call
│   ├── DefinitionError            a workflow or step is declared or used in a way that can never work
│   │   └── WorkflowIOError        workflow code tried to touch the outside world; it belongs in a step
│   ├── InvalidArgument            an argument of a verb is not acceptable (also a ValueError)
│   │   ├── InvalidDuration
│   │   └── InvalidName
│   ├── UnknownWorkflow            no workflow of that name and version is registered here
│   ├── NotATransaction            `tx=` was given something whose statements would commit on their own
│   ├── IsolationRefused           a transaction or database is stricter than READ COMMITTED
│   └── WrongColour                a blocking verb was called inside a running event loop
├── Values
│   ├── ValueNotStorable           a value cannot be stored; `where` names its place
│   └── ValueUnreadable            a stored value cannot be read back as its type
├── Calls about a run
│   ├── RunNotFound
│   ├── RunIdConflict              the id belongs to a run with another workflow or input
│   ├── SignalIdConflict           the signal id was used with another key
│   ├── RunFailed                  the run ended, but not as completed
│   │   ├── RunCancelled
│   │   │   └── RunTerminated
│   │   ├── RunTimedOut
│   │   └── CompensationFailed
│   ├── ResultTimeout              the run goes on; only the waiting ended (also a TimeoutError)
│   └── AppClosed                  the app was closed; runs go on wherever a worker is
├── Inside a workflow
│   ├── WorkflowFailed             raised by `ctx.fail`
│   ├── StepFailed                 a step gave up; `cause` says why
│   ├── ConditionNotWon            `.value` of a condition that did not end the wait
│   └── JournalMismatch            the code no longer matches what the run has recorded
├── Inside a step
│   ├── NonRetryable               raise it to give up at once
│   │   └── TransactionEnded       a transactional step committed or rolled back by itself
│   ├── TransactionAborted         a transactional step swallowed an error of the database
│   └── RetryAfter                 raise it to choose the next attempt's time
└── Database
    ├── DatabaseUnavailable
    │   └── DatabaseBusy           somebody's transaction is in the way; nothing was written
    ├── DriverMissing
    ├── SchemaBehind
    ├── SchemaConflict             tables with our names are there, but nothing says that outlast made them
    └── LeaseLost                  this worker's lease was taken over; nothing of it was written

All of them survive pickling. Facts are attributes; the message says what happened, to which run, and what to do next.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What is kept of an exception: plain text and numbers, the same on the first run and on every replay.

    `type` is the qualified class name (`decimal.InvalidOperation`), `inner` holds the members of an exception group and
    the cause that an exception was raised from, oldest first.
    """

    type: str
    message: str
    traceback: str = ""
    inner: tuple[Failure, ...] = ()

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class OutlastError(Exception):
    """The root of every error of this library."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from the finished message and the attributes, so that any constructor survives pickling."""
        return (_rebuilt, (type(self), self.args, self.__dict__))


def _rebuilt(kind: type[OutlastError], args: tuple[Any, ...], facts: dict[str, Any]) -> OutlastError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(facts)
    return error


class DefinitionError(OutlastError):
    """A workflow or a step is declared or used in a way that can never work. Change the code. A run fails, and is undone."""


class WorkflowIOError(DefinitionError):
    """Workflow code tried to touch the outside world. Put that call in a step: its result is then recorded."""

    def __init__(self, call: str) -> None:
        super().__init__(
            f"{call} is not available in workflow code: a workflow is replayed, so what it reads from or does to the "
            "outside world must be recorded. Move it into a step: `await ctx.step('name', fn)` or a function with @step."
        )
        self.call = call


class InvalidArgument(OutlastError, ValueError):
    """An argument is not acceptable; nothing was written."""


class InvalidDuration(InvalidArgument):
    """A duration is not one that can be kept; the message shows the forms that are."""


class InvalidName(InvalidArgument):
    """An id, a name or a key is empty, too long or holds a character that it may not."""


class UnknownWorkflow(OutlastError):
    """No workflow of that name and version is registered with this `Outlast`. Nothing was written."""

    def __init__(self, workflow: str, version: int | None, known: tuple[str, ...]) -> None:
        asked = workflow if version is None else f"{workflow} version {version}"
        listed = ", ".join(known) if known else "none"
        super().__init__(
            f"No workflow {asked} is registered here (registered: {listed}). Add it to Outlast(workflows=[...]); "
            "a process that only starts runs must list it too."
        )
        self.workflow = workflow
        self.version = version


class NotATransaction(OutlastError, TypeError):
    """`tx=` was given something whose statements would commit on their own. Nothing was written."""


class IsolationRefused(OutlastError):
    """A transaction or a database is stricter than READ COMMITTED, which could miss a wake-up. Nothing was written."""


class WrongColour(OutlastError):
    """A blocking verb was called on a thread whose event loop is running; it would stop that loop."""

    def __init__(self, verb: str, called: str | None = None) -> None:
        """`called` is what was called, where that is not `app.blocking`'s verb."""
        super().__init__(
            f"{called or f'app.blocking.{verb}(...)'} was called inside a running event loop, which it would block. "
            f"Use `await app.{verb}(...)` here, or call it from another thread."
        )
        self.verb = verb


class ValueNotStorable(OutlastError, TypeError):
    """A value cannot be stored. `where` is the place inside it, such as `result['file']`."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where} cannot be stored: {reason}")
        self.where = where
        self.reason = reason


class ValueUnreadable(OutlastError):
    """A stored value cannot be read back as its type. `where` is the place inside it, `mend` what to do about it."""

    def __init__(self, where: str, reason: str, *, mend: str = "") -> None:
        super().__init__(f"{where} cannot be read back: {f'{reason}. {mend}' if mend else reason}")
        self.where = where
        self.reason = reason
        self.mend = mend


class RunNotFound(OutlastError, LookupError):
    """No run has that id."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"There is no run {run_id!r}. It was never started here, its start was rolled back, or the transaction that "
            "starts it (tx=) is not committed yet."
        )
        self.run_id = run_id


class RunIdConflict(OutlastError):
    """The id belongs to a run of another workflow or with another input. Nothing was written."""

    def __init__(self, run_id: str, reason: str) -> None:
        super().__init__(
            f"Run {run_id!r} exists already with {reason}. An id names one piece of work for ever: "
            "use another id for other work, or the same input to get the existing run."
        )
        self.run_id = run_id
        self.reason = reason


class SignalIdConflict(OutlastError):
    """The signal id was used before with another key. Nothing was written."""

    def __init__(self, signal: str, signal_id: str) -> None:
        super().__init__(
            f"A signal {signal!r} with id {signal_id!r} was sent before with another key. "
            "A signal id names one message: use another id for another message."
        )
        self.signal = signal
        self.signal_id = signal_id


class RunFailed(OutlastError):
    """The run ended, but not as completed. `failure` is the recorded reason, `status` the final status."""

    def __init__(self, run_id: str, status: str, failure: Failure) -> None:
        super().__init__(f"Run {run_id!r} ended as {status}: {failure}")
        self.run_id = run_id
        self.status = status
        self.failure = failure


class RunCancelled(RunFailed):
    """The run was cancelled: what it had done was undone, up to its point of no return."""


class RunTerminated(RunCancelled):
    """The run was terminated: it ended where it stood, and nothing was undone."""


class RunTimedOut(RunFailed):
    """The run passed its own timeout."""


class CompensationFailed(RunFailed):
    """Undoing gave up; a person has to look. `failure` is why the run failed, its last `inner` why undoing did."""

    def __init__(self, run_id: str, status: str, failure: Failure) -> None:
        super().__init__(run_id, status, failure)
        reason = failure.inner[-1] if failure.inner else None
        undoing = "" if reason is None else f"; undoing gave up: {reason.message if reason.inner else reason}"
        self.args: tuple[Any, ...] = (
            f"{self}{undoing}. Somebody has to look: app.get(id, journal=True) shows what was undone.",
        )


class ResultTimeout(OutlastError, TimeoutError):
    """The result was not there in time. The run goes on: ask again. `held` is why it cannot go on now, if it is held;
    `waits_for` what a parked run waits for, in words, empty when that is not known."""

    def __init__(
        self,
        run_id: str,
        timeout: timedelta,
        status: str | None = None,
        held: Failure | None = None,
        waits_for: str = "",
    ) -> None:
        stands = "" if status is None else f" and is {status}"
        hint = " No worker has taken it yet: is one running that registers its workflow?" if status == "pending" else ""
        see = "" if waits_for else ", or see what it waits for with app.get(id, journal=True)"
        go_on = (
            f"the run goes on: ask again for its result{see}."
            if held is None
            else "and the run is tried again when a worker starts, and every 10 minutes: deploy code that fits or mend what "
            "cannot be read, or end it with app.terminate(id)."
        )
        if held is not None:
            hint = f" It is held: {str(held).removesuffix('.')}."
        elif waits_for:
            hint = f" It waits for {waits_for.removesuffix('.')}."
        super().__init__(
            f"Run {run_id!r} had not ended after {timeout}{stands}.{hint} Only this waiting has ended, {go_on}"
        )
        self.run_id = run_id
        self.timeout = timeout
        self.status = status
        self.held = held
        self.waits_for = waits_for


class AppClosed(OutlastError):
    """The app was closed: before this call, which did nothing, or while it waited for the end of run `run_id`."""

    def __init__(self, run_id: str | None = None) -> None:
        super().__init__(
            "This app was closed, and nothing was done. Open it again first: `async with app: ...`, or "
            "`with app.blocking: ...` where no event loop runs."
            if run_id is None
            else f"The app was closed while run {run_id!r} was waited for. The run goes on; ask again elsewhere."
        )
        self.run_id = run_id


class WorkflowFailed(OutlastError):
    """Raised by `ctx.fail`: the business says no. Completed steps are undone."""


class StepFailed(OutlastError):
    """A step gave up. `cause` is the last error, the same on the first run and on every replay."""

    def __init__(self, step: str, attempts: int, cause: Failure) -> None:
        times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        super().__init__(f"Step {step!r} gave up after {times}: {cause}")
        self.step = step
        self.attempts = attempts
        self.cause = cause


class ConditionNotWon(OutlastError):
    """`.value` was asked of a condition that did not end the wait. Look at `.won` first."""

    def __init__(self, condition: str) -> None:
        super().__init__(f"{condition} has no value: it did not end the last wait for it. Ask `.won` first.")
        self.condition = condition


class JournalMismatch(OutlastError):
    """The code no longer matches what the run has recorded. Nothing new was done; the run is held until it matches.

    `found` is what the code asks for instead, or the error that it raised, which then is the cause (`__cause__`); `place` is
    the line of the application's code, empty when that is not known.
    """

    def __init__(
        self, run_id: str, position: int, recorded: str, found: str, *, place: str = "", has_raised: bool = False
    ) -> None:
        does = f"{'raised' if has_raised else 'asks for'} {found.removesuffix('.')}{f' ({place})' if place else ''}"
        mend = "mend what it raised, or restore" if has_raised else "restore"
        super().__init__(
            f"Run {run_id!r} no longer matches its code: entry {position} of its journal is {recorded}, but the code "
            f"{does}. The run is held and goes on by itself when code that matches is deployed: {mend} the "
            "old code under its version and give the changed workflow a new version. If the code has not changed, it goes "
            "another way by itself, as when it iterates over a set, whose order differs between processes: sort it."
        )
        self.run_id = run_id
        self.position = position
        self.recorded = recorded
        self.found = found
        self.place = place


class NonRetryable(OutlastError):
    """Raise it in a step to give up at once, whatever attempts are left."""


class RetryAfter(OutlastError):
    """Raise it in a step to have the next attempt, if one is left, after `delay` instead of the policy's delay."""

    def __init__(self, delay: str | timedelta, message: str = "") -> None:
        if not isinstance(delay, str | timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types
            raise InvalidDuration(
                f"RetryAfter(...) takes a text such as '30s' or a timedelta; {delay!r} is of type {type(delay).__name__}. "
                "A number of seconds is RetryAfter(timedelta(seconds=...))."
            )
        super().__init__(message or f"try again after {delay}")
        self.delay = delay


class TransactionEnded(NonRetryable):
    """The function of a transactional step committed or rolled back its transaction itself. Its entry was not recorded."""


class TransactionAborted(OutlastError):
    """The transaction of a transactional step takes nothing more, because an error in it was caught. All was rolled back."""


class DatabaseUnavailable(OutlastError):
    """The database did not answer in time. Whether it had taken a write is checked before one is repeated."""


class DatabaseBusy(DatabaseUnavailable):
    """Somebody else's transaction holds what this one needs, and does not end. Nothing was written."""


class DriverMissing(OutlastError, ImportError):
    """A database driver is not installed; the message names the extra that brings it."""


class SchemaBehind(OutlastError):
    """The tables of outlast are older than this code. They must be migrated first."""

    def __init__(self, schema: str, found: int, needed: int) -> None:
        super().__init__()
        self.schema = schema
        self.found = found
        self.needed = needed
        self.advise(
            "Run `outlast migrate module:app` in your deploy step, or call `await app.migrate()` (`app.blocking.migrate()` "
            "in code that does not await). An app that opens does it by itself, except in production or with migrate=False."
        )

    def advise(self, remedy: str) -> None:
        """Have the message say this of what to do, where a framework has its own way."""
        # MySQL and MariaDB show a role the tables alone on which it has a right.
        stand = f"at version {self.found}" if self.found else "not there, or none that this role has a right to"
        self.args: tuple[Any, ...] = (
            f"The tables of outlast in {self.schema!r} are {stand}; this code needs version {self.needed}. {remedy}",
        )


class SchemaConflict(OutlastError):
    """Tables with our names are there, but nothing says that outlast made them. Nothing was changed."""

    def __init__(self, schema: str, tables: tuple[str, ...]) -> None:
        super().__init__(
            f"There are tables {', '.join(tables)} in {schema!r}, but no record that outlast made them, so they are left "
            "alone. Give outlast a name of its own with Outlast(schema=...), or restore its table of migrations, or this "
            "role's right to read it."
        )
        self.schema = schema
        self.tables = tables


class LeaseLost(OutlastError):
    """This worker's lease was taken over while it was away; nothing of this write was recorded."""
