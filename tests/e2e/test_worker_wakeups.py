"""Nobody waits for the poll: what is due is found in time, whoever was told of it."""

from __future__ import annotations

import asyncio

import pytest

from outlast import Context, Outlast, WorkerOptions, workflow
from support.probing import until_awaited


@workflow("nap")
async def nap(ctx: Context, duration: str) -> str:
    await ctx.sleep("nap", duration)
    return "rested"


@workflow("short")
async def short(ctx: Context) -> str:
    return "done"


async def test_a_run_started_while_a_worker_opens_does_not_wait_for_its_poll(shared_database_url: str) -> None:
    """It was looked for before the worker listened, and told of before that too."""
    options = WorkerOptions(poll="1h", lease="3h")
    async with Outlast(shared_database_url, workflows=[short], worker=False) as client:
        for number in range(30):
            async with asyncio.TaskGroup() as group:
                opened = group.create_task(_worker(shared_database_url, options))
                # From the first statement of the opening to the last, as far as chance will have it.
                await asyncio.sleep(number * 0.001)
                run = await client.start(short)
            assert await client.result(run.id, timeout="20s") == "done"
            await opened.result().close()


async def _worker(url: str, options: WorkerOptions) -> Outlast:
    app = Outlast(url, workflows=[short], worker=options)
    await app.__aenter__()
    return app


@pytest.mark.every_database
async def test_a_run_goes_on_when_it_is_due_though_the_worker_that_parked_it_is_gone(shared_database_url: str) -> None:
    """Only that one knew when. The others look once in a third of their lease, however long their poll."""
    parker = Outlast(shared_database_url, workflows=[nap])
    other = Outlast(shared_database_url, workflows=[nap], worker=WorkerOptions(poll="1h", lease="600ms"))
    async with other:
        await parker.__aenter__()
        run = await parker.start(nap, "1500ms")
        await until_awaited(lambda: _is_parked(other, run.id), "the run to be parked")
        await parker.close()
        assert await other.result(run.id, timeout="20s") == "rested"


async def _is_parked(app: Outlast, run_id: str) -> bool:
    run = await app.get(run_id)
    return run is not None and run.status == "suspended"
