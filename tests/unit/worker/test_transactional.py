"""Attempts in a transaction: the order of what they do, and what becomes of it when somebody wants something else."""

from __future__ import annotations

import asyncio

import pytest

from outlast.errors import DatabaseUnavailable, DefinitionError, InvalidArgument, LeaseLost, NotATransaction
from outlast.model.ids import RunId
from outlast.ports.store import FlushOutcome
from outlast.ports.transactions import Transactions
from outlast.worker.steps import GIVEN_BACK, RECORDED, Raised
from outlast.worker.transactional import TransactionalSteps
from support.attempt_bench import bench, both
from support.worker_fakes import FakeStep, in_callback, until


@both
async def test_it_writes_after_the_function_and_before_the_commit(is_blocking: bool) -> None:
    with bench(is_blocking=is_blocking) as b:
        await b.begin(b.call())
        await b.grant()

        assert await b.reports.get() == RECORDED
        assert b.log == ["begin", "mark tx", "pay in tx", "write in tx", "commit"]
        assert b.steps.tasks == {}


@both
async def test_a_source_that_may_not_have_committed_is_asked_after(is_blocking: bool) -> None:
    with bench(is_blocking=is_blocking, is_sure=False) as b:
        b.database.asked_answers = [DatabaseUnavailable("away for a moment"), True]
        await b.begin(b.call())
        await b.grant()

        assert await b.reports.get() == RECORDED
        assert b.log[-3:] == ["commit", "ask", "ask"]
        assert b.steps.tasks == {}


@both
async def test_a_run_that_is_lost_commits_nothing(is_blocking: bool) -> None:
    with bench(is_blocking=is_blocking) as b:
        b.database.flush_answer = FlushOutcome(lost=(RunId("r1"),))
        b.database.asked_answers = [False]
        await b.begin(b.call())
        await b.grant()

        ending = await b.reports.get()
        assert isinstance(ending, Raised)
        assert b.log[-2:] == ["roll back", "ask"]


@both
async def test_a_lease_that_is_over_is_told_once_it_is_certain(is_blocking: bool) -> None:
    with bench(is_blocking=is_blocking) as b:
        b.database.flush_answer = LeaseLost("taken over")
        b.database.asked_answers = [LeaseLost("taken over")]
        await b.begin(b.call())
        await b.grant()

        await until(lambda: b.is_lost)
        assert b.log[-2:] == ["roll back", "ask"]
        assert b.reports.empty()


@both
async def test_a_lease_that_only_the_applications_transaction_does_not_see_is_no_lost_lease(is_blocking: bool) -> None:
    with bench(is_blocking=is_blocking) as b:
        b.database.flush_answer = LeaseLost("no such worker here")
        b.database.asked_answers = [False]
        await b.begin(b.call())
        await b.grant()

        ending = await b.reports.get()
        assert isinstance(ending, Raised)
        assert isinstance(ending.error, NotATransaction)
        assert not b.is_lost


@both
async def test_what_fails_in_the_function_rolls_back_and_asks_nobody(is_blocking: bool) -> None:
    def fail() -> None:
        raise ValueError("no money")

    with bench(is_blocking=is_blocking) as b:
        await b.begin(b.call(fail))

        ending = await b.reports.get()
        assert isinstance(ending, Raised)
        assert str(ending.error) == "no money"
        assert b.log == ["begin", "mark tx", "pay in tx", "roll back"]
        assert b.asking.empty()


async def test_where_many_write_at_a_time_nobody_waits_for_another() -> None:
    with bench(is_blocking=False) as b:
        await b.begin(b.call(name="one"))
        await b.begin(b.call(name="two"))

        await until(lambda: b.asking.qsize() == 2)
        await b.grant()
        await b.grant()

        assert [await b.reports.get(), await b.reports.get()] == [RECORDED, RECORDED]
        assert "look" not in b.log


