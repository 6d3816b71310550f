"""A caller keeps the transaction open in which it cancelled, signalled or started something.

What it is about has to wait for it. Nothing else has: a worker writes for all its runs at once, and one that is in the way
must not hold up the others; least of all when the caller itself waits for one of them inside that transaction.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from outlast import (
    Context,
    Outlast,
    RunCancelled,
    Signal,
    StepContext,
    WorkerOptions,
    step,
    transactional_step,
    workflow,
)
from support.callers import ROADS, awaiting_engine, blocking_engine, kind_of
from support.nursery import Nursery
from support.probing import Tables, until, until_awaited
from support.programs import fleet

calls: Counter[str] = Counter()
word = Signal("word", int)
OPTIONS = WorkerOptions(poll="50ms", lease="5m")


@step
async def first(s: StepContext, number: int) -> int:
    calls[s.idempotency_key] += 1
    return number


@workflow("adding")
async def adding(ctx: Context, number: int) -> int:
    return await first(number) + await first.named("again")(number)


@workflow("listening")
async def listening(ctx: Context, number: int) -> int | None:
    await first(number)
    return await ctx.wait_for("word", ctx.signal(word, key="line"))


@pytest.fixture(autouse=True)
def _fresh_calls() -> None:
    calls.clear()


@asynccontextmanager
async def transaction(url: str) -> AsyncIterator[Any]:
    road = {"postgresql": "asyncpg", "mysql": "asyncmy", "mariadb": "AsyncConnection"}[kind_of(url)]
    async with ROADS[road](url) as caller, caller.transaction() as tx:
        yield tx


async def assert_others_go_on(app: Outlast, count: int = 50) -> None:
    async with asyncio.timeout(30):
        results = await asyncio.gather(*(app.start_and_wait(adding, number) for number in range(count)))
    assert results == [2 * number for number in range(count)]


@pytest.fixture(params=["a URL", "an AsyncEngine", "an Engine"])
def target(request: pytest.FixtureRequest, server_url: str) -> object:
    """What an app may be given as its database. The connections of an engine have no settings of ours."""
    match request.param:
        case "a URL":
            return server_url
        case "an AsyncEngine":
            return awaiting_engine(server_url)
        case _:
            return blocking_engine(server_url)


async def test_an_open_cancel_holds_up_its_own_run_alone(server_url: str, target: object) -> None:
    gate = asyncio.Event()

    @workflow("standing")
    async def standing(ctx: Context) -> None:
        await ctx.step("stand", lambda s: gate.wait())
        await ctx.sleep("long", "1d")

    async with Outlast(target, workflows=[adding, standing], worker=OPTIONS) as app:
        held = await app.start(standing)
        async with transaction(server_url) as tx:
            await app.cancel(held.id, tx=tx)
            gate.set()
            await assert_others_go_on(app, 50 if isinstance(target, str) else 10)
            run = await app.get(held.id, journal=True)
            assert run is not None
            assert run.journal == ()

        with pytest.raises(RunCancelled):
            await held.result(timeout="20s")
        run = await app.get(held.id, journal=True)
        assert run is not None
        assert [entry.name for entry in run.journal] == ["stand", "long", "$stop"]
    match target:
        case AsyncEngine():
            await target.dispose()
        case Engine():
            target.dispose()
        case _:
            pass
    assert set(calls.values()) == {1}


async def test_an_open_signal_holds_up_those_alone_who_are_about_to_wait_for_it(server_url: str) -> None:
    async with Outlast(server_url, workflows=[adding, listening], worker=OPTIONS) as app:
        async with transaction(server_url) as tx:
            await app.signal(word, 7, key="line", tx=tx)
            # The signal is older than the run, by its place in the line, but not committed yet.
            held = await asyncio.gather(*(app.start(listening, number) for number in range(60)))
            await assert_others_go_on(app)

        await app.signal(word, 8, key="line")
        assert [await run.result(timeout="20s") for run in held] == [7] * 60
    assert set(calls.values()) == {1}


async def test_an_open_start_holds_up_those_alone_who_start_the_same(server_url: str) -> None:
    async with Outlast(server_url, workflows=[adding], worker=OPTIONS) as app:
        async with transaction(server_url) as tx:
            ids = [f"{number}" for number in range(12)]
            await app.start_many(adding, [1] * 12, ids=ids, tx=tx)
            again = [asyncio.create_task(app.start(adding, 1, id=each)) for each in ids]
            await assert_others_go_on(app)
            assert not any(one.done() for one in again)

        assert {(await one).created for one in again} == {False}
        assert [await app.result(each, timeout="20s") for each in ids] == [2] * 12
    assert set(calls.values()) == {1}


async def test_an_open_start_holds_up_no_other_start_of_a_process_without_a_worker(server_url: str) -> None:
    async with Outlast(server_url, workflows=[adding], worker=False) as client:
        async with transaction(server_url) as tx:
            await client.start(adding, 1, id="one", tx=tx)
            async with asyncio.timeout(20):
                again = asyncio.create_task(client.start(adding, 1, id="one"))
                others = await asyncio.gather(*(client.start(adding, number) for number in range(20)))
            assert {one.created for one in others} == {True}
            assert not again.done()

        assert (await again).created is False


async def test_a_lease_outlasts_an_open_transaction(server_url: str) -> None:
    """What waits for the caller's lock holds the worker's own row, which its renewal changes: for half a second at a time,
    and on MySQL and MariaDB, which count whole ones, for one."""
    seconds = 1 if kind_of(server_url) == "postgresql" else 4
    gate = asyncio.Event()

    @workflow("standing")
    async def standing(ctx: Context) -> None:
        await ctx.step("stand", lambda s: gate.wait())
        await ctx.sleep("long", "1d")

    tables = Tables(server_url)
    options = WorkerOptions(poll="50ms", lease=f"{seconds}s")
    async with Outlast(server_url, workflows=[standing], worker=options) as app:
        held = await app.start(standing)
        async with transaction(server_url) as tx:
            await app.cancel(held.id, tx=tx)
            gate.set()
            ((begin,),) = await asyncio.to_thread(tables, "select lease_until from {workers}")

            async def is_renewed() -> bool:
                return await asyncio.to_thread(
                    lambda: tables("select lease_until from {workers}") > [(begin + 2 * seconds * 1_000_000,)]
                )

            await until_awaited(is_renewed, "two leases to pass")
        with pytest.raises(RunCancelled):
            await held.result(timeout="20s")
        assert await asyncio.to_thread(tables, "select lapses from {runs}") == [(0,)]


async def test_an_open_cancel_holds_up_the_transactional_step_of_its_run_alone(server_url: str) -> None:
    """The step waits in a transaction of the application's, with its patience: 50 s on MySQL and MariaDB. With the worker's
    row locked meanwhile the lease could not be renewed, and once that was uncertain nothing began any more."""
    begun, gate = asyncio.Event(), asyncio.Event()
    tries: list[int] = []

    @transactional_step
    async def pay(tx: object, s: StepContext) -> str:
        tries.append(s.attempt)
        begun.set()
        await gate.wait()
        return "paid"

    @workflow("paying")
    async def paying(ctx: Context) -> None:
        await pay()
        await ctx.sleep("long", "1d")

    tables = Tables(server_url)
    options = WorkerOptions(poll="50ms", lease="6s")
    async with Outlast(server_url, workflows=[adding, paying], worker=options) as app:
        held = await app.start(paying)
        await begun.wait()
        async with transaction(server_url) as tx:
            await app.cancel(held.id, tx=tx)
            gate.set()
            await asyncio.to_thread(until, tables.waits_for_a_lock, "the step to wait for the caller")
            begin = await asyncio.to_thread(tables, "select id, lease_until from {workers}")

            await assert_others_go_on(app, 30)

            async def is_renewed() -> bool:
                ((worker, lease_until),) = await asyncio.to_thread(tables, "select id, lease_until from {workers}")
                return bool(worker == begin[0][0] and lease_until > begin[0][1])

            await until_awaited(is_renewed, "the lease to be renewed")

        with pytest.raises(RunCancelled):
            await held.result(timeout="20s")
        run = await app.get(held.id, journal=True)
    assert run is not None
    assert [entry.name for entry in run.journal][:1] == ["pay"]
    assert tries == [1]
    assert await asyncio.to_thread(tables, "select lapses from {runs} where id = %s", held.id) == [(0,)]


def test_an_open_cancel_holds_up_no_other_run_of_a_dead_worker(
    server_url: str, nursery: Nursery, tmp_path: Path
) -> None:
    ledger = str(tmp_path / "ledger")
    dead = nursery.start(fleet.hold, database=server_url, ledger=ledger, count=20)
    dead.wait_for("holds 20")
    dead.kill()
    tables = Tables(server_url)
    open_runs = "select count(*) from {runs} where finished_at is null"

    async def main() -> None:
        client = Outlast(server_url, workflows=[fleet.working], worker=False)
        async with client, transaction(server_url) as tx:
            await client.cancel(fleet.run_id(7), tx=tx)
            tables.end_leases()
            nursery.start(fleet.serve, database=server_url, ledger=ledger).wait_for("works")
            await asyncio.to_thread(until, lambda: tables(open_runs) == [(1,)], "the others to end")

    asyncio.run(main())

    until(lambda: tables(open_runs) == [(0,)], "the last one to end")
    assert tables("select id from {runs} where status = 'cancelled'") == [(fleet.run_id(7),)]
