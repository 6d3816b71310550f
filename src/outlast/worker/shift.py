"""A worker's shift: all that lives on one event loop, from the first claim to the hand-over."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import random
import socket
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import uuid4

from outlast.engine.definition import Workflow
from outlast.errors import DatabaseBusy, DatabaseUnavailable, LeaseLost, OutlastError
from outlast.model.durations import parse_duration
from outlast.model.ids import RunId, WorkerId
from outlast.model.options import Retry, WorkerOptions
from outlast.ports.clock import Clock
from outlast.ports.database import Database
from outlast.ports.store import Lease, NewRun, Outcome, StartOutcome
from outlast.ports.transactions import Transactions
from outlast.worker.bodies import Bodies
from outlast.worker.certainty import Certainty
from outlast.worker.claiming import Claims, Looking
from outlast.worker.databasetime import DatabaseTime, monotonic
from outlast.worker.heartbeat import Heartbeat, Listeners, Renewed
from outlast.worker.neglected import Neglected
from outlast.worker.parked import ParkedRuns
from outlast.worker.steps import Steps
from outlast.worker.telling import taken_over
from outlast.worker.tenure import Tenure
from outlast.worker.threads import called
from outlast.worker.transactional import TransactionalSteps
from outlast.worker.workplace import Workplace

logger: Final = logging.getLogger("outlast.worker")

_GRACE: Final = 1.0
"""Seconds that cancelled steps get to clean up at a shutdown."""

_LAST_WRITES: Final = 5.0
"""Seconds that each of the last writes of a shutdown may take; without them the lease has to run out."""

_PATIENCE: Final = 5.0
_QUICKEST_REAP: Final = 0.1
_SOON: Final = 1.0
"""Seconds to the next look for workers that are gone, after one that could not do everything."""


@dataclass(frozen=True, slots=True)
class Contract:
    """What a worker is made of: its data, what it can run, and how."""

    database: Database
    workflows: Mapping[tuple[str, int], Workflow[Any, Any]]
    options: WorkerOptions
    default_retry: Retry
    clock: Clock | None
    transactions: Transactions


class Shift:
    """Run what is due. After `begin` it looks for work by itself; without it, `drain` does what is there."""

    def __init__(self, contract: Contract) -> None:
        options = contract.options
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        self.tenure: Tenure | None = None
        self._certainty = Certainty(is_needed=contract.clock is None)
        steps = Steps(loop, context, self._certainty, threads=options.threads, around=options.around_steps or called)
        self.place: Workplace = Workplace(
            database=contract.database, workflows=contract.workflows, default_retry=contract.default_retry,
            concurrency=options.concurrency, loop=loop, context=context, time=DatabaseTime(contract.clock),
            entropy=random.SystemRandom(), steps=steps,
            transactional=TransactionalSteps(contract.database, contract.transactions, steps, look=self.look),
            bodies=Bodies(loop, context), parked=ParkedRuns(options.cached_runs), look=self.look, look_at=self._look_at,
            slot_freed=self._slot_freed, run_ended=self._run_ended,
        )  # fmt: skip
        self._options = options
        self._lease_us = int(parse_duration(options.lease, what="lease").total_seconds() * 1_000_000)
        self._claims = Claims(self.place)
        self._looking: Looking | None = None
        self._looker: asyncio.Task[None] | None = None
        self._heartbeat: Heartbeat | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._registering = asyncio.Lock()
        self._changes: set[asyncio.Future[None]] = set()
        self._watchers: dict[RunId, set[asyncio.Future[Outcome]]] = {}
        self._looks = 0
        self._wants_stops = False
        self._is_asking_for_stops = False
        self._is_hurried = False
        self._ended = asyncio.Event()
        self._pid = os.getpid()

    # Its beginning and end.

    async def begin(self) -> None:
        """Register and look for work from now on."""
        poll = parse_duration(self._options.poll, what="poll").total_seconds()
        # A poll may be an hour apart where everybody is told of work. But when a run is due only the worker knows that has
        # parked it, and of workers that are gone, or of a caller's transaction that was rolled back, nobody tells.
        poll = min(poll, self._lease_us / 3_000_000)
        self._beat()
        await self._current()
        self._looking = Looking(self.place, self._claims, self._current, poll=poll)
        self._looker = self._spawn(self._looking.run())
        self._spawn(self._reap_now_and_then(max(poll, _QUICKEST_REAP)))
        self._spawn(Neglected(self.place, lambda: self.tenure.free if self.tenure else 0).run())
        await self.place.database.listen(self._notice)
        # What was told since the first look, to nobody so far. Held by tests/e2e/test_worker_wakeups.py.
        self._notice("stop")

    async def end(self, timeout: float) -> None:
        """Begin nothing more, wait for running steps as long as `timeout` seconds, and hand everything back."""
        if not self.is_mine:
            return
        if self.place.is_stopping:
            await self._ended.wait()
            return
        self.place.is_stopping = True
        try:
            await self._wind_down(timeout)
        finally:
            await self._hand_over()
            self._ended.set()

    def hurry(self) -> None:
        """Have `end` wait for nothing any more."""
        self._is_hurried = True
        self._change()

    def call(self, function: Callable[[], None]) -> None:
        """Call a function on the shift's loop, from any thread; not at all when that loop is closed."""
        with suppress(RuntimeError):
            self.place.loop.call_soon_threadsafe(function, context=self.place.context)

    @property
    def is_mine(self) -> bool:
        """False in a child process that was forked after the worker's start: the parent goes on, the child does nothing."""
        return os.getpid() == self._pid

    # What the process's own client asks.

    def offer(self, run: NewRun) -> asyncio.Future[StartOutcome | None] | None:
        """Start a run as this worker's from the first moment; None when it cannot be taken at once."""
        tenure = self.tenure
        if (
            tenure is None
            or not tenure.can_start(run)
            or (self._looking is not None and self._looking.has_backlog)  # those are first
            or not self.is_mine
        ):
            return None
        return tenure.start(run)

    def watch(self, run_id: RunId) -> asyncio.Future[Outcome]:
        """Return a future that is set when the run's end is recorded here."""
        future: asyncio.Future[Outcome] = self.place.loop.create_future()
        self._watchers.setdefault(run_id, set()).add(future)
        future.add_done_callback(lambda watched: self._unwatch(run_id, watched))
        return future

    def look(self) -> None:
        """Look for due runs now. On the shift's loop."""
        self._looks += 1
        self._change()
        if self._looking is not None:
            self._looking.kick()

    def look_for_stops(self) -> None:
        """Ask for the stop requests of this worker's runs now. On the shift's loop."""
        self._wants_stops = True
        tenure = self.tenure
        if self._is_asking_for_stops or tenure is None or (tenure.is_idle and not self._claims.is_claiming):
            return
        self._is_asking_for_stops = True
        self._spawn(self._ask_for_stops(tenure))

    # Doing what is there.

    async def drain(self, most_rounds: int) -> int:
        """Run everything that is due until nothing can start any more; return how many turns began."""
        before, rounds = self.place.turns, 0
        if self._heartbeat is None and not self.place.time.is_manual:
            self._beat()
        while rounds <= most_rounds:
            if self.place.is_stopping:
                return self.place.turns - before
            looks = self._looks
            tenure = await self._current()
            if await self._take_due(tenure):
                rounds += 1
            elif tenure.is_idle and looks == self._looks:
                return self.place.turns - before
            await self._until(partial(self._may_take_more, tenure, looks), _GRACE)
        raise OutlastError(
            f"drain() found more to do after {most_rounds} rounds: some run never comes to rest. "
            "Look at its journal, or pass a larger max_rounds."
        )

    def _may_take_more(self, tenure: Tenure, looks: int) -> bool:
        return tenure.is_idle or looks != self._looks

    async def _take_due(self, tenure: Tenure) -> int:
        try:
            if self.place.time.is_manual:
                await self._renew(tenure)
            store, mine = self.place.database.store, tenure.lease.worker
            taken_over(await self.place.database.run(lambda: store.reap(sparing=mine)))
            return await self._claims.claim(tenure, tenure.free)
        except LeaseLost:
            await self._in_callback(tenure.lose)
            return 1

    # The lease.

    async def _current(self) -> Tenure:
        """Return the tenure, under a new name when the last one lost its lease."""
        async with self._registering:
            if self.tenure is None or self.tenure.is_over:
                tenure = await self._registered()
                self.tenure = tenure
                if self._heartbeat is not None:
                    self._heartbeat.hold(tenure.lease)
            return self.tenure

    async def _registered(self) -> Tenure:
        """Register under a new name; under another one when the process was away for a whole lease meanwhile.

        Held by tests/crash/test_processes_orders.py.
        """
        host = socket.gethostname()
        store, lease_us = self.place.database.store, self._lease_us
        while True:
            worker = WorkerId(f"{host}:{self._pid}:{uuid4().hex[:8]}")
            sent = monotonic()
            lease = await self.place.database.run(lambda: store.register(worker, lease_us=lease_us, host=host))  # noqa: B023
            tenure = Tenure(self.place, lease, on_lease_lost=self._lost)
            try:
                await self._renew(tenure)  # It brings the database's time.
            except LeaseLost:
                continue
            self._certainty.extend(sent + lease_us)
            return tenure

    def _beat(self) -> None:
        place = self.place
        self._heartbeat = Heartbeat(
            place.database.separate(), self._options.lease, loop=place.loop, context=place.context,
            listeners=Listeners(renewed=self._renewed, lost=self._lease_lost, who_blocks=self._who_blocks),
        )  # fmt: skip

    async def _renew(self, tenure: Tenure) -> None:
        store, lease = self.place.database.store, tenure.lease
        sent = monotonic()
        renewal = await self.place.database.run(lambda: store.renew(lease, lease_us=self._lease_us))
        self._renewed(lease, Renewed(renewal, sent, monotonic()))

    def _renewed(self, lease: Lease, renewed: Renewed) -> None:
        self.place.time.observe(renewed.renewal.now, sent=renewed.sent, received=renewed.received)
        tenure = self.tenure
        if tenure is not None and tenure.lease == lease:
            self._certainty.extend(renewed.sent + self._lease_us)
            for run_id, stop in renewed.renewal.stops:
                # From a callback: it may drive the run's code, and this may be a task.
                self.place.loop.call_soon(tenure.request_stop, run_id, stop, context=self.place.context)

    async def _ask_for_stops(self, tenure: Tenure) -> None:
        try:
            while self._wants_stops:
                self._wants_stops = False
                await self._renew(tenure)
        except LeaseLost:
            await self._in_callback(tenure.lose)
        except DatabaseUnavailable:
            logger.debug("Stop requests could not be looked for now; the next renewal brings them.")
        finally:
            self._is_asking_for_stops = False

    def _lease_lost(self, lease: Lease) -> None:
        if self.tenure is not None and self.tenure.lease == lease:
            self.tenure.lose()

    def _lost(self, tenure: Tenure) -> None:
        if self._heartbeat is not None and self.tenure is tenure:
            self._heartbeat.hold(None)
        self.look()

    async def _reap_now_and_then(self, interval: float) -> None:
        """End the leases of workers that are gone, so that their runs can be claimed."""
        while not self.place.is_stopping:
            is_complete = False
            try:
                if self.place.time.is_manual and self.tenure is not None:
                    # A test that moved the clock past the lease did not mean that this worker was away: others must not
                    # think so either.
                    await self._renew(self.tenure)
                is_complete = await self._reap()
            except LeaseLost:
                pass  # The next write of this worker finds out.
            except DatabaseUnavailable as error:
                logger.debug("Looking for workers that are gone failed; trying again: %s", error)
            except Exception:
                logger.exception("Looking for workers that are gone failed; trying again.")
            pause = interval if is_complete else min(interval, _SOON)
            await asyncio.sleep(pause * random.uniform(0.75, 1.25))

    async def _reap(self) -> bool:
        """Do it once; say whether nothing was left for soon.

        A caller's open transaction may have one of the runs, or the frozen one of a worker its own row. The others need not
        wait for that. Held by tests/faults/test_callers_transactions.py.
        """
        run, store = self.place.database.run, self.place.database.store
        reap = partial(store.reap, sparing=None if self.tenure is None else self.tenure.lease.worker)
        is_complete = True
        try:
            reaped = await run(reap, repeatable=False, patience=_PATIENCE)
        except DatabaseBusy:
            is_complete = False
            reaped = await run(partial(reap, waits=False), patience=_PATIENCE)
        taken_over(reaped)
        if reaped.runs:
            self.look()
        return is_complete

    # What the turns report.

    def _look_at(self, at: int) -> None:
        if self._looking is not None:
            self._looking.look_at(at)

    def _slot_freed(self) -> None:
        if self._looking is not None:
            self._looking.slot_freed()
        self._change()

    def _run_ended(self, run_id: RunId, outcome: Outcome) -> None:
        for watcher in self._watchers.pop(run_id, ()):
            if not watcher.done():
                watcher.set_result(outcome)

    def _unwatch(self, run_id: RunId, watched: asyncio.Future[Outcome]) -> None:
        watchers = self._watchers.get(run_id)
        if watchers is not None:
            watchers.discard(watched)
            if not watchers:
                del self._watchers[run_id]

    def _notice(self, what: str) -> None:
        if self.place.is_stopping or not self.is_mine:
            return
        if what == "stop":
            self.look_for_stops()
        self.look()

    def _who_blocks(self) -> str | None:
        """Say whose code has the loop. Called by the heartbeat's thread."""
        driving = self.place.driving
        if driving is not None:
            return f"the workflow code of run {driving!r}"
        step = self.place.steps.current()
        return None if step is None else f"step {step[1]!r} of run {step[0]!r}"

    # Winding down.

    async def _wind_down(self, timeout: float) -> None:
        if self._looking is not None:
            self._looking.stop()
        tenure = self.tenure
        if tenure is None:
            return
        await self._in_callback(tenure.settle)
        if not await self._until(lambda: tenure.is_idle or self._is_hurried, timeout) or not tenure.is_idle:
            await self._in_callback(tenure.cut)
            if not await self._until(lambda: tenure.is_idle, _GRACE):
                logger.warning(
                    "Steps, or the code of plain workflows, did not end when the worker stopped: %s go on elsewhere.",
                    ", ".join(tenure.held),
                )  # fmt: skip
                await self._in_callback(tenure.abandon)
                await self._until(lambda: tenure.is_idle, _LAST_WRITES)

    async def _hand_over(self) -> None:
        if self._looker is not None:
            await asyncio.wait([self._looker], timeout=_LAST_WRITES)  # A claim in flight; what it took is handed back.
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        tenure = self.tenure
        if tenure is not None:
            was_lost = tenure.is_over
            await self._in_callback(tenure.close)
            if self._heartbeat is not None:
                await self._heartbeat.stop()
            if not was_lost:
                await self._retire(tenure.lease)
        elif self._heartbeat is not None:
            await self._heartbeat.stop()
        self.place.steps.close()
        await self._in_callback(self.place.parked.close)
        await self.place.bodies.end(_GRACE)

    async def _retire(self, lease: Lease) -> None:
        store = self.place.database.store
        try:
            await self.place.database.run(lambda: store.retire(lease), patience=_LAST_WRITES)
        except LeaseLost:
            pass  # Taken over already, or this is the second try of a retirement whose answer was lost.
        except Exception:
            logger.exception("Runs could not be handed back at once; they go on when the lease is over.")

    # Waiting.

    def _change(self) -> None:
        for change in self._changes:
            if not change.done():
                change.set_result(None)

    async def _until(self, is_so: Callable[[], bool], seconds: float) -> bool:
        """Wait until something is so, for at most so many seconds; say whether it is."""
        until = self.place.loop.time() + seconds
        while not is_so():
            left = until - self.place.loop.time()
            if left <= 0:
                return False
            change: asyncio.Future[None] = self.place.loop.create_future()
            self._changes.add(change)
            try:
                await asyncio.wait([change], timeout=left)
            finally:
                self._changes.discard(change)
        return True

    async def _in_callback(self, function: Callable[[], None]) -> None:
        """Call from a plain callback what may drive workflow code: this is a task, and tasks do not nest."""
        called: asyncio.Future[None] = self.place.loop.create_future()

        def call() -> None:
            try:
                function()
            finally:
                if not called.done():
                    called.set_result(None)

        self.place.loop.call_soon(call, context=self.place.context)
        await called

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self.place.loop.create_task(work, name="outlast-worker", context=self.place.context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
