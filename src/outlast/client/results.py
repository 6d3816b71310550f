"""How a run's end becomes a value or an error for the caller that waited for it."""

from __future__ import annotations

from typing import Final

from outlast.client.catalog import Catalog
from outlast.client.views import PLAIN
from outlast.errors import CompensationFailed, Failure, RunCancelled, RunFailed, RunTerminated, RunTimedOut
from outlast.model.failures import decode_failure, type_name
from outlast.model.ids import RunId
from outlast.model.origins import note
from outlast.model.run import Status
from outlast.model.times import shown_time
from outlast.ports.store import Outcome

_NO_REASON: Final = Failure(type="outlast.errors.RunFailed", message="no reason was recorded")


def result_of(catalog: Catalog, run_id: RunId, outcome: Outcome, *, had_ended: bool) -> object:
    """Return the output of a run that has ended, as its workflow's type where that is registered; or raise its failure,
    which says that it is an old one when the run `had_ended` before it was started under the same id."""
    if outcome.status is not Status.COMPLETED:
        error = _failed(run_id, outcome)
        if had_ended:
            at = "" if outcome.finished_at is None else f" at {shown_time(outcome.finished_at)}"
            hint = "nothing ran now. Start it under another id to run it again."
            error.args = (f"{str(error).removesuffix('.')}. That was recorded{at}, before this start: {hint}",)
        raise error
    workflow = catalog.get(outcome.workflow, outcome.version)
    shape = workflow.output_shape if workflow else PLAIN
    return None if outcome.output is None else shape.decode(outcome.output, f"The output of run {run_id!r}")


def _failed(run_id: RunId, outcome: Outcome) -> RunFailed:
    failure = _NO_REASON if outcome.error is None else decode_failure(outcome.error)
    kind: type[RunFailed] = RunFailed
    if outcome.status is Status.COMPENSATION_FAILED:
        kind = CompensationFailed
    elif outcome.status is Status.CANCELLED:
        kind = RunTerminated if failure.type == type_name(RunTerminated) else RunCancelled
    elif failure.type == type_name(RunTimedOut):
        kind = RunTimedOut
    error = kind(run_id, outcome.status, failure)
    if (places := note(failure)) is not None:
        error.add_note(places)
    return error
