"""When a worker looks for due runs, and how many it takes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from outlast.engine.decision import Finished
from outlast.errors import DatabaseUnavailable, LeaseLost
from outlast.model.ids import RunId
from outlast.model.run import Status
from outlast.ports.store import NewRun
from outlast.worker import claiming as module
from outlast.worker import turnover
from outlast.worker.claiming import Claims, Looking
from outlast.worker.steps import Returned
from outlast.worker.tenure import Tenure
from support.worker_fakes import (
    LEASE,
    PARKED,
    FakeDatabase,
    FakeStep,
    ScriptedExecution,
    claim,
    claimed,
    flushed,
    in_callback,
    passes,
    progress,
    workplace,
)

DONE = Finished(Status.COMPLETED, "1", None)


class Office:
    """A looking worker whose claims the test answers."""

    def __init__(self, *, concurrency: int = 4, poll: float = 3600) -> None:
        self.database = FakeDatabase(flush=flushed())
        self.place = workplace(self.database, concurrency=concurrency)
        self.tenures = 0
        self.tenure = Tenure(self.place, LEASE, on_lease_lost=lambda _: None)
        self.looking = Looking(self.place, Claims(self.place), self._current, poll=poll)
        self.place.slot_freed = self.looking.slot_freed
        self.place.look = self.looking.kick
        self.place.look_at = self.looking.look_at

    async def _current(self) -> Tenure:
        if self.tenure.is_over:
            self.tenures += 1
            self.tenure = Tenure(self.place, LEASE, on_lease_lost=lambda _: None)
        return self.tenure

    def busy(self, *run_ids: str) -> list[Any]:
        """Make runs that go on until the test ends their step."""
        for run_id in run_ids:
            self.place.scripts[run_id] = ScriptedExecution(progress(calls=[FakeStep(run_id).call()]), progress(DONE))
        return [claimed(run_id) for run_id in run_ids]

    async def end(self, *run_ids: str) -> None:
        attempts: Any = self.place.steps
        for run_id in run_ids:
            await in_callback(lambda run_id=run_id: attempts.attempts[run_id].end(Returned(1)))
        await passes()


@asynccontextmanager
async def office(*, concurrency: int = 4, poll: float = 3600) -> AsyncIterator[Office]:
    made = Office(concurrency=concurrency, poll=poll)
    task = asyncio.create_task(made.looking.run())
    try:
        yield made
    finally:
        made.place.is_stopping = True
        made.looking.stop()
        await passes()
        task.cancel()
        await asyncio.wait([task])


async def test_a_claim_asks_for_as_many_runs_as_there_are_free_slots() -> None:
    async with office(concurrency=4) as o:
        first = await o.database.next_asked("claim")
        assert first.request.limit == 4
        assert first.request.workflows == (("w", 1),)
        first.answer.set_result(claim(*o.busy("r1")))
        await passes()
        o.looking.kick()
        assert (await o.database.next_asked("claim")).request.limit == 3


async def test_nothing_is_looked_for_between_two_polls() -> None:
    async with office() as o:
        (await o.database.next_asked("claim")).answer.set_result(claim())
        await passes(30)
        assert o.database.is_quiet


async def test_a_poll_looks_by_itself() -> None:
    async with office(poll=0.001) as o:
        for _ in range(3):
            (await o.database.next_asked("claim")).answer.set_result(claim())


async def test_runs_that_were_passed_by_are_looked_for_soon_then_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another worker has them for a moment, a caller's open transaction perhaps for long; nobody tells of either."""
    async with office(poll=0.1) as o:
        pauses: list[float] = []
        call_later = o.place.call_later

        def note(seconds: float, look: Callable[[], None]) -> asyncio.TimerHandle:
            pauses.append(seconds)
            return call_later(0, look)

        monkeypatch.setattr(o.place, "call_later", note)
        for passed_by in [True] * 7 + [False, True]:
            (await o.database.next_asked("claim")).answer.set_result(claim(passed_by=passed_by))
        await o.database.next_asked("claim")

        assert pauses == [0.005, 0.01, 0.02, 0.04, 0.08, 0.1, 0.1, 0.1, 0.005]


async def test_what_is_said_during_a_look_is_remembered() -> None:
    """The run became ready after the claim's statement had looked, and its wake-up came before the claim's answer."""
    async with office() as o:
        first = await o.database.next_asked("claim")
        o.looking.kick()
        first.answer.set_result(claim())
        await o.database.next_asked("claim")


