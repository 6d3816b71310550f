"""Races and what is given up: decided by when things were recorded, never by when somebody looked."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from outlast import (
    Condition,
    ConditionNotWon,
    Context,
    InvalidDuration,
    Signal,
    workflow,
)
from outlast.engine.decision import Finished
from outlast.model.run import Status
from outlast.ports.store import Wait
from support.replaying import START, Rehearsal, ended, for_every_crash, outcome

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


# Waits that are given up.


def test_a_wait_that_was_cancelled_leaves_nothing_behind() -> None:
    @workflow("given-up")
    async def given_up(ctx: Context) -> str:
        for n in range(3):
            try:
                await asyncio.wait_for(ctx.wait_for(f"wait {n}", ctx.signal(approve)), 0.1)
            except TimeoutError:
                continue
        found = await ctx.wait_for("last", ctx.signal(approve), timeout="5s")
        return found.by if found else "nobody"

    run = Rehearsal(given_up)
    turn = run.turn()
    while run.log.count("$timer:2 done") == 0:
        assert turn.parked().waits == (Wait("approve", 0, START),)
        run.now = turn.parked().due_at or 0
        turn = run.turn()
    run.send(approve, Approval("ann"))

    assert run.turn().finished() == completed('"ann"')
    for_every_crash(run, lambda again: again.end() == completed('"ann"'), after="$timer:2 done")


def test_a_sleep_that_was_given_up_wakes_nobody() -> None:
    @workflow("given-up")
    async def given_up(ctx: Context) -> None:
        try:
            async with asyncio.timeout(10):
                await ctx.sleep("short", "1m")
        except TimeoutError:
            await ctx.sleep("long", "1h")

    run = Rehearsal(given_up)
    run.turn()
    run.advance("10s")

    assert run.turn().parked().due_at == START + HOUR + 10_000_000


# Races.


@workflow("race")
async def race(ctx: Context) -> str:
    yes, no, late = ctx.signal(approve), ctx.signal(reject), ctx.timer("1h")
    winner = await ctx.first("race", yes, no, late)
    assert [yes.won, no.won, late.won].count(True) == 1
    if yes.won:
        return f"yes from {yes.value.by}"
    if no.won:
        return f"no: {no.value}"
    return "late" if winner is late and winner.value is None else "strange"


def test_the_loser_does_not_keep_the_run_open() -> None:
    run = Rehearsal(race)
    run.turn()
    run.send(approve, Approval("ann"))
    turn = run.turn()
    run.send(reject, "no")

    assert turn.finished() == completed('"yes from ann"')


def test_time_wins_when_nothing_was_stored_before() -> None:
    assert ended(race) == "late"


def test_the_older_of_two_signals_wins() -> None:
    run = Rehearsal(race)
    run.turn()
    run.send(reject, "too dear")
    run.send(approve, Approval("ann"))

    assert run.turn().finished() == completed('"no: too dear"')


def test_the_lower_id_wins_even_if_its_time_is_later() -> None:
    """Two senders draw their ids in one order and read the clock in the other."""
    run = Rehearsal(race)
    run.turn()
    run.send(reject, "too dear", at=START + 5)
    run.send(approve, Approval("ann"), at=START + 4)
    run.advance("1s")

    assert run.turn().finished() == completed('"no: too dear"')


def test_the_earliest_timer_wins_and_the_first_listed_of_equals() -> None:
    @workflow("timers")
    async def timers(ctx: Context) -> list[bool]:
        made = [ctx.timer("3h"), ctx.timer("1h"), ctx.timer(datetime(2026, 1, 1, 1, tzinfo=UTC)), ctx.timer("2h")]
        await ctx.first("race", *made)
        return [timer.won for timer in made]

    assert ended(timers) == [False, True, False, False]


def test_a_race_of_timers_alone_needs_no_look_at_signals() -> None:
    @workflow("now")
    async def now(ctx: Context) -> str:
        await ctx.first("race", ctx.timer("0s"), ctx.timer("1h"))
        return "at once"

    assert Rehearsal(now).turn().finished() == completed('"at once"')


def test_what_did_not_win_can_be_taken_later() -> None:
    @workflow("later")
    async def later(ctx: Context) -> str:
        yes, no = ctx.signal(approve), ctx.signal(reject)
        await ctx.first("first", yes, no)
        first = yes.won
        await ctx.first("second", yes, no)
        return f"{first} {yes.won} {no.won}"

    run = Rehearsal(later)
    run.send(approve, Approval("ann"))
    run.send(reject, "no")

    assert run.end() == completed('"True False True"')
    for_every_crash(run, lambda again: again.end() == completed('"True False True"'))


def test_a_condition_begins_anew_with_each_wait() -> None:
    @workflow("reminders")
    async def reminders(ctx: Context) -> str:
        paid, tomorrow = ctx.signal(ping), ctx.timer("1d")
        for day in range(3):
            await ctx.first(f"day {day}", paid, tomorrow)
            if paid.won:
                return f"paid on day {day}"
        return "never paid"

    run = Rehearsal(reminders)
    for _ in range(2):
        run.turn()
        run.advance("1d")
    run.turn()
    run.send(ping)
    assert run.turn().finished() == completed('"paid on day 2"')
    assert ended(reminders) == "never paid"


def test_a_signal_that_an_earlier_wait_cannot_have_goes_to_the_next_one() -> None:
    """The first wait's time was over when the signal came; it only cannot say so before its other line was read."""

    @workflow("lines")
    async def lines(ctx: Context) -> list[str]:
        yes, no = ctx.signal(approve), ctx.signal(reject)
        short = ctx.first("short", yes, no, ctx.timer("1h"))
        long = ctx.first("long", no, ctx.timer("9h"))
        return [condition.label for condition in await asyncio.gather(short, long)]

    run = Rehearsal(lines)
    run.turn()
    run.send(reject, "no", at=START + 2 * HOUR)
    run.advance("3h")

    assert run.turn().finished() == completed('["timer of 1h","signal \'reject\'"]')


