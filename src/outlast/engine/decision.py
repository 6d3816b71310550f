"""What the engine tells the worker: which records to make durable, which steps to perform, and where the run stands.

Calls and answers are made for every step of every run, so they are structs: a frozen dataclass takes ten times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, TypeAlias

import msgspec

from outlast.errors import Failure
from outlast.model.ids import RunId
from outlast.model.journal import Kind, Record
from outlast.model.options import OnCancel
from outlast.model.run import Status
from outlast.ports.store import Wait


class Entropy(Protocol):
    """A source of randomness, handed in so that the engine stays pure."""

    def random(self) -> float:
        """Return a float in [0, 1)."""
        ...

    def randbytes(self, n: int) -> bytes:
        """Return n random bytes."""
        ...


class RunFacts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What is fixed about a run before its code runs. Times are microseconds."""

    id: RunId
    workflow: str
    version: int
    status: Status
    input: str
    custom_status: str | None
    created_at: int
    started_at: int
    deadline_at: int | None
    signal_cursor: int


class StepCall(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt that the worker is to make, after every record given so far is durable.

    `invoke()` calls the function: for an async one it returns an awaitable, to be awaited on the application's loop; a
    plain one is called on a thread, and if it returns an awaitable, that is to be awaited on the application's loop. It is
    to run in a fresh copy of the worker's own contextvars context, never in the workflow's; `invoke` itself marks that
    context as being inside this step.

    A transactional one is `invoke(tx)`, called inside a transaction of the application's. When it has returned,
    `Execution.step_settled` gives the record that is to be committed with it. It may be called again in the same attempt,
    after a transaction of which nothing was committed.
    """

    name: str
    kind: Kind
    attempt: int
    invoke: Callable[..., Any]
    is_async: bool
    timeout: timedelta | None
    on_cancel: OnCancel
    stop_flag: Callable[[], None]
    """Call it when the run was asked to stop while this attempt runs: it sets `StepContext.stop_requested`."""

    is_transactional: bool = False
    attempts: int = 1
    """How many there may be, this one included."""


@dataclass(frozen=True, slots=True)
class Working:
    """Steps are in flight (or given now). `due_at`: call `run` again at this time at the latest, for a timer or retry."""

    due_at: int | None


class Parked(msgspec.Struct, frozen=True, gc=False):
    """Nothing is in flight and nothing can go on before `due_at` or a signal of one of the waits."""

    status: Status
    due_at: int | None
    waits: tuple[Wait, ...]


class Finished(msgspec.Struct, frozen=True, gc=False):
    """The run has ended. `output` is its stored text when completed, `failure` why otherwise."""

    status: Status
    output: str | None
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class Held:
    """The run cannot go on with this code (mismatch, unreadable journal): keep it, change nothing, try again later."""

    failure: Failure


State: TypeAlias = Working | Parked | Finished | Held


class Progress(msgspec.Struct, frozen=True):
    """The answer of one `Execution.run()`.

    `records` are new since the last answer and are to be written before `calls` are made, or with the end of the turn.
    `status` is the run's status from now on (running, or compensating once undoing has begun). `custom_status` is what
    the code set, as stored text; None means cleared. A record of kind `stop` says that steps in flight are to be told.
    """

    records: tuple[Record, ...]
    calls: tuple[StepCall, ...]
    state: State
    status: Status
    custom_status: str | None
