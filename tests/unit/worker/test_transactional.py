"""Attempts in a transaction: the order of what they do, and what becomes of it when somebody wants something else."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from outlast.engine.decision import StepCall
from outlast.errors import DatabaseUnavailable, InvalidArgument, LeaseLost, NotATransaction
from outlast.model.ids import RunId
from outlast.ports.store import Batch, FlushOutcome
from outlast.ports.transactions import Transactions
from outlast.worker.certainty import Certainty
from outlast.worker.granting import Asking, Grant
from outlast.worker.steps import GIVEN_BACK, RECORDED, Attempt, Ending, Raised, Steps
from outlast.worker.transactional import TransactionalSteps
from support.worker_fakes import LEASE, FakeStep, in_callback, passes, record, until

ENTRY = record(0, "pay")


class FakeDatabase:
    """Notes what is asked, and answers a flush and the question after it as the test says."""

    def __init__(self, log: list[str]) -> None:
        self._log = log
        self.store = self
        self.flush_answer: FlushOutcome | Exception = FlushOutcome()
        self.asked_answers: list[bool | Exception] = []

    def flush(self, *_: object) -> FlushOutcome | Exception:
        return self.flush_answer

    def flushed(self, *_: object) -> bool | Exception:
        return self.asked_answers.pop(0)

    async def mark(self, tx: object) -> None:
        self._log.append(f"mark {tx}")

    def mark_blocking(self, tx: object) -> None:
        self._log.append(f"mark {tx}")

    async def join_marked(self, tx: object, make: Callable[[], Any]) -> Any:
        return self.join_marked_blocking(tx, make)

    def join_marked_blocking(self, tx: object, make: Callable[[], Any]) -> Any:
        self._log.append(f"write in {tx}")
        return _answered(make())

    async def run(self, make: Callable[[], Any], *, patience: float) -> Any:
        self._log.append("ask")
        return _answered(make())


def _answered(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


class Bench:
    """Transactional steps on the running loop, what they do in order, and what is reported of them."""

    def __init__(self, *, is_blocking: bool, **facts: bool) -> None:
        self.log: list[str] = []
        self.database = FakeDatabase(self.log)
        self.is_blocking = is_blocking
        loop, context = asyncio.get_running_loop(), contextvars.Context()
        self.steps = Steps(loop, context, Certainty(is_needed=False), threads=3)
        source: Any = {"blocking": self._blocking} if is_blocking else {"awaiting": self._awaiting}
        facts_of_source: dict[str, Any] = {"is_sure": True, **facts}
        given = Transactions(**source, **facts_of_source)
        self.room = TransactionalSteps(self.database, given, self.steps, look=lambda: self.log.append("look"))  # type: ignore[arg-type]
        self.reports: asyncio.Queue[Ending] = asyncio.Queue()
        self.asking: asyncio.Queue[Asking] = asyncio.Queue()
        self.is_lost = False

    @contextmanager
    def _blocking(self) -> Generator[str]:
        self.log.append("begin")
        try:
            yield "tx"
        except BaseException:
            self.log.append("roll back")
            raise
        self.log.append("commit")

    @asynccontextmanager
    async def _awaiting(self) -> AsyncGenerator[str]:
        with self._blocking() as tx:
            yield tx

    def call(self, inner: Callable[[], object] = lambda: None, name: str = "pay", **options: Any) -> StepCall:
        def blocking(tx: str) -> object:
            self.log.append(f"{name} in {tx}")
            return inner()

        async def awaiting(tx: str) -> object:
            value: Any = blocking(tx)
            return await value if asyncio.iscoroutine(value) else value

        invoke = blocking if self.is_blocking else awaiting
        return FakeStep(name).call(invoke, is_async=not self.is_blocking, is_transactional=True, **options)

    async def begin(self, call: StepCall) -> Attempt:
        begun: list[Attempt] = []

        def perform() -> None:
            begun.append(self.room.perform(RunId("r1"), call, lambda _, end: self.reports.put_nowait(end), self._ask))

        await in_callback(perform)
        return begun[0]

    def _ask(self, asking: Asking, _: object) -> None:
        self.asking.put_nowait(asking)

    async def grant(self) -> None:
        asking = await self.asking.get()
        grant = Grant(RunId("r1"), LEASE, Batch(records=((RunId("r1"), ENTRY),)), ENTRY, self._lose)
        await in_callback(lambda: asking.grant(grant))

    def _lose(self) -> None:
        self.is_lost = True


@contextmanager
def bench(*, is_blocking: bool, **facts: bool) -> Iterator[Bench]:
    made = Bench(is_blocking=is_blocking, **facts)
    try:
        yield made
    finally:
        made.steps.close()


both = pytest.mark.parametrize("is_blocking", [False, True], ids=["awaited", "blocking"])


@both
async def test_it_writes_after_the_function_and_before_the_commit(is_blocking: bool) -> None:
    with bench(is_blocking=is_blocking) as b:
        await b.begin(b.call())
        await b.grant()

        assert await b.reports.get() == RECORDED
        assert b.log == ["begin", "mark tx", "pay in tx", "write in tx", "commit"]


@both
async def test_a_source_that_may_not_have_committed_is_asked_after(is_blocking: bool) -> None:
    with bench(is_blocking=is_blocking, is_sure=False) as b:
        b.database.asked_answers = [DatabaseUnavailable("away for a moment"), True]
        await b.begin(b.call())
        await b.grant()

        assert await b.reports.get() == RECORDED
        assert b.log[-3:] == ["commit", "ask", "ask"]


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


@both
@pytest.mark.parametrize("verb", ["cut", "drop"])
async def test_until_the_grant_it_can_be_interrupted(is_blocking: bool, verb: str) -> None:
    with bench(is_blocking=is_blocking) as b:
        attempt = await b.begin(b.call())
        asking = await b.asking.get()

        await in_callback(getattr(attempt, verb))

        await until(lambda: b.log[-1] == "roll back")
        await passes()
        assert not asking.is_heard
        assert (b.reports.get_nowait() if verb == "cut" else None) == (GIVEN_BACK if verb == "cut" else None)


@both
async def test_after_the_grant_nothing_interrupts_it(is_blocking: bool) -> None:
    with bench(is_blocking=is_blocking) as b:
        attempt = await b.begin(b.call(on_cancel="abort"))
        await b.grant()
        await in_callback(attempt.request_stop)
        await in_callback(attempt.cut)

        assert await b.reports.get() == RECORDED
        assert b.log[-1] == "commit"


@pytest.mark.parametrize("verb", ["request_stop", "cut", "drop"])
async def test_a_function_that_still_runs_is_cancelled_before_the_next_is_let_in(verb: str) -> None:
    with bench(is_blocking=False, has_one_writer=True) as b:
        attempt = await b.begin(b.call(asyncio.Event().wait, on_cancel="abort"))
        await until(lambda: "pay in tx" in b.log)
        await b.begin(b.call(name="next"))

        await in_callback(getattr(attempt, verb))

        if verb != "drop":
            ending = await b.reports.get()
            assert isinstance(ending, Raised) if verb == "request_stop" else ending == GIVEN_BACK
        await b.grant()
        assert await b.reports.get() == RECORDED
        assert b.log[:5] == ["begin", "mark tx", "pay in tx", "roll back", "begin"]


async def test_a_function_on_a_thread_is_not_interrupted_and_commits() -> None:
    goes_on = threading.Event()
    with bench(is_blocking=True) as b:
        attempt = await b.begin(b.call(goes_on.wait, on_cancel="abort"))
        await until(lambda: "pay in tx" in b.log)

        await in_callback(attempt.request_stop)
        await passes()
        assert b.reports.empty()
        goes_on.set()
        await b.grant()

        assert await b.reports.get() == RECORDED


@both
async def test_one_that_waits_to_be_let_in_can_be_aborted_and_never_begins(is_blocking: bool) -> None:
    with bench(is_blocking=is_blocking, has_one_writer=True) as b:
        await b.begin(b.call(name="one"))
        second = await b.begin(b.call(name="two", on_cancel="abort"))

        await in_callback(second.request_stop)

        ending = await b.reports.get()
        assert isinstance(ending, Raised)
        assert isinstance(ending.error, asyncio.CancelledError)
        await b.grant()
        assert await b.reports.get() == RECORDED
        assert not any("two" in said for said in b.log)


async def test_one_that_no_thread_has_taken_makes_room_for_the_next() -> None:
    go_on = threading.Event()
    with bench(is_blocking=True, has_one_writer=True) as b:
        for number in range(3):
            busy = FakeStep(f"busy-{number}").call(go_on.wait, is_async=False)
            await in_callback(partial(b.steps.perform, RunId("r2"), busy, lambda *_: None))
        first = await b.begin(b.call(name="one"))
        await b.begin(b.call(name="two"))

        await in_callback(first.cut)
        assert await b.reports.get() == GIVEN_BACK
        go_on.set()
        await b.grant()

        assert await b.reports.get() == RECORDED
        assert b.log[:3] == ["begin", "mark tx", "two in tx"]


async def test_where_many_write_at_a_time_nobody_waits_for_another() -> None:
    with bench(is_blocking=False) as b:
        await b.begin(b.call(name="one"))
        await b.begin(b.call(name="two"))

        await until(lambda: b.asking.qsize() == 2)
        await b.grant()
        await b.grant()

        assert [await b.reports.get(), await b.reports.get()] == [RECORDED, RECORDED]
        assert "look" not in b.log


async def test_a_function_that_takes_too_long_is_rolled_back() -> None:
    with bench(is_blocking=False) as b:
        await b.begin(b.call(asyncio.Event().wait, timeout=timedelta(milliseconds=20)))

        ending = await b.reports.get()

        assert isinstance(ending, Raised)
        assert isinstance(ending.error, TimeoutError)
        await until(lambda: b.log[-1] == "roll back")


@both
async def test_after_the_grant_no_time_is_over(is_blocking: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be committed by then, so an attempt that were told to be late would be made twice."""
    loop = asyncio.get_running_loop()
    hour, call_later, armed = timedelta(hours=1), loop.call_later, list[asyncio.TimerHandle]()

    def arm(seconds: float, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
        handle = call_later(seconds, *arguments, **options)
        if seconds == hour.total_seconds():
            armed.append(handle)
        return handle

    monkeypatch.setattr(loop, "call_later", arm)
    over: list[bool] = []
    with bench(is_blocking=is_blocking) as b:

        def flush(*_: object) -> FlushOutcome:
            over.extend(handle.cancelled() for handle in armed)
            return FlushOutcome()

        b.database.flush = flush  # type: ignore[method-assign]
        await b.begin(b.call(timeout=hour))
        await b.grant()

        assert await b.reports.get() == RECORDED
        assert over == [True]


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


async def test_a_step_without_a_transaction_of_its_colour_is_refused_before_it_begins() -> None:
    with bench(is_blocking=True) as b:
        call = FakeStep("pay").call(is_async=True, is_transactional=True)
        with pytest.raises(InvalidArgument, match="Make it a plain function"):
            b.room.perform(RunId("r1"), call, lambda *_: None, b._ask)
        nothing = TransactionalSteps(b.database, Transactions(), b.steps, look=lambda: None)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="has none to give"):
            nothing.perform(RunId("r1"), call, lambda *_: None, b._ask)


async def test_a_thread_whose_loop_is_gone_rolls_back() -> None:
    """Nobody stopped the worker: the process goes on without it, and its database must not stay locked."""
    log: list[str] = []
    rolled_back = threading.Event()

    def work() -> None:
        async def main() -> None:
            b = Bench(is_blocking=True)
            b.log = log
            await b.begin(b.call())
            await b.asking.get()

        asyncio.run(main())

    def watched() -> None:
        work()
        while "roll back" not in log:
            threading.Event().wait(0.01)
        rolled_back.set()

    await asyncio.to_thread(watched)
    assert rolled_back.is_set()
