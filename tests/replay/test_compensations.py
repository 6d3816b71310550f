"""Compensations: what they are given, how they are retried, and what becomes of a run when one gives up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from outlast import CompensationContext, Context, Failure, NonRetryable, Retry, Signal, step, workflow
from outlast.engine.decision import Finished, Parked
from outlast.model.journal import Phase
from outlast.model.run import Status
from support.replaying import START, Rehearsal

SECOND = 1_000_000
go = Signal("go")
undone: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_undone() -> None:
    undone.clear()


def undo(s: CompensationContext, result: str) -> None:
    undone.append(result)


async def make(ctx: Context, name: str, **options: Any) -> str:  # noqa: ANN401, RUF100
    return await ctx.step(name, lambda s: name, compensate=undo, **options)


@workflow("failing")
async def failing(ctx: Context) -> None:
    for name in "abc":
        await make(ctx, name)
    ctx.fail("no")


def failed(failure: Failure | None) -> Finished:
    return Finished(Status.FAILED, None, failure)


def reason(run: Rehearsal) -> Failure | None:
    end = run.end()
    assert isinstance(end, Finished)
    return end.failure


@dataclass
class Charge:
    id: str
    notes: list[str]


def test_a_compensation_gets_the_recorded_result_and_the_reason() -> None:
    seen: list[Any] = []

    @step
    async def charge() -> Charge:
        return Charge("ch-1", [])

    @charge.compensate
    async def refund(s: CompensationContext, charged: Charge) -> object:
        seen.append((charged, s.run_id, s.step, s.attempt, s.idempotency_key, s.reason.message, s.stop_requested))
        return open

    @workflow("charged")
    async def charged(ctx: Context) -> None:
        mine = await charge()
        mine.notes.append("written by the workflow's code, recorded nowhere")
        ctx.fail("no")

    run = Rehearsal(charged)
    run.end()
    run.cut(2).end()

    expected = (Charge("ch-1", []), "run-1", "charge", 1, "run-1:$compensate:charge", "no", False)
    assert seen == [expected, expected]
    assert run.record("$compensate:charge").payload is None


def test_one_step_called_twice_is_undone_twice() -> None:
    @step(compensate=undo)
    async def charge(name: str) -> str:
        return name

    @workflow("twice")
    async def twice(ctx: Context) -> None:
        await charge("first")
        await charge.named("charge-2")("second")
        ctx.fail("no")

    run = Rehearsal(twice)
    run.end()

    assert undone == ["second", "first"]
    assert run.names[-2:] == ["$compensate:charge-2", "$compensate:charge"]


def test_a_method_undoes_with_its_own_instance() -> None:
    class Payments:
        def __init__(self, bank: str) -> None:
            self.bank = bank

        @step
        async def charge(self, cents: int) -> int:
            return cents

        @charge.compensate
        def refund(self, s: CompensationContext, cents: int) -> None:
            undone.append(f"{self.bank} pays back {cents} as {s.idempotency_key}")

    payments = Payments("Acme")

    @workflow("method")
    async def method(ctx: Context) -> None:
        await payments.charge(5)
        ctx.fail("no")

    Rehearsal(method).end()
    assert undone == ["Acme pays back 5 as run-1:$compensate:charge"]


# Undoing that fails.


def test_a_compensation_is_retried_by_its_own_policy_and_durably() -> None:
    @workflow("retried")
    async def retried(ctx: Context) -> None:
        await make(ctx, "a", retry=1, compensate_retry=Retry(attempts=2, delay="5s"))
        ctx.fail("no")

    run = Rehearsal(retried)
    turn = run.begin()
    turn.perform("a")
    turn.raises("$compensate:a", OSError("down"))
    assert turn.parked() == Parked(Status.COMPENSATING, START + 5 * SECOND, ())
    assert run.log[-1] == "$compensate:a retry"

    crashed = run.cut(len(run.journal))
    assert crashed.turn().parked().due_at == START + 5 * SECOND
    crashed.advance("5s")
    turn = crashed.begin()
    assert turn.in_flight["$compensate:a"].attempt == 2
    turn.perform("$compensate:a")
    assert turn.finished().status is Status.FAILED
    assert undone == ["a"]


@pytest.mark.parametrize("own,attempts", [(None, 2), (False, 1), (4, 4)])
def test_without_a_policy_of_its_own_it_has_that_of_the_step(own: Any, attempts: int) -> None:  # noqa: ANN401, RUF100
    @workflow("policy")
    async def policy(ctx: Context) -> None:
        await make(ctx, "a", retry=2, compensate_retry=own)
        ctx.fail("no")

    run = Rehearsal(policy)
    turn = run.begin()
    turn.perform("a")
    made = 0
    while not isinstance(turn.state, Finished):
        turn.raises("$compensate:a", OSError("down"))
        made += 1
        if isinstance(turn.state, Parked):
            run.now = turn.state.due_at or 0
            turn = run.begin()

    assert made == attempts
    assert turn.finished().status is Status.COMPENSATION_FAILED


def test_giving_up_leaves_the_rest_for_a_person_and_shows_both_errors() -> None:
    run = Rehearsal(failing)
    turn = run.begin()
    for name in ("a", "b", "c", "$compensate:c"):
        turn.perform(name)
    turn.raises("$compensate:b", NonRetryable("the account is closed"))
    end = turn.finished()

    assert undone == ["c"]
    assert end.failure is not None
    assert (end.status, end.failure.message) == (Status.COMPENSATION_FAILED, "no")
    last = end.failure.inner[-1]
    assert last.message.startswith("The compensation of step 'b' gave up after 1 attempt: outlast.errors.Non")
    assert [inner.message for inner in last.inner] == ["the account is closed"]
    assert run.log[-1] == "$compensate:b failed"


def test_undoing_that_gave_up_is_not_tried_again_by_a_replay() -> None:
    """The replay of a whole journal called for the compensation again, under a name that has its outcome."""
    run = Rehearsal(failing)
    turn = run.begin()
    for name in "abc":
        turn.perform(name)
    turn.raises("$compensate:c", NonRetryable("the account is closed"))

    assert run.cut(len(run.journal)).begin().finished() == turn.finished()


def test_a_compensation_that_keeps_killing_its_worker_fails() -> None:
    run = Rehearsal(failing)
    turn = run.begin()
    for name in "abc":
        turn.perform(name)
    end = run.cut(len(run.journal)).begin(lapses=3).finished()

    assert end.status is Status.COMPENSATION_FAILED
    assert end.failure is not None
    assert "StepInterrupted" in end.failure.inner[-1].message
    assert undone == []


def test_an_attempt_to_undo_that_died_counts() -> None:
    run = Rehearsal(failing)
    turn = run.begin()
    for name in "abc":
        turn.perform(name)

    assert run.cut(len(run.journal)).begin(lapses=1).in_flight["$compensate:c"].attempt == 2


def test_a_compensation_may_not_use_the_context() -> None:
    seen: list[BaseException] = []

    @workflow("misused")
    async def misused(ctx: Context) -> None:
        def use(s: CompensationContext, result: str) -> None:
            try:
                ctx.set_status("undoing")
            except Exception as error:  # noqa: BLE001
                seen.append(error)

        await ctx.step("a", lambda s: "a", compensate=use)
        ctx.fail("no")

    end = Rehearsal(misused).end()
    assert isinstance(end, Finished)
    assert end.status is Status.COMPENSATION_FAILED
    assert end.failure is not None
    assert "ctx.set_status was called inside step '$compensate:a'" in end.failure.inner[-1].message
    assert len(seen) == 1


def test_an_unreadable_result_fails_the_undoing() -> None:
    run = Rehearsal(failing)
    turn = run.begin()
    for name in "abc":
        turn.perform(name)
    call = turn.in_flight["$compensate:c"]
    slot = call.invoke.args[1].function.args[1]  # type: ignore[attr-defined]
    slot.result = "[half"
    turn.perform("$compensate:c")

    assert undone == []
    assert run.record("$compensate:c").phase is Phase.RETRY


# Code that changed meanwhile.


@workflow("waiting")
async def waiting(ctx: Context) -> None:
    for name in "abc":
        await make(ctx, name)
    await ctx.wait_for("go", ctx.signal(go))


def test_code_that_would_undo_something_else_is_held() -> None:
    @workflow("failing")
    async def changed(ctx: Context) -> None:
        for name in "abc":
            await ctx.step(name, lambda s, name=name: name, compensate=None if name == "c" else undo)
        ctx.fail("no")

    run = Rehearsal(failing)
    turn = run.begin()
    for name in ("a", "b", "c", "$compensate:c"):
        turn.perform(name)
    message = run.replaced(changed).turn().held().failure.message

    assert "compensation '$compensate:c', but the code asks for no compensation of that name" in message


def test_a_stopped_run_whose_code_has_new_calls_before_the_stop_is_held() -> None:
    @workflow("waiting")
    async def changed(ctx: Context) -> None:
        for name in "abc":
            await make(ctx, name)
        ctx.commit("new")
        await ctx.wait_for("go", ctx.signal(go))

    run = Rehearsal(waiting)
    run.turn()
    run.ask_stop()
    run.turn()

    assert "commit 'new' before it" in run.replaced(changed).turn().held().failure.message


def test_the_first_call_that_is_not_recorded_halts_a_stopped_run() -> None:
    @workflow("waiting")
    async def changed(ctx: Context) -> None:
        for name in "abc":
            await make(ctx, name)
        await asyncio.gather(ctx.wait_for("go", ctx.signal(go)), make(ctx, "new"))

    run = Rehearsal(waiting)
    run.turn()
    run.ask_stop()
    end = run.turn().finished()
    undone.clear()
    crashed = run.cut(5).replaced(changed)

    assert crashed.turn().finished() == end
    assert undone == ["c", "b", "a"]
    assert "new" not in crashed.performed


def test_a_record_that_lost_its_payload_is_unreadable_and_no_result() -> None:
    run = Rehearsal(failing)
    run.end()
    cut = run.cut(1)
    cut.journal[0] = replace(cut.journal[0], payload=None)

    assert "step 'a'" in cut.turn().held().failure.message
