"""No step begins while the lease may be over, whatever wakes the worker."""

from __future__ import annotations

import asyncio
import contextvars

import pytest

from outlast.engine.decision import StepCall
from outlast.model.ids import RunId
from outlast.worker import certainty as module
from outlast.worker.certainty import Certainty
from outlast.worker.steps import GIVEN_BACK, Attempt, Ending, Raised, Returned, Steps
from support.worker_fakes import FakeStep, in_callback, passes


class Clock:
    """The process's monotonic clock, moved by the test as a suspension moves it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000_000
        monkeypatch.setattr(module, "monotonic_ns", lambda: self.now * 1000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Bench:
    """Steps under a lease that the test renews."""

    def __init__(self) -> None:
        self.certainty = Certainty()
        self.steps = Steps(asyncio.get_running_loop(), contextvars.Context(), self.certainty, threads=1)
        self.begun: list[str] = []
        self.reports: asyncio.Queue[Ending] = asyncio.Queue()

    async def begin(self, name: str, *, is_async: bool) -> Attempt:
        async def awaited() -> str:
            return self._called(name)

        call = FakeStep(name).call(awaited if is_async else lambda: self._called(name), is_async=is_async)
        made: list[Attempt] = []
        await in_callback(lambda: made.append(self.steps.perform(RunId("r"), call, self._report)))
        await passes()
        return made[0]

    def _called(self, name: str) -> str:
        self.begun.append(name)
        return name

    def _report(self, call: StepCall, ending: Ending) -> None:
        self.reports.put_nowait(ending)


def test_it_is_given_until_the_lease_may_be_over(clock: Clock) -> None:
    certainty = Certainty()
    assert not certainty.is_given
    certainty.extend(clock.now + 30)
    clock.now += 29
    assert certainty.is_given
    clock.now += 1
    assert not certainty.is_given
    # An answer that was under way for long says less than a later one.
    certainty.extend(clock.now + 20)
    certainty.extend(clock.now + 10)
    clock.now += 19
    assert certainty.is_given


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_step_begins_after_the_renewal_that_follows_a_suspension(clock: Clock, is_async: bool) -> None:
    bench = Bench()
    bench.certainty.extend(clock.now + 30)
    await bench.begin("a", is_async=is_async)
    assert await bench.reports.get() == Returned("a")

    clock.now += 1_000
    await bench.begin("b", is_async=is_async)
    assert bench.begun == ["a"]

    await in_callback(lambda: bench.certainty.extend(clock.now + 30))
    assert await bench.reports.get() == Returned("b")
    bench.steps.close()


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("end", ["drop", "cut"])
async def test_a_step_that_is_ended_before_the_renewal_never_begins(clock: Clock, is_async: bool, end: str) -> None:
    bench = Bench()
    attempt = await bench.begin("a", is_async=is_async)

    await in_callback(getattr(attempt, end))
    await passes()
    await in_callback(lambda: bench.certainty.extend(clock.now + 30))
    await bench.begin("b", is_async=is_async)

    endings = [await bench.reports.get() for _ in range(1 if end == "drop" else 2)]
    assert endings[-1] == Returned("b")
    assert endings[:-1] in ([], [GIVEN_BACK])
    assert bench.begun == ["b"]
    assert not any(isinstance(ending, Raised) for ending in endings)
    bench.steps.close()


async def test_a_renewal_lets_all_begin_that_wait_and_leaves_alone_who_gave_up_meanwhile(clock: Clock) -> None:
    certainty = Certainty()
    waiting = [asyncio.create_task(certainty.given()) for _ in range(3)]
    await passes()

    # The renewal comes in the same pass of the loop in which one of them is cancelled.
    waiting[1].cancel()
    certainty.extend(clock.now + 30)

    ended = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10)
    assert [type(end) for end in ended] == [type(None), asyncio.CancelledError, type(None)]


async def test_with_a_test_clock_nothing_waits() -> None:
    certainty = Certainty(is_needed=False)
    await certainty.given()
    assert certainty.is_given
