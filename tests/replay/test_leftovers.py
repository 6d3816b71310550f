"""A run that is let go of is gone: nothing of it is in a circle, for which the garbage collector would have to look."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from outlast import Context, Workflow, workflow
from support.replaying import Rehearsal


@workflow("busy")
async def busy(ctx: Context) -> list[int]:
    steps = [asyncio.ensure_future(ctx.step(f"step-{number}", lambda s: 1)) for number in range(3)]
    await ctx.sleep("nap", "1h")
    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.sleep("longer", "2h"))
        group.create_task(asyncio.sleep(30))
    return list(await asyncio.gather(*steps))


@workflow("gathering")
async def gathering(ctx: Context) -> None:
    await asyncio.gather(ctx.sleep("one", "1h"), ctx.sleep("other", "2h"))


@workflow("grouping")
async def grouping(ctx: Context) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.sleep("one", "1h"))
        group.create_task(ctx.sleep("other", "2h"))


@workflow("waiting")
async def waiting(ctx: Context) -> None:
    await asyncio.wait([asyncio.create_task(ctx.sleep(name, "1h")) for name in ("one", "other")])


@workflow("completing")
async def completing(ctx: Context) -> None:
    for each in asyncio.as_completed([asyncio.create_task(ctx.sleep(name, "1h")) for name in ("one", "other")]):
        await each


@workflow("limiting")
async def limiting(ctx: Context) -> None:
    async with asyncio.timeout(20_000):
        await asyncio.wait_for(ctx.sleep("nap", "1h"), 10_000)


@workflow("shielding")
async def shielding(ctx: Context) -> None:
    nap = asyncio.create_task(ctx.sleep("nap", "1h"))
    await asyncio.gather(nap, asyncio.wait_for(asyncio.shield(nap), 10_000))


@workflow("passing-on")
async def passing_on(ctx: Context) -> int:
    queue: asyncio.Queue[int] = asyncio.Queue()
    reader = asyncio.create_task(queue.get())
    await ctx.sleep("nap", "1h")
    queue.put_nowait(1)
    return await reader


@workflow("calling-later")
async def calling_later(ctx: Context) -> None:
    called = asyncio.Event()
    asyncio.get_running_loop().call_later(300, called.set)
    await called.wait()


ALL = (busy, gathering, grouping, waiting, completing, limiting, shielding, passing_on, calling_later)


@pytest.mark.parametrize("turns", [1, 3], ids=["parked", "ended"])
@pytest.mark.parametrize("code", ALL, ids=lambda code: code.name)
def test_a_run_leaves_nothing_for_the_garbage_collector(code: Workflow[Any, Any], turns: int) -> None:
    """Of thousands of parked runs a full collection takes a tenth of a second, in which nothing else happens.

    Runs that waited for `asyncio.gather` or with a timeout left their tasks and timers, and since Python 3.14 all did:
    there a future knows who awaits it.
    """
    run = Rehearsal(code)
    turn = run.turn()
    for _ in range(turns - 1):
        run.advance("2h")
        turn = run.turn(kept=turn.execution)
    turn.execution.close()
    gc.collect()
    gc.disable()
    try:
        loop = weakref.ref(turn.execution._code.loop)  # pyright: ignore[reportPrivateUsage]  what names everything else
        del turn

        assert loop() is None
    finally:
        gc.enable()
