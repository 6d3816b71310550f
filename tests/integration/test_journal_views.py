"""What `get(id, journal=True)` shows of each kind of entry."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from outlast import (
    CompensationContext,
    Context,
    Outlast,
    Retry,
    RunCancelled,
    Signal,
    StepContext,
    StepFailed,
    step,
    workflow,
)
from outlast.model.failures import type_name
from outlast.testing import ManualClock
from support.field_apps import run_of
from support.probing import Tables

paid = Signal("paid", dict[str, int])


@dataclass(frozen=True)
class Charge:
    cents: int


@step(retry=Retry(attempts=3, delay="1m"))
async def charge(s: StepContext, amount: Decimal) -> Charge:
    if s.attempt == 1:
        raise ConnectionError("the bank is away")
    return Charge(int(amount * 100))


@charge.compensate
async def refund(s: CompensationContext, charged: Charge) -> None: ...


@step(retry=1)
async def ship() -> None:
    raise ValueError("no such street")


@workflow("sell")
async def sell(ctx: Context, amount: Decimal) -> None:
    ctx.now()
    ctx.random()
    ctx.uuid()
    await charge(amount)
    await ctx.wait_for("payment", ctx.signal(paid))
    await ctx.first("race", ctx.signal(paid, key="never"), ctx.timer("1h"))
    await ctx.sleep("pause", "1h")
    try:
        await ship()
    except StepFailed:
        ctx.set_status("not shipped")
    await ctx.wait_for("more", ctx.signal(paid, key="never"))


async def test_each_kind_of_entry_shows_its_result_or_why_it_failed() -> None:
    clock = ManualClock()
    async with Outlast("sqlite://", workflows=[sell], worker=False, clock=clock) as app:
        await app.start(sell, Decimal("1.50"), id="a")
        await app.drain()
        retried = (await run_of(app, "a", journal=True)).journal[-1]
        clock.advance("1m")
        await app.drain()
        await app.signal(paid, {"cents": 150})
        await app.drain()
        for _ in range(2):
            clock.advance("1h")
            await app.drain()
        await app.cancel("a", "Ada called")
        await app.drain()

        run = await run_of(app, "a", journal=True)

    assert run.unreadable == {}
    assert (retried.phase, retried.attempts, retried.result) == ("retry", 1, None)
    assert str(retried.failure) == "ConnectionError: the bank is away"
    found: dict[str, Any] = {entry.name: entry for entry in run.journal}
    assert {name: entry.attempts for name, entry in found.items() if entry.attempts is not None} == {
        "charge": 2, "ship": 1, "$compensate:charge": 1,
    }  # fmt: skip
    assert found["charge"].result == {"cents": 150}
    assert found["charge"].failure is None
    assert found["payment"].result == {"cents": 150}
    assert (found["race"].phase, found["race"].result, found["race"].failure) == ("done", None, None)
    assert (found["pause"].result, found["more"].result) == (None, None)
    assert (found["ship"].result, str(found["ship"].failure)) == (None, "ValueError: no such street")
    assert found["$stop"].failure.type == type_name(RunCancelled)
    assert found["$stop"].failure.message == "Ada called"
    assert {type(entry.result) for entry in run.journal if entry.kind in ("now", "random", "uuid")} == {
        datetime, float, UUID,
    }  # fmt: skip


@pytest.mark.every_database
async def test_an_entry_that_cannot_be_read_hides_nothing_but_itself(shared_database_url: str) -> None:
    clock, tables = ManualClock(), Tables(shared_database_url)
    async with Outlast(shared_database_url, workflows=[sell], worker=False, clock=clock) as app:
        await app.start(sell, Decimal("1.50"), id="a")
        await app.drain()
        clock.advance("1m")
        await app.drain()
        await app.signal(paid, {"cents": 150})
        await app.drain()
        for kind in ("now", "random", "uuid", "wait"):
            tables(f"update {{journal}} set payload = '[' where kind = '{kind}' and run_id = %s", "a")
        gone = '{"$":"gone:Class","v":1}'
        tables("update {journal} set payload = %s where phase = 'done' and name = %s", gone, "charge")

        run = await run_of(app, "a", journal=True)

    unread = [entry.name for entry in run.journal if f"journal[{entry.name!r}]" in run.unreadable]
    assert unread == [entry.name for entry in run.journal if entry.kind != "first"]
    assert len(run.journal) == len(unread) + 1
