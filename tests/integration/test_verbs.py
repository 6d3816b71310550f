"""Every verb on every store in both colours, with a worker of this process doing the work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from outlast import (
    CompensationContext,
    Context,
    DefinitionError,
    InvalidArgument,
    InvalidName,
    NonRetryable,
    Outlast,
    ResultTimeout,
    RunCancelled,
    RunFailed,
    RunIdConflict,
    RunNotFound,
    RunTerminated,
    RunTimedOut,
    Signal,
    SignalIdConflict,
    Status,
    UnknownWorkflow,
    step,
    workflow,
)
from outlast.testing import ManualClock
from support.colours import Ask, parked, result_of

pytestmark = pytest.mark.every_database


@dataclass(frozen=True)
class Order:
    id: str
    price: Decimal


@dataclass(frozen=True)
class Receipt:
    order: Order
    paid_at: datetime


paid = Signal("paid", datetime)
poked = Signal("poked", None)
undone: list[str] = []


@step
async def price_with_tax(order: Order) -> Decimal:
    return order.price * 2


heard = Signal("heard", str)


@workflow("hear")
async def hear(ctx: Context) -> str:
    said = ctx.signal(heard)
    await ctx.wait_for("said", said)
    return said.value


@workflow("sell")
async def sell(ctx: Context, order: Order) -> Receipt:
    total = await price_with_tax(order)
    ctx.set_status("awaiting payment")
    at = await ctx.wait_for("payment", ctx.signal(paid, key=order.id))
    assert at is not None
    return Receipt(Order(order.id, total), at)


@workflow("greet", version=2)
async def greet(ctx: Context, name: str) -> str:
    return f"Hello, {name}"


@workflow("ping")
async def ping(ctx: Context) -> str:
    return "pong"


@workflow("refuse")
async def refuse(ctx: Context) -> None:
    ctx.fail("the shop is closed")


@step
async def book(s: str) -> str:
    return s


@book.compensate
async def unbook(s: CompensationContext, booked: str) -> None:
    undone.append(booked)


@workflow("wait")
async def wait(ctx: Context, name: str) -> None:
    await book(name)
    await ctx.wait_for("poke", ctx.signal(poked, key=name))


@workflow("elsewhere")
async def elsewhere(ctx: Context) -> None: ...


WORKFLOWS = [hear, sell, greet, ping, refuse, wait]
ORDER = Order("o-1", Decimal("10.10"))
PAID_AT = datetime(2026, 5, 17, 12, tzinfo=UTC)


@asynccontextmanager
async def opened(url: str, *, worker: bool = True, clock: ManualClock | None = None) -> AsyncGenerator[Outlast, None]:
    app = Outlast(url, workflows=WORKFLOWS, worker=worker, clock=clock)
    try:
        async with app:
            yield app
    finally:
        await asyncio.to_thread(app.blocking.close)


async def test_a_run_that_is_known_by_its_id_gives_its_result(database_url: str) -> None:
    async with opened(database_url) as app:

        async def result(workflow: Any, run_id: str, **options: Any) -> tuple[object, object]:
            blocks = app.blocking.handle(workflow, run_id)
            return (
                await app.handle(workflow, run_id).result(**options), await asyncio.to_thread(blocks.result, **options)
            )  # fmt: skip

        known = app.handle(greet, "g")
        assert (known.id, known.workflow, repr(known)) == ("g", "greet", "KnownRun('g', 'greet')")
        with pytest.raises(RunNotFound, match=r"\(tx=\) is not committed yet"):
            await known.result()
        unfit: Any = price_with_tax
        with pytest.raises(DefinitionError, match="<Step 'price_with_tax'> is not a workflow but a step"):
            await app.start(unfit, "Ada")
        await app.start(greet, "Ada", id="g")
        await app.start(refuse, id="r")
        await app.start(wait, "Ada", id="w")

        assert await result(greet, "g", timeout="20s") == ("Hello, Ada", "Hello, Ada")
        with pytest.raises(RunFailed, match="the shop is closed"):
            await result(refuse, "r", timeout="20s")
        with pytest.raises(ResultTimeout):
            await result(wait, "w", timeout="0s")


async def test_a_run_of_another_workflow_is_not_taken_for_one_of_this(database_url: str) -> None:
    async with opened(database_url) as app:
        await app.start(greet, "Ada", id="g")

        with pytest.raises(InvalidArgument, match="Run 'g' is one of workflow 'greet', not of 'ping'"):
            await app.handle(ping, "g").result(timeout="20s")
        with pytest.raises(InvalidArgument, match="not of 'ping'"):
            await asyncio.to_thread(app.blocking.handle(ping, "g").result, timeout="20s")
        with pytest.raises(UnknownWorkflow):
            app.handle(elsewhere, "g")
        with pytest.raises(InvalidName):
            app.handle(greet, "")


async def test_a_run_goes_from_its_start_to_its_result(database_url: str, ask: Ask) -> None:
    async with opened(database_url) as app:
        handle = await ask(app, "start", sell, ORDER, id="order-1")
        receipt = await ask(app, "signal", paid, PAID_AT, key="o-1")

        result = await result_of(handle)

        assert result == Receipt(Order("o-1", Decimal("20.20")), PAID_AT)
        assert receipt.created
        assert await ask(app, "result", "order-1") == result
        run = await ask(app, "get", "order-1", journal=True)
        assert (run.status, run.input, run.output, run.custom_status) == (
            Status.COMPLETED,
            ORDER,
            result,
            "awaiting payment",
        )
        assert [entry.name for entry in run.journal] == ["price_with_tax", "payment"]
        assert run.created_at <= run.started_at <= run.finished_at


async def test_one_id_is_one_piece_of_work(database_url: str, ask: Ask) -> None:
    async with opened(database_url) as app:
        first = await ask(app, "start", greet, "Ada", id="a")
        assert await result_of(first) == "Hello, Ada"

        again = await ask(app, "start", greet, "Ada", id="a")

        assert (first.created, again.created, again.status) == (True, False, Status.COMPLETED)
        assert await result_of(again) == "Hello, Ada"
        with pytest.raises(RunIdConflict):
            await ask(app, "start", greet, "Grace", id="a")
        with pytest.raises(RunIdConflict):
            await ask(app, "start", ping, id="a")


async def test_many_are_started_at_once_and_in_order(database_url: str, ask: Ask) -> None:
    names = [f"name-{number}" for number in range(30)]
    async with opened(database_url) as app:
        handles = await ask(app, "start_many", greet, names, ids=names)

        assert [handle.id for handle in handles] == names
        assert [await result_of(handle) for handle in handles] == [f"Hello, {name}" for name in names]
        again = await ask(app, "start_many", greet, names, ids=names)
        assert [handle.created for handle in again] == [False] * 30


async def test_a_conflict_among_many_starts_none_of_them(database_url: str, ask: Ask) -> None:
    async with opened(database_url, worker=False) as app:
        await ask(app, "start", greet, "Ada", id="taken")

        with pytest.raises(RunIdConflict, match="taken"):
            await ask(app, "start_many", greet, ["Bob", "Grace"], ids=["new", "taken"])

        assert await ask(app, "get", "new") is None


async def test_start_and_wait_returns_the_output(database_url: str, ask: Ask) -> None:
    async with opened(database_url) as app:
        assert await ask(app, "start_and_wait", greet, "Ada", wait="20s") == "Hello, Ada"
        assert await ask(app, "start_and_wait", ping, wait="20s") == "pong"
        with pytest.raises(RunFailed, match="the shop is closed") as raised:
            await ask(app, "start_and_wait", refuse, wait="20s")
        assert raised.value.status == Status.FAILED


async def test_a_signal_id_alone_decides_and_the_payload_is_not_compared(database_url: str, ask: Ask) -> None:
    async with opened(database_url) as app:
        run = await ask(app, "start", hear, id="h")

        first = await ask(app, "signal", heard, "first", id="event-1")
        again = await ask(app, "signal", heard, "second", id="event-1")

        assert (first.created, again.created) == (True, False)
        assert await app.result(run.id, timeout="20s") == "first"


async def test_a_signal_id_names_one_message(database_url: str, ask: Ask) -> None:
    async with opened(database_url) as app:
        await ask(app, "start", wait, "x", id="w")
        await parked(app, "w")

        first = await ask(app, "signal", poked, key="x", id="event-1")
        again = await ask(app, "signal", poked, key="x", id="event-1")

        assert (first.created, first.woken) == (True, 1)
        assert (again.created, again.woken) == (False, 0)
        with pytest.raises(SignalIdConflict):
            await ask(app, "signal", poked, key="y", id="event-1")
        assert await ask(app, "result", "w", timeout="20s") is None


async def test_a_cancel_undoes_and_is_told_to_who_waits(database_url: str, ask: Ask) -> None:
    undone.clear()
    async with opened(database_url) as app:
        handle = await ask(app, "start", wait, "room 1", id="w")
        await parked(app, "w")

        first = await ask(app, "cancel", "w", "Ada called")
        with pytest.raises(RunCancelled, match="Ada called") as raised:
            await result_of(handle)
        second = await ask(app, "cancel", "w")

        assert (first.accepted, second.accepted, second.status) == (True, False, Status.CANCELLED)
        assert type(raised.value) is RunCancelled
        assert undone == ["room 1"]


async def test_a_terminate_undoes_nothing(database_url: str, ask: Ask) -> None:
    undone.clear()
    async with opened(database_url) as app:
        handle = await ask(app, "start", wait, "room 1", id="w")
        await parked(app, "w")

        assert (await ask(app, "terminate", "w")).accepted
        with pytest.raises(RunTerminated, match=r"Terminated\."):
            await result_of(handle)

        assert undone == []


async def test_stopping_or_awaiting_nobody_is_an_error(database_url: str, ask: Ask) -> None:
    async with opened(database_url, worker=False) as app:
        for verb in ("cancel", "terminate", "result"):
            with pytest.raises(RunNotFound):
                await ask(app, verb, "nobody")
        assert await ask(app, "get", "nobody") is None


async def test_a_run_that_takes_too_long_is_told_as_timed_out(database_url: str, ask: Ask) -> None:
    clock = ManualClock()
    async with opened(database_url, worker=False, clock=clock) as app:
        await ask(app, "start", wait, "x", id="w", timeout="1h")
        await app.drain()
        clock.advance("1h")
        await app.drain()

        with pytest.raises(RunTimedOut, match="1h"):
            await ask(app, "result", "w")


async def test_a_list_pages_through_runs_by_what_is_asked_for(database_url: str, ask: Ask) -> None:
    clock = ManualClock()
    async with opened(database_url, worker=False, clock=clock) as app:
        await ask(app, "start_many", greet, ["a"] * 3, ids=["g-1", "g-2", "g-3"])
        clock.advance("1h")
        await ask(app, "start", ping, id="p")
        await ask(app, "cancel", "p")
        await app.drain()

        first = await ask(app, "list", limit=3)
        rest = await ask(app, "list", limit=3, cursor=first.cursor)
        assert [run.id for run in first.runs + rest.runs] == ["g-1", "g-2", "g-3", "p"]
        assert rest.cursor is None

        async def found(**filters: object) -> list[str]:
            return [run.id for run in (await ask(app, "list", **filters)).runs]

        assert await found(status="completed") == ["g-1", "g-2", "g-3"]
        assert await found(status=[Status.CANCELLED, "failed"]) == ["p"]
        assert await found(workflow=ping) == await found(workflow="ping") == ["p"]
        assert await found(workflow="greet", version=1) == []
        later = datetime(2026, 1, 1, 1, tzinfo=UTC)
        assert await found(created_after=later) == ["p"]
        assert await found(created_before=later) == ["g-1", "g-2", "g-3"]
        with pytest.raises(InvalidArgument, match="cursor"):
            await found(cursor="nonsense")
        with pytest.raises(InvalidArgument, match="limit"):
            await found(limit=0)


async def test_a_time_limit_ends_the_waiting_and_not_the_run(database_url: str, ask: Ask) -> None:
    async with opened(database_url) as app:
        handle = await ask(app, "start", wait, "x")

        with pytest.raises(ResultTimeout):
            await result_of(handle, timeout="50ms")
        await ask(app, "signal", poked, key="x")

        assert await result_of(handle) is None


async def test_priorities_decide_who_goes_first(database_url: str, ask: Ask) -> None:
    async with opened(database_url, worker=False, clock=ManualClock()) as app:
        await ask(app, "start", ping, id="last", priority=9)
        await ask(app, "start", ping, id="first", priority=1)
        await app.drain()

        first, last = await ask(app, "get", "first"), await ask(app, "get", "last")

        assert (first.priority, last.priority) == (1, 9)
        assert (first.status, last.status) == (Status.COMPLETED, Status.COMPLETED)


async def test_an_unknown_version_is_refused_before_any_row_exists(database_url: str, ask: Ask) -> None:
    async with opened(database_url, worker=False) as app:
        with pytest.raises(UnknownWorkflow, match="greet version 1"):
            await ask(app, "start", greet, "Ada", version=1)

        assert (await ask(app, "list")).runs == ()


async def test_a_step_that_is_repeated_starts_and_sends_only_once(database_url: str, ask: Ask) -> None:
    attempts: list[int] = []
    app: Outlast

    @step(retry=2)
    async def notify() -> str:
        attempts.append(1)
        child = await ask(app, "start", ping)
        await ask(app, "signal", poked, key="step")
        if len(attempts) == 1:
            raise RuntimeError("the answer got lost")
        if not child.id:
            raise NonRetryable
        return str(child.id)

    @workflow("parent")
    async def parent(ctx: Context) -> str:
        return await notify()

    clock = ManualClock()
    app = Outlast(database_url, workflows=[parent, *WORKFLOWS], worker=False, clock=clock)
    async with app:
        handle = await app.start(parent)
        await app.drain()
        clock.advance(timedelta(seconds=1))
        await app.drain()

        child = await handle.result(timeout="0s")

        assert len(attempts) == 2
        pings = await app.list(workflow=ping)
        assert [run.id for run in pings.runs] == [child]
    await asyncio.to_thread(app.blocking.close)


async def test_waiting_for_a_run_of_an_open_transaction_cannot_be_asked_for(ask: Ask) -> None:
    """The run begins when the transaction commits, which is after the call: it would wait for ever."""
    async with opened("sqlite://", worker=False) as app:
        with pytest.raises(InvalidArgument, match=r"takes no tx=.*Call start\(\.\.\., tx=tx\), and result\(\)"):
            await ask(app, "start_and_wait", ping, tx=object())
