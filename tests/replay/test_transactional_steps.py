"""Transactional steps: their record is made before it is known whether it will be committed."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest

from outlast import (
    BlockingContext,
    CompensationContext,
    Context,
    DefinitionError,
    NotATransaction,
    Retry,
    Signal,
    StepContext,
    StepFailed,
    step,
    transactional_step,
    workflow,
)
from outlast.engine.decision import Finished
from outlast.engine.performing import Unstorable
from outlast.model.journal import Kind, Phase
from outlast.model.run import Status
from support.replaying import TX, Rehearsal, ended, for_every_crash

calls: list[Any] = []
go = Signal("go")


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


@transactional_step(retry=Retry(attempts=2, delay="10s"))
async def pay(tx: str, s: StepContext, cents: int) -> int:
    calls.append((tx, s.idempotency_key, cents))
    return cents * 2


@pay.compensate
async def unpay(tx: str, c: CompensationContext, paid: int) -> None:
    calls.append((tx, c.idempotency_key, paid))


@transactional_step
def book(tx: str, seat: str) -> str:
    calls.append((tx, seat))
    return seat


@workflow("trip")
async def trip(ctx: Context) -> list[Any]:
    paid, seat = await asyncio.gather(pay(5), book("12a"))
    other = await book.named("other")("12b")
    noted = await ctx.transaction("note", lambda tx: f"{tx}: {paid} for {seat} and {other}")
    return [paid, noted]


def test_a_transactional_step_is_a_step_like_any_other_in_the_journal() -> None:
    run = Rehearsal(trip)
    state = run.end()
    assert isinstance(state, Finished)

    assert run.log == ["pay done", "book done", "other done", "note done"]
    assert {record.kind for record in run.journal} == {Kind.STEP}
    assert calls == [(TX, "run-1:pay", 5), (TX, "12a"), (TX, "12b")]
    for_every_crash(run, lambda again: again.end() == state)


def test_the_record_is_the_journals_next_and_changes_nothing_before_it_is_committed() -> None:
    turn = Rehearsal(trip).begin()

    first = turn.settles("pay", 10)
    assert (first.seq, first.phase, first.payload) == (0, Phase.DONE, "10")
    assert turn.settles("pay", 11).seq == 0

    turn.was_committed("pay")
    assert turn.settles("book", "12a").seq == 1


def test_an_attempt_whose_transaction_did_not_commit_is_made_again() -> None:
    run = Rehearsal(trip)
    turn = run.begin()
    turn.settles("pay", 10)

    turn.raises("pay", ConnectionError("the server went away in COMMIT"))
    assert run.log == ["pay retry"]
    turn.commits("book", "12a")
    run.advance("10s")
    turn.run()

    assert turn.calls == ["pay"]
    turn.commits("pay", 10)
    assert (run.record("pay", Phase.DONE).attempt, run.record("pay", Phase.DONE).seq) == (2, 2)


def test_what_was_committed_comes_before_what_happened_earlier_and_is_not_recorded() -> None:
    """The nap was over while the step's transaction was being committed: nobody could record that."""

    @workflow("napping")
    async def napping(ctx: Context) -> list[str]:
        order: list[str] = []

        async def nap() -> None:
            await ctx.sleep("nap", "1s")
            order.append("nap")

        async def book_one() -> None:
            await book("1")
            order.append("book")

        await asyncio.gather(nap(), book_one())
        return order

    run = Rehearsal(napping)
    turn = run.begin()
    turn.settles("book", "1")
    run.advance("2s")

    finished = turn.was_committed("book")

    assert run.log == ["nap open", "book done", "nap done"]
    assert isinstance(finished.state, Finished)
    assert finished.state.output == '["book","nap"]'
    for_every_crash(run, lambda again: again.end() == finished.state, after="nap open")


