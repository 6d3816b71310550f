"""One test in both colours: ask for `ask`, and it calls a verb awaited in one run of the test and blocking in the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from outlast import BlockingHandle, Handle, Outlast, Status
from support.probing import until_awaited

Ask = Callable[..., Awaitable[Any]]


async def ask_awaiting(app: Outlast, verb: str, *arguments: object, **options: object) -> Any:
    return await getattr(app, verb)(*arguments, **options)


async def ask_blocking(app: Outlast, verb: str, *arguments: object, **options: object) -> Any:
    return await asyncio.to_thread(getattr(app.blocking, verb), *arguments, **options)


@pytest.fixture(params=[ask_awaiting, ask_blocking], ids=["awaited", "blocking"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Call a verb in the colour of this run of the test; as `ask(app, verb, *arguments, **options)`, to be awaited."""
    chosen: Ask = request.param
    return chosen


async def result_of(handle: Handle[Any] | BlockingHandle[Any], timeout: str = "20s") -> Any:
    """The result of a handle of either colour."""
    if isinstance(handle, Handle):
        return await handle.result(timeout=timeout)
    return await asyncio.to_thread(handle.result, timeout=timeout)


@asynccontextmanager
async def opened(app: Outlast) -> AsyncGenerator[Outlast, None]:
    """An app that is open in both colours, and closed in both at the end."""
    async with app:
        yield app
        await asyncio.to_thread(app.blocking.close)


async def written(app: Outlast) -> list[str]:
    """The ids of all runs."""
    return sorted(run.id for run in (await app.list()).runs)


async def parked(app: Outlast, run_id: str) -> None:
    """Return when a run waits. Each look is a read of the database: it is the only sign of it from outside."""

    async def is_parked() -> bool:
        run = await app.get(run_id)
        return run is not None and run.status is Status.SUSPENDED

    await until_awaited(is_parked, f"run {run_id} to wait")