async def test_a_parked_run_is_looked_for_when_it_is_due() -> None:
    async with office() as o:
        first = await o.database.next_asked("claim")
        first.answer.set_result(claim(now=1_000_000, next_due=1_001_000))
        await o.database.next_asked("claim")


async def test_the_earliest_due_time_counts() -> None:
    async with office() as o:
        first = await o.database.next_asked("claim")
        first.answer.set_result(claim(now=1_000_000, next_due=3_600_000_000))
        await passes()
        o.looking.look_at(o.place.time.now() + 2_000)
        o.looking.look_at(o.place.time.now() + 7_200_000_000)
        await o.database.next_asked("claim")


async def test_a_freed_slot_is_filled_when_more_runs_were_due() -> None:
    async with office(concurrency=2) as o:
        (await o.database.next_asked("claim")).answer.set_result(claim(*o.busy("r1", "r2")))
        await passes()
        assert o.looking.has_backlog
        assert o.database.is_quiet

        await o.end("r1")

        again = await o.database.next_asked("claim")
        assert again.request.limit == 1
        again.answer.set_result(claim())
        await passes()
        assert not o.looking.has_backlog


async def test_a_freed_slot_is_not_filled_when_nothing_else_was_due() -> None:
    async with office(concurrency=2) as o:
        (await o.database.next_asked("claim")).answer.set_result(claim(*o.busy("r1")))
        await passes()
        await o.end("r1")
        await passes(30)
        assert o.database.is_quiet


async def test_slots_that_become_free_together_are_filled_together() -> None:
    async with office(concurrency=8) as o:
        names = [f"r{number}" for number in range(8)]
        (await o.database.next_asked("claim")).answer.set_result(claim(*o.busy(*names)))
        await passes()
        attempts: Any = o.place.steps
        await in_callback(lambda: [attempts.attempts[name].end(Returned(1)) for name in names[:5]])
        assert (await o.database.next_asked("claim")).request.limit == 5


async def test_a_lone_freed_slot_is_filled_soon() -> None:
    async with office(concurrency=100) as o:
        names = [f"r{number}" for number in range(100)]
        (await o.database.next_asked("claim")).answer.set_result(claim(*o.busy(*names)))
        await passes()
        await o.end("r7")
        assert (await o.database.next_asked("claim")).request.limit == 1


async def test_where_runs_leave_at_once_the_next_are_claimed_before_there_are_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turnover, "_MOMENT", 3600.0)
    async with office(concurrency=16) as o:
        quick, slow = [f"q{number}" for number in range(16)], [f"s{number}" for number in range(16)]
        for run_id in quick:
            o.place.scripts[run_id] = ScriptedExecution(progress(DONE))
        (await o.database.next_asked("claim")).answer.set_result(claim(*[claimed(run_id) for run_id in quick]))

        again = await o.database.next_asked("claim")
        assert again.request.limit == 16, "no claim is for more than there are slots"
        again.answer.set_result(claim(*o.busy(*slow)))
        ahead = await o.database.next_asked("claim")
        assert ahead.request.limit in (7, 8), "half of those that left"
        assert o.tenure.free == 0
        ahead.answer.set_result(claim(*o.busy(*[f"w{number}" for number in range(ahead.request.limit)])))
        await passes()
        assert o.tenure.free == -ahead.request.limit
        assert o.tenure.room <= 1
        assert o.database.is_quiet


async def test_runs_that_found_no_slot_are_handed_back_by_name_and_hold_nothing_up() -> None:
    async with office(concurrency=4) as o:
        (await o.database.next_asked("claim")).answer.set_result(claim())
        await passes()
        o.tenure.given_up.update({RunId("locked"), RunId("free")})
        o.looking.kick()

        handing = await o.database.next_asked("give_back")
        assert handing.args == (LEASE, {"locked", "free"})
        handing.answer.set_result((RunId("free"),))
        (await o.database.next_asked("claim")).answer.set_result(claim())
        await passes()
        assert o.tenure.given_up == {"locked"}

        o.looking.kick()
        assert (await o.database.next_asked("give_back")).args == (LEASE, {"locked"})