def test_a_result_that_cannot_be_stored_is_refused_before_the_commit_and_not_tried_again() -> None:
    run = Rehearsal(trip)
    turn = run.begin()

    with pytest.raises(Unstorable) as refused:
        turn.settles("pay", object())
    turn.raises("pay", refused.value)

    assert run.log[0] == "pay failed"
    assert "ValueNotStorable" in (run.record("pay").payload or "")


def test_a_result_that_is_too_big_is_refused_before_the_commit_and_not_tried_again() -> None:
    run = Rehearsal(trip)
    run.most = 4
    turn = run.begin()

    with pytest.raises(Unstorable) as refused:
        turn.settles("pay", 12_345)
    turn.raises("pay", refused.value)

    assert run.log[0] == "pay failed"
    assert "at most 4" in (run.record("pay").payload or "")


def test_a_misuse_inside_of_it_is_refused_before_the_commit() -> None:
    @workflow("misused")
    async def misused(ctx: Context) -> None:
        async def commit(tx: str) -> None:
            with pytest.raises(DefinitionError):
                ctx.commit("from inside")

        await ctx.transaction("pay", commit)

    run = Rehearsal(misused)
    turn = run.begin()
    with pytest.raises(DefinitionError, match="inside step 'pay'"):
        turn.perform("pay")


def test_a_stop_that_comes_while_it_commits_undoes_it() -> None:
    run = Rehearsal(trip)
    turn = run.begin()
    turn.settles("pay", 10)
    turn.execution.request_stop(run.ask_stop())

    turn.was_committed("pay")
    assert run.log == ["pay done", "$stop done"]
    turn.commits("book", "12a")
    turn.perform("$compensate:pay")

    assert isinstance(turn.state, Finished)
    assert turn.state.status is Status.CANCELLED
    assert run.log == ["pay done", "$stop done", "book done", "$compensate:pay done"]
    assert calls == [(TX, "run-1:$compensate:pay", 10)]
    for_every_crash(run, lambda again: again.end() == turn.state, after="$stop done")


def test_ctx_transaction_gives_the_context_to_functions_that_ask_for_it() -> None:
    @workflow("asking")
    async def asking(ctx: Context) -> list[str]:
        async def annotated(tx: str, s: StepContext) -> str:
            return f"{tx} {s.step}"

        def with_default(tx: str, order: str = "mine") -> str:
            return f"{tx} {order}"

        def bound(order: str, tx: str) -> str:
            return f"{tx} {order}"

        return [
            await ctx.transaction("a", annotated),
            await ctx.transaction("b", lambda tx, s: f"{tx} {s.step}"),
            await ctx.transaction("c", with_default),
            await ctx.transaction("d", functools.partial(bound, "bound")),
            await ctx.transaction("e", lambda tx: annotated(tx, StepContext("r", "s"))),
        ]

    assert ended(asking) == [f"{TX} {end}" for end in ("a", "b", "mine", "bound", "s")]


def test_a_plain_workflow_has_transactional_steps_too() -> None:
    @workflow("plain")
    def plain(ctx: BlockingContext) -> list[Any]:
        paid = ctx.do(pay(5))
        noted = ctx.transaction("note", lambda tx: f"{tx}: {paid}")
        keyed = ctx.transaction("key", lambda tx, s: f"{tx}: {s.idempotency_key}", retry=False)
        return [paid, noted, keyed]

    assert ended(plain) == [10, f"{TX}: 10", f"{TX}: run-1:key"]


def test_what_a_plain_workflow_did_in_a_transaction_is_undone() -> None:
    undone: list[object] = []

    @workflow("plain")
    def plain(ctx: BlockingContext) -> None:
        ctx.transaction("note", lambda tx: 5, compensate=lambda tx, c, noted: undone.append((tx, noted)))
        ctx.fail("enough")

    Rehearsal(plain).end()
    assert undone == [(TX, 5)]


