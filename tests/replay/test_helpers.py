"""What would differ from one time to the next, and what is published on the way."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from outlast import Context, ValueNotStorable, workflow
from outlast.engine.decision import Finished
from outlast.model.run import Status
from outlast.model.times import to_instant
from support.replaying import START, Rehearsal, ended, for_every_crash, outcome


@workflow("values")
async def values(ctx: Context) -> list[object]:
    before = [ctx.now(), ctx.random(), ctx.uuid(), ctx.random()]
    await ctx.sleep("pause", "1h")
    return [*before, ctx.now(), ctx.uuid()]


def drawn(run: Rehearsal) -> list[object]:
    end = run.end()
    assert isinstance(end, Finished)
    return run.workflow.output_shape.decode(end.output or "", "output")


def test_they_are_the_same_on_every_replay() -> None:
    run = Rehearsal(values)
    end = run.end(keep=True)

    for_every_crash(run, lambda again: again.end() == end, after="$uuid:1 done")
    for_every_crash(run, lambda again: drawn(again)[:4] == drawn(run)[:4], after="$random:1 done")


def test_they_differ_from_each_other() -> None:
    run = Rehearsal(values)
    run.end()

    payloads = [record.payload for record in run.journal if record.payload is not None]
    assert run.names == [
        "$now:0", "$random:0", "$uuid:0", "$random:1", "pause", "pause", "$now:1", "$uuid:1",
    ]  # fmt: skip
    assert len(set(payloads)) == len(payloads)


def test_now_is_aware_and_stands_still_until_something_happens() -> None:
    seen: list[datetime] = []

    @workflow("clock")
    async def clock(ctx: Context) -> None:
        seen.extend([ctx.now(), ctx.now()])
        await ctx.sleep("pause", "1h")
        seen.append(ctx.now())

    run = Rehearsal(clock)
    run.end(keep=True)

    assert seen == [
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, 1, tzinfo=UTC),
    ]
    assert run.names == ["$now:0", "pause", "pause", "$now:1"]


def test_the_time_of_a_run_never_goes_back() -> None:
    """A host's clock may be set back between two turns, or be behind the one that took the run before."""
    seen: list[datetime] = []

    @workflow("clock")
    async def clock(ctx: Context) -> None:
        seen.append(ctx.now())
        await ctx.step("a", lambda s: None)
        seen.append(ctx.now())

    run = Rehearsal(clock)
    run.advance("1h")
    turn = run.begin()
    run.now = START
    turn.perform("a")
    assert seen[1] >= seen[0]

    cut = run.cut(2)
    cut.now = START - 1
    cut.end()
    assert seen[3] >= seen[2] == seen[0]
    assert [to_instant(at, what="") for at in seen[2:]] == [
        record.recorded_at for record in cut.journal if "now" in record.name
    ]


def test_a_uuid_is_random_and_of_version_4() -> None:
    @workflow("uuid")
    async def uuid(ctx: Context) -> int | None:
        return ctx.uuid().version

    assert ended(uuid) == 4


def test_they_are_written_with_what_is_written_next() -> None:
    @workflow("helpers")
    async def helpers(ctx: Context) -> float:
        drawn = ctx.random()
        return await ctx.step("use", lambda s: drawn)

    turn = Rehearsal(helpers).begin()

    assert [record.name for record in turn.progress.records] == ["$random:0"]
    assert turn.calls == ["use"]


def test_a_context_tells_its_run() -> None:
    @workflow("facts", version=3)
    async def facts(ctx: Context) -> list[Any]:
        return [ctx.run_id, ctx.workflow, ctx.version, repr(ctx)]

    assert ended(facts) == ["run-1", "facts", 3, "<Context of run 'run-1'>"]


# The custom status.


@workflow("status")
async def status(ctx: Context) -> None:
    ctx.set_status("paying")
    ctx.set_status({"paid": True, "at": datetime(2026, 1, 1, tzinfo=UTC)})
    await ctx.step("a", lambda s: None)
    ctx.set_status(None)
    await ctx.step("b", lambda s: None)


def test_the_last_value_counts_and_nothing_is_journaled() -> None:
    run = Rehearsal(status)
    turn = run.begin()
    assert turn.progress.custom_status == '{"paid":true,"at":{"$":"datetime","v":"2026-01-01T00:00:00+00:00"}}'

    turn.perform("a")
    assert turn.progress.custom_status is None
    assert run.names == ["a"]


def test_a_status_stays_when_the_run_ends() -> None:
    @workflow("kept")
    async def kept(ctx: Context) -> None:
        ctx.set_status("delivered")

    turn = Rehearsal(kept).turn()
    assert turn.progress.custom_status == '"delivered"'
    assert turn.state == Finished(Status.COMPLETED, "null", None)


@pytest.mark.parametrize(
    "value,fits", [("x" * 16_382, True), ("x" * 16_383, False), ("ä" * 8_191, True), ("ä" * 8_192, False)]
)
def test_a_status_takes_at_most_16_384_bytes(value: str, fits: bool) -> None:
    @workflow("long")
    async def long(ctx: Context) -> bool:
        if fits:
            ctx.set_status(value)
        else:
            with pytest.raises(ValueNotStorable, match="16,384"):
                ctx.set_status(value)
        return fits

    assert ended(long) is fits


def test_a_status_that_cannot_be_stored_is_refused() -> None:
    @workflow("unstorable")
    async def unstorable(ctx: Context) -> str:
        try:
            ctx.set_status([open])
        except ValueNotStorable as error:
            return error.where
        return "stored"

    assert ended(unstorable) == "custom status[0]"


def test_what_loops_read_as_time_is_recorded_too() -> None:
    @workflow("loop-time")
    async def loop_time(ctx: Context) -> float:
        at = asyncio.get_running_loop().time()
        await ctx.sleep("pause", "90s")
        return asyncio.get_running_loop().time() - at

    assert outcome(loop_time) == Finished(Status.COMPLETED, "90.0", None)
