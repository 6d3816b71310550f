"""Signals: each is taken once, in order, and decided by when it was stored."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from outlast import (
    Context,
    Signal,
    ValueUnreadable,
    workflow,
)
from outlast.engine.decision import Finished, Parked
from outlast.model.ids import topic
from outlast.model.run import Status
from outlast.model.signal import StoredSignal
from outlast.ports.store import Wait
from support.replaying import START, Rehearsal, ended, for_every_crash

HOUR = 3_600_000_000


@dataclass
class Approval:
    by: str


approve = Signal("approve", Approval)
reject = Signal("reject", str)
number = Signal("number", int)
ping = Signal("ping")


def completed(output: str) -> Finished:
    return Finished(Status.COMPLETED, output, None)


@workflow("approval")
async def approval(ctx: Context) -> str:
    approved = await ctx.wait_for("decision", ctx.signal(approve, key="42"), timeout="1h")
    return f"approved by {approved.by}" if approved else "too late"


TOPIC = topic("approve", "42")


def test_a_run_is_parked_with_what_it_waits_for() -> None:
    run = Rehearsal(approval)
    state = run.turn().parked()

    assert state == Parked(Status.SUSPENDED, START + HOUR, (Wait(TOPIC, 0, START),))
    assert run.log == ["decision open"]


@pytest.mark.parametrize("keep", [True, False], ids=["in memory", "replayed"])
def test_a_signal_ends_the_wait_with_its_payload(keep: bool) -> None:
    run = Rehearsal(approval)
    turn = run.turn()
    run.send(approve, Approval("ann"), key="42")
    turn = run.turn(kept=turn.execution if keep else None)

    assert turn.finished() == completed('"approved by ann"')
    assert run.log == ["decision open", "decision done"]
    for_every_crash(run, lambda again: again.end() == turn.state)


def test_a_signal_sent_before_the_wait_is_received() -> None:
    run = Rehearsal(approval)
    run.send(approve, Approval("ann"), key="42")

    assert run.end() == completed('"approved by ann"')


def test_a_signal_sent_while_a_step_before_the_wait_runs_is_received() -> None:
    @workflow("slow-then-wait")
    async def slow_then_wait(ctx: Context) -> str:
        await ctx.step("slow", lambda s: None)
        approved = await ctx.wait_for("decision", ctx.signal(approve))
        return approved.by if approved else "nobody"

    run = Rehearsal(slow_then_wait)
    turn = run.begin()
    run.send(approve, Approval("ann"))
    turn.perform("slow")
    assert run.is_due(turn.parked())

    assert run.end() == completed('"ann"')


@pytest.mark.parametrize("key", [None, "", "41", "42 ", "4"])
def test_a_signal_with_another_key_is_none_of_its_business(key: str | None) -> None:
    run = Rehearsal(approval)
    run.send(approve, Approval("ann"), key=key)
    run.turn()

    assert run.turn().parked().waits == (Wait(TOPIC, 0, START),)


def test_no_key_an_empty_one_and_a_word_are_three_lines() -> None:
    @workflow("keys")
    async def keys(ctx: Context) -> list[int | None]:
        waits = [ctx.wait_for(f"wait {key!r}", ctx.signal(number, key=key)) for key in (None, "", "None")]
        return list(await asyncio.gather(*waits))

    run = Rehearsal(keys)
    for value, key in enumerate(["None", "", None]):
        run.send(number, value, key=key)

    assert run.end() == completed("[2,1,0]")


def test_a_signal_stored_at_the_deadline_wins_however_late_the_run_is_woken() -> None:
    run = Rehearsal(approval)
    run.turn()
    run.send(approve, Approval("ann"), key="42", at=START + HOUR)
    run.advance("9h")

    assert run.turn().finished() == completed('"approved by ann"')


def test_a_signal_stored_after_the_deadline_loses_however_early_the_run_looks() -> None:
    run = Rehearsal(approval)
    run.turn()
    run.send(approve, Approval("ann"), key="42", at=START + HOUR + 1)
    run.advance("9h")

    assert run.turn().finished() == completed('"too late"')


def test_a_signal_from_after_the_deadline_proves_that_it_has_passed() -> None:
    """The worker's own idea of the time may be behind the database's."""
    run = Rehearsal(approval)
    run.skew = 2 * HOUR
    run.turn()
    run.send(approve, Approval("ann"), key="42", at=START + HOUR + 1)

    assert run.turn().finished() == completed('"too late"')


def test_no_deadline_passes_before_the_signals_until_then_were_read() -> None:
    """The wait began in this turn, so what was sent for it meanwhile has not been read: the store has to look first."""

    @workflow("poll")
    async def poll(ctx: Context) -> str:
        found = await ctx.wait_for("poll", ctx.signal(approve), timeout="0s")
        return found.by if found else "nothing"

    run = Rehearsal(poll)
    run.send(approve, Approval("ann"))
    turn = run.turn()
    assert turn.parked().due_at == START
    assert turn.parked().waits == (Wait("approve", 0, START),)

    assert run.turn().finished() == completed('"ann"')
    assert ended(poll) == "nothing"


def test_a_deadline_that_passes_while_steps_run_waits_for_the_signals_to_be_read() -> None:
    @workflow("beside")
    async def beside(ctx: Context) -> list[Any]:
        found = ctx.wait_for("decision", ctx.signal(approve), timeout="1h")
        return list(await asyncio.gather(ctx.step("long", lambda s: "long"), found))

    run = Rehearsal(beside)
    turn = run.begin()
    assert turn.state.due_at is None  # type: ignore[union-attr]
    run.send(approve, Approval("ann"), at=START + HOUR // 2)
    run.advance("2h")
    turn.run()
    turn.perform("long")
    assert turn.parked().due_at == START + HOUR

    end = run.turn().finished()
    assert end.output is not None
    assert "ann" in end.output


def test_a_run_taken_back_in_the_middle_of_a_turn_looks_for_signals_before_time_decides() -> None:
    """Worker A had not parked the run with this wait when it died, so B's claim read no signals for it."""
    run = Rehearsal(approval)
    run.turn()
    run.send(approve, Approval("ann"), key="42")
    run.advance("2h")
    taken_back = run.cut(1)

    turn = taken_back.turn()
    assert turn.parked().due_at == START + HOUR

    assert taken_back.turn().finished() == completed('"approved by ann"')


