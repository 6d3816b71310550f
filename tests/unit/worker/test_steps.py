"""Attempts of steps: what an outcome is, and what becomes of functions that do not end when they should."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NoReturn

import pytest

from outlast.engine.decision import StepCall
from outlast.model.ids import RunId
from outlast.worker import steps as module
from outlast.worker.certainty import Certainty
from outlast.worker.steps import GIVEN_BACK, Attempt, Ending, Raised, Returned, Steps
from support.worker_fakes import FakeStep, in_callback, passes, until

SHORT = timedelta(milliseconds=1)
LONG = timedelta(hours=1)
flavour: contextvars.ContextVar[str] = contextvars.ContextVar("flavour", default="none")


class Bench:
    """Steps on the running loop, and what is reported of them."""

    def __init__(self, *, threads: int = 2) -> None:
        self.loop = asyncio.get_running_loop()
        self.certainty = Certainty(is_needed=False)
        self.steps = Steps(self.loop, contextvars.Context(), self.certainty, threads=threads)
        self.reports: asyncio.Queue[tuple[str, Ending]] = asyncio.Queue()

    async def begin(self, call: StepCall) -> Attempt:
        begun: list[Attempt] = []
        await in_callback(lambda: begun.append(self.steps.perform(RunId("r1"), call, self._report)))
        return begun[0]

    async def outcome(self) -> Ending:
        return (await self.reports.get())[1]

    def _report(self, call: StepCall, ending: Ending) -> None:
        assert asyncio.current_task() is None, "reported from a plain callback"
        self.reports.put_nowait((call.name, ending))


@contextmanager
def bench(*, threads: int = 2) -> Iterator[Bench]:
    made = Bench(threads=threads)
    try:
        yield made
    finally:
        made.steps.close()


async def returns(value: object) -> object:
    return value


async def hangs() -> NoReturn:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_step_returns_its_value(is_async: bool) -> None:
    with bench() as b:
        invoke: Callable[[], object] = (lambda: returns(7)) if is_async else (lambda: 7)
        await b.begin(FakeStep("a").call(invoke, is_async=is_async))
        assert await b.outcome() == Returned(7)


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("error", [ValueError("x"), StopIteration(3), SystemExit(1)])
async def test_whatever_a_step_raises_is_its_outcome(is_async: bool, error: BaseException) -> None:
    """Even SystemExit: one step must not end the application, nor every other run in it."""

    def fails() -> NoReturn:
        raise error

    async def fails_awaiting() -> NoReturn:
        raise error

    with bench() as b:
        await b.begin(FakeStep("a").call(fails_awaiting if is_async else fails, is_async=is_async))
        ending = await b.outcome()
    assert isinstance(ending, Raised)
    if is_async and isinstance(error, StopIteration):
        assert isinstance(ending.error, RuntimeError)  # what Python makes of it in a coroutine
    else:
        assert ending.error is error


async def test_a_plain_function_that_returns_an_awaitable_is_awaited() -> None:
    """Incident F091: wrapped coroutines ran as plain functions and a coroutine object was stored."""
    with bench() as b:
        await b.begin(FakeStep("a").call(functools.partial(returns, 7), is_async=False))
        assert await b.outcome() == Returned(7)


async def test_what_such_an_awaitable_raises_is_the_outcome() -> None:
    async def fails() -> NoReturn:
        raise ValueError("x")

    with bench() as b:
        await b.begin(FakeStep("a").call(fails, is_async=False))
        ending = await b.outcome()
    assert isinstance(ending, Raised)
    assert isinstance(ending.error, ValueError)


@pytest.mark.parametrize("is_async", [True, False])
async def test_each_attempt_has_a_fresh_context(is_async: bool) -> None:
    """Incident F187: context of one run was seen by another."""

    def look() -> str:
        seen = flavour.get()
        flavour.set("spoiled")
        return seen

    async def look_awaiting() -> str:
        return look()

    flavour.set("the caller's")
    with bench() as b:
        for _ in range(2):
            await b.begin(FakeStep("a").call(look_awaiting if is_async else look, is_async=is_async))
            assert await b.outcome() == Returned("none")


async def test_an_awaitable_goes_on_in_the_context_of_its_function() -> None:
    async def look() -> str:
        return flavour.get()

    def sets() -> Awaitable[str]:
        flavour.set("mine")
        return look()

    with bench() as b:
        await b.begin(FakeStep("a").call(sets, is_async=False))
        assert await b.outcome() == Returned("mine")


async def test_a_step_may_use_what_needs_a_task() -> None:
    async def body() -> str:
        task = asyncio.current_task()
        assert task is not None
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
        return task.get_name()

    with bench() as b:
        await b.begin(FakeStep("a").call(body))
        assert await b.outcome() == Returned("a")


async def test_a_coroutine_that_takes_too_long_is_cancelled() -> None:
    cleaned_up = asyncio.Event()

    async def body() -> None:
        try:
            await hangs()
        finally:
            cleaned_up.set()

    with bench() as b:
        await b.begin(FakeStep("a").call(body, timeout=SHORT))
        ending = await b.outcome()
    assert isinstance(ending, Raised)
    assert isinstance(ending.error, TimeoutError)
    assert "'a' took longer" in str(ending.error)
    assert cleaned_up.is_set()


@pytest.mark.parametrize("late", [ValueError("late"), "a late value"])
async def test_what_a_coroutine_does_after_its_timeout_does_not_count(late: Exception | str) -> None:
    async def body() -> str:
        try:
            await hangs()
        except asyncio.CancelledError:
            if isinstance(late, Exception):
                raise late from None
            return late

    with bench() as b:
        await b.begin(FakeStep("a").call(body, timeout=SHORT))
        ending = await b.outcome()
    assert isinstance(ending, Raised)
    assert isinstance(ending.error, TimeoutError)


async def test_a_coroutine_that_ignores_its_cancellation_does_not_hold_up_its_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_GRACE", 0.001)
    end = asyncio.Event()

    async def body() -> str:
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    with bench() as b:
        await b.begin(FakeStep("a").call(body, timeout=SHORT))
        ending = await b.outcome()
        assert isinstance(ending, Raised)
        assert isinstance(ending.error, TimeoutError)
        assert "Step 'a' of run 'r1'" in caplog.text
        end.set()
        await passes()
        assert b.reports.empty(), "its late end is not heard"
        assert not b.steps.tasks


async def test_a_timeout_that_comes_with_the_result_loses() -> None:
    """Both are ready in one pass of the loop: the step has ended, so it ended in time."""
    with bench() as b:
        attempt: Any = await b.begin(FakeStep("a").call(lambda: returns(7), timeout=LONG))
        (task,) = b.steps.tasks
        task.add_done_callback(lambda _: None)
        b.loop.call_soon(lambda: None)
        await until(task.done)
        attempt._expire()
        assert await b.outcome() == Returned(7)


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_cancellation_from_inside_is_an_outcome_like_any_error(is_async: bool) -> None:
    def body() -> NoReturn:
        raise asyncio.CancelledError

    async def body_awaiting() -> NoReturn:
        raise asyncio.CancelledError

    with bench() as b:
        await b.begin(FakeStep("a").call(body_awaiting if is_async else body, is_async=is_async))
        ending = await b.outcome()
    assert isinstance(ending, Raised)
    assert isinstance(ending.error, asyncio.CancelledError)


async def test_a_stop_request_lets_a_step_finish_by_default() -> None:
    step, end = FakeStep("a"), asyncio.Event()

    async def body() -> str:
        await end.wait()
        return "finished"

    with bench() as b:
        attempt = await b.begin(step.call(body))
        await passes()
        attempt.request_stop()
        await passes()
        assert step.flags == ["stop"]
        end.set()
        assert await b.outcome() == Returned("finished")
        attempt.request_stop()
        assert step.flags == ["stop"], "after its end nobody is told"


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_stop_request_cancels_a_coroutine_that_says_so(is_async: bool) -> None:
    with bench() as b:
        attempt = await b.begin(FakeStep("a").call(hangs, on_cancel="abort", is_async=is_async))
        await until(lambda: b.steps.tasks)
        attempt.request_stop()
        ending = await b.outcome()
    assert isinstance(ending, Raised)
    assert isinstance(ending.error, asyncio.CancelledError)


async def test_a_step_that_is_cut_short_is_given_back() -> None:
    with bench() as b:
        attempt = await b.begin(FakeStep("a").call(hangs))
        await passes()
        attempt.cut()
        assert await b.outcome() == GIVEN_BACK


async def test_a_step_that_fails_because_it_is_cut_short_is_given_back() -> None:
    async def body() -> None:
        try:
            await hangs()
        finally:
            raise RuntimeError("the connection was closed under me")

    with bench() as b:
        attempt = await b.begin(FakeStep("a").call(body))
        await passes()
        attempt.cut()
        assert await b.outcome() == GIVEN_BACK


async def test_a_step_that_returns_although_it_is_cut_short_has_returned() -> None:
    async def body() -> str:
        try:
            await hangs()
        except asyncio.CancelledError:
            return "done all the same"

    with bench() as b:
        attempt = await b.begin(FakeStep("a").call(body))
        await passes()
        attempt.cut()
        assert await b.outcome() == Returned("done all the same")


@pytest.mark.parametrize("is_async", [True, False])
async def test_nothing_is_heard_of_a_dropped_attempt(is_async: bool) -> None:
    with bench() as b:
        attempt = await b.begin(FakeStep("a").call(hangs, is_async=is_async, timeout=LONG))
        await until(lambda: b.steps.tasks)
        attempt.drop()
        await until(lambda: not b.steps.tasks)
        await passes()
        assert b.reports.empty()


async def test_who_has_the_loop_can_be_seen_from_another_thread() -> None:
    answers: list[object] = []

    with bench() as b:

        async def body() -> None:
            other = threading.Thread(target=lambda: answers.append(b.steps.current()))
            other.start()
            other.join()

        await b.begin(FakeStep("a").call(body))
        await b.outcome()
    assert answers == [("r1", "a")]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with 3.12")
async def test_an_application_may_run_its_tasks_eagerly() -> None:
    with bench() as b:
        b.loop.set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined,unused-ignore]
        await b.begin(FakeStep("a").call(lambda: returns(7), timeout=LONG))
        assert await b.outcome() == Returned(7)
        assert not b.steps.tasks


class Gate:
    """A plain function that returns when the test says so; `began` tells that a thread is in it."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.end = threading.Event()
        self.error: Exception | None = None

    def __call__(self) -> str:
        self.began.set()
        self.end.wait(30)
        if self.error is not None:
            raise self.error
        return "returned"

    async def entered(self) -> None:
        await asyncio.to_thread(self.began.wait, 30)


