"""What is said in the log of attempts that failed, of runs that ended otherwise than by completing, and of workers that are
gone."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from outlast.engine.decision import StepCall
from outlast.errors import Failure
from outlast.model.failures import decode_failure, failure_of
from outlast.model.ids import RunId, WorkerId
from outlast.model.journal import Phase, Record
from outlast.model.origins import in_one_line
from outlast.model.run import Status
from outlast.model.times import shown_time
from outlast.ports.store import Reaped

logger: Final = logging.getLogger("outlast.worker")

_MOST_NAMED: Final = 5
"""Workers that one line names."""

_LEVELS: Final = {Status.CANCELLED: logging.INFO, Status.COMPENSATION_FAILED: logging.ERROR}


def attempt_failed(run_id: RunId, call: StepCall, error: BaseException, records: Iterable[Record]) -> None:
    """Tell of an attempt that raised. `records` are what came of it: somebody may want to know while it is tried again, but
    a step that gave up is told of by the end of its run, unless its workflow goes another way."""
    record = next((record for record in records if record.name == call.name and record.payload), None)
    failure = decode_failure(record.payload) if record and record.payload else failure_of(error)
    due_at = record.due_at if record and record.phase is Phase.RETRY else None
    follows = "" if due_at is None else f"; next attempt at {shown_time(due_at)}"
    logger.log(
        logging.INFO if due_at is None else logging.WARNING,
        "Attempt %d of %d of %s %r of run %r failed: %s%s",
        call.attempt, call.attempts, call.kind, call.name, run_id, in_one_line(failure), follows,
        exc_info=error if logger.isEnabledFor(logging.DEBUG) else None,
    )  # fmt: skip


def run_ended(run_id: RunId, status: Status, failure: Failure) -> None:
    """Say that a run ended otherwise than by completing: somebody may have to look."""
    logger.log(_LEVELS.get(status, logging.WARNING), "Run %r ended as %s: %s", run_id, status, in_one_line(failure))


def taken_over(reaped: Reaped) -> None:
    """Say whose runs go on elsewhere, in one line for all of them."""
    if not reaped.runs:
        return
    named = [_gone(worker, over_for) for worker, over_for in reaped.workers[:_MOST_NAMED]]
    if len(reaped.workers) > _MOST_NAMED:
        named.append(f"and {len(reaped.workers) - _MOST_NAMED} more")
    logger.warning(
        "Workers that had runs have died, or were paused or cut off from the database: %s. Taken over from them, each with "
        "a lapse counted: %d.", ", ".join(named), reaped.runs,
    )  # fmt: skip


def _gone(worker: WorkerId, over_for: int | None) -> str:
    return f"{worker} ({'its row is gone' if over_for is None else f'its lease ended {over_for / 1e6:.1f} s ago'})"
