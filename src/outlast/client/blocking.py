"""The verbs, blocking: for scripts, threads and frameworks that do not await. What each of them means is in `calls`.

The signatures are those of `client`. Held by tests/house/test_colours.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

from outlast.client.access import Access
from outlast.client.calls import MISSING, Call, Calls, refuse_transaction, wait_limit
from outlast.client.endings import asks_why, ending_blocking, explained
from outlast.client.handle import BlockingHandle, BlockingHandles, BlockingKnownRun
from outlast.client.options import AwaitedStart, OneStart
from outlast.client.publishing import Publication, Published, Publishing, Written, refuse_awaitable
from outlast.engine.definition import AnyWorkflow, AnyWorkflowAlone
from outlast.errors import OutlastError, ResultTimeout
from outlast.model import ids as id_rules
from outlast.model.durations import Duration
from outlast.model.ids import RunId
from outlast.model.run import Page, Run, Status, StopKind, StopReceipt
from outlast.model.signal import Signal, SignalReceipt
from outlast.ports.store import Outcome

I = TypeVar("I")  # noqa: E741 -- input and output are I and O wherever a workflow's types are named
O = TypeVar("O")  # noqa: E741
P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


class BlockingClient:
    """The verbs of `Outlast`, which documents them, for threads without a running event loop.

    Calling one where a loop runs raises WrongColour: it would stop that loop, and wait for ever if the worker is on it.
    Safe from any number of threads.
    """

    def __init__(self, access: Access, calls: Calls, publishing: Publishing) -> None:
        self._access = access
        self._calls = calls
        self._publishing = publishing

    def __enter__(self) -> Self:
        """Be open for a `with` block; its end closes the connections. See `open`."""
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Connect and see to the tables now, as opening the app does, instead of with the first verb; begins no worker.

        Call it, or `migrate`, where a program starts whose first verb may join a transaction of its own. Opens an app again
        that was closed. May be called again. Raises SchemaBehind and DatabaseUnavailable.
        """
        self._access.open_blocking()

    @overload
    def start(self, workflow: AnyWorkflowAlone[O], **options: Unpack[OneStart]) -> BlockingHandle[O]: ...
    @overload
    def start(self, workflow: AnyWorkflow[I, O], input: I, **options: Unpack[OneStart]) -> BlockingHandle[O]: ...
    def start(
        self,
        workflow: object,
        input: object = MISSING,
        *,
        id: str | None = None,
        tx: object = None,
        timeout: Duration | None = None,
        priority: int = 0,
        version: int | None = None,
    ) -> BlockingHandle[Any]:
        """See `Outlast.start`."""
        start = self._calls.start(workflow, input, id=id, timeout=timeout, priority=priority, version=version)
        outcome = self._perform("start", self._calls.start_alone(start), tx)
        self._access.wake(tx)
        return BlockingHandle(self._result_of, outcome)

    def start_many(
        self,
        workflow: AnyWorkflow[I, O],
        inputs: Iterable[I],
        *,
        ids: Sequence[str] | None = None,
        tx: object = None,
        timeout: Duration | None = None,
        priority: int = 0,
        version: int | None = None,
    ) -> BlockingHandles[O]:
        """See `Outlast.start_many`."""
        call = self._calls.start_many(workflow, inputs, ids=ids, timeout=timeout, priority=priority, version=version)
        outcomes = self._perform("start_many", call, tx)
        self._access.wake(tx)
        return [BlockingHandle(self._result_of, outcome) for outcome in outcomes]

    @overload
    def start_and_wait(self, workflow: AnyWorkflowAlone[O], **options: Unpack[AwaitedStart]) -> O: ...
    @overload
    def start_and_wait(self, workflow: AnyWorkflow[I, O], input: I, **options: Unpack[AwaitedStart]) -> O: ...
    def start_and_wait(
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
    ) -> Any:
        """See `Outlast.start_and_wait`."""
        refuse_transaction(tx)
        wait_limit(wait)
        start = self._calls.start(workflow, input, id=id, timeout=timeout, priority=priority, version=version)
        outcome = self._perform("start_and_wait", self._calls.start_alone(start))
        self._access.wake()
        return BlockingHandle[Any](self._result_of, outcome).result(timeout=wait)

    def result(self, id: str, *, timeout: Duration | None = None) -> Any:  # noqa: ANN401 -- only the run knows its type
        """See `Outlast.result`."""
        return self._result_of(id_rules.run_id(id), None, timeout, False)

    def handle(self, workflow: AnyWorkflow[Any, O] | AnyWorkflowAlone[O], id: str) -> BlockingKnownRun[O]:
        """See `Outlast.handle`."""
        return BlockingKnownRun(self._result_of, id_rules.run_id(id), self._calls.known(workflow))

    @overload
    def signal(
        self, signal: Signal[None], *, key: str | None = None, id: str | None = None, tx: object = None
    ) -> SignalReceipt: ...
    @overload
    def signal(
        self, signal: Signal[P], payload: P, *, key: str | None = None, id: str | None = None, tx: object = None
    ) -> SignalReceipt: ...
    def signal(
        self,
        signal: Signal[Any],
        payload: object = MISSING,
        *,
        key: str | None = None,
        id: str | None = None,
        tx: object = None,
    ) -> SignalReceipt:
        """See `Outlast.signal`."""
        receipt = self._perform("signal", self._calls.signal(signal, payload, key=key, id=id), tx)
        if receipt.woken:
            self._access.wake(tx)
        return receipt

    def publish(self, *events: object, id: str | None = None, tx: object = None) -> Published[BlockingHandle[Any]]:
        """See `Outlast.publish`. Handlers are plain functions: DefinitionError for others, before anything is written."""
        publication = self._publishing.plan(events, id=id)
        handlers = self._publishing.calls(publication, awaiting=False)
        outcomes, receipts = self._written(publication, tx)
        for call in handlers:
            refuse_awaitable(call())
        return Published(tuple(BlockingHandle(self._result_of, outcome) for outcome in outcomes), receipts)

    def cancel(self, id: str, reason: str = "Cancelled.", *, tx: object = None) -> StopReceipt:
        """See `Outlast.cancel`."""
        return self._stop("cancel", id, StopKind.CANCEL, reason, tx)

    def terminate(self, id: str, reason: str = "Terminated.", *, tx: object = None) -> StopReceipt:
        """See `Outlast.terminate`."""
        return self._stop("terminate", id, StopKind.TERMINATE, reason, tx)

    def get(self, id: str, *, journal: bool = False) -> Run | None:
        """See `Outlast.get`."""
        return self._perform("get", self._calls.get(id, journal=journal))

    def list(
        self,
        *,
        status: Status | str | Iterable[Status | str] | None = None,
        workflow: AnyWorkflow[Any, Any] | AnyWorkflowAlone[Any] | str | None = None,
        version: int | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        """See `Outlast.list`."""
        call = self._calls.page(
            status=status,
            workflow=workflow,
            version=version,
            created_after=created_after,
            created_before=created_before,
            limit=limit,
            cursor=cursor,
        )
        return self._perform("list", call)

    def migrate(self) -> tuple[int, ...]:
        """See `Outlast.migrate`."""
        self._access.refuse_in_loop("migrate")
        return self._access.database.migrate_blocking()

    def schema_version(self) -> tuple[int, int]:
        """Return which version the tables have (0: there are none), and which one this code needs; an older one needs
        `migrate`. Raises DatabaseUnavailable, and SchemaConflict for tables of that name that are not ours."""
        self._access.refuse_in_loop("schema_version")
        return self._access.database.schema_version_blocking()

    def migration_statements(self) -> tuple[str, ...]:
        """Return the statements that `migrate` would execute now, as text for a person's own tool; it executes none."""
        found, _ = self.schema_version()
        return self._access.database.migration_statements(found)

    def close(self) -> None:
        """Close the blocking side's connections. The next call opens new ones, unless the database is in memory: that ends
        here, and the app is closed with it. Inside of `async with app` it stays until that ends."""
        access = self._access
        if access.database.is_lasting:
            access.database.close_blocking()
            access.forget()
        elif not access.is_open:
            access.closed()
            access.database.close_blocking()

    def _stop(self, verb: str, id: str, kind: StopKind, reason: str, tx: object) -> StopReceipt:
        receipt = self._perform(verb, self._calls.stop(id, kind, reason), tx)
        if receipt.accepted:
            self._access.stop_requested(receipt.run_id, tx)
        return receipt

    def _written(self, publication: Publication, tx: object) -> Written:
        if publication.is_empty:
            self._access.ready_blocking("publish", tx)
            return (), ()
        written = self._perform("publish", self._publishing.write(publication), tx)
        self._access.wake(tx)
        return written

    def _result_of(self, run_id: RunId, workflow: str | None, timeout: Duration | None, had_ended: bool) -> object:
        try:
            outcome = ending_blocking(run_id, self._look, self._access, wait_limit(timeout))
        except ResultTimeout as late:
            raise (self._explained(late) if asks_why(late) else late) from None
        return self._calls.result(run_id, outcome, workflow, had_ended=had_ended)

    def _explained(self, late: ResultTimeout) -> ResultTimeout:
        try:
            run = self._perform("result", self._calls.get(late.run_id, journal=True))
            return explained(late, run, self._access.time())
        except OutlastError:
            return late

    def _look(self, run_id: RunId) -> Outcome | None:
        return self._perform("result", self._calls.look([run_id]))[0]

    def _perform(self, verb: str, call: Call[R, T], tx: object = None) -> T:
        self._access.ready_blocking(verb, tx)
        if tx is None:
            return call.settle(self._access.database.run_blocking(call.make))
        outcome = self._access.database.join_blocking(tx, call.make, read_committed=call.read_committed)
        return call.settle(outcome)