async def test_a_thread_that_takes_too_long_is_timed_out_and_stays_busy_until_it_returns() -> None:
    """Incident F088: the thread of a timed-out step was lost from the pool, or counted as free while it was not."""
    gates = [Gate() for _ in range(4)]
    for gate in gates:
        gate.error = ValueError("late")
    with bench(threads=2) as b:
        for number, gate in enumerate(gates):
            await b.begin(FakeStep(f"s{number}").call(gate, is_async=False, timeout=SHORT))
        timed_out = [await b.reports.get() for _ in range(2)]

        assert {name for name, _ in timed_out} == {"s0", "s1"}
        assert all(isinstance(ending, Raised) and isinstance(ending.error, TimeoutError) for _, ending in timed_out)
        await passes()
        assert b.reports.empty(), "the others wait for a thread; their time has not begun"
        assert b.steps.threads.busy == 2

        gates[0].end.set()
        gates[1].end.set()
        assert {(await b.reports.get())[0] for _ in range(2)} == {"s2", "s3"}
        gates[2].end.set()
        gates[3].end.set()
        await until(lambda: not b.steps.threads.busy)
        assert b.reports.empty(), "late outcomes are not heard"


async def test_threads_are_bounded_and_serve_in_order() -> None:
    first, second = Gate(), Gate()
    with bench(threads=1) as b:
        await b.begin(FakeStep("a").call(first, is_async=False))
        await b.begin(FakeStep("b").call(second, is_async=False))
        await first.entered()
        assert not second.began.is_set()
        first.end.set()
        assert await b.reports.get() == ("a", Returned("returned"))
        second.end.set()
        assert await b.reports.get() == ("b", Returned("returned"))


