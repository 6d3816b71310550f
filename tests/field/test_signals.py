"""Signals that others lost, doubled or delivered to nobody."""

from __future__ import annotations

import asyncio

import asyncpg

from outlast import Context, Outlast, Signal, Status, WorkerOptions, workflow
from outlast.testing import ManualClock
from support.field_apps import forgetful, run_of
from support.probing import Tables, until_awaited
from support.tcp_proxy import TcpProxy

approve = Signal("approve", dict[str, str])
done, error = Signal("done", str), Signal("error", str)
ANN = {"by": "ann"}

LISTENERS = "select pid from pg_stat_activity where query ilike 'listen%' and datname = current_database()"


@workflow("approval")
async def approval(ctx: Context) -> dict[str, str] | None:
    return await ctx.wait_for("approval", ctx.signal(approve), timeout="10m")


async def test_a_signal_that_came_before_the_first_turn_is_received(database_url: str) -> None:
    @workflow("late")
    async def late(ctx: Context) -> dict[str, str] | None:
        await ctx.step("first", lambda s: None)
        await ctx.sleep("pause", "2s")
        return await ctx.wait_for("approval", ctx.signal(approve), timeout="60s")

    clock = ManualClock()
    async with forgetful(database_url, late, clock=clock) as app:
        run = await app.start(late)
        assert (await app.signal(approve, ANN)).woken == 0
        await app.drain()
        clock.advance("2s")
        await app.drain()

        assert await run.result(timeout="0s") == ANN


async def test_a_worker_that_was_cut_off_while_a_signal_was_sent_is_woken(
    postgres_url: str, postgres_proxy: TcpProxy
) -> None:
    """Its poll is long: only listening again, and one look when that is back, can wake it."""
    cut_off = postgres_proxy.url(postgres_url)
    async with (
        Outlast(cut_off, workflows=[approval], worker=WorkerOptions(poll="10m")) as app,
        Outlast(postgres_url, workflows=[approval], worker=False) as sender,
    ):
        run = await app.start(approval)
        await until_awaited(lambda: _is_parked(sender, run.id), "the run to be parked")

        postgres_proxy.refuse()
        await sender.signal(approve, ANN)
        assert (await run_of(sender, run.id)).status is Status.SUSPENDED
        postgres_proxy.let_through()

        assert await sender.result(run.id, timeout="20s") == ANN


async def test_a_worker_whose_listening_connection_was_ended_listens_again(postgres_url: str) -> None:
    """The same poll: the second signal is heard because it listens."""
    connection = await asyncpg.connect(postgres_url)
    async with (
        Outlast(postgres_url, workflows=[approval], worker=WorkerOptions(poll="10m")) as app,
        Outlast(postgres_url, workflows=[approval], worker=False) as sender,
    ):
        await app.start(approval)
        (before,) = await connection.fetch(LISTENERS)

        await connection.execute("select pg_terminate_backend($1)", before["pid"])
        again = await until_awaited(
            lambda: connection.fetch(f"{LISTENERS} and pid <> $1", before["pid"]), "somebody to listen"
        )

        assert len(again) == 1
        run = await app.start(approval)
        await until_awaited(lambda: _is_parked(sender, run.id), "the run to be parked")
        await sender.signal(approve, ANN)
        assert await sender.result(run.id, timeout="20s") == ANN
    await connection.close()


async def test_two_workers_that_resume_one_waiting_run_agree(shared_database_url: str) -> None:
    """A message is there, and both look for work at the same time, again and again."""
    seen: list[str] = []

    @workflow("waiting")
    async def waiting(ctx: Context) -> str | None:
        got = await ctx.wait_for("message", ctx.signal(done, key=ctx.run_id))
        await ctx.step("log", lambda s: seen.append(f"{s.run_id} {got}"))
        return got

    ids = [f"run-{number}" for number in range(20)]
    clock = ManualClock()
    async with (
        forgetful(shared_database_url, waiting, clock=clock) as one,
        forgetful(shared_database_url, waiting, clock=clock) as two,
    ):
        await one.start_many(waiting, [None] * len(ids), ids=ids)
        await one.drain()
        for run_id in ids:
            await one.signal(done, f"m of {run_id}", key=run_id)
            await asyncio.gather(one.drain(), two.drain())

        for run_id in ids:
            run = await run_of(one, run_id, journal=True)
            assert run.output == f"m of {run_id}"
            (wait,) = [entry for entry in run.journal if entry.name == "message"]
            assert wait.payload is not None
            assert f"m of {run_id}" in wait.payload
    assert sorted(seen) == sorted(f"{run_id} m of {run_id}" for run_id in ids)


async def test_a_wait_that_was_given_up_leaves_nothing_behind(shared_database_url: str) -> None:
    @workflow("impatient")
    async def impatient(ctx: Context) -> str | None:
        for attempt in range(3):
            try:
                async with asyncio.timeout(0.1):
                    return await ctx.wait_for(f"attempt-{attempt}", ctx.signal(done))
            except TimeoutError:
                pass
        try:
            await asyncio.wait_for(ctx.wait_for("attempt-3", ctx.signal(done)), 0.1)
        except TimeoutError:
            await ctx.sleep("meanwhile", "1h")
        return await ctx.wait_for("last", ctx.signal(done), timeout="5s")

    clock, tables = ManualClock(), Tables(shared_database_url)
    async with forgetful(shared_database_url, impatient, clock=clock) as app:
        run = await app.start(impatient)
        await app.drain()
        for _ in range(4):
            assert (await run_of(app, run.id)).waiting_for == ("done",)
            clock.advance("100ms")
            await app.drain()
        assert (await run_of(app, run.id)).waiting_for == ()
        assert tables("select topic from {waits}") == []
        assert (await app.signal(done, "at last")).woken == 0

        clock.advance("1h")
        await app.drain()

        assert await run.result(timeout="0s") == "at last"
    assert tables("select topic from {waits}") == []


async def test_the_loser_of_a_race_waits_for_nothing_any_more(shared_database_url: str) -> None:
    @workflow("race")
    async def race(ctx: Context) -> str:
        good, bad = ctx.signal(done), ctx.signal(error)
        await ctx.first("outcome", good, bad, ctx.timer("1h"))
        return good.value if good.won else "bad"

    tables = Tables(shared_database_url)
    async with forgetful(shared_database_url, race) as app:
        run = await app.start(race)
        await app.drain()
        assert len(tables("select topic from {waits}")) == 2
        await app.signal(done, "yes")
        await app.drain()

        assert await run.result(timeout="0s") == "yes"
        late = await app.signal(error, "too late")
        assert (late.created, late.woken) == (True, 0)
        assert await app.drain() == 0
    assert tables("select topic from {waits}") == []


async def _is_parked(app: Outlast, run_id: str) -> bool:
    return (await run_of(app, run_id)).status is Status.SUSPENDED
