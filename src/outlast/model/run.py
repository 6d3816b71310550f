"""A run: its statuses, the moves between them, and what a caller sees of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from outlast.errors import Failure
from outlast.model.ids import RunId
from outlast.model.journal import Entry


class Status(StrEnum):
    """Where a run stands."""

    PENDING = "pending"
    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPENSATING = "compensating"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    COMPENSATION_FAILED = "compensation_failed"
    UNKNOWN = "unknown"
    """What a newer outlast wrote, or what was damaged. Never written: `Run.unreadable` says what stands there, and no worker
    takes the run."""

    @property
    def is_terminal(self) -> bool:
        """True when the run has ended: nothing will change it any more."""
        return self in TERMINAL


TERMINAL: Final = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.COMPENSATION_FAILED})
LIVE: Final = frozenset(Status) - TERMINAL - {Status.UNKNOWN}

TRANSITIONS: Final[dict[Status, frozenset[Status]]] = {
    Status.PENDING: frozenset({Status.RUNNING}),
    Status.RUNNING: frozenset({Status.SUSPENDED, Status.COMPENSATING}) | TERMINAL,
    Status.SUSPENDED: frozenset({Status.RUNNING}),
    Status.COMPENSATING: TERMINAL - {Status.COMPLETED},
    Status.COMPLETED: frozenset(),
    Status.FAILED: frozenset(),
    Status.CANCELLED: frozenset(),
    Status.COMPENSATION_FAILED: frozenset(),
    Status.UNKNOWN: frozenset(),
}


class StopKind(StrEnum):
    """Why a run is to stop before its code returns. The first one recorded decides how the run ends."""

    CANCEL = "cancel"
    TERMINATE = "terminate"
    TIMEOUT = "timeout"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Stop:
    """A reason to stop: its kind, what is told about it, and when it was asked for (microseconds)."""

    kind: StopKind
    failure: Failure
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a caller sees of a run. `input`, `output` and `custom_status` are read back as their declared types where
    the workflow is registered here, as plain JSON values elsewhere; `unreadable` says why one of them could not be."""

    id: RunId
    workflow: str
    version: int
    status: Status
    priority: int
    input: object = None
    output: object = None
    failure: Failure | None = None
    custom_status: object = None
    stop_requested: StopKind | None = None
    held: Failure | None = None
    waiting_for: tuple[str, ...] = ()
    due_at: datetime | None = None
    deadline: datetime | None = None
    worker: str | None = None
    turns: int = 0
    lapses: int = 0
    created_at: datetime
    started_at: datetime | None = None
    updated_at: datetime
    finished_at: datetime | None = None
    journal: tuple[Entry, ...] = ()
    unreadable: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Page:
    """A page of runs, oldest first; `cursor` continues after it and is None on the last page."""

    runs: tuple[Run, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class StopReceipt:
    """The answer to a cancel or terminate: whether this call's reason is the one that counts, and the run's status."""

    run_id: RunId
    accepted: bool
    status: Status
