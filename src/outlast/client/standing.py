"""What a run that is parked waits for, in words: for whoever waits for it and cannot see why it takes so long."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from outlast.model.journal import Entry, Kind, Phase
from outlast.model.origins import in_one_line
from outlast.model.run import Run

_LATE: Final = timedelta(seconds=10)
"""How long ago a run was due, by clocks that may differ, until it is told as one that no worker takes."""


def waits_for(run: Run, now: datetime) -> str:
    """Return what will make the run go on, given with its journal; empty when that is not known."""
    return ", or ".join(_waits(run, now))


def _waits(run: Run, now: datetime) -> Iterator[str]:
    if run.waiting_for:
        yield "signal " + " or ".join(run.waiting_for)
    if run.due_at is None or run.due_at.year <= 1970:  # given back by a worker: due since ever
        return
    if run.worker is None and run.due_at < now - _LATE:
        yield (
            f"a worker that registers workflow {run.workflow!r} version {run.version} and has a free slot: it has been due "
            f"since {_shown(run.due_at)}"
        )
        return
    # The run is due when the first of its entries is; one that is due later may be of a task that was given up.
    entry = next((entry for entry in run.journal if entry.due_at == run.due_at and not entry.phase.is_final), None)
    if entry is not None:
        yield f"{_what(entry)} at {_shown(run.due_at)}{_why(entry)}"
    elif run.due_at == run.deadline:
        yield f"its own timeout at {_shown(run.due_at)}"


def _what(entry: Entry) -> str:
    match entry.kind:
        case Kind.STEP | Kind.COMPENSATION:
            return f"attempt {(entry.attempts or 0) + 1} of {entry.kind} {entry.name!r}"
        case Kind.SLEEP:
            return f"the end of sleep {entry.name!r}"
        case Kind.TIMER:
            return "a timer of its code"
        case _:
            return f"the deadline of {entry.name!r}"


def _why(entry: Entry) -> str:
    if entry.phase is not Phase.RETRY or entry.failure is None:
        return ""
    return f", after {in_one_line(entry.failure)}"


def _shown(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
