from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Sequence

import pytest

from outlast.client.grouping import Grouped
from outlast.errors import DatabaseBusy, DatabaseUnavailable
from outlast.ports.database import HeldUp
from support.worker_fakes import passes


class Recorder:
    """Answers a number with its double, one group at a time, when the test opens the gate."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Event()

    async def __call__(self, numbers: Sequence[int], *, waits: bool) -> Sequence[int]:
        self.groups.append(list(numbers))
        self.asked.set()
        await self.gate.wait()
        if 77 in numbers and not waits:
            raise HeldUp("others have 77")
        if 13 in numbers:
            raise ValueError("13")
        return [number * 2 for number in numbers]


async def test_a_lone_question_is_asked_at_once() -> None:
    recorder = Recorder()

    assert await Grouped(recorder, most=10).ask(3) == 6

    assert recorder.groups == [[3]]


async def test_questions_of_one_moment_share_a_group() -> None:
    recorder = Recorder()
    grouped = Grouped(recorder, most=10)

    answers = await asyncio.gather(*(grouped.ask(number) for number in range(5)))

    assert answers == [0, 2, 4, 6, 8]
    assert recorder.groups == [[0, 1, 2, 3, 4]]


async def test_what_is_asked_while_a_group_is_in_flight_forms_the_next() -> None:
    recorder = Recorder()
    recorder.gate.clear()
    grouped = Grouped(recorder, most=10)
    first = asyncio.ensure_future(grouped.ask(1))
    await recorder.asked.wait()

    others = [asyncio.ensure_future(grouped.ask(number)) for number in (2, 3)]
    await asyncio.sleep(0)
    recorder.gate.set()

    assert await asyncio.gather(first, *others) == [2, 4, 6]
    assert recorder.groups == [[1], [2, 3]]


async def test_callers_in_lockstep_stay_together() -> None:
    """Otherwise one of them would run ahead and every second group would hold a single question."""
    recorder = Recorder()
    grouped = Grouped(recorder, most=10)

    async def caller(number: int) -> None:
        for _ in range(5):
            await grouped.ask(number)

    await asyncio.gather(*(caller(number) for number in range(3)))

    assert recorder.groups == [[0, 1, 2]] * 5


async def test_no_group_is_larger_than_allowed() -> None:
    recorder = Recorder()
    grouped = Grouped(recorder, most=2)

    await asyncio.gather(*(grouped.ask(number) for number in range(5)))

    assert recorder.groups == [[0, 1], [2, 3], [4]]


async def test_one_refused_question_does_not_take_its_neighbours_with_it() -> None:
    grouped = Grouped(Recorder(), most=10)

    answers = await asyncio.gather(*(grouped.ask(number) for number in (1, 13, 2)), return_exceptions=True)

    assert answers[0] == 2
    assert isinstance(answers[1], ValueError)
    assert answers[2] == 4


async def test_an_absent_database_is_told_to_all_and_asked_once() -> None:
    asked: list[Sequence[int]] = []

    async def away(numbers: Sequence[int], *, waits: bool) -> Sequence[int]:
        asked.append(numbers)
        raise DatabaseUnavailable("away")

    grouped = Grouped(away, most=10)

    answers = await asyncio.gather(grouped.ask(1), grouped.ask(2), return_exceptions=True)

    assert [type(answer) for answer in answers] == [DatabaseUnavailable, DatabaseUnavailable]
    assert asked == [[1, 2]]


async def test_who_waits_for_another_transaction_waits_beside_the_others() -> None:
    """A start of an id that a caller has started and not committed made all starts of the process wait, and fail."""
    patient, freed = list[list[int]](), asyncio.Event()

    class HasBoth(Recorder):
        async def __call__(self, numbers: Sequence[int], *, waits: bool) -> Sequence[int]:
            if waits:
                patient.append(list(numbers))
                await freed.wait()
            return await super().__call__(numbers, waits=waits)

    grouped = Grouped(HasBoth(), most=10)
    held = asyncio.ensure_future(grouped.ask(77))
    assert await asyncio.gather(*(grouped.ask(number) for number in range(6))) == [0, 2, 4, 6, 8, 10]
    assert await grouped.ask(8) == 16
    assert (held.done(), patient) == (False, [[77]])

    freed.set()
    assert await held == 154
    await grouped.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


class Held:
    """Refuses what it is asked without waiting; what waits does so until the test lets it go, and is refused then too."""

    def __init__(self) -> None:
        self.waiting: list[int] = []
        self.tried: list[int] = []
        self.freed = asyncio.Event()

    async def __call__(self, numbers: Sequence[int], *, waits: bool) -> Sequence[int]:
        if waits:
            self.waiting += numbers
            self.tried += numbers
            await self.freed.wait()
            self.waiting = [number for number in self.waiting if number not in numbers]
        raise HeldUp("others have it")


async def test_no_more_than_four_wait_for_others_at_once_and_all_are_told_when_their_patience_is_over() -> None:
    held = Held()
    grouped = Grouped(held, most=10, patience=0)
    asked = [asyncio.ensure_future(grouped.ask(number)) for number in range(6)]
    await passes(30)
    assert len(held.waiting) == 4

    held.freed.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)

    assert {type(answer) for answer in answers} == {DatabaseBusy}
    assert {str(answer) for answer in answers} == {"Other transactions were in the way for 0 s: others have it"}
    assert sorted(held.tried) == list(range(6))


async def test_those_that_wait_take_turns() -> None:
    """The first four kept their places for half a minute, and the fifth, which others had let go long since, waited."""
    held = Held()
    grouped = Grouped(held, most=10)
    asked = [asyncio.ensure_future(grouped.ask(number)) for number in range(6)]
    await passes(30)
    first = set(held.waiting)
    held.tried.clear()

    held.freed.set()
    await passes(20)

    assert set(held.tried[:2]) == set(range(6)) - first
    for one in asked:
        one.cancel()
    await grouped.close()


async def test_who_has_gone_away_is_waited_for_no_more() -> None:
    held = Held()
    grouped = Grouped(held, most=10)
    asked = asyncio.ensure_future(grouped.ask(1))
    await passes(20)

    asked.cancel()
    held.freed.set()
    await grouped.close()

    assert held.tried == [1]


async def test_of_many_that_are_held_up_the_others_are_sorted_out_by_few_questions() -> None:
    """Each of forty was tried in turn before the one that nobody was in the way of, and the database waited each time."""
    tries: list[int] = []
    freed = asyncio.Event()

    async def perform(numbers: Sequence[int], *, waits: bool) -> Sequence[int]:
        if waits:
            await freed.wait()
        elif any(number < 40 for number in numbers):
            tries.append(len(numbers))
            raise HeldUp("others have it")
        return numbers

    grouped = Grouped(perform, most=1_000)
    held = [asyncio.ensure_future(grouped.ask(number)) for number in range(40)]
    innocent = [asyncio.ensure_future(grouped.ask(number)) for number in range(40, 1_000)]

    assert await asyncio.gather(*innocent) == list(range(40, 1_000))
    assert len(tries) <= 1 + 4 + 16 + 40 + 40 + 40
    assert not any(one.done() for one in held)
    freed.set()
    assert await asyncio.gather(*held) == list(range(40))
    await grouped.close()


async def test_what_was_busy_for_all_of_its_patience_is_not_tried_again() -> None:
    """A file of SQLite that somebody has locked refused half a minute twice, and a group once more for each of its parts."""
    asked: list[Sequence[int]] = []

    async def locked(numbers: Sequence[int], *, waits: bool) -> Sequence[int]:
        asked.append(numbers)
        raise DatabaseBusy("somebody has the one write lock")

    grouped = Grouped(locked, most=10)

    answers = await asyncio.gather(grouped.ask(1), grouped.ask(2), return_exceptions=True)

    assert [type(answer) for answer in answers] == [DatabaseBusy, DatabaseBusy]
    assert asked == [[1, 2]]


async def test_a_caller_that_went_away_is_not_asked_for() -> None:
    recorder = Recorder()
    recorder.gate.clear()
    grouped = Grouped(recorder, most=10)
    first = asyncio.ensure_future(grouped.ask(1))
    await recorder.asked.wait()
    gone, staying = asyncio.ensure_future(grouped.ask(2)), asyncio.ensure_future(grouped.ask(3))
    await asyncio.sleep(0)

    gone.cancel()
    recorder.gate.set()

    assert await first == 2
    assert await staying == 6
    assert recorder.groups == [[1], [3]]


async def test_nothing_is_left_once_all_is_answered() -> None:
    grouped = Grouped(Recorder(), most=10)

    await grouped.ask(1)
    await grouped.close()

    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_closing_waits_for_what_was_asked() -> None:
    recorder = Recorder()
    grouped = Grouped(recorder, most=1)
    answers = [asyncio.ensure_future(grouped.ask(number)) for number in (1, 2)]
    await asyncio.sleep(0)

    await grouped.close()

    assert [answer.done() for answer in answers] == [True, True]


async def test_when_the_loop_ends_nobody_is_left_waiting() -> None:
    recorder = Recorder()
    recorder.gate.clear()
    grouped = Grouped(recorder, most=1)
    answers = [asyncio.ensure_future(grouped.ask(number)) for number in (1, 2)]
    await recorder.asked.wait()

    for task in asyncio.all_tasks():
        if task.get_name() == "outlast-client":
            task.cancel()

    done, pending = await asyncio.wait(answers, timeout=5)
    assert (len(done), len(pending)) == (2, 0)
    assert all(answer.cancelled() for answer in answers)


async def test_the_work_does_not_run_in_the_context_of_who_asked_first() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")
    seen: list[str] = []

    async def look(numbers: Sequence[int], *, waits: bool) -> Sequence[int]:
        seen.append(variable.get())
        return numbers

    variable.set("the caller's")
    await Grouped(look, most=10).ask(1)

    assert seen == ["none"]


async def test_an_answer_of_the_wrong_length_is_an_error_and_no_hang() -> None:
    async def short(numbers: Sequence[int], *, waits: bool) -> Sequence[int]:
        return []

    with pytest.raises(ValueError, match="zip"):
        await asyncio.wait_for(Grouped(short, most=10).ask(1), 5)