async def test_a_failing_look_is_tried_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Incident F008: a transient error inside the loop was logged and the affected runs were forgotten for good."""
    monkeypatch.setattr(module, "_FIRST_PAUSE", 0.0001)
    monkeypatch.setattr(module, "_LONGEST_PAUSE", 0.0002)
    async with office() as o:
        (await o.database.next_asked("claim")).answer.set_exception(RuntimeError("unexpected"))
        for _ in range(2):
            (await o.database.next_asked("claim")).answer.set_exception(DatabaseUnavailable("gone"))
        (await o.database.next_asked("claim")).answer.set_result(claim(*o.busy("r1")))
        await passes()
        assert o.tenure.holds(RunId("r1"))
    assert "Looking for due runs failed" in caplog.text


async def test_a_database_that_is_away_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE", 0.0001)
    async with office() as o:
        for _ in range(3):
            (await o.database.next_asked("claim")).answer.set_exception(DatabaseUnavailable("gone"))
        (await o.database.next_asked("claim")).answer.set_result(claim())
    warnings = [entry for entry in caplog.records if entry.levelno == logging.WARNING]
    assert len(warnings) == 1


async def test_runs_of_a_claim_whose_answer_was_lost_are_handed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are owned by a worker that does not know of them and goes on renewing its lease: nobody else would take them."""
    monkeypatch.setattr(module, "_FIRST_PAUSE", 0.0001)
    async with office() as o:
        (await o.database.next_asked("claim")).answer.set_result(claim(*o.busy("r1")))
        await passes()
        o.looking.kick()
        (await o.database.next_asked("claim")).answer.set_exception(DatabaseUnavailable("lost in COMMIT"))
        await o.database.next_asked("claim")
        assert o.database.asked_for("disown") == [(LEASE, (RunId("r1"),))]


async def test_a_start_under_way_is_not_taken_for_a_stray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE", 0.0001)
    async with office() as o:
        del o.database.answers["flush"]
        start = NewRun(id=RunId("s1"), workflow="w", version=1, input="null")
        lost = await o.database.next_asked("claim")
        o.tenure.start(start)
        await o.database.next_asked("flush")
        lost.answer.set_exception(DatabaseUnavailable("lost in COMMIT"))
        await o.database.next_asked("claim")
        assert o.database.asked_for("disown") == [(LEASE, (RunId("s1"),))]


async def test_a_claim_that_finds_the_lease_lost_begins_a_new_tenure() -> None:
    async with office() as o:
        (await o.database.next_asked("claim")).answer.set_result(claim(*o.busy("r1")))
        await passes()
        old = o.tenure
        o.looking.kick()
        (await o.database.next_asked("claim")).answer.set_exception(LeaseLost("taken over"))
        await o.database.next_asked("claim")
        assert old.is_over
        assert old.is_idle
        assert o.tenures == 1


async def test_leases_that_cannot_be_kept_do_not_make_it_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONGEST_PAUSE", 3600)
    monkeypatch.setattr(module, "_FIRST_PAUSE", 1800)
    async with office() as o:
        for _ in range(2):
            (await o.database.next_asked("claim")).answer.set_exception(LeaseLost("taken over"))
        await passes(30)
        assert o.database.is_quiet


async def test_a_claim_that_comes_back_after_the_lease_was_lost_is_ignored() -> None:
    async with office() as o:
        pending = await o.database.next_asked("claim")
        await in_callback(o.tenure.lose)
        pending.answer.set_result(claim(*o.busy("r1")))
        await passes()
        assert o.place.turns == 0


async def test_a_claim_in_flight_at_a_stop_begins_nothing() -> None:
    async with office() as o:
        pending = await o.database.next_asked("claim")
        o.place.is_stopping = True
        o.looking.stop()
        pending.answer.set_result(claim(*o.busy("r1")))
        await passes()
        assert o.place.turns == 0
        assert o.database.is_quiet


async def test_a_stop_does_not_wait_for_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE", 3600)
    monkeypatch.setattr(module, "_LONGEST_PAUSE", 3600)
    made = Office()
    task = asyncio.create_task(made.looking.run())
    (await made.database.next_asked("claim")).answer.set_exception(DatabaseUnavailable("gone"))
    await passes()
    made.place.is_stopping = True
    made.looking.stop()
    await asyncio.wait_for(task, 30)


async def test_nothing_parked_is_forgotten_during_a_claim() -> None:
    async with office() as o:
        o.place.parked = type(o.place.parked)(1)
        kept = ScriptedExecution(progress(DONE))
        o.place.parked.put(RunId("kept"), kept, 1)
        pending = await o.database.next_asked("claim")
        assert pending.request.cached == {"kept": 1}
        o.place.parked.put(RunId("other"), ScriptedExecution(progress(PARKED)), 1)
        pending.answer.set_result(claim(claimed("kept", turns=2, records=None)))
        await passes()
        assert kept.told
