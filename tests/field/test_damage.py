"""Rows that somebody cut short or overwrote: one of them stops one run, and hides nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from outlast import (
    Context,
    InvalidArgument,
    Outlast,
    ResultTimeout,
    RunTerminated,
    Signal,
    Status,
    ValueUnreadable,
    step,
    workflow,
)
from outlast.model.failures import type_name
from outlast.testing import ManualClock
from support.colours import Ask
from support.field_apps import forgetful, run_of
from support.probing import Tables, until_awaited

opened = Signal("opened", dict[str, str])


@dataclass
class Parcel:
    weight: int
    to: str = "somewhere in a street whose name is long enough that a hundred bytes do not hold all that is said of it"


@step
async def weigh(number: int) -> Parcel:
    return Parcel(number)


@step(retry=2)
async def label(parcel: Parcel) -> str:
    if parcel.weight == 0:
        raise ValueError("too light, this once")
    return f"label for {parcel.weight}"


@workflow("parcel")
async def parcel(ctx: Context, number: int) -> Parcel:
    started = ctx.now()
    ctx.random()
    weighed = await weigh(number)
    await ctx.step("third", lambda s: weighed)
    await ctx.sleep("pause", "1h")
    ctx.commit("packed")
    await ctx.wait_for("open", ctx.signal(opened), timeout="1h")
    assert ctx.now() >= started + timedelta(hours=1)
    return weighed


DAMAGES: Final = {
    "result cut short": "update {journal} set payload = substr(payload, 1, 100) where run_id = %s and name = 'third'",
    "result gone": "update {journal} set payload = null where run_id = %s and name = 'third'",
    "result of another type": "update {journal} set payload = '[1, 2]' where run_id = %s and name = 'weigh'",
    "unknown kind": "update {journal} set kind = 'hologram' where run_id = %s and name = 'third'",
    "unknown phase": "update {journal} set phase = 'sublimed' where run_id = %s and name = 'third'",
    "record gone": "delete from {journal} where run_id = %s and name = 'weigh'",
    "record there twice": "update {journal} set name = 'weigh' where run_id = %s and name = 'third'",
    "sleep without its beginning": "delete from {journal} where run_id = %s and name = 'pause' and phase = 'open'",
    "wait that is not understood": "update {journal} set payload = 'opened?' where run_id = %s and name = 'open'",
    "time that is no number": "update {journal} set payload = 'noon' where run_id = %s and kind = 'now'",
    "random number that is none": "update {journal} set payload = '\"heads\"' where run_id = %s and kind = 'random'",
    "input cut short": "update {runs} set input = '[' where id = %s",
    "input of another type": "update {runs} set input = '\"seven\"' where id = %s",
}


async def test_damaged_rows_stop_their_own_runs_alone(shared_database_url: str) -> None:
    clock, tables = ManualClock(), Tables(shared_database_url)
    healthy = [f"healthy {number}" for number in range(20)]
    ids = [*healthy, *DAMAGES]
    async with forgetful(shared_database_url, parcel, clock=clock) as app:
        await app.start_many(parcel, range(1, len(ids) + 1), ids=ids)
        await app.drain()
        clock.advance("1h")
        await app.drain()
        for run_id, statement in DAMAGES.items():
            tables(statement, run_id)
        await app.signal(opened, {"by": "Ada"})
        await app.drain()

        found = {str(run.id): run for run in (await app.list()).runs}
        assert sorted(found) == sorted(ids)
        assert {found[run_id].status for run_id in healthy} == {Status.COMPLETED}
        for run_id in DAMAGES:
            run = await run_of(app, run_id, journal=True)
            assert (run_id, run.status) == (run_id, Status.SUSPENDED)
            assert run.held is not None
            assert run_id in run.held.message


async def test_a_status_that_nobody_knows_hides_no_run_and_no_page(shared_database_url: str, ask: Ask) -> None:
    """A row that was mended by hand, or written by a newer version: list, result and cancel raised ValueError for all."""
    tables = Tables(shared_database_url)
    async with forgetful(shared_database_url, parcel) as app:
        await app.start_many(parcel, [1, 2, 3], ids=["a", "b", "c"])
        tables("update {runs} set status = 'dreaming' where id = %s", "b")
        await app.drain()

        page = await ask(app, "list")
        assert [run.id for run in page.runs] == ["a", "b", "c"]
        assert [run.status for run in page.runs] == [Status.SUSPENDED, Status.UNKNOWN, Status.SUSPENDED]
        assert "dreaming" in page.runs[1].unreadable["status"]
        with pytest.raises(ResultTimeout, match="unknown"):
            await ask(app, "result", "b", timeout="0s")
        receipt = await ask(app, "terminate", "b")
        assert (receipt.accepted, receipt.status) == (False, Status.UNKNOWN)
        assert (await ask(app, "start", parcel, 2, id="b")).status is Status.UNKNOWN
        with pytest.raises(InvalidArgument, match="compensation_failed: what is unknown"):
            await ask(app, "list", status="unknown")
        await asyncio.to_thread(app.blocking.close)


async def test_a_time_beyond_all_calendars_hides_no_run_and_no_page(shared_database_url: str) -> None:
    tables = Tables(shared_database_url)
    async with forgetful(shared_database_url, parcel) as app:
        await app.start_many(parcel, [1, 2], ids=["one", "two"])
        for column in ("created_at", "updated_at", "started_at", "finished_at", "due_at", "deadline_at"):
            tables(f"update {{runs}} set {column} = 9000000000000000000 where id = %s", "two")

        one, two = (await app.list()).runs

        assert one.unreadable == {}
        assert list(two.unreadable) == ["due_at", "deadline", "created_at", "started_at", "updated_at", "finished_at"]
        assert (two.due_at, two.created_at) == (None, datetime.fromtimestamp(0, UTC))


@pytest.mark.parametrize("column", ["turns", "lapses"])
@pytest.mark.parametrize("number", [2**31 - 1, -(2**31)])
async def test_a_number_that_cannot_be_counted_on_stops_no_other_run(
    shared_database_url: str, column: str, number: int
) -> None:
    """One more than the largest number of its column failed the claim, or the take-over, of every run with it."""
    tables = Tables(shared_database_url)
    async with Outlast(shared_database_url, workflows=[parcel], worker=False) as app:
        await app.start_many(parcel, [1, 2], ids=["a", "b"])
        await app.drain()
        tables(f"update {{runs}} set {column} = %s where id = 'b'", number)
        # Both had a worker that is gone.
        tables("update {runs} set owner = 'gone', ready = 0, due_at = null")
        await app.cancel("a")
        await app.cancel("b")
        await until_awaited(lambda: _ended(app, "a", "b"), "both to end")

    assert {row[0] for row in tables("select status from {runs}")} == {"cancelled"}


async def _ended(app: Outlast, *run_ids: str) -> bool:
    await app.drain()
    runs = [await app.get(run_id) for run_id in run_ids]
    return all(run is not None and run.status is Status.CANCELLED for run in runs)


async def test_what_sqlite_takes_into_a_column_hides_no_run_and_stops_no_other(tmp_path: Path) -> None:
    """SQLite keeps a text in a column of numbers, and bytes in one of texts."""
    url = f"sqlite:///{tmp_path}/outlast.db"
    tables = Tables(url)
    async with forgetful(url, parcel) as app:
        columns = ("input", "output", "due_at", "deadline_at", "created_at", "turns", "lapses", "owner")
        names = [f"{column}-{kind}" for column in columns for kind in ("bytes", "text")]
        await app.start_many(parcel, [1] * len(names), ids=names)
        await app.start(parcel, 1, id="whole")
        await app.drain()
        for name in names:
            column, kind = name.split("-")
            value = b"\xff" if kind == "bytes" else "x"
            tables(f"update {{runs}} set {column} = %s, ready = 1 where id = %s", value, name)
        tables("update {journal} set recorded_at = 'x' where run_id = 'turns-text'")
        await app.cancel("whole")
        await app.drain()

        assert {run.id for run in (await app.list()).runs} == {*names, "whole"}
        assert (await run_of(app, "input-bytes")).unreadable == {"input": "it is stored as bytes, not as text"}
        assert list((await run_of(app, "created_at-text")).unreadable) == ["created_at"]
        assert list((await run_of(app, "turns-text", journal=True)).unreadable) == ["journal"]
        assert (await run_of(app, "whole")).status is Status.CANCELLED


async def test_a_run_with_a_damaged_row_can_be_terminated(shared_database_url: str) -> None:
    clock, tables = ManualClock(), Tables(shared_database_url)
    async with forgetful(shared_database_url, parcel, clock=clock) as app:
        await app.start_many(parcel, range(1, len(DAMAGES) + 1), ids=list(DAMAGES))
        await app.drain()
        clock.advance("1h")
        await app.drain()
        for run_id, statement in DAMAGES.items():
            tables(statement, run_id)
            assert (await app.terminate(run_id, "beyond repair")).accepted
        await app.drain()

        for run_id in DAMAGES:
            with pytest.raises(RunTerminated, match="beyond repair"):
                await app.result(run_id, timeout="0s")


async def test_a_result_cut_short_is_told_with_its_run_and_step(shared_database_url: str) -> None:
    clock, tables = ManualClock(), Tables(shared_database_url)
    async with forgetful(shared_database_url, parcel, clock=clock) as app:
        await app.start(parcel, 7, id="run-7")
        await app.drain()
        tables(DAMAGES["result cut short"], "run-7")
        clock.advance("1h")
        await app.drain()

        held = (await run_of(app, "run-7")).held
    assert held is not None
    assert held.type == type_name(ValueUnreadable)
    assert "run 'run-7'" in held.message
    assert "step 'third'" in held.message


async def test_a_run_goes_on_when_its_row_is_mended(shared_database_url: str) -> None:
    clock, tables = ManualClock(), Tables(shared_database_url)
    async with forgetful(shared_database_url, parcel, clock=clock) as app:
        await app.start(parcel, 7, id="run-7")
        await app.drain()
        ((payload,),) = tables("select payload from {journal} where name = 'third'")
        tables(DAMAGES["result cut short"], "run-7")
        clock.advance("1h")
        await app.drain()
        assert (await run_of(app, "run-7")).held is not None

        tables("update {journal} set payload = %s where name = 'third'", payload)
        clock.advance("10m")
        await app.drain()
        await app.signal(opened, {"by": "Ada"})
        await app.drain()

        assert await app.result("run-7", timeout="0s") == Parcel(7)
