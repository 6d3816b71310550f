"""What every turn of a worker works with, whatever the lease."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from outlast.engine.decision import Entropy, RunFacts
from outlast.engine.definition import Workflow
from outlast.engine.execution import Execution
from outlast.errors import UnknownWorkflow
from outlast.model.ids import RunId
from outlast.model.journal import Record
from outlast.model.options import Retry
from outlast.ports.database import Database
from outlast.ports.store import Outcome
from outlast.worker.bodies import Bodies, Body
from outlast.worker.databasetime import DatabaseTime
from outlast.worker.drivable import Drivable
from outlast.worker.parked import ParkedRuns
from outlast.worker.steps import Steps
from outlast.worker.transactional import TransactionalSteps

_FIRST_HOLD: Final = 30_000_000
LONGEST_HOLD: Final = 600_000_000
_MOST_HELD: Final = 10_000
"""Runs whose number of holds is remembered."""


@dataclass(slots=True, kw_only=True)
class Workplace:
    """The worker's surroundings on one event loop. Callbacks of ours run in `context`, never in a caller's."""

    database: Database
    workflows: Mapping[tuple[str, int], Workflow[Any, Any]]
    default_retry: Retry
    concurrency: int
    loop: asyncio.AbstractEventLoop
    context: contextvars.Context
    time: DatabaseTime
    entropy: Entropy
    steps: Steps
    transactional: TransactionalSteps
    bodies: Bodies
    parked: ParkedRuns
    look: Callable[[], None]
    """Runs may be claimable now."""
    look_at: Callable[[int], None]
    """A run will be claimable at this time."""
    slot_freed: Callable[[], None]
    """One more run may begin."""
    run_ended: Callable[[RunId, Outcome], None]
    """A run's end is recorded."""
    is_stopping: bool = False
    turns: int = 0
    """Turns begun."""
    driving: RunId | None = None
    """Whose code has the loop at this moment."""
    _holds: dict[RunId, int] = field(default_factory=dict[RunId, int])

    def call_later(self, seconds: float, look: Callable[[], None]) -> asyncio.TimerHandle:
        """Call `look` after so many seconds of real time."""
        return self.loop.call_later(seconds, look, context=self.context)

    def call_at(self, at: int, look: Callable[[], None]) -> asyncio.TimerHandle:
        """Call `look` when it may be `at` by the database's time."""
        return self.call_later(self.time.seconds_until(at), look)

    def execution(self, facts: RunFacts, records: tuple[Record, ...]) -> Drivable:
        """Make the execution of a run from its journal. Raises UnknownWorkflow, and whatever a bad journal makes of it."""
        workflow = self.workflows.get((facts.workflow, facts.version))
        if workflow is None:
            known = tuple(f"{name} version {version}" for name, version in self.workflows)
            raise UnknownWorkflow(facts.workflow, facts.version, known)
        execution = Execution(
            workflow,
            facts,
            records,
            now=self.time.now,
            entropy=self.entropy,
            default_retry=self.default_retry,
            too_big=self.database.too_big,
        )
        return Body(execution, self.bodies) if workflow.is_plain else execution

    def hold_until(self, run_id: RunId) -> int:
        """Return when a run that cannot go on is tried again: in 30 s, doubling each time this process holds it again,
        to 10 minutes."""
        if len(self._holds) >= _MOST_HELD:
            self._holds.clear()
        before = self._holds.get(run_id, 0)
        self._holds[run_id] = before + 1
        return self.time.now() + min(_FIRST_HOLD << min(before, 5), LONGEST_HOLD)

    def goes_on(self, run_id: RunId) -> None:
        """Forget that a run was held: it could be driven again."""
        if self._holds:
            self._holds.pop(run_id, None)
