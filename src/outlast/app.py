"""An application: its database, its workflows, its worker and the verbs. The only place that names a concrete store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import cached_property
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack, overload

from outlast.client.access import Access, Local
from outlast.client.blocking import BlockingClient
from outlast.client.calls import MISSING, Calls
from outlast.client.catalog import Catalog
from outlast.client.client import Client
from outlast.client.handle import Handle, Handles, KnownRun
from outlast.client.options import AwaitedStart, OneStart
from outlast.client.publisher import Publisher
from outlast.client.publishing import Publishing
from outlast.engine.definition import AnyWorkflow, AnyWorkflowAlone, Workflow, listed, workflow_of
from outlast.errors import DefinitionError, InvalidArgument
from outlast.events.mappings import mappings_of
from outlast.events.routes import Routes
from outlast.model.connections import ConnectionOptions
from outlast.model.durations import Duration
from outlast.model.options import Retry, WorkerOptions, worker_options
from outlast.model.run import Page, Run, Status, StopReceipt
from outlast.model.signal import Signal, SignalReceipt
from outlast.ports.clock import Clock
from outlast.stores.databases.opening import open_database
from outlast.stores.databases.sources import transactions_of
from outlast.stores.databases.urls import in_full
from outlast.worker.worker import Worker

I = TypeVar("I")  # noqa: E741 -- input and output are I and O wherever a workflow's types are named
O = TypeVar("O")  # noqa: E741
P = TypeVar("P")

_DEFAULT_RETRY: Final = Retry()
_CONNECTIONS: Final = ConnectionOptions()


class Outlast(Publisher):
    """Run workflows durably, in the database you have.

    An `Outlast` is a value: it belongs to no module and no thread, several live side by side, and making one touches
    nothing outside. `async with app` connects and runs a worker in this process until the block ends; the verbs also work
    without it, connecting when first needed, but then nothing executes runs here. When the block has ended they raise
    AppClosed, until the app is opened again.

    database: a URL (`postgresql://host/db`, `mysql://host/db`, `mariadb://host/db`, `sqlite:///file.db`, `sqlite://` for
        one in memory) or what the application has: an engine of SQLAlchemy, a pool of asyncpg or psycopg. Default
        `sqlite:///outlast.db`, because it needs nothing.
    workflows: what this process can start and execute: functions, instances of classes, or classes made without arguments.
    worker: True (the default) runs one with the default options, `WorkerOptions(...)` with these; False runs none.
    retry: how steps that say nothing are retried. Default 3 attempts, 1 s apart, doubling.
    schema: PostgreSQL's schema for the tables of outlast; elsewhere their prefix, with `_`. Default "outlast".
    migrate: whether opening brings the tables up to date. Default: yes, unless `OUTLAST_ENV=production` is set, where many
        processes start at once and the deploy migrates.
    clock: replaces the database's clock, for tests (see `outlast.testing.ManualClock`).
    transactions: what transactional steps write through: a sessionmaker or engine of SQLAlchemy, awaiting or not, a
        driver's pool, or a function whose result is entered for a session or connection and commits at its end.
        Default: the engine or pool given as database, else connections of outlast's own.
    connections: `ConnectionOptions(...)`: tokens instead of a password, a pooler such as PgBouncer, where to listen.

    Wrong arguments are refused here, not when the first run fails at night: DefinitionError for the workflows,
    InvalidArgument for the rest.

    >>> import asyncio
    >>> from outlast import Context, Outlast, step, workflow
    >>> @step
    ... async def greet(name: str) -> str:
    ...     return f"Hello, {name}!"
    >>> @workflow("hello")
    ... async def hello(ctx: Context, name: str) -> str:
    ...     return await greet(name)
    >>> async def main() -> None:
    ...     async with Outlast("sqlite://", workflows=[hello]) as app:
    ...         run = await app.start(hello, "Ada")
    ...         print(await run.result())
    >>> asyncio.run(main())
    Hello, Ada!

    Versionadded: 0.1
    """

    def __init__(
        self,
        database: object = "sqlite:///outlast.db",
        *,
        workflows: Iterable[object] = (),
        worker: bool | WorkerOptions = True,
        retry: Retry = _DEFAULT_RETRY,
        schema: str = "outlast",
        migrate: bool | None = None,
        clock: Clock | None = None,
        transactions: object = None,
        connections: ConnectionOptions = _CONNECTIONS,
    ) -> None:
        registered = [(_executable(declared), declared) for declared in listed(workflows)]
        for known, _ in registered:
            known.check_storable()
        self._catalog = Catalog(workflow for workflow, _ in registered)
        self._database = open_database(database, schema=schema, clock=clock, connections=connections)
        self._access = Access(self._database, migrates=migrate, clock=clock)
        self._calls = Calls(self._database.store, self._catalog)
        self._publishing = Publishing(
            self._calls, Routes((one, mappings_of(declared, one)) for one, declared in registered)
        )
        self._client = Client(self._access, self._calls, self._publishing)
        self._worker = Worker(
            self._database,
            {(workflow.name, workflow.version): workflow for workflow in self._catalog},
            worker_options(worker),
            _default_retry(retry),
            clock,
            transactions=transactions_of(transactions, database, self._database.transactions),
        )
        self._has_worker = worker is not False

    def __repr__(self) -> str:
        return f"<Outlast with {len(self._catalog)} {'workflow' if len(self._catalog) == 1 else 'workflows'}>"

    @property
    def place(self) -> str:
        """Which database this is, to tell a person: a file by its full path, or a URL without password and options."""
        return in_full(self._database.place)

    @property
    def registered(self) -> str:
        """Which workflows this process can execute, to tell a person: names and versions, the first ten of them."""
        return self._catalog.in_words()

    @property
    def worker_options(self) -> WorkerOptions:
        """How a worker of this app works; the default options with `worker=False`, where another process has the worker."""
        return self._worker.options

    # Its life.

    async def __aenter__(self) -> Self:
        """Connect, see to the tables and start the worker. Raises SchemaBehind and DatabaseUnavailable."""
        await self._open(with_worker=self._has_worker)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hand running runs back (see `WorkerOptions.shutdown_timeout`) and disconnect."""
        await self.close()

    @asynccontextmanager
    async def lifespan(self, api: object = None) -> AsyncGenerator[None, None]:  # noqa: ARG002 -- ASGI passes the application
        """Be open for as long as a web application serves: `FastAPI(lifespan=app.lifespan)`.

        In a lifespan of your own: `async with app.lifespan(api): yield`.
        """
        async with self:
            yield

    @asynccontextmanager
    async def working(self, options: WorkerOptions | None = None) -> AsyncGenerator[Self, None]:
        """Be open with a worker, also when this app was made with `worker=False`: what `outlast worker` does. `options` are
        this worker's, in the place of `worker_options`."""
        await self._open(with_worker=True, options=options)
        try:
            yield self
        finally:
            await self.close()

    async def close(self) -> None:
        """Do what leaving `async with` does, for an app that verbs opened by themselves. May be called again.

        An app that was inside of `async with` is closed from then on: its verbs, blocking ones too, raise AppClosed until it
        is opened again. One that only its verbs opened connects again when it is needed; but a database in memory is gone,
        and the app closed.
        """
        try:
            if self._access.is_open:
                await self._worker.stop()
        finally:
            self._access.local = None
            self._access.closed()
            await self._disconnect()

    def hurry(self) -> None:
        """Have a `close` under way wait for no step any more: it hands the runs back at once. On the worker's loop."""
        self._worker.hurry()

    async def migrate(self) -> tuple[int, ...]:
        """Bring the tables up to date; return the versions applied, none when nothing was to do.

        Takes a lock in the database: however many processes call it at once, each migration is applied once.

        >>> app = Outlast("sqlite://")
        >>> await app.migrate()
        (1,)
        """
        try:
            return await self._database.migrate()
        finally:
            if self._database.is_lasting and not self._access.is_open:
                self._access.forget()
                await self._disconnect()

    async def schema_version(self) -> tuple[int, int]:
        """Return which version the tables have (0: there are none), and which one this code needs; an older one needs
        `migrate`. Makes nothing, not even an SQLite file. Raises DatabaseUnavailable, and SchemaConflict for tables of that
        name that are not ours."""
        return await self._database.schema_version()

    async def migration_statements(self) -> tuple[str, ...]:
        """Return the statements that `migrate` would execute now, as text for a person's own tool; it executes none."""
        found, _ = await self.schema_version()
        return self._database.migration_statements(found)

    async def drain(self) -> int:
        """Run everything that is due until nothing is; return how many turns were begun. For tests, and worker=False.

        Steps that run are waited for; runs that are due later stay as they are.
        """
        await self._access.ready("drain")
        return await self._worker.drain()

    @cached_property
    def blocking(self) -> BlockingClient:
        """The same verbs for code that does not await: scripts, threads, Flask, Django.

        Needs no `async with`: it connects when first used, and `app.blocking.close()` disconnects. On a thread whose event
        loop is running its verbs raise WrongColour.

        >>> app = Outlast("sqlite://", workflows=[hello])
        >>> app.blocking.start(hello, "Ada", id="hello-ada").created
        True
        >>> app.blocking.close()
        """
        return BlockingClient(self._access, self._calls, self._publishing)

    # How a run begins.

    @overload
    async def start(self, workflow: AnyWorkflowAlone[O], **options: Unpack[OneStart]) -> Handle[O]: ...
    @overload
    async def start(self, workflow: AnyWorkflow[I, O], input: I, **options: Unpack[OneStart]) -> Handle[O]: ...
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
        """Start a run and return its handle, once the run is durable.

        id: names this piece of work for ever. When it exists already, with the same workflow and an equal input, its handle
            comes back with `created` False, whatever its status; with anything else RunIdConflict is raised. Default: a new
            id; inside a step one that every attempt of the step makes again, so that a repeated step starts nothing twice.
        tx: your open transaction (a session or connection of SQLAlchemy or SQLModel, or a connection of Django, asyncpg,
            psycopg, PyMySQL, asyncmy, aiomysql, sqlite3 or aiosqlite): the run begins when it commits, and never existed
            when it does not.
        timeout: how long the run may take in all; default the workflow's. It is then stopped and undone.
        priority: 0 (the default) to 2,097,151; of the runs that are due, smaller ones go first.
        version: default the highest one registered here.

        Raises UnknownWorkflow, InvalidArgument, ValueNotStorable and RunIdConflict, having written nothing. Safe to repeat
        with the same id when the answer got lost.

        >>> handle = await app.start(hello, "Ada", id="hello-ada")
        >>> handle.created, (await app.start(hello, "Ada", id="hello-ada")).created
        (True, False)
        """
        return await self._client.start(
            workflow, input, id=id, tx=tx, timeout=timeout, priority=priority, version=version
        )

    async def start_many(
        self,
        workflow: AnyWorkflow[I, O],
        inputs: Iterable[I],
        *,
        ids: Sequence[str] | None = None,
        tx: object = None,
        timeout: Duration | None = None,
        priority: int = 0,
        version: int | None = None,
    ) -> Handles[O]:
        """Start a run for each input, all in one transaction, and return their handles in the same order.

        Much faster than as many single starts. `ids` names them one by one; one conflict among them starts none (with
        `tx`, roll it back then). Otherwise as `start`.

        >>> handles = await app.start_many(hello, ["Ada", "Grace"], ids=["hello-1", "hello-2"])
        >>> [handle.id for handle in handles]
        ['hello-1', 'hello-2']
        """
        return await self._client.start_many(
            workflow, inputs, ids=ids, tx=tx, timeout=timeout, priority=priority, version=version
        )

    @overload
    async def start_and_wait(self, workflow: AnyWorkflowAlone[O], **options: Unpack[AwaitedStart]) -> O: ...
    @overload
    async def start_and_wait(self, workflow: AnyWorkflow[I, O], input: I, **options: Unpack[AwaitedStart]) -> O: ...
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
    ) -> Any:
        """Start a run and return its output: `start`, then `result(timeout=wait)`.

        Refuses a transaction (`tx`): the run begins when that commits, and until then there is nothing to wait for.

        >>> await app.start_and_wait(hello, "Ada", wait="10s")
        'Hello, Ada!'
        """
        return await self._client.start_and_wait(
            workflow, input, id=id, timeout=timeout, priority=priority, version=version, wait=wait, tx=tx
        )

    # How a run is spoken to.

    @overload
    async def signal(
        self, signal: Signal[None], *, key: str | None = None, id: str | None = None, tx: object = None
    ) -> SignalReceipt: ...
    @overload
    async def signal(
        self, signal: Signal[P], payload: P, *, key: str | None = None, id: str | None = None, tx: object = None
    ) -> SignalReceipt: ...
    async def signal(
        self,
        signal: Signal[Any],
        payload: object = MISSING,
        *,
        key: str | None = None,
        id: str | None = None,
        tx: object = None,
    ) -> SignalReceipt:
        """Send a signal to whichever runs wait, or will wait, for its name and key, and were started before it.

        key: which line of this signal; None, "" and every other text are different lines.
        id: sent again under the same id, the signal is not stored twice (`created` is False), whatever its payload; with
            another key it is SignalIdConflict. Default: a new id; inside a step one that every attempt of it makes again.
        tx: as with `start`. The line of this name and key is held until your transaction ends; on PostgreSQL it must be
            READ COMMITTED (IsolationRefused otherwise).

        Raises InvalidArgument and ValueNotStorable, having written nothing.

        >>> approved = Signal("order.approved", str)
        >>> (await app.signal(approved, "by Ada", key="o-1")).woken
        0
        """
        return await self._client.signal(signal, payload, key=key, id=id, tx=tx)

    async def cancel(self, id: str, reason: str = "Cancelled.", *, tx: object = None) -> StopReceipt:
        """Ask a run to stop, and to undo what it did since its last `ctx.commit`.

        The first request counts: `accepted` is False when the run had ended, was undoing already or had been asked before.
        A step that runs is waited for. Raises RunNotFound.

        >>> @workflow("patient")
        ... async def patient(ctx: Context) -> None:
        ...     await ctx.sleep("a-day", "1d")
        >>> async with Outlast("sqlite://", workflows=[patient]) as app:
        ...     run = await app.start(patient)
        ...     (await app.cancel(run.id, "Ada called")).accepted
        True
        """
        return await self._client.cancel(id, reason, tx=tx)

    async def terminate(self, id: str, reason: str = "Terminated.", *, tx: object = None) -> StopReceipt:
        """End a run where it stands, without undoing anything; also one that is being undone. Raises RunNotFound.

        A step that runs is waited for. `accepted` is False when the run had ended or was terminated before.
        """
        return await self._client.terminate(id, reason, tx=tx)

    # What is known about runs.

    async def result(self, id: str, *, timeout: Duration | None = None) -> Any:  # noqa: ANN401 -- only the run knows its type
        """Wait for a run's end and return its output, as its type where its workflow is registered.

        timeout: how long to wait, in real time; default for ever. When it passes ResultTimeout is raised and the run goes
        on: ask again. Cancelling the call changes nothing about the run either.

        Raises RunNotFound; and when the run did not complete RunFailed, or the kind of it that tells why: RunCancelled,
        RunTerminated, RunTimedOut, CompensationFailed.
        """
        return await self._client.result(id, timeout=timeout)

    def handle(self, workflow: AnyWorkflow[Any, O] | AnyWorkflowAlone[O], id: str) -> KnownRun[O]:
        """Return a handle on a run that is known by its id, whose result has the type of the workflow's output.

        Asks nothing: whether there is such a run, and one of this workflow, its `result` finds out. Raises UnknownWorkflow.

        >>> run = await app.start(hello, "Ada", id="hello-ada")
        >>> await app.handle(hello, "hello-ada").result(timeout="10s")
        'Hello, Ada!'
        """
        return self._client.handle(workflow, id)

    async def get(self, id: str, *, journal: bool = False) -> Run | None:
        """Return what is known about a run, with every entry of its journal when asked; None when there is no such run.

        Values that cannot be read do not hide the run: `Run.unreadable` says which, and why.
        """
        return await self._client.get(id, journal=journal)

    async def list(
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
        """Return a page of runs, oldest first: at most `limit` (1 to 1,000), beginning after `cursor`.

        Filters that are not passed do not filter. Bounds of time are aware datetimes, `created_after` included and
        `created_before` not. Pages do not drift: a run started meanwhile comes on a later page.

        >>> page = await app.list(status="completed", limit=10)
        >>> page.cursor is None
        True
        """
        return await self._client.list(
            status=status,
            workflow=workflow,
            version=version,
            created_after=created_after,
            created_before=created_before,
            limit=limit,
            cursor=cursor,
        )

    async def _open(self, *, with_worker: bool, options: WorkerOptions | None = None) -> None:
        access = self._access
        if access.is_open:
            raise DefinitionError("This Outlast is open already; close it before it is opened again.")
        was_closed, access.is_open, access.is_closed = access.is_closed, True, False
        try:
            for workflow in self._catalog:
                _check_types(workflow)
            self._publishing.routes.check_types()
            await access.ready("open")
            if with_worker:
                await self._worker.start(options)
                access.local = Local(self._worker, asyncio.get_running_loop())
        except BaseException:
            try:
                await self.close()
            finally:
                access.is_closed = was_closed
            raise

    async def _disconnect(self) -> None:
        try:
            await self._client.close()
        finally:
            await self._database.close()


def _executable(declared: object) -> Workflow[Any, Any]:
    """Return the workflow with an instance to run on, made here when a class needs nothing for one."""
    workflow = workflow_of(declared)
    if workflow.is_bound or not isinstance(declared, type):
        return workflow
    try:
        return workflow.bind(declared())
    except TypeError as error:
        raise DefinitionError(
            f"{declared.__qualname__} cannot be made without arguments ({error}). "
            f"Pass an instance of it: Outlast(workflows=[{declared.__qualname__}(...)])."
        ) from error


def _check_types(workflow: Workflow[Any, Any]) -> None:
    """Look its types up now: they raise DefinitionError here rather than in the first run."""
    _ = workflow.input_shape, workflow.output_shape


def _default_retry(retry: object) -> Retry:
    if not isinstance(retry, Retry):
        raise InvalidArgument(f"Outlast(retry=...) is a Retry(...); {retry!r} is not.")
    return retry
