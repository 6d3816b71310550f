"""An `await` before a verb that has nothing to wait for, and a wait for what is no condition."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from outlast import BlockingContext, Context, Failure, Signal, workflow
from outlast.engine.decision import Finished
from outlast.model.run import Status
from support.replaying import Rehearsal

paid = Signal("paid", str)


def failed(code: Callable[[Any], Awaitable[object]]) -> Failure:
    @workflow("mistaken")
    async def mistaken(ctx: Context) -> None:
        await code(ctx)

    end = Rehearsal(mistaken).end()
    assert isinstance(end, Finished)
    assert (end.status, end.failure is None) == (Status.FAILED, False)
    assert end.failure is not None
    return end.failure


def test_an_await_before_a_commit_or_a_status_does_no_harm() -> None:
    """The commit was recorded, then the await raised TypeError: the run failed, and nothing was undone any more."""

    @workflow("awaiting")
    async def awaiting(ctx: Context) -> str:
        untyped: Any = ctx
        await ctx.step("charge", lambda s: "ok-1")
        await untyped.set_status("charged")
        await untyped.commit("charged")
        await asyncio.gather(untyped.set_status(None), untyped.commit("told"))
        return f"{bool(untyped.set_status('done'))}, {untyped.commit('done')!r}"

    run = Rehearsal(awaiting)

    assert run.end() == Finished(Status.COMPLETED, '"False, None"', None)
    assert run.log == ["charge done", "charged done", "told done", "done done"]


@pytest.mark.parametrize("is_plain", [False, True])
def test_the_answer_of_a_verb_that_has_none_is_stored_as_none(is_plain: bool) -> None:
    @workflow("async")
    async def async_one(ctx: Context) -> Any:  # noqa: ANN401, RUF100
        untyped: Any = ctx
        return untyped.commit("it")

    @workflow("plain")
    def plain_one(ctx: BlockingContext) -> Any:  # noqa: ANN401, RUF100
        untyped: Any = ctx
        return untyped.commit("it")

    assert Rehearsal(plain_one if is_plain else async_one).end() == Finished(Status.COMPLETED, "null", None)


def test_an_await_before_fail_fails_the_run_for_its_reason() -> None:
    assert str(failed(lambda ctx: ctx.fail("sold out"))) == "outlast.errors.WorkflowFailed: sold out"


@pytest.mark.parametrize(
    "call, what",
    [
        (lambda ctx: ctx.signal(paid), "signal 'paid'"),
        (lambda ctx: ctx.signal(paid, key="17"), "signal 'paid' with key '17'"),
        (lambda ctx: ctx.timer("1s"), "timer of 1s"),
    ],
)
def test_an_await_before_a_condition_says_how_to_wait_for_it(call: Callable[[Any], Any], what: str) -> None:
    failure = failed(call)

    assert failure.type == "outlast.errors.DefinitionError"
    assert f"`await` was written before the {what} itself" in failure.message
    assert "`await ctx.wait_for(name, ...)`, or `await ctx.first(name, ...)`" in failure.message


def test_a_condition_asked_whether_it_is_true_says_what_to_ask() -> None:
    """Any was true, so that `if approved:` paid out what nobody had approved."""

    async def code(ctx: Any) -> object:
        approved, late = ctx.signal(paid), ctx.timer("0s")
        await ctx.first("decision", approved, late)
        return "paid out" if approved else "not"

    failure = failed(code)

    assert failure.type == "outlast.errors.DefinitionError"
    assert "Whether the signal 'paid' has come is not told by the condition itself" in failure.message
    assert "ask `.won`" in failure.message


@pytest.mark.parametrize(
    "wait, says",
    [
        (lambda ctx: ctx.wait_for("p", paid), "Signal('paid', str). Write `ctx.signal(...)` around it"),
        (lambda ctx: ctx.wait_for("p", "1h"), "'1h'. For a time write `ctx.timer('1h')`."),
        (lambda ctx: ctx.first("p", [ctx.signal(paid), ctx.timer("1h")]), "Pass conditions one by one to `ctx.first`"),
        (lambda ctx: ctx.first("p", ctx.timer("1h"), 5), "wait 'p' was given 5."),
    ],
)
def test_a_wait_for_what_is_no_condition_says_what_to_write(wait: Callable[[Any], Any], says: str) -> None:
    failure = failed(wait)

    assert failure.type == "outlast.errors.InvalidArgument"
    assert says in failure.message
