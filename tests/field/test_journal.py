"""What is recorded comes back: values, choices, and what a run was in the middle of."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy.exc

from outlast import Context, JournalMismatch, Outlast, RunCancelled, RunFailed, Signal, Status, workflow
from outlast.model.failures import type_name
from outlast.testing import ManualClock
from support.field_apps import forgetful, run_of

EMPTY = (0, 0.0, False, "", [], {}, None)


async def test_a_step_that_returned_none_is_not_made_again(database_url: str) -> None:
    rows: list[str] = []
    seen: list[object] = []

    @workflow("insert")
    async def insert(ctx: Context) -> None:
        seen.append(await ctx.step("insert", lambda s: rows.append("row")))
        await ctx.sleep("pause", "1h")

    clock = ManualClock()
    async with forgetful(database_url, insert, clock=clock) as app:
        run = await app.start(insert)
        await app.drain()
        clock.advance("1h")
        await app.drain()

        assert await run.result() is None
    assert rows == ["row"]
    assert seen == [None, None]


async def test_an_empty_value_comes_back_as_itself_wherever_it_stands(database_url: str) -> None:
    """As input, as a step's argument and result, as a signal's payload, status and output; first and on replay."""
    told = Signal("told", object)
    seen: dict[str, list[object]] = {}

    @workflow("echo")
    async def echo(ctx: Context, value: object) -> object:
        returned = await ctx.step("echo", lambda s: value)
        payload = await ctx.wait_for("told", ctx.signal(told, key=ctx.run_id))
        seen.setdefault(ctx.run_id, []).append([value, returned, payload])
        ctx.set_status(payload)
        await ctx.sleep("pause", "1h")
        return payload

    clock = ManualClock()
    ids = [f"echo-{place}" for place in range(len(EMPTY))]
    async with forgetful(database_url, echo, clock=clock) as app:
        await app.start_many(echo, list(EMPTY), ids=ids)
        await app.drain()
        for run_id, value in zip(ids, EMPTY, strict=True):
            await app.signal(told, value, key=run_id)
        await app.drain()
        clock.advance("1h")
        await app.drain()

        for run_id, value in zip(ids, EMPTY, strict=True):
            output = await app.result(run_id, timeout="0s")
            expected = [[value] * 3] * 2
            assert (output, seen[run_id]) == (value, expected)
            assert type(output) is type(value)
            status = (await run_of(app, run_id)).custom_status
            assert (status, type(status)) == (value, type(value))
            assert [[type(each) for each in time] for time in seen[run_id]] == [[type(value)] * 3] * 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", EMPTY, ids=repr)
async def test_an_empty_value_comes_back_as_its_declared_type(value: object) -> None:
    kind = type(value)
    told: Signal[Any] = Signal("told", kind)

    async def code(ctx: Context, given: object) -> object:
        return await ctx.wait_for("told", ctx.signal(told))

    code.__annotations__ |= {"given": kind, "return": kind}
    echo = workflow("echo")(code)

    async with forgetful("sqlite://", echo) as app:
        run = await app.start(echo, value)
        await app.drain()
        await app.signal(told, value)
        await app.drain()

        output = await run.result(timeout="0s")
        assert (output, type(output)) == (value, kind)
        assert (await run_of(app, run.id)).input == value


async def test_code_that_changed_does_not_get_what_other_code_recorded(shared_database_url: str) -> None:
    """It is held, says what was recorded and what was asked for, and goes on when the old code is back."""
    charged, refunded = [], []

    @workflow("order")
    async def order(ctx: Context) -> str:
        charge = await ctx.step("charge", lambda s: charged.append(1) or "ok-1")
        await ctx.sleep("pause", "1h")
        return charge

    @workflow("order")
    async def changed(ctx: Context) -> str:
        return await ctx.step("refund", lambda s: refunded.append(1) or "refunded")

    clock = ManualClock()
    async with forgetful(shared_database_url, order, clock=clock) as before:
        await before.start(order, id="o-1")
        await before.drain()
    clock.advance("1h")
    async with forgetful(shared_database_url, changed, clock=clock) as now:
        await now.drain()

        held = (await run_of(now, "o-1")).held
        assert held is not None
        assert held.type == type_name(JournalMismatch)
        for fact in ("'o-1'", "entry 0", "step 'charge'", "step 'refund'"):
            assert fact in held.message
        assert (await run_of(now, "o-1")).status is Status.SUSPENDED
    clock.advance("10m")
    async with forgetful(shared_database_url, order, clock=clock) as back:
        await back.drain()

        assert await back.result("o-1", timeout="0s") == "ok-1"
        assert (await run_of(back, "o-1")).held is None
    assert (charged, refunded) == ([1], [])


async def test_a_held_run_keeps_nobody_else_and_can_be_stopped(database_url: str) -> None:
    """Its code never fits again: whoever looks after it must be able to end it."""
    is_changed = False

    @workflow("order")
    async def order(ctx: Context, number: int) -> int:
        await ctx.sleep("changed" if is_changed and number == 0 else "pause", "1h")
        return number

    clock = ManualClock()
    async with forgetful(database_url, order, clock=clock) as app:
        await app.start_many(order, range(5), ids=[f"o-{number}" for number in range(5)])
        await app.drain()
        is_changed = True
        clock.advance("1h")
        await app.drain()

        assert [await app.result(f"o-{number}", timeout="0s") for number in range(1, 5)] == [1, 2, 3, 4]
        assert (await run_of(app, "o-0")).held is not None

        assert (await app.terminate("o-0")).accepted
        await app.drain()
        assert (await run_of(app, "o-0")).status is Status.CANCELLED


async def test_a_held_run_that_was_cancelled_is_undone_once_its_code_is_back(database_url: str) -> None:
    """Undoing needs the code: until then the request waits, without the worker taking the run up over and over."""
    is_changed = False
    undone: list[str] = []

    @workflow("order")
    async def order(ctx: Context) -> None:
        await ctx.step(
            "changed" if is_changed else "charge", lambda s: "ok", compensate=lambda s, ok: undone.append(ok)
        )
        await ctx.sleep("pause", "1h")

    clock = ManualClock()
    async with forgetful(database_url, order, clock=clock) as app:
        run = await app.start(order)
        await app.drain()
        is_changed = True
        assert (await app.cancel(run.id, "changed my mind")).accepted
        assert await app.drain() == 1
        found = await run_of(app, run.id)
        assert found.held is not None
        assert found.stop_requested == "cancel"
        assert undone == []

        is_changed = False
        clock.advance("30s")
        await app.drain()

        with pytest.raises(RunCancelled, match="changed my mind"):
            await run.result(timeout="0s")
    assert undone == ["ok"]


# Errors that look like the library's own.


def _driver_errors() -> dict[str, Exception]:
    return {
        "psycopg": psycopg.OperationalError("connection reset"),
        "asyncpg": asyncpg.ConnectionDoesNotExistError("connection reset"),
        "sqlalchemy": sqlalchemy.exc.OperationalError("select 1", {}, ConnectionError("connection reset")),
        "system": ConnectionResetError("connection reset"),
    }


async def test_a_steps_own_database_error_is_its_outcome(database_url: str) -> None:
    """A worker that took it for trouble of its own database would try again for ever."""
    calls: list[str] = []

    def fail(driver: str) -> None:
        calls.append(driver)
        raise _driver_errors()[driver]

    @workflow("query")
    async def query(ctx: Context, driver: str) -> None:
        await ctx.step("query", lambda s: fail(driver), retry=False)

    async with Outlast(database_url, workflows=[query]) as app:
        for driver, error in _driver_errors().items():
            run = await app.start(query, driver)
            with pytest.raises(RunFailed) as failed:
                await run.result(timeout="10s")

            (cause,) = failed.value.failure.inner
            assert cause.type == type_name(type(error))
            assert "connection reset" in cause.message
    assert calls == list(_driver_errors())


# Choices.


async def test_the_first_of_several_steps_stays_the_first(database_url: str) -> None:
    """Both are recorded by the time of the replays; the code picks from a set."""
    winners: list[tuple[str, list[str]]] = []

    async def call(ctx: Context, name: str) -> str:
        await ctx.step(name, lambda s: name)
        return name

    @workflow("race")
    async def race(ctx: Context) -> str:
        tasks = {asyncio.create_task(call(ctx, name)) for name in "abcdef"}
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        winner = done.pop().result()
        rest, _ = await asyncio.wait(pending)
        winners.append((winner, [task.result() for task in rest]))
        for turn in range(20):
            await ctx.sleep(f"pause-{turn}", "1h")
        return winner

    clock = ManualClock()
    async with forgetful(database_url, race, clock=clock) as app:
        run = await app.start(race)
        await app.drain()
        for _ in range(20):
            clock.advance("1h")
            await app.drain()

        assert await run.result(timeout="0s") == winners[0][0]
    assert len(winners) == 21
    assert winners == [winners[0]] * 21
