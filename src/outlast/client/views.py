"""What stored rows look like to callers. An unreadable value never hides a run: its place says that it is unreadable."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from outlast.client.catalog import Catalog
from outlast.client.entries import entry_views
from outlast.errors import OutlastError
from outlast.model.failures import decode_failure
from outlast.model.journal import Entry
from outlast.model.run import Run
from outlast.model.times import to_datetime
from outlast.model.values import Shape, shape_of
from outlast.ports.store import RunDetails

PLAIN: Final[Shape[Any]] = shape_of(object)
"""How a value is read where no annotation says what it is."""

NO_TIME: Final = datetime.fromtimestamp(0, UTC)
"""What stands for a time that every run has, where it cannot be read."""


def run_view(catalog: Catalog, details: RunDetails) -> Run:
    """Describe a run: its values as their types when the workflow is registered here, as plain values elsewhere."""
    run = details.run
    workflow = catalog.get(run.workflow, run.version)
    unreadable: dict[str, str] = {}
    if run.unknown_status is not None:
        unreadable["status"] = f"{run.unknown_status!r} is no status that this version of outlast knows"
    return Run(
        id=run.id,
        workflow=run.workflow,
        version=run.version,
        status=run.status,
        priority=run.priority,
        input=_read(run.input, workflow.input_shape if workflow else PLAIN, "input", unreadable),
        output=_read(run.output, workflow.output_shape if workflow else PLAIN, "output", unreadable),
        failure=None if run.error is None else decode_failure(run.error),
        custom_status=_read(run.custom_status, PLAIN, "custom_status", unreadable),
        stop_requested=None if run.stop is None else run.stop.kind,
        held=None if run.held is None else decode_failure(run.held),
        waiting_for=tuple(topic_view(topic) for topic in details.waiting_for),
        due_at=_time(run.due_at, "due_at", unreadable),
        deadline=_time(run.deadline_at, "deadline", unreadable),
        worker=run.owner,
        turns=run.turns,
        lapses=run.lapses,
        created_at=_time(run.created_at, "created_at", unreadable) or NO_TIME,
        started_at=_time(run.started_at, "started_at", unreadable),
        updated_at=_time(run.updated_at, "updated_at", unreadable) or NO_TIME,
        finished_at=_time(run.finished_at, "finished_at", unreadable),
        journal=_journal_view(details, unreadable),
        unreadable=unreadable,
    )


def topic_view(topic: str) -> str:
    """Write a signal's name and key as callers see them."""
    name, separator, key = topic.partition("\n")
    return f"{name}[{key}]" if separator else name


def _read(text: str | None, shape: Shape[Any], place: str, unreadable: dict[str, str]) -> object:
    """Read a stored value; when that fails note why, and show what JSON it is, if it is any."""
    if text is None:
        return None
    if type(text) is not str:
        # SQLite keeps whatever is put into a column.
        unreadable[place] = f"it is stored as {type(text).__name__}, not as text"
        return None
    try:
        return shape.decode(text, place)
    except OutlastError as error:
        unreadable[place] = str(error)
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _time(at: int | None, place: str, unreadable: dict[str, str]) -> datetime | None:
    try:
        return None if at is None else to_datetime(at)
    except (OverflowError, TypeError, ValueError) as error:
        # Beyond what a datetime holds, or no number at all: written by hand, not by outlast.
        unreadable[place] = str(error)
        return None


def _journal_view(details: RunDetails, unreadable: dict[str, str]) -> tuple[Entry, ...]:
    try:
        return entry_views(details.journal, lambda text, place: _read(text, PLAIN, place, unreadable), unreadable)
    except (OverflowError, TypeError, ValueError) as error:
        # The same.
        unreadable["journal"] = str(error)
        return ()
