"""A start that is leased to this worker from the first moment: written with the next flush, begun right after."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from outlast.errors import DatabaseBusy, DatabaseUnavailable
from outlast.model.ids import RunId
from outlast.model.run import Status
from outlast.ports.store import NewRun, StartOutcome
from outlast.worker.workplace import Workplace

_PATIENCE: Final = 30.0


class Origin(Protocol):
    """The tenure that a start belongs to."""

    def begin_started(self, run: NewRun, at: int, signal_cursor: int) -> None:
        """Begin the first turn of a run that was created at this time."""
        ...

    def start_ended(self, run_id: RunId, *, is_stray: bool = False) -> None:
        """The start is decided. `is_stray`: this worker owns the run without being able to begin it."""
        ...


class Start:
    """Tell the caller what became of its start. What the flush cannot answer, the store is asked once more: by the run's
    id, so that asking changes nothing."""

    __slots__ = ("_at", "_origin", "_place", "_tasks", "outcome", "run")

    def __init__(self, place: Workplace, origin: Origin, run: NewRun, tasks: set[asyncio.Task[None]]) -> None:
        self.run: NewRun = run
        self.outcome: asyncio.Future[StartOutcome | None] = place.loop.create_future()
        """None: nothing is decided, and it is left to whoever asked."""
        self._place = place
        self._origin = origin
        self._tasks = tasks
        self._at = place.loop.time()

    def started(self, at: int, signal_cursor: int) -> None:
        """The run was created at this time and is this worker's."""
        run = self.run
        self._origin.start_ended(run.id)
        if not self.outcome.done():
            self.outcome.set_result(
                StartOutcome(
                    id=run.id, workflow=run.workflow, version=run.version, input=run.input, status=Status.RUNNING,
                    created=True, created_at=at,
                )
            )  # fmt: skip
        self._origin.begin_started(run, at, signal_cursor)

    def not_started(self) -> None:
        """The id is taken, the lease was lost, or the database refused the run: the store says what is there now."""
        self._origin.start_ended(self.run.id)
        self._ask()

    def held_up(self) -> None:
        """Another transaction may have the id: whoever asked knows how to wait for that."""
        self._origin.start_ended(self.run.id)
        if not self.outcome.done():
            self.outcome.set_result(None)

    def unsure(self) -> None:
        """The run is there and this worker's, but not enough is known of it to begin."""
        self._origin.start_ended(self.run.id, is_stray=True)
        self._ask()

    def unanswered(self, why: DatabaseUnavailable) -> None:
        """The database does not answer. The caller does not wait for ever; the start goes on being tried."""
        if self._place.loop.time() - self._at > _PATIENCE and not self.outcome.done():
            kind, what = (
                (DatabaseBusy, "Other transactions were in the way")
                if isinstance(why, DatabaseBusy)
                else (DatabaseUnavailable, "The database could not be used")
            )
            told = kind(
                f"{what} for {_PATIENCE:.0f} s. The last that was heard: {why} Whether run {self.run.id!r} is started is "
                "not known; start it again with the same id to find out."
            )
            told.__cause__ = why
            self.outcome.set_exception(told)

    def _ask(self) -> None:
        if not self.outcome.done():
            task = self._place.loop.create_task(self._start_by_store(), context=self._place.context)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _start_by_store(self) -> None:
        store = self._place.database.store
        try:
            (outcome,) = await self._place.database.run(lambda: store.start([self.run]))
        except Exception as error:
            if not self.outcome.done():
                self.outcome.set_exception(error)
            return
        if outcome.created:
            self._place.look()
        if not self.outcome.done():
            self.outcome.set_result(outcome)