async def test_a_thread_cannot_be_cut_short_so_it_is_left_alone() -> None:
    gate, step = Gate(), FakeStep("a")
    with bench() as b:
        attempt = await b.begin(step.call(gate, is_async=False))
        await gate.entered()
        attempt.cut()
        assert await b.outcome() == GIVEN_BACK
        assert step.flags == ["stop"], "a function that looks can see that nobody waits for it"
        gate.end.set()
        await until(lambda: not b.steps.threads.busy)
        assert b.reports.empty()


@pytest.mark.parametrize("how", ["cut", "abort", "drop"])
async def test_a_step_that_waits_for_a_thread_is_taken_back(how: str) -> None:
    gate, never = Gate(), Gate()
    with bench(threads=1) as b:
        await b.begin(FakeStep("busy").call(gate, is_async=False))
        attempt = await b.begin(FakeStep("a").call(never, is_async=False, on_cancel="abort"))
        match how:
            case "cut":
                attempt.cut()
                assert await b.outcome() == GIVEN_BACK
            case "abort":
                attempt.request_stop()
                ending = await b.outcome()
                assert isinstance(ending, Raised)
                assert isinstance(ending.error, asyncio.CancelledError)
            case _:
                attempt.drop()
        gate.end.set()
        assert await b.reports.get() == ("busy", Returned("returned"))
        assert not never.began.is_set()


async def test_a_coroutine_that_a_timed_out_function_returns_is_closed() -> None:
    gate = Gate()
    ended: list[str] = []

    async def late() -> None:
        ended.append("awaited")

    def body() -> object:
        gate()
        return late()

    with bench() as b:
        await b.begin(FakeStep("a").call(body, is_async=False, timeout=SHORT))
        await b.outcome()
        gate.end.set()
        await until(lambda: not b.steps.threads.busy)
    assert ended == []


async def test_a_thread_that_cannot_be_made_fails_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    with bench() as b:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        await b.begin(FakeStep("a").call(lambda: 7, is_async=False))
        ending = await b.outcome()
    assert isinstance(ending, Raised)
    assert "can't start new thread" in str(ending.error)


def test_a_thread_that_returns_after_the_loop_is_closed_ends_quietly() -> None:
    gate = Gate()
    threads: list[threading.Thread] = []

    async def main() -> None:
        b = Bench()
        await b.begin(FakeStep("a").call(gate, is_async=False))
        await gate.entered()
        threads.extend(thread for thread in threading.enumerate() if thread.name.startswith("outlast-step"))
        b.steps.close()

    asyncio.run(main())
    gate.end.set()
    for thread in threads:
        thread.join(30)
        assert thread.daemon, "a step that never returns must not keep the process from ending"
        assert not thread.is_alive()
