"""What interrupts an attempt in a transaction, and from when on nothing does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from outlast.model.ids import RunId
from outlast.ports.store import FlushOutcome
from outlast.worker import transactional as module
from outlast.worker.steps import GIVEN_BACK, RECORDED, Raised
from support.attempt_bench import Bench, bench, both
from support.worker_fakes import FakeStep, in_callback, passes, until


@both
@pytest.mark.parametrize("verb", ["cut", "drop"])
async def test_until_the_grant_it_can_be_interrupted(is_blocking: bool, verb: str) -> None:
    with bench(is_blocking=is_blocking) as b:
        attempt = await b.begin(b.call())
        asking = await b.asking.get()

        await in_callback(getattr(attempt, verb))

        await until(lambda: b.log[-1:] == ["roll back"])
        await passes()
        assert not asking.is_heard
        assert (b.reports.get_nowait() if verb == "cut" else None) == (GIVEN_BACK if verb == "cut" else None)


@pytest.mark.parametrize("verb", ["cut", "drop"])
async def test_a_stop_lets_a_connection_be_made_and_a_lost_lease_does_not_wait_for_it(verb: str) -> None:
    """asyncpg said on stderr that the exception of a future was never retrieved, for each transaction whose connection was
    being made when SIGTERM came."""
    begun, connected = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def connecting() -> AsyncGenerator[str]:
        begun.set()
        try:
            await connected.wait()
        except asyncio.CancelledError:
            b.log.append("cut short")
            raise
        async with b._awaiting() as tx:  # pyright: ignore[reportPrivateUsage]  what the bench gives by itself
            yield tx

    with bench(is_blocking=False) as b:
        b.gives(awaiting=connecting)
        attempt = await b.begin(b.call())
        await begun.wait()

        await in_callback(getattr(attempt, verb))
        await passes()
        connected.set()

        if verb == "cut":
            assert await b.reports.get() == GIVEN_BACK
        await until(lambda: not b.steps.tasks)
        assert b.log == (["begin", "roll back"] if verb == "cut" else ["cut short"])


@both
@pytest.mark.parametrize("verb", ["request_stop", "cut", "drop"])
async def test_after_the_grant_nothing_interrupts_it(is_blocking: bool, verb: str) -> None:
    with bench(is_blocking=is_blocking) as b:
        attempt = await b.begin(b.call(on_cancel="abort"))
        b.database.goes_on.clear()
        await b.grant()
        await until(lambda: "write in tx" in b.log)

        await in_callback(getattr(attempt, verb))
        await passes()
        b.database.goes_on.set()

        await until(lambda: b.log[-1:] == ["commit"])
        if verb != "drop":
            assert await b.reports.get() == RECORDED


@pytest.mark.parametrize("verb", ["request_stop", "cut", "drop"])
async def test_a_function_that_still_runs_is_cancelled_before_the_next_is_let_in(verb: str) -> None:
    async def slow_to_clean_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await passes()

    with bench(is_blocking=False, has_one_writer=True) as b:
        attempt = await b.begin(b.call(slow_to_clean_up, on_cancel="abort"))
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


async def test_what_a_function_returns_after_it_was_cut_short_is_rolled_back() -> None:
    async def stubborn() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    with bench(is_blocking=False) as b:
        attempt = await b.begin(b.call(stubborn))
        await until(lambda: "pay in tx" in b.log)

        await in_callback(attempt.cut)

        assert await b.reports.get() == GIVEN_BACK
        assert b.log[-1] == "roll back"
        assert b.asking.empty()


async def test_a_thread_whose_attempt_is_dropped_is_answered_too() -> None:
    goes_on = threading.Event()
    with bench(is_blocking=True) as b:
        attempt = await b.begin(b.call(goes_on.wait))
        await until(lambda: "pay in tx" in b.log)

        await in_callback(attempt.drop)
        goes_on.set()

        await until(lambda: b.log[-1:] == ["roll back"])
        assert b.asking.empty()


async def test_a_thread_waits_for_its_answer_as_long_as_there_is_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float | None] = []

    class Watched(Future[Any]):
        def result(self, timeout: float | None = None) -> Any:
            looks.append(timeout)
            return super().result(0.001)

    monkeypatch.setattr(module, "Future", Watched)
    with bench(is_blocking=True) as b:
        await b.begin(b.call())
        await until(lambda: len(looks) > 3)
        await b.grant()

        assert await b.reports.get() == RECORDED


async def test_one_that_is_dropped_is_not_begun_again_with_a_transaction_that_is_awaited() -> None:
    goes_on = threading.Event()

    def gives_something_to_await() -> object:
        goes_on.wait()
        return asyncio.sleep(0)

    with bench(is_blocking=True) as b:
        b.gives(awaiting=b._awaiting, blocking=b._blocking)
        attempt = await b.begin(b.call(gives_something_to_await))
        await until(lambda: "pay in tx" in b.log)

        await in_callback(attempt.drop)
        goes_on.set()
        await until(lambda: b.log[-1:] == ["roll back"])
        await until(lambda: not b.room._inside)

        assert b.log.count("begin") == 1


async def test_a_cancellation_that_comes_out_of_the_commit_is_asked_after() -> None:
    @asynccontextmanager
    async def cancelled() -> AsyncGenerator[str]:
        yield "tx"
        raise asyncio.CancelledError

    with bench(is_blocking=False) as b:
        b.gives(awaiting=cancelled)
        b.database.asked_answers = [True]
        await b.begin(b.call())
        await b.grant()

        assert await b.reports.get() == RECORDED
        assert b.log[-1] == "ask"


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


async def test_a_function_that_takes_too_long_is_rolled_back() -> None:
    with bench(is_blocking=False) as b:
        await b.begin(b.call(asyncio.Event().wait, timeout=timedelta(milliseconds=20)))

        ending = await b.reports.get()

        assert isinstance(ending, Raised)
        assert isinstance(ending.error, TimeoutError)
        await until(lambda: b.log[-1:] == ["roll back"])


@both
async def test_after_the_grant_no_time_is_over(is_blocking: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be committed by then, so an attempt that were told to be late would be made twice."""
    loop = asyncio.get_running_loop()
    hour, call_later, armed = timedelta(hours=1), loop.call_later, list[asyncio.TimerHandle]()

    def arm(seconds: float, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
        handle = call_later(seconds, *arguments, **options)
        if seconds == pytest.approx(hour.total_seconds()):
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
async def test_a_time_that_is_over_before_the_grant_rolls_back(is_blocking: bool) -> None:
    with bench(is_blocking=is_blocking) as b:
        await b.begin(b.call(timeout=timedelta(milliseconds=20)))

        ending = await b.reports.get()

        assert isinstance(ending, Raised)
        assert isinstance(ending.error, TimeoutError)
        await until(lambda: b.log[-1:] == ["roll back"])


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