@both
async def test_where_one_writes_at_a_time_the_next_is_let_in_after_the_last_is_certain(is_blocking: bool) -> None:
    with bench(is_blocking=is_blocking, has_one_writer=True, is_sure=False) as b:
        b.database.asked_answers = [True, True]
        await b.begin(b.call(name="one"))
        second = await b.begin(b.call(name="two"))
        third = await b.begin(b.call(name="three"))
        await in_callback(second.cut)
        assert await b.reports.get() == GIVEN_BACK
        await b.grant()
        assert await b.reports.get() == RECORDED
        await b.grant()
        assert await b.reports.get() == RECORDED

        one = ["begin", "mark tx", "one in tx", "write in tx", "commit", "ask"]
        three = ["begin", "mark tx", "three in tx", "write in tx", "commit", "ask", "look"]
        assert [said for said in b.log if said != "look"] == [*one, *three[:-1]]
        assert b.log.count("look") == 2, "nobody is told of a commit there"
        await in_callback(third.drop)


@both
async def test_what_cannot_be_found_out_is_raised(is_blocking: bool) -> None:
    with bench(is_blocking=is_blocking, is_sure=False) as b:
        b.database.asked_answers = [InvalidArgument("a question that nobody can answer")]
        await b.begin(b.call())
        await b.grant()

        ending = await b.reports.get()
        assert isinstance(ending, Raised)
        assert isinstance(ending.error, InvalidArgument)


@both
async def test_a_source_of_both_colours_is_entered_once_and_as_the_function_is_called(is_blocking: bool) -> None:
    with bench(is_blocking=is_blocking) as b:
        b.gives(awaiting=b._awaiting, blocking=b._blocking)
        await b.begin(b.call())
        await b.grant()

        assert await b.reports.get() == RECORDED
        assert b.log == ["begin", "mark tx", "pay in tx", "write in tx", "commit"]


async def test_a_plain_function_cannot_use_a_transaction_that_is_awaited() -> None:
    """What it asked of an AsyncSession would not be done, and its step would be recorded as done all the same."""
    with bench(is_blocking=True) as b:
        # Of a function of the application's only a call tells.
        for blocking in (None, b._awaiting):
            b.gives(awaiting=b._awaiting, blocking=blocking)
            await b.begin(b.call())

            ending = await b.reports.get()
            assert isinstance(ending, Raised)
            assert isinstance(ending.error, DefinitionError)
            assert "'pay' is a plain function, but this app's transactions are awaited" in str(ending.error)
            assert b.log[-1] == "roll back"


async def test_a_plain_function_may_give_what_is_to_be_awaited() -> None:
    with bench(is_blocking=True) as b:
        b.gives(awaiting=b._awaiting)
        await b.begin(b.call(lambda: asyncio.sleep(0, "paid")))
        await b.grant()

        assert await b.reports.get() == RECORDED
        assert b.log == ["begin", "mark tx", "pay in tx", "write in tx", "commit"]


@both
async def test_what_is_given_has_to_be_entered(is_blocking: bool) -> None:
    with bench(is_blocking=is_blocking) as b:
        b.gives(awaiting=object, blocking=object)
        await b.begin(b.call())

        ending = await b.reports.get()
        assert isinstance(ending, Raised)
        how = "`with`" if is_blocking else "`async with`"
        assert f"returned a object for step 'pay', which cannot be entered with {how}" in str(ending.error)


async def test_where_transactions_are_blocking_a_plain_function_gives_nothing_to_await() -> None:
    with bench(is_blocking=True) as b:
        await b.begin(b.call(lambda: asyncio.sleep(0)))

        ending = await b.reports.get()
        assert isinstance(ending, Raised)
        assert "gave something to await, but this app's transactions are blocking" in str(ending.error)
        assert b.log[-1] == "roll back"


async def test_a_step_without_a_transaction_of_its_colour_is_refused_before_it_begins() -> None:
    with bench(is_blocking=True) as b:
        call = FakeStep("pay").call(is_async=True, is_transactional=True)
        with pytest.raises(InvalidArgument, match="Make it a plain function"):
            b.room.perform(RunId("r1"), call, lambda *_: None, b._ask)
        nothing = TransactionalSteps(b.database, Transactions(), b.steps, look=lambda: None)  # type: ignore[arg-type]
        for each in (call, b.call()):
            with pytest.raises(InvalidArgument, match="has none to give"):
                nothing.perform(RunId("r1"), each, lambda *_: None, b._ask)
