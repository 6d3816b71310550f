"""Rows that somebody cut short or overwrote: one of them stops one run, and hides nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import pytest

from outlast import Context, Signal, Status, ValueUnreadable, step, workflow
from outlast.model.failures import type_name
from outlast.testing import ManualClock
from support.field_apps import forgetful, run_of
from support.probing import Tables

HEALTHY: Final = 20
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
    await ctx.wait_for("open", ctx.signal(opened, key=ctx.run_id), timeout="1h")
    assert ctx.now() >= started + timedelta(hours=1)
    return weighed


DAMAGES: Final = {
    "a result cut short": "update {journal} set payload = substr(payload, 1, 100) where name = 'third'",
    "a result that is gone": "update {journal} set payload = null where name = 'third'",
    "a result of another type": "update {journal} set payload = '[1, 2]' where name = 'weigh'",
    "an unknown kind": "update {journal} set kind = 'hologram' where name = 'third'",
    "an unknown phase": "update {journal} set phase = 'sublimed' where name = 'third'",
    "a record that is gone": "delete from {journal} where name = 'weigh'",
    "a record that is there twice": "update {journal} set name = 'weigh' where name = 'third'",
    "a sleep without an end": "delete from {journal} where name = 'pause' and phase = 'open'",
    "a wait that is not understood": "update {journal} set payload = 'opened?' where name = 'open'",
    "a time that is no number": "update {journal} set payload = 'noon' where kind = 'now'",
    "a random number that is none": "update {journal} set payload = '\"heads\"' where kind = 'random'",
    "an input cut short": "update {runs} set input = '[' where id = 'run-7'",
    "an input of another type": "update {runs} set input = '\"seven\"' where id = 'run-7'",
}


def damage(url: str, what: str) -> None:
    """Damage what is stored of run-7."""
    statement = DAMAGES[what]
    Tables(url)(statement if "run-7" in statement else f"{statement} and run_id = 'run-7'")


@pytest.mark.parametrize("what", DAMAGES)
async def test_a_damaged_row_stops_its_own_run_alone(shared_database_url: str, what: str) -> None:
    clock = ManualClock()
    ids = [f"run-{number}" for number in range(1, HEALTHY + 2)]
    async with forgetful(shared_database_url, parcel, clock=clock) as app:
        await app.start_many(parcel, range(1, HEALTHY + 2), ids=ids)
        await app.drain()
        clock.advance("1h")
        await app.drain()
        damage(shared_database_url, what)
        for run_id in ids:
            await app.signal(opened, {"by": "Ada"}, key=run_id)
        await app.drain()

        statuses = {str(run.id): run.status for run in (await app.list()).runs}
        assert statuses.pop("run-7") is Status.SUSPENDED
        assert set(statuses.values()) == {Status.COMPLETED}
        assert len(statuses) == HEALTHY
        run = await run_of(app, "run-7", journal=True)
        assert run.held is not None
        assert "run-7" in run.held.message

        assert (await app.terminate("run-7")).accepted
        await app.drain()
        assert (await run_of(app, "run-7")).status is Status.CANCELLED


async def test_a_result_cut_short_is_told_with_its_run_and_step(shared_database_url: str) -> None:
    clock = ManualClock()
    async with forgetful(shared_database_url, parcel, clock=clock) as app:
        await app.start(parcel, 7, id="run-7")
        await app.drain()
        damage(shared_database_url, "a result cut short")
        clock.advance("1h")
        await app.drain()

        held = (await run_of(app, "run-7")).held
    assert held is not None
    assert held.type == type_name(ValueUnreadable)
    assert "run 'run-7'" in held.message
    assert "step 'third'" in held.message


async def test_a_run_goes_on_when_its_row_is_mended(shared_database_url: str) -> None:
    clock = ManualClock()
    tables = Tables(shared_database_url)
    async with forgetful(shared_database_url, parcel, clock=clock) as app:
        await app.start(parcel, 7, id="run-7")
        await app.drain()
        ((payload,),) = tables("select payload from {journal} where name = 'third'")
        damage(shared_database_url, "a result cut short")
        clock.advance("1h")
        await app.drain()
        assert (await run_of(app, "run-7")).held is not None

        tables("update {journal} set payload = %s where name = 'third'", payload)
        clock.advance("10m")
        await app.drain()
        await app.signal(opened, {"by": "Ada"}, key="run-7")
        await app.drain()

        assert await app.result("run-7", timeout="0s") == Parcel(7)
