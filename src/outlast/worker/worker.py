"""The worker of a process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from outlast.engine.definition import Workflow
from outlast.model.durations import parse_duration
from outlast.model.ids import RunId
from outlast.model.options import Retry, WorkerOptions
from outlast.ports.clock import Clock
from outlast.ports.database import Database
from outlast.ports.store import NewRun, Outcome, StartOutcome
from outlast.ports.transactions import Transactions
from outlast.worker.shift import Contract, Shift


class Worker:
    """Execute the runs of an application, from `start` to `stop`, on the loop that called `start`.

    It may be started again afterwards, on any loop. In a child process that was forked while it ran it does nothing: the
    parent's runs are the parent's.
    """

    def __init__(
        self,
        database: Database,
        workflows: Mapping[tuple[str, int], Workflow[Any, Any]],
        options: WorkerOptions,
        default_retry: Retry,
        clock: Clock | None = None,
        *,
        transactions: Transactions | None = None,
    ) -> None:
        """`transactions` are given to transactional steps; without them the database's own are."""
        given = transactions or database.transactions
        self._contract = Contract(database, workflows, options, default_retry, clock, given)
        self.options = options
        """What it works by, unless `start` is told otherwise."""
        self._shutdown = 0.0
        self._shift: Shift | None = None

    @property
    def id(self) -> str | None:
        """The name its lease has now; None while it holds none. New with each start and each lost lease."""
        tenure = self._shift.tenure if self._shift else None
        return tenure.lease.worker if tenure else None

    async def start(self, options: WorkerOptions | None = None) -> None:
        """Register and begin to look for due runs. Raises DatabaseUnavailable when there is no database to ask."""
        if self._shift is not None and self._shift.is_mine:
            return
        contract = self._contract if options is None else replace(self._contract, options=options)
        self._shutdown = parse_duration(contract.options.shutdown_timeout, what="shutdown_timeout").total_seconds()
        shift = Shift(contract)
        try:
            await shift.begin()
        except BaseException:
            await shift.end(0)
            raise
        self._shift = shift

    async def stop(self) -> None:
        """Hand over: begin nothing more, let running steps end within the shutdown timeout, give back what is left.

        The lease is renewed until then, so nobody takes a run whose step is still running. A step that is cut short leaves
        no trace and uses up no attempt. Cancelling the call, or `hurry`, ends the waiting, not the handing back.
        """
        shift = self._shift
        if shift is not None:
            try:
                await shift.end(self._shutdown)
            finally:
                if self._shift is shift:
                    self._shift = None

    def hurry(self) -> None:
        """Have a `stop` under way wait no longer. On the worker's loop."""
        if self._shift is not None:
            self._shift.hurry()

    async def drain(self, max_rounds: int = 1000) -> int:
        """Run everything that is due until nothing can start any more; return how many turns were begun.

        Works with and without a started worker. Steps that run are waited for; runs that are due later are not. Raises
        OutlastError when there is still something to do after `max_rounds` claims, and what a claim raises.
        """
        if self._shift is not None:
            return await self._shift.drain(max_rounds)
        shift = self._shift = Shift(self._contract)
        try:
            return await shift.drain(max_rounds)
        finally:
            self._shift = None
            await shift.end(0)

    # What the client of this process asks (`outlast.ports.local.LocalWorker`).

    def offer(self, run: NewRun) -> asyncio.Future[StartOutcome | None] | None:
        shift = self._here()
        return shift.offer(run) if shift else None

    def watch(self, run_id: RunId) -> asyncio.Future[Outcome]:
        shift = self._here()
        return shift.watch(run_id) if shift else asyncio.get_running_loop().create_future()

    def holds(self, run_id: RunId) -> bool:
        tenure = self._shift.tenure if self._shift else None
        return tenure is not None and tenure.holds(run_id)

    def wake(self) -> None:
        shift = self._shift
        if shift is None or not shift.is_mine:
            return
        if self._here() is shift:
            shift.look()
        else:
            shift.call(shift.look)

    def stop_requested(self, run_id: RunId) -> None:  # noqa: ARG002  one look brings the requests of all runs
        shift = self._here()
        if shift is not None:
            shift.look_for_stops()

    def _here(self) -> Shift | None:
        """Return the shift when it is on the running loop and in this process."""
        shift = self._shift
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return None
        return shift if shift is not None and shift.place.loop is loop and shift.is_mine else None
