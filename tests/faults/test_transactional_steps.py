"""Transactional steps when something goes wrong between the function's return and the answer to its COMMIT.

Whatever it is: the rows are there exactly when the entry is.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from outlast import (
    Context,
    Failure,
    Outlast,
    Retry,
    RunCancelled,
    RunFailed,
    RunId,
    StepContext,
    StopKind,
    WorkerOptions,
    workflow,
)
from outlast.model.run import Stop
from support.callers import awaiting_engine
from support.payments import SOURCES, SQLALCHEMY, TABLE, Source, make_table, payments, source_on
from support.probing import Tables, until, until_awaited
from support.tcp_proxy import TcpProxy

AGAIN = Retry(attempts=3, delay="1ms")
PLACES = ("sqlite, sessionmaker", "sqlite, async_sessionmaker", "postgresql, sessionmaker", "postgresql, asyncpg pool")
"""Each database in both colours."""


class Breaking:
    """A source whose transactions do something else at their end, the first time."""

    def __init__(self, source: Source, begin: Callable[[], Any]) -> None:
        self.source = source
        self._begin = begin
        self.before: Callable[[], object] | None = None
        """Called instead of the commit; what it does not raise is a rollback without a word."""
        self.after: Callable[[], object] | None = None
        """Called after the commit."""

    @property
    def option(self) -> Callable[[], Any]:
        return self._blocking if self.source.is_blocking else self._awaiting

    @contextmanager
    def _blocking(self) -> Generator[Any]:
        before, after, self.before, self.after = self.before, self.after, None, None
        try:
            with self._begin() as tx:
                yield tx
                if before is not None:
                    raise _Instead
        except _Instead:
            assert before is not None
            before()
        if after is not None:
            after()

    @asynccontextmanager
    async def _awaiting(self) -> AsyncGenerator[Any]:
        before, after, self.before, self.after = self.before, self.after, None, None
        try:
            async with self._begin() as tx:
                yield tx
                if before is not None:
                    raise _Instead
        except _Instead:
            assert before is not None
            before()
        if after is not None:
            after()


class _Instead(Exception):
    """In the place of a commit."""


class Place:
    """A database and a source that can be broken."""

    def __init__(self, url: str, source: Source) -> None:
        self.url = url
        self.source = source
        option: Any = source.option
        if not hasattr(option, "begin") and hasattr(option, "acquire"):

            @asynccontextmanager
            async def begin() -> AsyncGenerator[Any]:
                async with option.acquire() as connection, connection.transaction():
                    yield connection

            self.breaking = Breaking(source, begin)
        else:
            self.breaking = Breaking(source, getattr(option, "begin", option))
        self.attempts: list[int] = []

    def shop(
        self,
        *acts: Callable[..., Any],
        first: Callable[..., Any] | None = None,
        retry: Retry | bool = AGAIN,
        **options: Any,
    ) -> Any:
        """A workflow of one payment; the step does `first` before it pays and the other acts after it."""
        source = self.source

        def note(_: Any, s: StepContext) -> None:
            self.attempts.append(s.attempt)

        before = (note,) if first is None else (note, first)
        pay = source.step(*before, lambda tx, s: source.pay(tx, s.run_id, f"attempt {s.attempt}"), *acts)

        @workflow("shop")
        async def shop(ctx: Context) -> str:
            paid: str = await ctx.transaction("pay", pay, retry=retry, **options)
            return paid

        return shop

    def app(self, shop: Any, *, option: object = None, **options: Any) -> Outlast:
        worker = WorkerOptions(**{"poll": "50ms", **options})
        return Outlast(self.url, workflows=[shop], transactions=option or self.breaking.option, worker=worker)

    def recorded(self) -> list[tuple[Any, ...]]:
        return Tables(self.url)("select run_id, name, phase, attempt from {journal} order by run_id, seq")


def in_places(*places: str) -> Callable[[Callable[[Place], Awaitable[None]]], Callable[..., Awaitable[None]]]:
    def on(test: Callable[[Place], Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        @pytest.mark.parametrize("where", places)
        async def run(where: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
            database, name = where.split(", ")
            url = f"sqlite:///{tmp_path}/app.db" if database == "sqlite" else request.getfixturevalue("postgres_url")
            async with source_on(url, name) as source:
                await test(Place(url, source))

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return on


def lose_the_answer() -> None:
    raise ConnectionResetError("the answer to COMMIT did not arrive")


# What became of the COMMIT.


@in_places(*PLACES)
async def test_a_commit_whose_answer_is_lost_is_found_in_the_journal_and_not_made_again(place: Place) -> None:
    place.breaking.after = lose_the_answer
    shop = place.shop()
    async with place.app(shop) as app:
        assert await app.start_and_wait(shop, id="o-1", wait="20s") == "paid"

    assert place.attempts == [1]
    assert payments(place.url) == [("o-1", "attempt 1")]
    assert place.recorded() == [("o-1", "pay", "done", 1)]


@in_places(*PLACES)
async def test_a_commit_that_never_happened_is_another_attempt(place: Place) -> None:
    place.breaking.before = lose_the_answer
    shop = place.shop()
    async with place.app(shop) as app:
        assert await app.start_and_wait(shop, id="o-1", wait="20s") == "paid"

    assert place.attempts == [1, 2]
    assert payments(place.url) == [("o-1", "attempt 2")]
    assert place.recorded() == [("o-1", "pay", "retry", 1), ("o-1", "pay", "done", 2)]


@in_places(*PLACES)
async def test_a_transaction_that_ends_without_a_commit_and_without_a_word_is_noticed(place: Place) -> None:
    place.breaking.before = lambda: None
    shop = place.shop()
    async with place.app(shop) as app:
        with pytest.raises(RunFailed, match="yet it was not committed"):
            await app.start_and_wait(shop, id="o-1", wait="20s")

    assert payments(place.url) == []
    assert place.recorded()[0] == ("o-1", "pay", "failed", 1)


@pytest.mark.parametrize("delivered", [True, False])
@pytest.mark.parametrize("name", ["asyncpg of ours", "psycopg of ours", "async_sessionmaker"])
async def test_a_link_that_breaks_at_the_commit_costs_nothing_but_time(
    name: str, delivered: bool, postgres_url: str, postgres_proxy: TcpProxy
) -> None:
    """The server got the COMMIT and its answer went nowhere, or it never got it."""
    make_table(postgres_url)
    through = postgres_proxy.url(postgres_url)
    async with SOURCES["postgresql"][name](through) as source:
        place = Place(postgres_url, source)
        shop = place.shop()
        app = Outlast(through, workflows=[shop], transactions=source.option, worker=WorkerOptions(poll="50ms"))
        async with app:
            for number in range(5):
                place.attempts.clear()
                postgres_proxy.cut_at(b"COMMIT", delivered=delivered, after=b"insert into payments")
                run = await app.start(shop, id=f"o-{number}")
                await asyncio.to_thread(postgres_proxy.wait_for_cut)

                assert await run.result(timeout="30s") == "paid"

                assert place.attempts == ([1] if delivered else [1, 2])
    assert [payment for payment, _ in payments(postgres_url)] == [f"o-{number}" for number in range(5)]
    assert [row[0] for row in place.recorded() if row[2] == "done"] == [f"o-{number}" for number in range(5)]


# What the application gave is no good.


@in_places(*PLACES)
async def test_an_error_that_the_applications_own_code_swallows_is_no_success(place: Place) -> None:
    option = place.breaking.option

    @contextmanager
    def swallowing() -> Generator[Any]:
        try:
            with option() as tx:
                yield tx
        except ValueError:
            pass

    @asynccontextmanager
    async def swallowing_awaiting() -> AsyncGenerator[Any]:
        try:
            async with option() as tx:
                yield tx
        except ValueError:
            pass

    def fail(_: Any, __: Any) -> None:
        raise ValueError

    shop = place.shop(fail)
    async with place.app(shop, option=swallowing if place.source.is_blocking else swallowing_awaiting) as app:
        with pytest.raises(RunFailed, match="swallowed the error"):
            await app.start_and_wait(shop, id="o-1", wait="20s")

    assert payments(place.url) == []


@in_places("sqlite, sessionmaker", "sqlite, async_sessionmaker")
async def test_a_session_on_another_database_records_nothing_anywhere(place: Place) -> None:
    """Once without outlast's tables, and once with tables of another application of the same name."""
    path = place.url.removeprefix("sqlite:///")
    mine = f"sqlite:///{path}.mine"
    shop = place.shop(retry=False)
    app = Outlast(mine, workflows=[shop], transactions=place.breaking.option)
    async with app:
        with pytest.raises(RunFailed, match="on the database in which they are"):
            await app.start_and_wait(shop, id="o-1", wait="20s")

        async with Outlast(place.url) as other:
            await other.migrate()
        with pytest.raises(RunFailed, match="does not see this worker's lease"):
            await app.start_and_wait(shop, id="o-2", wait="20s")

        assert place.attempts == [1]
        assert payments(place.url) == []
        assert place.recorded() == []


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_a_stricter_isolation_serves_as_well(isolation: str, postgres_url: str) -> None:
    """The lease is renewed while the step is inside its snapshot: that changes the row that the step locks at its end. A
    change of the run's own row cannot be seen from there, and makes it another attempt."""
    make_table(postgres_url)
    engine = awaiting_engine(postgres_url).execution_options(isolation_level=isolation)
    place = Place(postgres_url, Source(engine, None, False, **SQLALCHEMY))

    def renew(_: Any, s: StepContext) -> None:
        Tables(postgres_url)("update {workers} set lease_until = lease_until + 1")
        if s.attempt == 1 and s.run_id == "o-2":
            Tables(postgres_url)("update {runs} set updated_at = updated_at + 1")

    shop = place.shop(renew)
    async with Outlast(engine, workflows=[shop]) as app:
        assert await app.start_and_wait(shop, id="o-1", wait="20s") == "paid"
        assert await app.start_and_wait(shop, id="o-2", wait="20s") == "paid"
    await engine.dispose()

    assert payments(postgres_url) == [("o-1", "attempt 1"), ("o-2", "attempt 2")]


