"""Code that no longer matches a journal: noticed before it does anything new, and held until code that fits is back."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from outlast import Context, JournalMismatch, Signal, workflow
from outlast.engine.decision import Finished
from outlast.model.journal import Kind, Phase, Record
from outlast.model.run import Status
from support.replaying import START, Rehearsal

done = Signal("done", str)
error = Signal("error", str)


@workflow("order")
async def order(ctx: Context) -> str:
    await ctx.step("charge", lambda s: "ok-1")
    await ctx.sleep("pause", "1h")
    ctx.commit("shipped")
    await ctx.wait_for("delivery", ctx.signal(done))
    return await ctx.step("review", lambda s: "asked")


def recorded(length: int) -> Rehearsal:
    """The run of `order` with so many records: charge, pause (2), shipped, delivery (2), review."""
    run = Rehearsal(order)
    run.send(done, "yes")
    run.end()
    assert run.log == [
        "charge done", "pause open", "pause done", "shipped done", "delivery open", "delivery done", "review done",
    ]  # fmt: skip
    return run.cut(length)


def said(run: Rehearsal) -> str:
    turn = run.turn()
    failure = turn.held().failure
    assert failure.type == "outlast.errors.JournalMismatch"
    assert run.performed == []
    return failure.message


def test_another_step_at_the_same_place_does_not_get_the_old_value() -> None:
    @workflow("order")
    async def changed(ctx: Context) -> str:
        return await ctx.step("refund", lambda s: "refunded")

    run = recorded(1).replaced(changed)

    message = said(run)
    assert "'run-1'" in message
    assert "entry 0 of its journal is step 'charge'" in message
    assert "step 'refund'" in message


def test_a_held_run_goes_on_when_the_old_code_is_back() -> None:
    @workflow("order")
    async def changed(ctx: Context) -> str:
        return await ctx.step("refund", lambda s: "refunded")

    run = recorded(1).replaced(changed)
    said(run)
    back = run.replaced(order)

    assert back.end() == Finished(Status.COMPLETED, '"asked"', None)


def test_whatever_the_code_makes_of_the_error_nothing_is_given_out() -> None:
    @workflow("order")
    async def stubborn(ctx: Context) -> str:
        while True:
            with suppress(BaseException):
                ctx.set_status("stubborn")
                await ctx.sleep("other", "1h")
                return "swallowed"
            with suppress(BaseException):
                return await ctx.step("instead", lambda s: "swallowed")
            return "swallowed"

    turn = recorded(3).replaced(stubborn).begin()

    turn.held()
    assert (turn.progress.records, turn.progress.calls) == ((), ())
    assert turn.progress.custom_status is None


def test_the_code_that_asks_sees_the_mismatch() -> None:
    seen: list[BaseException] = []

    @workflow("order")
    async def changed(ctx: Context) -> None:
        try:
            await ctx.sleep("charge", "1h")
        except JournalMismatch as mismatch:
            seen.append(mismatch)
            raise

    run = recorded(1).replaced(changed)
    said(run)

    (mismatch,) = seen
    assert isinstance(mismatch, JournalMismatch)
    assert (mismatch.run_id, mismatch.position) == ("run-1", 0)
    assert (mismatch.recorded, mismatch.found) == ("step 'charge'", "sleep 'charge'")


@pytest.mark.parametrize("verb", ["step", "sleep", "wait", "first", "commit"])
@pytest.mark.parametrize("name", ["charge", "pause", "shipped", "delivery"])
def test_another_kind_under_the_same_name_is_noticed(verb: str, name: str) -> None:
    kinds = {"charge": "step", "pause": "sleep", "shipped": "commit", "delivery": "wait"}
    if kinds[name] == verb:
        return

    async def ask(ctx: Context, name: str) -> None:
        match verb:
            case "step":
                await ctx.step(name, lambda s: None)
            case "sleep":
                await ctx.sleep(name, "1h")
            case "wait":
                await ctx.wait_for(name, ctx.signal(done))
            case "first":
                await ctx.first(name, ctx.signal(done))
            case _:
                ctx.commit(name)

    @workflow("order")
    async def changed(ctx: Context) -> None:
        for known in ("charge", "pause", "shipped", "delivery"):
            if known == name:
                await ask(ctx, known)
            elif known == "charge":
                await ctx.step(known, lambda s: "ok-1")
            elif known == "pause":
                await ctx.sleep(known, "1h")
            elif known == "shipped":
                ctx.commit(known)
            else:
                await ctx.wait_for(known, ctx.signal(done))

    assert f"is {kinds[name]} '{name}', but the code asks for {verb} '{name}'" in said(recorded(6).replaced(changed))


async def nothing_new(ctx: Context) -> None: ...
async def new_sleep(ctx: Context) -> None:
    await ctx.sleep("new", "1h")


async def new_wait(ctx: Context) -> None:
    await ctx.wait_for("new", ctx.signal(done))


async def new_commit(ctx: Context) -> None:
    ctx.commit("new")


async def new_random(ctx: Context) -> None:
    ctx.random()


async def new_timer(ctx: Context) -> None:
    asyncio.get_running_loop().call_later(5, lambda: None)


@pytest.mark.parametrize("insert", [new_sleep, new_wait, new_commit, new_random, new_timer])
def test_what_is_recorded_when_it_is_reached_cannot_be_new_before_recorded_things(insert: Any) -> None:  # noqa: ANN401, RUF100
    @workflow("order")
    async def changed(ctx: Context) -> str:
        await ctx.step("charge", lambda s: "ok-1")
        await insert(ctx)
        await ctx.sleep("pause", "1h")
        return "changed"

    assert "before it" in said(recorded(3).replaced(changed))


def numbered(run: Rehearsal, records: list[Record]) -> Rehearsal:
    run.journal[:] = [replace(record, seq=seq) for seq, record in enumerate(records)]
    return run


def test_a_look_at_the_clock_may_come_and_go() -> None:
    """asyncio.wait_for looks at the clock since Python 3.12: a run must go on after the upgrade, and after going back."""

    @workflow("looks")
    async def looks(ctx: Context) -> list[str]:
        async with asyncio.timeout(7200):
            await ctx.sleep("one", "1h")
        before = ctx.now()
        await ctx.sleep("two", "1h")
        return [str(before), str(ctx.now())]

    @workflow("looks")
    async def looks_once(ctx: Context) -> list[str]:
        loop = asyncio.get_running_loop()
        timer = loop.call_at(START / 1e6 + 7200, print)
        await ctx.sleep("one", "1h")
        timer.cancel()
        await ctx.sleep("two", "1h")
        return [str(START), str(ctx.now())]

    run = Rehearsal(looks)
    run.end(keep=True)
    assert run.names == ["$now:0", "$timer:0", "one", "one", "$now:1", "two", "two", "$now:2"]
    without = numbered(run.cut(8), [record for record in run.journal if record.kind is not Kind.NOW])
    without.now = START + 7_200_000_000

    assert without.end() == run.cut(8).end()
    assert [name for name in without.names if "now" in name] == ["$now:2"]
    assert isinstance(run.cut(7).replaced(looks_once).end(), Finished)


def test_the_same_insertion_after_the_last_recorded_thing_is_fine() -> None:
    @workflow("order")
    async def changed(ctx: Context) -> str:
        await ctx.step("charge", lambda s: "ok-1")
        await ctx.sleep("pause", "1h")
        await new_sleep(ctx)
        ctx.commit("shipped")
        return "changed"

    assert recorded(3).replaced(changed).end() == Finished(Status.COMPLETED, '"changed"', None)


def test_a_new_step_beside_recorded_ones_is_fine() -> None:
    """It may have been in flight when the worker died."""

    @workflow("order")
    async def changed(ctx: Context) -> str:
        await asyncio.gather(ctx.step("charge", lambda s: "ok-1"), ctx.step("new", lambda s: "new"))
        return "changed"

    run = recorded(1).replaced(changed)
    assert run.end() == Finished(Status.COMPLETED, '"changed"', None)
    assert run.performed == ["new"]


def test_a_new_step_in_the_place_of_a_recorded_one_is_never_performed() -> None:
    @workflow("order")
    async def changed(ctx: Context) -> str:
        await ctx.step("check", lambda s: "checked")
        await ctx.step("charge", lambda s: "ok-1")
        return "changed"

    assert "is step 'charge', but the code asks for step 'check'" in said(recorded(1).replaced(changed))


@pytest.mark.parametrize("length", range(1, 8))
def test_a_run_that_ends_before_all_that_is_recorded_is_held(length: int) -> None:
    @workflow("order")
    async def shorter(ctx: Context) -> str:
        return "short"

    assert "asks for the end of the workflow" in said(recorded(length).replaced(shorter))


def test_a_point_of_no_return_may_not_go_missing() -> None:
    @workflow("order")
    async def without(ctx: Context) -> str:
        await ctx.step("charge", lambda s: "ok-1")
        await ctx.sleep("pause", "1h")
        await ctx.wait_for("delivery", ctx.signal(done))
        return "without"

    assert "is commit 'shipped', but the code asks for nothing of that name" in said(recorded(4).replaced(without))


def test_a_run_that_fails_before_all_that_is_recorded_is_held_too() -> None:
    @workflow("order")
    async def broken(ctx: Context) -> str:
        raise ValueError("a bug in the new code")

    assert "but the code raised ValueError: a bug in the new code (" in said(recorded(3).replaced(broken))


def test_a_definition_error_before_recorded_things_holds_the_run_instead_of_failing_it() -> None:
    """The bug came with new code; the run did well with the old."""

    @workflow("order")
    async def twice(ctx: Context) -> str:
        await ctx.step("charge", lambda s: "ok-1")
        return await ctx.step("charge", lambda s: "ok-1")

    assert "'charge' is used twice" in said(recorded(2).replaced(twice))


def test_code_that_waits_for_nothing_recorded_is_held() -> None:
    @workflow("order")
    async def waiting(ctx: Context) -> None:
        await asyncio.get_running_loop().create_future()

    assert "nothing of that name" in said(recorded(1).replaced(waiting))


# Waits.


@workflow("race")
async def race(ctx: Context) -> str:
    won = await ctx.first("race", ctx.signal(done), ctx.signal(error), ctx.timer("1h"))
    return await ctx.step("after", lambda s: str(won.value))


def raced(*, by_timer: bool = False, opened_only: bool = False) -> Rehearsal:
    run = Rehearsal(race)
    run.turn()
    if opened_only:
        return run
    if not by_timer:
        run.send(error, "late")
    run.end()
    return run.cut(2)


def racing(*conditions: Any) -> Any:  # noqa: ANN401, RUF100
    @workflow("race")
    async def other(ctx: Context) -> str:
        made = [ctx.timer(part) if isinstance(part, str) else ctx.signal(part) for part in conditions]
        return str((await ctx.first("race", *made)).value)

    return other


@pytest.mark.parametrize("conditions", [[done], [done, "1h"], [error, done, "1h"]], ids=["fewer", "timer", "swapped"])
def test_a_winner_that_is_not_among_the_conditions_any_more_is_noticed(conditions: list[Any]) -> None:
    assert "a wait for" in said(raced().replaced(racing(*conditions)))


def test_a_timer_that_won_must_still_be_one() -> None:
    assert "a wait for" in said(raced(by_timer=True).replaced(racing(done, error, done)))


def test_a_decided_wait_may_get_further_conditions() -> None:
    run = raced().replaced(racing(done, error, "1h", "2h"))

    assert run.end() == Finished(Status.COMPLETED, '"late"', None)


def test_an_open_wait_must_be_for_the_same_things() -> None:
    run = raced(opened_only=True)

    assert "a wait for signal 'done', signal 'error'" in said(run.replaced(racing(done, error)))


def test_an_open_wait_keeps_its_deadline_whatever_the_code_says_now() -> None:
    run = raced(opened_only=True)
    before = run.turn().parked().due_at

    assert run.replaced(racing(done, error, "5d")).turn().parked().due_at == before


def test_a_sleep_keeps_its_deadline_whatever_the_code_says_now() -> None:
    @workflow("order")
    async def longer(ctx: Context) -> str:
        await ctx.step("charge", lambda s: "ok-1")
        await ctx.sleep("pause", "5d")
        return "longer"

    run = recorded(2)
    run.now = START

    assert run.replaced(longer).turn().parked().due_at == run.turn().parked().due_at


def test_a_recorded_answer_to_what_the_code_gave_up_is_noticed() -> None:
    @workflow("order")
    async def gives_up(ctx: Context) -> str:
        await ctx.step("charge", lambda s: "ok-1")
        pause = asyncio.ensure_future(ctx.sleep("pause", "1h"))
        await asyncio.sleep(0)
        pause.cancel()
        await asyncio.wait([pause])
        return await ctx.step("other", lambda s: "other")

    said(recorded(3).replaced(gives_up))


def test_a_wait_that_was_answered_and_is_given_up_now_is_noticed() -> None:
    @workflow("race")
    async def gives_up(ctx: Context) -> str:
        waiting = asyncio.ensure_future(ctx.first("race", ctx.signal(done), ctx.signal(error), ctx.timer("1h")))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        return await ctx.step("other", lambda s: "other")

    said(raced().replaced(gives_up))


# Journals that cannot be read.


def damaged(run: Rehearsal, position: int, payload: str | None) -> Rehearsal:
    run.journal[position] = replace(run.journal[position], payload=payload)
    return run


@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.parametrize("payload", ["[half", None, '{"a": 1}', "[{}]"])
def test_a_damaged_wait_holds_the_run_and_names_the_entry(position: int, payload: str | None) -> None:
    failure = damaged(raced(), position, payload).turn().held().failure

    assert failure.type == "outlast.errors.ValueUnreadable"
    assert f"entry {position} of the journal of run 'run-1', first 'race'" in failure.message


@pytest.mark.parametrize("kind", [Kind.NOW, Kind.RANDOM, Kind.UUID])
def test_a_damaged_helper_holds_the_run(kind: Kind) -> None:
    @workflow("helpers")
    async def helpers(ctx: Context) -> str:
        return await ctx.step("last", lambda s: f"{ctx.version}") if getattr(ctx, str(kind))() else "none"

    run = Rehearsal(helpers)
    run.end()
    again = damaged(run.cut(1), 0, "[half")

    assert f"${kind}:0" in again.turn().held().failure.message


@pytest.mark.parametrize("unknown", [{"kind": Kind.UNKNOWN}, {"phase": Phase.UNKNOWN}], ids=["kind", "phase"])
def test_a_record_that_a_newer_version_made_holds_the_run(unknown: dict[str, Any]) -> None:
    run = recorded(3)
    run.journal[1] = replace(run.journal[1], **unknown)
    failure = run.turn().held().failure

    assert failure.type == "outlast.errors.ValueUnreadable"
    assert "entry 1 of the journal of run 'run-1'" in failure.message
    assert "'pause', cannot be read back: this version of outlast does not know what that is. " in failure.message
    assert "deploy the version of outlast that wrote it" in failure.message


def test_every_answer_after_the_first_says_the_same() -> None:
    @workflow("order")
    async def shorter(ctx: Context) -> str:
        return "short"

    turn = recorded(1).replaced(shorter).begin()
    first = turn.held()

    assert turn.execution.run().state == first


def test_records_of_one_name_stay_with_their_first_kind() -> None:
    run = recorded(1)
    assert run.journal[0].phase is Phase.DONE


def test_code_that_has_not_changed_is_told_what_else_it_may_be() -> None:
    """A loop over a set of texts, whose order differs between processes, was told to restore its old code."""

    def over(names: list[str]) -> object:
        @workflow("letters")
        async def letters(ctx: Context) -> None:
            for name in names:
                await ctx.step(name, lambda s: None)

        return letters

    run = Rehearsal(over(["a", "b", "c"]))
    run.end()

    told = run.cut(2).replaced(over(["b", "c", "a"])).turn().held().failure.message
    assert "it iterates over a set, whose order differs between processes: sort it" in told