def test_no_wait_for_signals_ends_by_a_time_after_they_were_read() -> None:
    """A claim reads the signals at 59:59; the engine is asked at 60:01, and somebody has sent one at 60:00."""
    run = Rehearsal(approval)
    run.turn()
    execution = run.execution()
    run.advance("2h")
    execution.resume(read_at=START + HOUR - 1)

    assert execution.run().state == Parked(Status.SUSPENDED, START + HOUR, (Wait(TOPIC, 0, START),))


def test_a_hundred_signals_of_one_moment_are_taken_in_order_each_once() -> None:
    @workflow("hundred")
    async def hundred(ctx: Context) -> list[int | None]:
        return [await ctx.wait_for(f"wait {n}", ctx.signal(number)) for n in range(100)]

    run = Rehearsal(hundred)
    for value in range(100):
        run.send(number, value)
    end = run.end()

    assert end == completed("[" + ",".join(map(str, range(100))) + "]")
    for length in range(0, len(run.journal), 17):
        assert run.cut(length).end() == end


def test_after_taking_one_only_later_signals_count() -> None:
    @workflow("two")
    async def two(ctx: Context) -> int:
        await ctx.wait_for("a", ctx.signal(number))
        return await ctx.wait_for("b", ctx.signal(number)) or 0

    run = Rehearsal(two)
    run.send(number, 7)
    run.turn()

    assert run.turn().parked().waits == (Wait("number", 1),)
    assert run.cut(2).turn().parked().waits == (Wait("number", 1),)
    run.send(number, 8)
    assert run.turn().finished() == completed("8")


def test_signals_that_are_read_twice_are_taken_once() -> None:
    """A store gives all candidates at every claim, also those that memory has already."""

    @workflow("three")
    async def three(ctx: Context) -> list[int | None]:
        first = await ctx.wait_for("a", ctx.signal(number))
        await ctx.sleep("pause", "1h")
        return [first, await ctx.wait_for("b", ctx.signal(number)), await ctx.wait_for("c", ctx.signal(number))]

    run = Rehearsal(three)
    turn = run.turn()
    for value in range(3):
        run.send(number, value)
    turn = run.turn(kept=turn.execution)
    run.advance("1h")
    run.waits = (Wait("number", 0),)

    assert run.turn(kept=turn.execution).finished() == completed("[0,1,2]")


def test_two_waits_never_get_the_same_signal() -> None:
    @workflow("parallel")
    async def parallel(ctx: Context) -> list[int | None]:
        return list(await asyncio.gather(*(ctx.wait_for(f"wait {n}", ctx.signal(number)) for n in range(3))))

    run = Rehearsal(parallel)
    for value in range(3):
        run.send(number, value)

    assert run.end() == completed("[0,1,2]")
    for_every_crash(run, lambda again: again.end() == completed("[0,1,2]"))


def test_what_was_sent_before_the_run_began_is_not_for_it() -> None:
    run = Rehearsal(approval)
    run.turn()
    execution = run.execution()
    execution.resume(signals=[StoredSignal(0, TOPIC, '{"by":"old"}', START - 1)])

    assert isinstance(execution.run().state, Parked)


def test_a_signal_counts_by_its_time_where_its_number_is_old() -> None:
    """Ids are drawn before a transaction commits, so a sender may have an older one than the run's start saw."""
    run = Rehearsal(approval)
    run.turn()
    execution = run.execution()
    execution.resume(signals=[StoredSignal(0, TOPIC, '{"by":"ann"}', START + 1)])

    assert execution.run().state == completed('"approved by ann"')


def test_a_payload_that_cannot_be_read_is_an_error_in_the_workflow() -> None:
    @workflow("unreadable")
    async def unreadable(ctx: Context) -> str:
        try:
            await ctx.wait_for("decision", ctx.signal(approve))
        except ValueUnreadable as error:
            return str(error)
        return "read"

    run = Rehearsal(unreadable)
    run.signals.append(StoredSignal(1, "approve", '{"by": 5}', START))
    end = run.end()

    assert isinstance(end, Finished)
    assert end.output is not None
    assert "payload of signal 'approve'" in end.output
    for_every_crash(run, lambda again: again.end() == end)


def test_a_signal_without_a_payload() -> None:
    @workflow("ping")
    async def pinged(ctx: Context) -> bool:
        answer = ctx.signal(ping)
        await ctx.first("race", answer, ctx.timer("1h"))
        return answer.won and answer.value is None

    run = Rehearsal(pinged)
    run.send(ping)
    assert run.end() == completed("true")
