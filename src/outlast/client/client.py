"""The verbs, awaited. What each of them means is in `calls`; their blocking twins are in `blocking`."""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from outlast.client.access import Access
from outlast.client.calls import MISSING, MOST_STARTS, Call, Calls, Start, refuse_transaction, wait_limit
from outlast.client.endings import Waiters, asks_why, ending, explained
from outlast.client.grouping import Grouped
from outlast.client.handle import Handle, Handles, KnownRun
from outlast.client.publishing import Publication, Published, Publishing, Written
from outlast.errors import OutlastError, ResultTimeout
from outlast.model import ids as id_rules
from outlast.model.durations import Duration
from outlast.model.ids import RunId
from outlast.model.run import Page, Run, Status, StopKind, StopReceipt
from outlast.model.signal import Signal, SignalReceipt
from outlast.ports.store import NewRun, Outcome, StartOutcome

R = TypeVar("R")
T = TypeVar("T")

MOST_LOOKS: Final = 1_000


class _OnLoop:
    """What belongs to one event loop: starts and looks that share their transactions."""

    def __init__(self, starts: Grouped[NewRun, StartOutcome], looks: Grouped[RunId, Outcome | None]) -> None:
        self.starts = starts
        self.looks = looks
        self.waiters = Waiters()

    async def close(self) -> None:
        """Wait until what was asked is answered; who waits for a run's end waits no longer."""
        self.waiters.close()
        await self.starts.close()
        await self.looks.close()


