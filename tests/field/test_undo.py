"""Stopping and undoing: once each, in order, whoever interrupts, and told to the steps that run."""

from __future__ import annotations

import asyncio
import threading

import pytest

from outlast import (
    CompensationContext,
    CompensationFailed,
    Context,
    Outlast,
    Retry,
    RunCancelled,
    RunFailed,
    RunTimedOut,
    Status,
    StepContext,
    StepFailed,
    WorkerOptions,
    workflow,
)
from outlast.model.failures import type_name
from outlast.testing import ManualClock
from support.field_apps import forgetful, run_of
from support.probing import Tables, until, until_awaited

# While undoing.


class Undoing:
    """Compensations that wait until the test lets them go on."""

    def __init__(self) -> None:
        self.begun: asyncio.Queue[str] = asyncio.Queue()
        self.done: list[str] = []
        self.gates = {name: asyncio.Event() for name in "abc"}

    async def undo(self, s: CompensationContext, result: str) -> None:
        await self.begun.put(s.step)
        await self.gates[s.step].wait()
        self.done.append(s.step)


@pytest.mark.parametrize("verb", ["cancel", "time out"])
async def test_undoing_is_not_cut_short_by_another_reason_to_stop(database_url: str, verb: str) -> None:
    undoing, clock = Undoing(), ManualClock()

    @workflow("saga", timeout="1h")
    async def saga(ctx: Context) -> None:
        for name in "abc":
            await ctx.step(name, lambda s: s.step, compensate=undoing.undo)
        ctx.fail("no d")

    async with Outlast(database_url, workflows=[saga], clock=clock) as app:
        run = await app.start(saga)
        for name in "cba":
            assert await undoing.begun.get() == name
            if verb == "cancel":
                receipt = await app.cancel(run.id)
                assert (receipt.accepted, receipt.status) == (False, Status.COMPENSATING)
            else:
                clock.advance("1h")
            undoing.gates[name].set()

        with pytest.raises(RunFailed, match="no d"):
            await run.result(timeout="20s")
        assert (await run_of(app, run.id)).status is Status.FAILED
    assert undoing.done == ["c", "b", "a"]


async def test_undoing_goes_on_in_another_process_when_the_worker_is_stopped(shared_database_url: str) -> None:
    undoing = Undoing()

    @workflow("saga")
    async def saga(ctx: Context) -> None:
        for name in "abc":
            await ctx.step(name, lambda s: s.step, compensate=undoing.undo)
        ctx.fail("no d")

    first = Outlast(shared_database_url, workflows=[saga])
    async with first:
        run = await first.start(saga)
        assert await undoing.begun.get() == "c"
        undoing.gates["c"].set()
        assert await undoing.begun.get() == "b"
        stopping = asyncio.create_task(first.close())
        await asyncio.sleep(0)
        undoing.gates["b"].set()
        await stopping
    assert undoing.done == ["c", "b"]

    undoing.gates["a"].set()
    async with Outlast(shared_database_url, workflows=[saga]) as second:
        with pytest.raises(RunFailed, match="no d"):
            await second.result(run.id, timeout="20s")
    assert undoing.done == ["c", "b", "a"]


async def test_an_undo_that_gives_up_leaves_the_rest_and_tells_both_errors(database_url: str) -> None:
    tried: list[tuple[str, int]] = []

    def undo(s: CompensationContext, result: str) -> None:
        tried.append((s.step, s.attempt))
        if s.step == "b":
            raise ConnectionError("the carrier is away")

    @workflow("saga")
    async def saga(ctx: Context) -> None:
        for name in "abc":
            await ctx.step(name, lambda s: s.step, compensate=undo, compensate_retry=Retry(attempts=3, delay="1m"))
        ctx.fail("no d")

    clock = ManualClock()
    async with forgetful(database_url, saga, clock=clock) as app:
        run = await app.start(saga)
        for _ in range(3):
            await app.drain()
            clock.advance("2m")

        found = await run_of(app, run.id)
        assert found.status is Status.COMPENSATION_FAILED
        with pytest.raises(CompensationFailed) as failed:
            await run.result(timeout="0s")
        assert not (await app.cancel(run.id)).accepted
    assert tried == [("c", 1), ("b", 1), ("b", 2), ("b", 3)]
    reason = failed.value.failure
    assert reason.message == "no d"
    assert reason.inner[-1].type == type_name(StepFailed)
    assert reason.inner[-1].inner[0].message == "the carrier is away"
    assert (
        "no d; undoing gave up: The compensation of step 'b' gave up after 3 attempts: ConnectionError: the carrier is "
        "away. Somebody has to look: app.get("
    ) in str(failed.value)


@pytest.mark.parametrize("way", ["raises", "takes too long"])
@pytest.mark.parametrize("worker", ["the same", "another"])
async def test_a_step_that_failed_half_way_is_not_undone(database_url: str, way: str, worker: str) -> None:
    """It cleans up itself: nothing is recorded of how far it came. Others are undone."""
    rows: list[str] = []

    async def insert(s: StepContext) -> str:
        rows.append(s.step)
        if s.step == "half" and way == "raises":
            raise ValueError("half-way")
        if s.step == "half":
            await asyncio.Event().wait()
        return s.step

    @workflow("half-way")
    async def half_way(ctx: Context) -> None:
        for name in ("whole", "half"):
            await ctx.step(name, insert, compensate=lambda s, row: rows.remove(row), timeout="100ms", retry=2)

    clock = ManualClock()
    options = WorkerOptions(cached_runs=0 if worker == "another" else 100)
    async with Outlast(database_url, workflows=[half_way], worker=options, clock=clock) as app:
        run = await app.start(half_way)
        await app.drain()
        clock.advance("1s")
        await app.drain()

        with pytest.raises(RunFailed):
            await run.result(timeout="0s")
        journal = {entry.name: entry.phase for entry in (await run_of(app, run.id, journal=True)).journal}
    assert rows == ["half", "half"]
    assert journal == {"whole": "done", "half": "failed", "$stop": "done", "$compensate:whole": "done"}


