"""An attempt whose transaction others were in the way of: it begins anew, and nobody hears of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from outlast.errors import DatabaseBusy
from outlast.ports.store import FlushOutcome
from outlast.worker import transactional_tries as module
from outlast.worker.steps import GIVEN_BACK, RECORDED, Raised
from outlast.worker.transactional_tries import Tries
from support.attempt_bench import Bench, bench, both
from support.worker_fakes import in_callback, passes, until


def meets_others(b: Bench, times: int = 1) -> Callable[[], object]:
    """Return a function that the database refuses so often."""
    conflict = TimeoutError("could not serialize")
    b.database.conflicts.append(conflict)
    left = [times]

    def inner() -> object:
        if left[0]:
            left[0] -= 1
            raise conflict
        return None

    return inner


@pytest.fixture
def long_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause that no test waits for."""
    monkeypatch.setattr(random, "uniform", lambda _, __: 3_600.0)


@both
async def test_a_function_that_is_refused_begins_from_the_top_in_the_same_attempt(is_blocking: bool) -> None:
    with bench(is_blocking=is_blocking) as b:
        await b.begin(b.call(meets_others(b, 3)))
        await b.grant()

        assert await b.reports.get() == RECORDED
        refused = ["begin", "mark tx", "pay in tx", "roll back"]
        assert b.log == [*refused * 3, "begin", "mark tx", "pay in tx", "write in tx", "commit"]
        assert b.steps.tasks == {}


@both
async def test_a_refusal_after_the_grant_gives_it_back_once_it_is_certain(is_blocking: bool) -> None:
    with bench(is_blocking=is_blocking) as b:
        conflict = b.database.flush_answer = TimeoutError("deadlock")
        b.database.conflicts.append(conflict)
        b.database.asked_answers = [False]
        await b.begin(b.call())
        await b.grant()
        await until(lambda: "give back" in b.log)
        b.database.flush_answer = FlushOutcome()
        await b.grant()

        assert await b.reports.get() == RECORDED
        refused = ["begin", "mark tx", "pay in tx", "write in tx", "roll back", "ask", "give back"]
        assert b.log == [*refused, "begin", "mark tx", "pay in tx", "write in tx", "commit"]
        assert b.steps.tasks == {}


@both
async def test_a_refusal_of_what_was_committed_all_the_same_is_no_other_try(is_blocking: bool) -> None:
    with bench(is_blocking=is_blocking) as b:
        conflict = b.database.flush_answer = TimeoutError("of another database, after the commit")
        b.database.conflicts.append(conflict)
        b.database.asked_answers = [True]
        await b.begin(b.call())
        await b.grant()

        assert await b.reports.get() == RECORDED
        assert b.log.count("begin") == 1


@both
async def test_the_timeout_is_for_all_tries_together(is_blocking: bool) -> None:
    with bench(is_blocking=is_blocking) as b:
        await b.begin(b.call(meets_others(b, 1_000_000), timeout=timedelta(milliseconds=500)))

        ending = await b.reports.get()
        assert isinstance(ending, Raised)
        assert isinstance(ending.error, TimeoutError)
        assert "others were in the way of its transaction" in str(ending.error)
        begun = b.log.count("begin")
        await passes()
        assert b.log.count("begin") == begun