async def test_a_run_whose_step_has_no_transaction_of_its_colour_is_held_until_there_is_one(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/app.db"
    make_table(url)

    @workflow("shop")
    async def shop(ctx: Context) -> str:
        async def pay(tx: Any) -> str:
            return "paid"

        return await ctx.transaction("pay", pay)

    async def why() -> str | None:
        run = await app.get("o-1")
        assert run is not None
        return None if run.held is None else run.held.message

    async with Outlast(url, workflows=[shop]) as app:
        await app.start(shop, id="o-1")
        assert "Make it a plain function" in (await until_awaited(why, "the run to be held") or "")

    await asyncio.to_thread(Tables(url), "update {runs} set due_at = 0")
    async with source_on(url, "AsyncEngine") as source, Outlast(source.database, workflows=[shop]) as app:
        assert await app.result("o-1", timeout="20s") == "paid"


async def test_a_lambda_may_hand_on_an_async_function_whatever_transactions_there_are(postgres_url: str) -> None:
    """A plain function is tried with a transaction that blocks; what it gives to await then gets one that is awaited."""
    make_table(postgres_url)

    async def pay(tx: Any) -> str:
        await tx.execute("insert into payments values ('o-1', 'asyncpg')")
        return "paid"

    @workflow("shop")
    async def shop(ctx: Context) -> str:
        return await ctx.transaction("pay", lambda tx: pay(tx), retry=False)  # noqa: PLW0108  the lambda is the case

    async with Outlast(postgres_url, workflows=[shop]) as app:
        assert await app.start_and_wait(shop, wait="20s") == "paid"

    assert payments(postgres_url) == [("o-1", "asyncpg")]


# What comes between.


class Gate:
    """A function that stands still until the test lets it go on."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self, tx: Any, s: StepContext) -> Any:
        if s.attempt > 1 or self.reached.is_set():
            return None
        self.reached.set()
        if self._source.is_blocking:
            assert self.opened.wait(30)
            return None
        return self._awaited()

    async def _awaited(self) -> None:
        await asyncio.to_thread(self.opened.wait, 30)


@in_places(*PLACES)
async def test_an_attempt_beyond_its_timeout_does_not_commit_when_it_returns(place: Place) -> None:
    hangs = asyncio.Event()
    later = threading.Event()

    def blocking(_: Any, s: StepContext) -> None:
        while s.attempt == 1 and not s.stop_requested:
            later.wait(0.01)

    async def awaiting(_: Any, s: StepContext) -> None:
        if s.attempt == 1:
            await hangs.wait()

    shop = place.shop(blocking if place.source.is_blocking else awaiting, timeout="300ms")
    async with place.app(shop) as app:
        assert await app.start_and_wait(shop, id="o-1", wait="20s") == "paid"

    assert payments(place.url) == [("o-1", "attempt 2")]
    assert place.recorded() == [("o-1", "pay", "retry", 1), ("o-1", "pay", "done", 2)]


@in_places(*PLACES)
async def test_a_step_that_is_aborted_rolls_back_where_it_can_be_interrupted(place: Place) -> None:
    """A coroutine can be. A thread goes on, and what it then commits is recorded."""
    reached, later, hangs = threading.Event(), threading.Event(), asyncio.Event()

    def blocking(_: Any, s: StepContext) -> None:
        reached.set()
        while not s.stop_requested:
            later.wait(0.01)

    async def awaiting(_: Any, s: StepContext) -> None:
        reached.set()
        await hangs.wait()

    shop = place.shop(blocking if place.source.is_blocking else awaiting, on_cancel="abort")
    async with place.app(shop) as app:
        run = await app.start(shop, id="o-1")
        await asyncio.to_thread(reached.wait, 30)
        if place.url.startswith("sqlite"):
            # The request cannot be written while the step has the file. It is told as a renewal would tell of it.
            stop = Stop(StopKind.CANCEL, Failure(type="x", message="no longer wanted"), time.time_ns() // 1000)
            shift = app._worker._shift
            assert shift is not None
            assert shift.tenure is not None
            shift.call(partial(shift.tenure.request_stop, RunId("o-1"), stop))
        else:
            await app.cancel("o-1")
        with pytest.raises(RunCancelled):
            await run.result(timeout="20s")

    assert len(payments(place.url)) == (1 if place.source.is_blocking else 0)
    assert ("done" in {row[2] for row in place.recorded() if row[1] == "pay"}) == place.source.is_blocking


async def test_a_database_in_memory_is_the_steps_alone_while_it_has_it() -> None:
    """It is one connection. Others wait for it and go on; and the step itself reaches it by its transaction alone."""
    reached, opened = threading.Event(), threading.Event()
    seen: list[Any] = []

    @workflow("shop")
    async def shop(ctx: Context, name: str) -> int:
        def pay(db: Any) -> int:
            db.execute(TABLE)
            db.execute("insert into payments values (?, 'memory')", (name,))
            if name == "slow":
                app.blocking.start(shop, "started", id="started", tx=db)
                reached.set()
                assert opened.wait(30)
            count: int = db.execute("select count(*) from payments").fetchone()[0]
            db.row_factory = lambda _, row: seen.append(row)
            return count

        return await ctx.transaction("pay", pay)

    async with Outlast("sqlite://", workflows=[shop], worker=WorkerOptions(poll="1h")) as app:
        slow = await app.start(shop, "slow")
        await asyncio.to_thread(reached.wait, 30)
        quick = asyncio.ensure_future(app.start_and_wait(shop, "quick", wait="20s"))
        await asyncio.sleep(0)
        opened.set()

        assert await slow.result(timeout="20s") == 1
        assert sorted([await quick, await app.result("started", timeout="20s")]) == [2, 3]
    assert seen == []


@in_places("postgresql, sessionmaker", "postgresql, asyncpg pool")
async def test_other_runs_go_on_while_one_is_inside_its_transaction(place: Place) -> None:
    gate = Gate(place.source)
    shop = place.shop(gate)
    async with place.app(shop) as app:
        slow = await app.start(shop, id="slow")
        await asyncio.to_thread(gate.reached.wait, 30)

        assert await app.start_and_wait(shop, id="quick", wait="20s") == "paid"
        assert payments(place.url) == [("quick", "attempt 1")]

        gate.opened.set()
        assert await slow.result(timeout="20s") == "paid"


@in_places("sqlite, sessionmaker", "sqlite, async_sessionmaker")
async def test_on_sqlite_others_wait_for_it_longer_than_the_lease_and_then_go_on(place: Place) -> None:
    """A file has one writer. Nobody can end the lease of a worker whose step is that writer, so none of it is lost."""
    gate = Gate(place.source)
    shop = place.shop(gate)
    other = place.app(shop, poll="20ms")
    async with place.app(shop, lease="1s") as app, other:
        slow = await app.start(shop, id="slow")
        await asyncio.to_thread(gate.reached.wait, 30)
        quick = [asyncio.ensure_future(app.start_and_wait(shop, id=f"o-{number}")) for number in range(3)]
        await until_awaited(lambda: asyncio.to_thread(_lease_is_over, place.url), "the lease to be over")

        gate.opened.set()

        assert await slow.result(timeout="30s") == "paid"
        assert await asyncio.gather(*quick) == ["paid"] * 3

    assert len(payments(place.url)) == 4
    assert ("slow", "attempt 1") in payments(place.url)


def _lease_is_over(url: str) -> bool:
    (until_us,) = Tables(url)("select min(lease_until) from {workers}")[0]
    return bool(until_us < time.time_ns() // 1000)


@in_places(*PLACES)
async def test_a_worker_that_stops_takes_the_transaction_back_and_another_does_it(place: Place) -> None:
    gate = Gate(place.source)
    shop = place.shop(gate)
    app = place.app(shop, shutdown_timeout="0s")
    async with app:
        run = await app.start(shop, id="o-1")
        await asyncio.to_thread(gate.reached.wait, 30)
        if place.url.startswith("sqlite"):
            gate.opened.set()  # Nobody can take the run back while the file is held.
    gate.opened.set()

    async with place.app(shop) as other:
        assert await other.result(run.id, timeout="20s") == "paid"

    assert len(payments(place.url)) == 1
    assert [row[:3] for row in place.recorded()] == [("o-1", "pay", "done")]


@in_places("postgresql, sessionmaker", "postgresql, asyncpg pool")
async def test_a_step_whose_run_was_taken_over_inside_of_it_rolls_back(place: Place) -> None:
    """Incident: a worker that was away for longer than its lease comes back in the middle of a transaction."""
    gate = Gate(place.source)
    shop = place.shop(first=gate)
    other = place.app(shop, poll="20ms")
    async with place.app(shop, lease="1h", poll="1h") as app:
        await app.start(shop, id="o-1")
        await asyncio.to_thread(gate.reached.wait, 30)
        await asyncio.to_thread(Tables(place.url).end_leases)
        async with other:
            assert await other.result("o-1", timeout="20s") == "paid"
            journal = await asyncio.to_thread(place.recorded)

            gate.opened.set()
            await asyncio.to_thread(until, lambda: _workers(place.url) == 2, "the zombie to register again")

    assert payments(place.url) == [("o-1", "attempt 2")]
    assert place.recorded() == journal


@in_places("postgresql, sessionmaker", "postgresql, asyncpg pool")
async def test_a_lease_that_ends_unnoticed_before_the_commit_takes_the_rows_with_it(place: Place) -> None:
    """Nobody told the worker: it finds out by the proof in the step's own transaction."""

    def end_the_lease(_: Any, s: StepContext) -> None:
        if len(place.attempts) == 1:
            Tables(place.url)("update {workers} set epoch = epoch + 1")

    shop = place.shop(end_the_lease)
    async with place.app(shop, lease="1h") as app:
        run = await app.start(shop, id="o-1")
        # Under its next name it has no lapsed lease to end: what it held has an owner that is somebody else's.
        await asyncio.to_thread(until, lambda: _workers(place.url) == 2, "the worker to register again")
        assert payments(place.url) == []
        assert place.recorded() == []

        await asyncio.to_thread(Tables(place.url), "update {workers} set lease_until = 0 where epoch > 1")
        assert await run.result(timeout="30s") == "paid"

    assert len(payments(place.url)) == 1
    assert [row[:3] for row in place.recorded()] == [("o-1", "pay", "done")]


def _workers(url: str) -> int:
    return len(Tables(url)("select id from {workers}"))