class Desk:
    def __init__(self, name: str) -> None:
        self.name = name

    @transactional_step
    async def sell(self, tx: str, s: StepContext, cents: int) -> str:
        return f"{self.name} {tx} {s.step} {cents}"

    @sell.compensate
    async def unsell(self, tx: str, c: CompensationContext, sold: str) -> None:
        calls.append((self.name, tx, c.step, sold))


def test_a_method_is_bound_to_its_instance_and_so_is_what_undoes_it() -> None:
    @workflow("selling")
    async def selling(ctx: Context) -> None:
        ctx.fail(await Desk("north").sell(5))

    run = Rehearsal(selling)
    state = run.end()

    assert isinstance(state, Finished)
    assert state.failure is not None
    assert state.failure.message == f"north {TX} sell 5"
    assert calls == [("north", TX, "sell", f"north {TX} sell 5")]


async def test_outside_of_a_workflow_it_is_called_with_a_transaction_of_the_callers() -> None:
    assert await pay.within("mine", 5) == 10
    assert await book.within("mine", "12a") == "12a"
    assert await Desk("north").sell.within("mine", 5) == "north mine sell 5"
    assert [call[0] for call in calls] == ["mine", "mine"]

    with pytest.raises(NotATransaction, match=r"pay\.within\(session"):
        await pay(5)


def test_workflow_code_may_not_bring_its_own_transaction() -> None:
    @workflow("wrong")
    async def wrong(ctx: Context) -> int:
        return await pay.within("mine", 5)

    state = Rehearsal(wrong).end()

    assert isinstance(state, Finished)
    assert state.failure is not None
    assert "in workflow code" in state.failure.message
    assert calls == []


@pytest.mark.parametrize("what", [pay, 7, str, lambda tx: tx], ids=["a step", "a number", "a class", "a lambda"])
def test_what_cannot_be_one_is_refused_when_it_is_declared(what: Any) -> None:
    with pytest.raises(DefinitionError):
        transactional_step(what)


def test_a_function_without_a_parameter_for_its_transaction_is_refused_when_it_is_declared() -> None:
    def takes_nothing() -> None: ...

    unchecked: Any = transactional_step
    with pytest.raises(DefinitionError, match="'takes_nothing' has no parameter for its transaction"):
        unchecked(takes_nothing)


def test_a_step_is_not_wrapped_in_another() -> None:
    @workflow("wrapped")
    async def wrapped(ctx: Context) -> None:
        unchecked: Any = ctx.transaction
        await unchecked("again", pay)

    state = Rehearsal(wrapped).end()

    assert isinstance(state, Finished)
    assert state.failure is not None
    assert "is a step already" in state.failure.message
    for decorator in (step, transactional_step):
        with pytest.raises(DefinitionError, match="<TransactionalStep 'pay'> is a step already"):
            decorator(pay)


def test_it_tells_what_it_is_bound_or_not() -> None:
    assert [repr(one) for one in (pay, Desk.sell, Desk("north").sell.named("again"))] == [
        "<TransactionalStep 'pay'>",
        "<TransactionalStep 'sell'>",
        "<TransactionalStep 'again'>",
    ]


def test_one_compensation_is_enough() -> None:
    with pytest.raises(DefinitionError, match="has a compensation already"):
        pay.compensate(unpay)
    declared = transactional_step(name="other", compensate=unpay)(book._definition.function)
    with pytest.raises(DefinitionError, match="has a compensation already"):
        declared.compensate(unpay)


async def test_a_failure_inside_of_it_is_the_steps_failure() -> None:
    @workflow("failing")
    async def failing(ctx: Context) -> str:
        async def fail(tx: str) -> None:
            raise ValueError("no money")

        try:
            await ctx.transaction("pay", fail, retry=False)
        except StepFailed as failed:
            return str(failed.cause.message)
        return "paid"

    run = Rehearsal(failing)
    assert await asyncio.to_thread(run.end) == Finished(Status.COMPLETED, '"no money"', None)