@both
async def test_without_a_timeout_the_attempt_fails_when_it_was_tried_for_long(
    is_blocking: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench(is_blocking=is_blocking) as b:
        monkeypatch.setattr(module, "PATIENCE", 0.0)
        await b.begin(b.call(meets_others(b)))

        ending = await b.reports.get()
        assert isinstance(ending, Raised)
        assert ending.error is b.database.conflicts[0]
        assert b.log.count("begin") == 1


@both
async def test_an_error_of_ours_was_raised_after_patience_enough(is_blocking: bool) -> None:
    """A step that waits for its own transaction, by a second connection, would do so for a minute."""
    with bench(is_blocking=is_blocking) as b:
        busy = DatabaseBusy("locked")
        b.database.conflicts.append(busy)

        def fail() -> None:
            raise busy

        await b.begin(b.call(fail))

        ending = await b.reports.get()
        assert isinstance(ending, Raised)
        assert ending.error is busy


@both
@pytest.mark.parametrize("verb", ["cut", "drop", "request_stop"])
@pytest.mark.usefixtures("long_pause")
async def test_who_ends_it_in_the_pause_does_so_at_once(is_blocking: bool, verb: str) -> None:
    with bench(is_blocking=is_blocking, has_one_writer=True) as b:
        attempt: Any = await b.begin(b.call(meets_others(b), on_cancel="abort"))
        await until(lambda: attempt._pause is not None)

        await in_callback(getattr(attempt, verb))

        if verb == "cut":
            assert await b.reports.get() == GIVEN_BACK
        elif verb == "request_stop":
            ending = await b.reports.get()
            assert isinstance(ending, Raised)
            assert isinstance(ending.error, asyncio.CancelledError)
        await passes()
        assert b.reports.empty()
        assert attempt._pause is None
        # The next one is let in.
        await b.begin(b.call(name="next"))
        await b.grant()
        assert await b.reports.get() == RECORDED
        assert b.log.count("begin") == 2


@both
@pytest.mark.usefixtures("long_pause")
async def test_a_stop_lets_a_step_finish_that_is_declared_so(is_blocking: bool) -> None:
    with bench(is_blocking=is_blocking) as b:
        attempt: Any = await b.begin(b.call(meets_others(b)))
        await until(lambda: attempt._pause is not None)

        await in_callback(attempt.request_stop)

        attempt._pause.cancel()
        await in_callback(attempt._begin_again)
        await b.grant()
        assert await b.reports.get() == RECORDED
        assert b.log.count("begin") == 2


@both
@pytest.mark.usefixtures("long_pause")
async def test_where_one_writes_at_a_time_others_do_so_in_the_pause(is_blocking: bool) -> None:
    with bench(is_blocking=is_blocking, has_one_writer=True) as b:
        attempt: Any = await b.begin(b.call(meets_others(b)))
        await until(lambda: attempt._pause is not None)
        await b.begin(b.call(name="other"))
        await b.grant()

        assert await b.reports.get() == RECORDED
        await in_callback(attempt.drop)


async def test_a_try_that_waits_for_a_thread_is_taken_back_at_its_timeout() -> None:
    """It would run unheard, beside the next attempt."""
    with bench(is_blocking=True, has_one_writer=True) as b:
        attempt: Any = await b.begin(b.call(meets_others(b), timeout=timedelta(hours=1)))
        await b.begin(b.call(name="other"))
        other = await b.asking.get()
        await until(lambda: attempt in b.room._waiting)

        await in_callback(attempt._expire)

        ending = await b.reports.get()
        assert isinstance(ending, Raised)
        assert isinstance(ending.error, TimeoutError)
        await in_callback(lambda: other.refuse(ValueError()))
        assert isinstance(await b.reports.get(), Raised)
        assert b.log.count("pay in tx") == 1


def test_pauses_are_random_and_grow_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def least(lowest: float, highest: float) -> float:
        asked.append(highest)
        return lowest

    monkeypatch.setattr(random, "uniform", least)
    tries = Tries(timedelta(hours=1))
    pauses = [tries.next_pause(0.0) for _ in range(12)]

    assert pauses == [0.0] * 12
    assert asked[:3] == [0.01, 0.02, 0.04]
    assert asked[-1] == 2.0
    assert tries.conflicts == 12


def test_a_timeout_begins_with_the_first_try() -> None:
    tries = Tries(timedelta(seconds=5))

    assert [tries.left(now) for now in (100.0, 103.0, 106.0)] == [5.0, 2.0, 0.0]
    assert Tries(None).left(100.0) is None


def test_patience_begins_with_the_first_conflict() -> None:
    tries = Tries(None)

    assert tries.next_pause(100.0) is not None
    assert tries.next_pause(159.0) is not None
    assert tries.next_pause(160.0) is None
