"""Runs that are held, or that nobody takes, and the workers that could do something about it."""

from __future__ import annotations

import asyncio
import logging
import pickle

import pytest

from outlast import Context, Outlast, ResultTimeout, Status, WorkerOptions, workflow
from outlast.testing import ManualClock
from outlast.worker import neglected
from support.colours import Ask
from support.field_apps import run_of
from support.probing import until_awaited, until_seen

pytestmark = pytest.mark.every_database


async def done(step: object) -> str:
    return "done"


@workflow("order")
async def as_deployed_at_first(ctx: Context) -> str:
    await ctx.step("reserve", done)
    await ctx.sleep("pause", "1h")
    return await ctx.step("charge", done)


@workflow("order")
async def as_changed_by_mistake(ctx: Context) -> str:
    await ctx.step("charge", done)
    await ctx.sleep("pause", "1h")
    return await ctx.step("reserve", done)


@workflow("other")
async def other(ctx: Context) -> None: ...


async def test_a_worker_with_the_right_code_tries_held_runs_as_soon_as_it_starts(shared_database_url: str) -> None:
    """A deploy that brought the right code back was followed by up to ten minutes of nothing."""
    clock = ManualClock()
    async with Outlast(shared_database_url, workflows=[as_deployed_at_first], worker=False, clock=clock) as app:
        await app.start_many(as_deployed_at_first, [None] * 5, ids=list("abcde"))
        await app.drain()
    clock.advance("1h")
    async with Outlast(shared_database_url, workflows=[as_changed_by_mistake], worker=False, clock=clock) as app:
        await app.drain()
        assert all(run.held for run in (await app.list()).runs)
    clock.advance("1s")

    options = WorkerOptions(concurrency=2)
    async with Outlast(shared_database_url, workflows=[as_deployed_at_first], worker=options, clock=clock) as app:
        assert [await app.result(run_id, timeout="20s") for run_id in "abcde"] == ["done"] * 5


async def test_who_waits_for_a_held_run_is_told_why_it_is_held_and_what_to_do(
    shared_database_url: str, ask: Ask
) -> None:
    clock = ManualClock()
    async with Outlast(shared_database_url, workflows=[as_deployed_at_first], worker=False, clock=clock) as app:
        await app.start(as_deployed_at_first, id="a")
        await app.drain()
    clock.advance("1h")
    async with Outlast(shared_database_url, workflows=[as_changed_by_mistake], worker=False, clock=clock) as app:
        await app.drain()

        with pytest.raises(ResultTimeout) as told:
            await ask(app, "result", "a", timeout="0s")
        await asyncio.to_thread(app.blocking.close)

    message = str(told.value)
    assert "It is held: outlast.errors.JournalMismatch: Run 'a' no longer matches its code" in message
    assert "deploy code that fits" in message
    assert "app.terminate(id)" in message
    assert "what it waits for" not in message
    assert told.value.held is not None
    assert pickle.loads(pickle.dumps(told.value)).held == told.value.held


async def test_a_worker_with_the_wrong_code_tries_held_runs_once(shared_database_url: str) -> None:
    clock = ManualClock()
    async with Outlast(shared_database_url, workflows=[as_deployed_at_first], worker=False, clock=clock) as app:
        await app.start(as_deployed_at_first, id="a")
        await app.drain()
    clock.advance("1h")
    async with Outlast(shared_database_url, workflows=[as_changed_by_mistake], worker=False, clock=clock) as app:
        await app.drain()
        before = await run_of(app, "a")
    clock.advance("1s")

    async def tried_again() -> bool:
        run = await run_of(app, "a")
        return run.turns != before.turns and run.worker is None

    async with Outlast(shared_database_url, workflows=[as_changed_by_mistake], clock=clock) as app:
        await until_awaited(tried_again, "another turn")
        run = await run_of(app, "a")
        assert await app.drain() == 0

    assert run.status is Status.SUSPENDED
    assert (run.turns, run.held is not None) == (before.turns + 1, True)


async def test_runs_that_no_worker_takes_are_told_soon_and_those_of_others_are_not(
    shared_database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that was deployed without a workflow, or with its next version alone, said so after five minutes."""
    monkeypatch.setattr(neglected, "FIRST_LOOK", 0.01)
    clock = ManualClock()
    async with Outlast(shared_database_url, workflows=[as_deployed_at_first], worker=False, clock=clock) as app:
        await app.start_many(as_deployed_at_first, [None] * 3)
    clock.advance("11s")

    async with Outlast(shared_database_url, workflows=[other], clock=clock) as app:
        await until_seen(lambda: "no worker takes them" in caplog.text, "the worker to say so")
        await app.start_and_wait(other, wait="20s")

    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(told) == 1
    assert "3 runs of workflow 'order' version 1" in told[0]
    assert "registered: other version 1" in told[0]