def test_a_wait_for_one_thing_may_be_for_a_time() -> None:
    @workflow("one-timer")
    async def one_timer(ctx: Context) -> str:
        await ctx.wait_for("pause", ctx.timer("2h"))
        return "waited"

    assert ended(one_timer) == "waited"


def test_a_condition_that_did_not_win_has_no_value() -> None:
    @workflow("no-value")
    async def no_value(ctx: Context) -> list[str]:
        yes = ctx.signal(approve, key="7")
        said: list[str] = []
        for _ in range(2):
            try:
                said.append(yes.value.by)
            except ConditionNotWon as error:
                said.append(str(error))
            if len(said) == 1:
                await ctx.first("race", yes, ctx.timer("1h"))
        return [*said, repr(yes)]

    before, after, shown = ended(no_value)
    assert (
        before
        == after
        == "signal 'approve' with key '7' has no value: it did not end the last wait for it. Ask `.won` first."
    )
    assert shown == "<Condition: signal 'approve' with key '7'>"


@pytest.mark.parametrize(
    "conditions", [(), ("1h",), (None,), (approve,)], ids=["none", "text", "None", "a signal itself"]
)
def test_a_wait_for_nothing_or_something_else_is_refused(conditions: tuple[Any, ...]) -> None:
    @workflow("strange")
    async def strange(ctx: Context) -> None:
        await ctx.first("race", *conditions)

    end = outcome(strange)
    assert isinstance(end, Finished)
    assert end.failure is not None
    assert end.failure.type == "outlast.errors.InvalidArgument"


def test_something_that_is_no_signal_is_refused() -> None:
    @workflow("strange")
    async def strange(ctx: Context) -> None:
        ctx.signal("approve")  # type: ignore[arg-type]

    end = outcome(strange)
    assert isinstance(end, Finished)
    assert end.failure is not None
    assert "ctx.signal takes a Signal(...)" in end.failure.message


@pytest.mark.parametrize("duration", ["soon", "nan", 5])
def test_a_timer_with_an_absurd_duration_is_refused_where_it_is_made(duration: Any) -> None:  # noqa: ANN401, RUF100
    @workflow("absurd")
    async def absurd(ctx: Context) -> str:
        for make in (lambda: ctx.timer(duration), lambda: ctx.wait_for("x", ctx.signal(ping), timeout=duration)):
            try:
                made = make()
                if not isinstance(made, Condition):
                    await made
            except InvalidDuration:
                continue
            return "made"
        return "refused"

    assert ended(absurd) == "refused"


# Deliveries, in the order in which things happened.


def test_what_happened_is_told_in_the_order_in_which_it_happened() -> None:
    @workflow("order")
    async def order(ctx: Context) -> list[str]:
        told: list[str] = []

        async def tell(name: str, waiting: Any) -> None:  # noqa: ANN401, RUF100
            await waiting
            told.append(name)

        await asyncio.gather(
            tell("sleep of 2h", ctx.sleep("two", "2h")),
            tell("signal at 90m", ctx.wait_for("signal", ctx.signal(ping))),
            tell("sleep of 1h", ctx.sleep("one", "1h")),
            tell("timer of 3h", asyncio.sleep(3 * 3600)),
        )
        return told

    run = Rehearsal(order)
    run.turn()
    run.send(ping, at=START + 3 * HOUR // 2)
    run.advance("1d")
    end = run.turn().finished()

    assert end == completed('["sleep of 1h","signal at 90m","sleep of 2h","timer of 3h"]')
    for_every_crash(run, lambda again: again.end() == end, after="signal done")


def test_between_two_things_that_happened_the_code_comes_to_rest() -> None:
    """The first lets the code ask for something; on replay it must have asked for that before the second is told."""

    @workflow("rest")
    async def rest(ctx: Context) -> list[float]:
        async def draw(name: str, duration: str) -> float:
            await ctx.sleep(name, duration)
            return ctx.random()

        return list(await asyncio.gather(draw("two", "2h"), draw("one", "1h")))

    run = Rehearsal(rest)
    run.turn()
    run.advance("1d")
    end = run.turn().finished()

    assert run.log == ["two open", "one open", "one done", "$random:0 done", "two done", "$random:1 done"]
    for_every_crash(run, lambda again: again.end() == end, after="$random:1 done")
    for_every_crash(run, lambda again: len(again.journal) == 6 or isinstance(again.end(), Finished))


def test_one_branch_runs_steps_while_another_waits() -> None:
    @workflow("branches")
    async def branches(ctx: Context) -> list[Any]:
        async def work() -> str:
            for name in ("a", "b", "c"):
                await ctx.step(name, lambda s: None)
            return "worked"

        return list(await asyncio.gather(ctx.wait_for("decision", ctx.signal(approve), timeout="3d"), work()))

    run = Rehearsal(branches)
    run.turn()

    assert run.performed == ["a", "b", "c"]
    assert run.log == ["decision open", "a done", "b done", "c done"]