class Client:
    """The verbs of `Outlast`, which documents them. Usable from several event loops, one after the other or at once."""

    def __init__(self, access: Access, calls: Calls, publishing: Publishing) -> None:
        self._access = access
        self._calls = calls
        self._publishing = publishing
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _OnLoop] = weakref.WeakKeyDictionary()

    async def start(
        self,
        workflow: object,
        input: object = MISSING,
        *,
        id: str | None = None,
        tx: object = None,
        timeout: Duration | None = None,
        priority: int = 0,
        version: int | None = None,
    ) -> Handle[Any]:
        start = self._calls.start(workflow, input, id=id, timeout=timeout, priority=priority, version=version)
        await self._access.ready("start", tx)
        if tx is not None:
            outcome = await self._perform(self._calls.start_alone(start), tx)
            self._access.wake(tx)
        else:
            outcome = start.settle(await self._started(start))
        return Handle(self._result_of, outcome)

    async def start_many(
        self,
        workflow: object,
        inputs: Iterable[object],
        *,
        ids: Sequence[str] | None = None,
        tx: object = None,
        timeout: Duration | None = None,
        priority: int = 0,
        version: int | None = None,
    ) -> Handles[Any]:
        call = self._calls.start_many(workflow, inputs, ids=ids, timeout=timeout, priority=priority, version=version)
        await self._access.ready("start_many", tx)
        outcomes = await self._perform(call, tx)
        self._access.wake(tx)
        return [Handle(self._result_of, outcome) for outcome in outcomes]

    async def start_and_wait(
        self,
        workflow: object,
        input: object = MISSING,
        *,
        id: str | None = None,
        timeout: Duration | None = None,
        priority: int = 0,
        version: int | None = None,
        wait: Duration | None = None,
        tx: object = None,
    ) -> object:
        refuse_transaction(tx)
        wait_limit(wait)
        handle = await self.start(workflow, input, id=id, timeout=timeout, priority=priority, version=version)
        return await handle.result(timeout=wait)

    def handle(self, workflow: object, id: str) -> KnownRun[Any]:
        return KnownRun(self._result_of, id_rules.run_id(id), self._calls.known(workflow))

    async def result(self, id: str, *, timeout: Duration | None = None) -> object:
        return await self._result_of(id_rules.run_id(id), None, timeout, False)

    async def _result_of(
        self, run_id: RunId, workflow: str | None, timeout: Duration | None, had_ended: bool
    ) -> object:
        limit = wait_limit(timeout)
        await self._access.ready("result")
        mine = self._on_loop()
        worker, untaken = self._access.worker_here(), self._access.untaken
        try:
            outcome = await ending(run_id, mine.looks, worker, limit, waiters=mine.waiters, untaken=untaken)
        except ResultTimeout as late:
            raise (await self._explained(late) if asks_why(late) else late) from None
        return self._calls.result(run_id, outcome, workflow, had_ended=had_ended)

    async def signal(
        self,
        signal: Signal[Any],
        payload: object = MISSING,
        *,
        key: str | None = None,
        id: str | None = None,
        tx: object = None,
    ) -> SignalReceipt:
        call = self._calls.signal(signal, payload, key=key, id=id)
        await self._access.ready("signal", tx)
        receipt = await self._perform(call, tx)
        if receipt.woken:
            self._access.wake(tx)
        return receipt

    async def publish(self, *events: object, id: str | None = None, tx: object = None) -> Published[Handle[Any]]:
        publication = self._publishing.plan(events, id=id)
        handlers = self._publishing.calls(publication, awaiting=True)
        await self._access.ready("publish", tx)
        outcomes, receipts = await self._written(publication, tx)
        for call in handlers:
            result = call()
            if inspect.isawaitable(result):
                await result
        return Published(tuple(Handle(self._result_of, outcome) for outcome in outcomes), receipts)

    async def cancel(self, id: str, reason: str = "Cancelled.", *, tx: object = None) -> StopReceipt:
        return await self._stop("cancel", id, StopKind.CANCEL, reason, tx)

    async def terminate(self, id: str, reason: str = "Terminated.", *, tx: object = None) -> StopReceipt:
        return await self._stop("terminate", id, StopKind.TERMINATE, reason, tx)

    async def get(self, id: str, *, journal: bool = False) -> Run | None:
        call = self._calls.get(id, journal=journal)
        await self._access.ready("get")
        return await self._perform(call)

    async def list(
        self,
        *,
        status: Status | str | Iterable[Status | str] | None = None,
        workflow: object = None,
        version: int | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        call = self._calls.page(
            status=status,
            workflow=workflow,
            version=version,
            created_after=created_after,
            created_before=created_before,
            limit=limit,
            cursor=cursor,
        )
        await self._access.ready("list")
        return await self._perform(call)

    async def close(self) -> None:
        """Wait until what was asked for on this loop is answered."""
        mine = self._loops.pop(asyncio.get_running_loop(), None)
        if mine is not None:
            await mine.close()

    async def _stop(self, verb: str, id: str, kind: StopKind, reason: str, tx: object) -> StopReceipt:
        call = self._calls.stop(id, kind, reason)
        await self._access.ready(verb, tx)
        receipt = await self._perform(call, tx)
        if receipt.accepted:
            self._access.stop_requested(receipt.run_id, tx)
        return receipt

    async def _explained(self, late: ResultTimeout) -> ResultTimeout:
        try:
            run = await self._perform(self._calls.get(late.run_id, journal=True))
            return explained(late, run, self._access.time())
        except OutlastError:
            return late

    async def _perform(self, call: Call[R, T], tx: object = None) -> T:
        if tx is None:
            return call.settle(await self._access.database.run(call.make))
        return call.settle(await self._access.database.join(tx, call.make, read_committed=call.read_committed))

    async def _written(self, publication: Publication, tx: object) -> Written:
        if publication.lone_start is not None and tx is None:
            return (publication.lone_start.settle(await self._started(publication.lone_start)),), ()
        if publication.is_empty:
            return (), ()
        written = await self._perform(self._publishing.write(publication), tx)
        self._access.wake(tx)
        return written

    async def _started(self, start: Start) -> StartOutcome:
        worker = self._access.worker_here()
        offered = worker.offer(start.run) if worker else None
        begun = None if offered is None else await offered
        if begun is not None:
            return begun
        outcome = await self._on_loop().starts.ask(start.run)
        self._access.wake()
        return outcome

    async def _create(self, runs: Sequence[NewRun], *, waits: bool) -> Sequence[StartOutcome]:
        return await self._access.database.run(
            lambda: self._calls.create(runs, together=False, waits=waits), waits=False
        )

    async def _look(self, run_ids: Sequence[RunId], *, waits: bool) -> Sequence[Outcome | None]:  # noqa: ARG002  it never does
        return await self._perform(self._calls.look(run_ids))

    def _on_loop(self) -> _OnLoop:
        loop = asyncio.get_running_loop()
        mine = self._loops.get(loop)
        if mine is None:
            mine = self._loops[loop] = _OnLoop(
                Grouped(self._create, most=MOST_STARTS), Grouped(self._look, most=MOST_LOOKS)
            )
        return mine