async def test_a_step_that_runs_when_its_run_times_out_is_recorded_and_undone(database_url: str) -> None:
    begun, release = asyncio.Event(), asyncio.Event()
    undone: list[str] = []

    async def slow(s: StepContext) -> str:
        begun.set()
        await release.wait()
        return "effect"

    @workflow("slow", timeout="1h")
    async def slow_workflow(ctx: Context) -> None:
        await ctx.step("slow", slow, compensate=lambda s, effect: undone.append(effect))

    clock = ManualClock()
    async with Outlast(database_url, workflows=[slow_workflow], clock=clock) as app:
        run = await app.start(slow_workflow)
        await begun.wait()
        clock.advance("1h")
        await until_awaited(lambda: _is_recorded(app, run.id, "$stop"), "the timeout to be recorded")
        assert undone == []
        release.set()

        with pytest.raises(RunTimedOut):
            await run.result(timeout="20s")
    assert undone == ["effect"]


async def _is_recorded(app: Outlast, run_id: str, name: str) -> bool:
    return any(entry.name == name for entry in (await run_of(app, run_id, journal=True)).journal)


# Telling the steps that run. The worker's lease is short: it asks for stop requests with each renewal.


def a_worker(url: str, *workflows: object, hears: bool) -> Outlast:
    app = Outlast(url, workflows=workflows, worker=WorkerOptions(lease="900ms", poll="1h"))
    if not hears:
        app._database._listener = None
    return app


@pytest.mark.parametrize("hears", [True, False], ids=["told", "by renewal"])
async def test_a_step_that_says_so_is_cancelled_by_another_process(shared_database_url: str, hears: bool) -> None:
    begun, told = asyncio.Event(), asyncio.Event()

    async def endless(s: StepContext) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            told.set()

    @workflow("endless")
    async def endless_workflow(ctx: Context) -> None:
        await ctx.step("endless", endless, on_cancel="abort", compensate=lambda s, _: None)

    async with (
        a_worker(shared_database_url, endless_workflow, hears=hears) as app,
        Outlast(shared_database_url, workflows=[endless_workflow], worker=False) as other,
    ):
        run = await app.start(endless_workflow)
        await begun.wait()
        await other.cancel(run.id)

        async with asyncio.timeout(5):
            await told.wait()
        with pytest.raises(RunCancelled):
            await run.result(timeout="20s")
        journal = {entry.name: entry.phase for entry in (await run_of(app, run.id, journal=True)).journal}
    assert journal == {"endless": "failed", "$stop": "done"}


@pytest.mark.parametrize("hears", [True, False], ids=["told", "by renewal"])
async def test_any_other_step_is_told_and_finishes_and_is_undone(shared_database_url: str, hears: bool) -> None:
    begun = threading.Barrier(3)
    undone: list[str] = []

    def look(s: StepContext) -> str:
        begun.wait(20)
        until(lambda: s.stop_requested, "the request to stop")
        return f"{s.step} saw it"

    async def awaited(s: StepContext) -> str:
        return await asyncio.to_thread(look, s)

    @workflow("looking")
    async def looking(ctx: Context) -> None:
        await asyncio.gather(
            ctx.step("plain", look, compensate=lambda s, result: undone.append(result)),
            ctx.step("awaited", awaited, compensate=lambda s, result: undone.append(result)),
        )

    async with (
        a_worker(shared_database_url, looking, hears=hears) as app,
        Outlast(shared_database_url, workflows=[looking], worker=False) as other,
    ):
        run = await app.start(looking)
        await asyncio.to_thread(begun.wait, 20)
        await other.cancel(run.id)

        with pytest.raises(RunCancelled):
            await run.result(timeout="5s")
    assert undone == ["awaited saw it", "plain saw it"]


# The end.


async def test_what_has_ended_stays_as_it_ended(shared_database_url: str) -> None:
    @workflow("ending")
    async def ending(ctx: Context, how: str) -> str:
        match how:
            case "completed":
                return how
            case "failed":
                ctx.fail(how)
            case _:
                await ctx.sleep("pause", "1d")
        return how

    ends = ["completed", "failed", "cancelled"]
    clock, tables = ManualClock(), Tables(shared_database_url)
    async with forgetful(shared_database_url, ending, clock=clock) as app:
        await app.start_many(ending, ends, ids=ends)
        await app.drain()
        await app.cancel("cancelled")
        await app.drain()
        before = tables("select * from {runs} order by id")

        for run_id in ends:
            for verb in (app.cancel, app.terminate):
                receipt = await verb(run_id)
                assert (receipt.accepted, receipt.status) == (False, run_id)
        tables.end_leases()
        clock.advance("2d")
        assert await app.drain() == 0

    assert tables("select * from {runs} order by id") == before
