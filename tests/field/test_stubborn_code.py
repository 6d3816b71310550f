"""Workflow code that catches everything: it still waits, and it never holds up the runs beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import pytest

from outlast import Context, DefinitionError, JournalMismatch, Outlast, Signal, Status, WorkerOptions, workflow
from outlast.model.failures import type_name
from outlast.testing import ManualClock
from support.field_apps import forgetful, run_of

told = Signal("told", str)
cleaned: list[str] = []

Code = Callable[[Context], Awaitable[str | None]]


async def _catches_exceptions(ctx: Context) -> str | None:
    try:
        return await ctx.wait_for("it", ctx.signal(told))
    except Exception:  # noqa: BLE001
        return "swallowed"


async def _catches_base_exceptions(ctx: Context) -> str | None:
    try:
        return await ctx.wait_for("it", ctx.signal(told))
    except BaseException:  # noqa: BLE001
        return "swallowed"


async def _catches_all(ctx: Context) -> str | None:
    try:
        return await ctx.wait_for("it", ctx.signal(told))
    except:  # noqa: E722
        return "swallowed"


async def _cleans_up(ctx: Context) -> str | None:
    try:
        return await ctx.wait_for("it", ctx.signal(told))
    finally:
        await ctx.step("clean-up", lambda s: cleaned.append(s.run_id))


async def _catches_in_a_task(ctx: Context) -> str | None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(_catches_all(ctx))
    return task.result()


CATCHING: Final[dict[str, Code]] = {
    "exceptions": _catches_exceptions,
    "base exceptions": _catches_base_exceptions,
    "all": _catches_all,
    "cleans up": _cleans_up,
    "in a task": _catches_in_a_task,
}


@workflow("catching")
async def catching(ctx: Context, what: str) -> str | None:
    return await CATCHING[what](ctx)


@pytest.mark.parametrize("cached_runs", [0, 1000])
async def test_code_that_catches_everything_still_waits(database_url: str, cached_runs: int) -> None:
    cleaned.clear()
    options = WorkerOptions(cached_runs=cached_runs)
    async with Outlast(database_url, workflows=[catching], worker=options, clock=ManualClock()) as app:
        await app.start_many(catching, list(CATCHING), ids=list(CATCHING))
        await app.drain()
        assert {run.status for run in (await app.list()).runs} == {Status.SUSPENDED}
        await app.signal(told, "told")
        await app.drain()

        assert {str(run.id): run.output for run in (await app.list()).runs} == dict.fromkeys(CATCHING, "told")
        assert cleaned == ["cleans up"]


async def test_code_that_catches_its_cancellation_is_cancelled_all_the_same(database_url: str) -> None:
    async with forgetful(database_url, catching) as app:
        await app.start_many(catching, list(CATCHING), ids=list(CATCHING))
        await app.drain()
        for run_id in CATCHING:
            await app.cancel(run_id)
        await app.drain()

        found = (await app.list()).runs
    assert {(run.status, run.output) for run in found} == {(Status.CANCELLED, None)}
    assert len(found) == len(CATCHING)


# Going round and round. Each of these once made its worker stand still for ever, and with it all other runs of the process.


async def _waits_for_ever(ctx: Context) -> None:
    number = 0
    while True:
        with suppress(BaseException):
            await ctx.wait_for(f"it-{number}", ctx.signal(told))
        number += 1


async def _sleeps_for_ever(ctx: Context) -> None:
    while True:
        with suppress(BaseException):
            await asyncio.sleep(3600)


async def _reads_the_time_for_ever(ctx: Context) -> None:
    while True:
        with suppress(BaseException):
            ctx.set_status(ctx.now())
            ctx.random()
            ctx.commit(f"at {ctx.uuid()}")
            await ctx.sleep(f"{ctx.now()}", "1h")


async def _repeats_a_name(ctx: Context) -> None:
    while True:
        with suppress(Exception):
            await ctx.sleep("again", "0s")


async def _repeats_a_bad_name(ctx: Context) -> None:
    while True:
        with suppress(Exception):
            await ctx.step("$mine", lambda s: None)


async def _uses_a_thread(ctx: Context) -> None:
    while True:
        with suppress(Exception):
            await asyncio.to_thread(print)


async def _asks_wrongly(ctx: Context) -> None:
    while True:
        with suppress(Exception):
            await ctx.sleep("it", "5")


@workflow("modest")
async def modest(ctx: Context) -> str | None:
    return await ctx.wait_for("it", ctx.signal(told))


ENDLESS: Final = [_waits_for_ever, _sleeps_for_ever, _reads_the_time_for_ever]
MISTAKEN: Final = [_repeats_a_name, _repeats_a_bad_name, _uses_a_thread, _asks_wrongly]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("end", ["forget", "cancel"])
@pytest.mark.parametrize("code", ENDLESS)
async def test_code_that_never_ends_can_be_forgotten_and_cancelled(code: Code, end: str) -> None:
    @workflow("stubborn")
    async def stubborn(ctx: Context) -> None:
        await code(ctx)

    async with forgetful("sqlite://", stubborn, modest) as app:
        run, other = await app.start(stubborn), await app.start(modest)
        await app.drain()  # It is forgotten at the end of this.
        if end == "cancel":
            await app.cancel(run.id)
        await app.signal(told, "told")
        await app.drain()

        assert await other.result(timeout="0s") == "told"
        expected = Status.CANCELLED if end == "cancel" else Status.SUSPENDED
        assert (await run_of(app, run.id)).status is expected


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("code", MISTAKEN)
async def test_a_mistake_that_is_caught_and_repeated_ends_the_run_alone(
    code: Code, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlast.engine.code._MOST_QUESTIONS", 2_000)

    @workflow("mistaken")
    async def mistaken(ctx: Context) -> None:
        await code(ctx)

    async with forgetful("sqlite://", mistaken, modest) as app:
        run, other = await app.start(mistaken), await app.start(modest)
        await app.signal(told, "told")
        await app.drain()

        assert await other.result(timeout="0s") == "told"
        found = await run_of(app, run.id)
    assert found.status is Status.FAILED
    assert found.failure is not None
    assert found.failure.type in {type_name(DefinitionError), "outlast.errors.WorkflowIOError"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_changed_code_that_catches_the_mismatch_and_goes_round_is_held(shared_database_url: str) -> None:
    @workflow("consumer")
    async def before(ctx: Context) -> None:
        await ctx.step("first", lambda s: None)
        await ctx.sleep("pause", "1h")

    @workflow("consumer")
    async def changed(ctx: Context) -> None:
        while True:
            with suppress(Exception):
                await ctx.sleep("another", "1h")
                return

    clock = ManualClock()
    async with forgetful(shared_database_url, before, clock=clock) as app:
        await app.start(before, id="c")
        await app.drain()
    clock.advance("1h")
    async with forgetful(shared_database_url, changed, modest, clock=clock) as app:
        other = await app.start(modest)
        await app.signal(told, "told")
        await app.drain()

        held = (await run_of(app, "c")).held
        assert held is not None
        assert held.type == type_name(JournalMismatch)
        assert await other.result(timeout="0s") == "told"
