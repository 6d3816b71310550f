"""What is asked of an app after it was closed, and what a close leaves alone."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from outlast import AppClosed, Context, DatabaseUnavailable, Outlast, Signal, workflow
from support.colours import Ask, parked, result_of

pytestmark = pytest.mark.every_database
poked = Signal("poked", None)


@workflow("greet")
async def greet(ctx: Context, name: str) -> str:
    return f"Hello, {name}"


@workflow("wait")
async def wait(ctx: Context) -> str:
    await ctx.wait_for("poke", ctx.signal(poked))
    return "poked"


def app_of(url: str) -> Outlast:
    return Outlast(url, workflows=[greet, wait])


async def test_a_thread_that_waits_when_it_is_closed_is_told_as_well(shared_database_url: str) -> None:
    app = app_of(shared_database_url)
    async with app:
        handle = await app.start(wait)
        waiting = asyncio.ensure_future(asyncio.to_thread(app.blocking.result, handle.id))
        await parked(app, handle.id)

    with pytest.raises(AppClosed):
        await waiting
    app.blocking.close()


async def test_what_comes_after_the_end_is_refused_and_told_what_to_do(database_url: str, ask: Ask) -> None:
    """A start that came late connected once more; on a database in memory to another one, in which the run was lost."""
    app = app_of(database_url)
    async with app:
        handle = await app.start(greet, "Ada")

    calls: list[tuple[str, tuple[object, ...]]] = [
        ("start", (greet, "Grace")), ("start_many", (greet, ["Grace"])), ("start_and_wait", (greet, "Grace")),
        ("signal", (poked,)), ("cancel", (handle.id,)), ("terminate", (handle.id,)), ("get", (handle.id,)),
        ("list", ()), ("result", (handle.id,)),
    ]  # fmt: skip
    for verb, arguments in calls:
        with pytest.raises(AppClosed, match="async with app"):
            await ask(app, verb, *arguments)
    with pytest.raises(AppClosed, match="async with app"):
        await app.drain()

    async with app:
        assert await result_of(await ask(app, "start", greet, "Ada", id="again")) == "Hello, Ada"
        await asyncio.to_thread(app.blocking.close)


async def test_one_that_could_not_be_opened_again_stays_closed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    app = app_of(f"sqlite:///{folder}/data.db")
    async with app:
        pass
    shutil.rmtree(folder)

    with pytest.raises(DatabaseUnavailable):
        async with app:
            pass

    with pytest.raises(AppClosed):
        await app.start(greet, "Ada")


async def test_one_that_could_not_be_opened_at_first_still_connects_when_it_is_needed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    app = app_of(f"sqlite:///{folder}/data.db")
    with pytest.raises(DatabaseUnavailable):
        async with app:
            pass
    folder.mkdir()

    assert (await app.start(greet, "Ada")).created
    await app.close()


async def test_a_database_in_memory_ends_with_the_close_and_no_second_one_takes_its_place(ask: Ask) -> None:
    app = app_of("sqlite://")
    await ask(app, "start", greet, "Ada", id="a")
    await ask(app, "close")

    with pytest.raises(AppClosed, match="async with app"):
        await ask(app, "start", greet, "Ada", id="a")

    async with app:
        assert (await ask(app, "start", greet, "Ada", id="a")).created


async def test_closing_the_blocking_side_leaves_the_memory_of_an_open_app_alone() -> None:
    async with app_of("sqlite://") as app:
        handle = await app.start(greet, "Ada")

        await asyncio.to_thread(app.blocking.close)

        assert await handle.result(timeout="20s") == "Hello, Ada"


async def test_migrating_leaves_the_memory_of_an_app_that_is_used_alone() -> None:
    app = app_of("sqlite://")
    handle = await app.start(greet, "Ada")

    assert await app.migrate() == ()

    assert await app.get(handle.id) is not None
    await app.close()
