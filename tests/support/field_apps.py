"""Applications for tests of one behaviour: a clock that stands still, and workers that remember nothing."""

from __future__ import annotations

from outlast import Outlast, Run
from outlast.testing import ManualClock


def forgetful(url: str, *workflows: object, clock: ManualClock | None = None) -> Outlast:
    """An app without a worker of its own: each `drain` is a new worker's, which has to replay whatever it takes up."""
    return Outlast(url, workflows=workflows, worker=False, clock=clock or ManualClock())


async def run_of(app: Outlast, run_id: str, *, journal: bool = False) -> Run:
    """What is known of a run that is there."""
    run = await app.get(run_id, journal=journal)
    assert run is not None
    return run
