"""Conditions carry the type of what they bring."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type
from uuid import UUID

from outlast import Condition, Context, Signal, workflow


@dataclass
class Approval:
    by: str


approve = Signal("approve", Approval)
reject = Signal("reject", str)
ping = Signal("ping")
assert_type(approve, Signal[Approval])


@workflow("waiting")
async def waiting(ctx: Context) -> None:
    yes, no, late = ctx.signal(approve, key="7"), ctx.signal(reject), ctx.timer("3d")
    assert_type(yes, Condition[Approval])
    assert_type(late, Condition[None])
    winner = await ctx.first("race", yes, no, late, ctx.timer(datetime.now(UTC)))
    assert_type(winner, Condition[Any])
    if yes.won:
        assert_type(yes.value, Approval)
        print(yes.value.by)
    assert_type(await ctx.wait_for("yes", yes, timeout="1h"), Approval | None)
    answer = await ctx.wait_for("no", ctx.signal(reject))
    assert_type(answer, str)
    await ctx.wait_for("ping", ctx.signal(ping))
    await ctx.sleep("pause", "1h30m")
    await ctx.sleep("again", timedelta(hours=1))
    await ctx.sleep_until("then", datetime(2027, 1, 1, tzinfo=UTC))
    assert_type(ctx.now(), datetime)
    assert_type(ctx.random(), float)
    assert_type(ctx.uuid(), UUID)
    ctx.commit("delivered")
    ctx.set_status({"paid": True})
    several: list[Condition[Any]] = [yes, no, late]
    await ctx.first("several", *several)


@workflow("failing")
async def failing(ctx: Context, word: str) -> int:
    if word:
        return 1
    ctx.fail("no return is missing here")
