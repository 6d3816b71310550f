"""Under one lease: claimed runs, local starts, and the races between a claim, a flush and the loss of the lease."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.engine.decision import Finished, Held, Parked, Progress
from outlast.errors import DatabaseUnavailable, Failure, LeaseLost
from outlast.model.ids import RunId
from outlast.model.run import Status, Stop, StopKind
from outlast.ports.store import NewRun, StartOutcome
from outlast.worker import starting
from outlast.worker.steps import Returned
from outlast.worker.tenure import Tenure
from support.worker_fakes import (
    LEASE,
    PARKED,
    FakeDatabase,
    FakeStep,
    ScriptedExecution,
    ScriptedWorkplace,
    claimed,
    flushed,
    in_callback,
    passes,
    progress,
    record,
    workplace,
)

DONE = Finished(Status.COMPLETED, "1", None)
CANCEL = Stop(StopKind.CANCEL, Failure(type="x", message="m"), 5)


class Office:
    """A tenure on a workplace of scripts."""

    def __init__(self, database: FakeDatabase, *, concurrency: int = 10) -> None:
        self.database = database
        self.place: ScriptedWorkplace = workplace(database, concurrency=concurrency)
        self.lost: list[Tenure] = []
        self.tenure = Tenure(self.place, LEASE, on_lease_lost=self.lost.append)

    def script(self, run_id: str, *answers: Progress | Exception) -> ScriptedExecution:
        self.place.scripts[run_id] = execution = ScriptedExecution(*answers)
        return execution

    def heard(self, what: str) -> list[tuple[Any, ...]]:
        return [fact for fact in self.place.heard if fact[0] == what]

    def batches(self) -> list[Any]:
        return [batch for _, batch in self.database.asked_for("flush")]


def new_run(run_id: str, *, workflow: str = "w", timeout: int | None = None) -> NewRun:
    return NewRun(id=RunId(run_id), workflow=workflow, version=1, input="null", timeout=timeout)


def existing(run: NewRun, *, created: bool = False) -> StartOutcome:
    return StartOutcome(
        id=run.id, workflow="w", version=1, input="null", status=Status.PENDING, created=created, created_at=3
    )


async def test_a_claimed_run_is_driven_to_its_end() -> None:
    office = Office(FakeDatabase(flush=flushed()))
    execution = office.script("r1", progress(DONE, records=[record(0)]))
    office.tenure.take([claimed("r1")])
    assert office.tenure.free == 9

    await passes()

    assert office.heard("ended") == [("ended", "r1", Status.COMPLETED)]
    assert office.tenure.is_idle
    assert office.tenure.free == 10
    assert execution.is_closed
    assert office.place.turns == 1


async def test_a_run_that_only_waits_for_its_last_write_takes_no_slot() -> None:
    office = Office(FakeDatabase(), concurrency=2)
    for run_id in ("r1", "r2", "r3", "r4"):
        office.script(run_id, progress(DONE))
    office.tenure.take([claimed("r1"), claimed("r2")])
    assert office.tenure.free == 0
    first = await office.database.next_asked("flush")
    assert office.tenure.free == 2, "the next two can be claimed while these are written"

    office.tenure.take([claimed("r3"), claimed("r4")])
    await passes()
    assert office.tenure.free == 0, "but no more than that"
    first.answer.set_result(flushed())
    await office.database.next_asked("flush")
    assert office.tenure.free == 2


async def test_claimed_runs_are_begun_in_the_order_of_the_claim() -> None:
    office = Office(FakeDatabase(flush=flushed()))
    for run_id in ("r3", "r1", "r2"):
        office.script(run_id, progress(DONE))
    office.tenure.take([claimed("r3"), claimed("r1"), claimed("r2")])
    await passes()
    assert [fact[1] for fact in office.heard("made")] == ["r3", "r1", "r2"]


async def test_a_run_that_cannot_be_begun_is_held_and_the_others_go_on() -> None:
    """Incident F007: an exception while starting one dequeued run left the rest running with nobody."""
    office = Office(FakeDatabase(flush=flushed()))
    office.script("r1", progress(DONE))
    office.script("r3", progress(DONE))

    office.tenure.take([claimed("r1"), claimed("r2"), claimed("r3")])
    await passes()

    assert {fact[1] for fact in office.heard("ended")} == {"r1", "r3"}
    (held,) = [write for batch in office.batches() for write in batch.writes if write.held is not None]
    assert (held.id, held.status, held.due_at) == ("r2", Status.SUSPENDED, 30_000_000)
    assert office.tenure.is_idle


async def test_a_run_is_held_for_longer_each_time_and_no_longer_than_ten_minutes() -> None:
    office = Office(FakeDatabase(flush=flushed()))
    waits: list[int] = []
    for turns in range(1, 8):
        office.tenure.take([claimed("r1", turns=turns)])
        await passes()
        waits.append(office.batches()[-1].writes[0].due_at // 1_000_000)
    assert waits == [30, 60, 120, 240, 480, 600, 600]

    office.script("r1", progress(PARKED), progress(Held(Failure(type="x", message="m"))))
    office.tenure.take([claimed("r1", turns=8)])
    await passes()
    office.tenure.take([claimed("r1", turns=9)])
    await passes()
    assert office.batches()[-1].writes[0].due_at == 30_000_000


async def test_a_parked_run_goes_on_from_memory() -> None:
    office = Office(FakeDatabase(flush=flushed()))
    execution = office.script("r1", progress(Parked(Status.SUSPENDED, 77, ())), progress(DONE))
    office.tenure.take([claimed("r1", turns=4)])
    await passes()
    assert office.place.parked.turns == {"r1": 4}
    assert office.heard("look at") == [("look at", 77)]

    office.tenure.take([claimed("r1", turns=5, records=None, lapses=1, stop=CANCEL)])
    await passes()

    assert len(office.heard("made")) == 1
    assert execution.told == [("resume", (), None, 0), ("resume", (), CANCEL, 1)]
    assert office.heard("ended") == [("ended", "r1", Status.COMPLETED)]


async def test_a_run_that_went_on_elsewhere_is_replayed_from_its_journal() -> None:
    office = Office(FakeDatabase(flush=flushed()))
    old = office.script("r1", progress(PARKED))
    office.tenure.take([claimed("r1", turns=1)])
    await passes()

    office.script("r1", progress(DONE))
    office.tenure.take([claimed("r1", turns=3, records=(record(0), record(1)))])
    await passes()

    assert old.is_closed
    assert office.heard("made")[-1] == ("made", "r1", (record(0), record(1)))


async def test_a_parked_run_that_is_ready_at_once_is_looked_for() -> None:
    office = Office(FakeDatabase(flush=flushed(ready=["r1"])))
    office.script("r1", progress(PARKED))
    office.tenure.take([claimed("r1")])
    await passes()
    assert office.heard("look") == [("look",)]


async def test_a_claim_may_overtake_the_answer_to_the_runs_own_parking() -> None:
    """The flush that parks the run is committed, its answer is on the way; a claim takes the run and is back first."""
    office = Office(FakeDatabase())
    first = office.script("r1", progress(PARKED))
    office.tenure.take([claimed("r1", turns=1)])
    parking = await office.database.next_asked("flush")

    second = office.script("r1", progress(DONE))
    office.tenure.take([claimed("r1", turns=2, records=(record(0),))])
    await passes()
    assert len(office.heard("made")) == 1, "it has a turn here until the answer is there"

    parking.answer.set_result(flushed())
    (await office.database.next_asked("flush")).answer.set_result(flushed())
    await passes()
    assert first.is_closed
    assert second.told == [("resume", (), None, 0)]
    assert office.heard("ended") == [("ended", "r1", Status.COMPLETED)]


async def test_a_lost_lease_drops_every_turn() -> None:
    """A paused worker comes back after its lease: it writes nothing, and its steps are not listened to any more."""
    office = Office(FakeDatabase())
    running = office.script("r1", progress(calls=[FakeStep("a").call()]))
    writing = office.script("r2", progress(records=[record(0)], calls=[FakeStep("b").call()]))
    office.tenure.take([claimed("r1"), claimed("r2")])
    flush = await office.database.next_asked("flush")

    flush.answer.set_exception(LeaseLost("taken over"))
    await passes()

    assert office.lost == [office.tenure]
    assert office.tenure.is_over
    assert office.tenure.is_idle
    assert running.is_closed
    assert writing.is_closed
    attempts: Any = office.place.steps
    assert attempts.attempts["a"].told == ["drop"]
    assert "b" not in attempts.attempts
    assert office.database.is_quiet


async def test_losing_the_lease_twice_is_losing_it_once() -> None:
    """The heartbeat and a flush may both find out."""
    office = Office(FakeDatabase())
    await in_callback(office.tenure.lose)
    await in_callback(office.tenure.lose)
    assert len(office.lost) == 1


async def test_stop_requests_reach_the_runs_that_have_a_turn() -> None:
    office = Office(FakeDatabase())
    execution = office.script("r1", progress(calls=[FakeStep("a").call()]))
    office.tenure.take([claimed("r1")])
    await passes()
    execution.will(progress())
    await in_callback(lambda: office.tenure.request_stop(RunId("r1"), CANCEL))
    await in_callback(lambda: office.tenure.request_stop(RunId("elsewhere"), CANCEL))
    assert execution.told[-1] == ("stop", CANCEL)


async def test_a_stop_request_for_a_run_on_its_way_here_is_kept_for_it() -> None:
    """The claim's transaction read the run before the request was made; the renewal read the request before the claim's
    answer came. Nothing else would tell the turn."""
    office = Office(FakeDatabase())
    claimed_run = office.script("r1", progress(calls=[FakeStep("a").call()]))
    started_run = office.script("s1", progress(calls=[FakeStep("b").call()]))
    office.tenure.start(new_run("s1"))
    await in_callback(lambda: office.tenure.request_stop(RunId("r1"), CANCEL))
    await in_callback(lambda: office.tenure.request_stop(RunId("s1"), CANCEL))

    office.tenure.take([claimed("r1")])
    (await office.database.next_asked("flush")).answer.set_result(flushed(started=["s1"]))
    await passes()

    assert claimed_run.told == [("resume", (), CANCEL, 0)]
    assert started_run.told == [("resume", (), CANCEL, 0)]


async def test_a_terminate_that_came_with_the_claim_is_not_undone_by_an_older_cancel() -> None:
    terminate = Stop(StopKind.TERMINATE, Failure(type="x", message="m"), CANCEL.at + 1)
    office = Office(FakeDatabase())
    execution = office.script("r1", progress(calls=[FakeStep("a").call()]))
    await in_callback(lambda: office.tenure.request_stop(RunId("r1"), CANCEL))
    office.tenure.take([claimed("r1", stop=terminate)])
    await passes()
    assert execution.told == [("resume", (), terminate, 0)]


async def test_a_local_start_begins_right_after_it_is_durable() -> None:
    office = Office(FakeDatabase())
    office.script("s1", progress(calls=[FakeStep("a").call()]))
    outcome = office.tenure.start(new_run("s1", timeout=50))
    assert office.tenure.holds(RunId("s1"))
    assert office.tenure.free == 9
    flush = await office.database.next_asked("flush")
    assert office.heard("made") == []

    flush.answer.set_result(flushed(started=["s1"]))

    started = await outcome
    assert started is not None
    assert (started.created, started.status) == (True, Status.RUNNING)
    await passes()
    attempts: Any = office.place.steps
    assert "a" in attempts.attempts
    assert office.tenure.free == 9


async def test_a_start_of_an_id_that_is_taken_returns_what_is_there() -> None:
    run = new_run("s1")
    office = Office(FakeDatabase(flush=flushed(), start=(existing(run),)))
    outcome = await office.tenure.start(run)
    assert outcome is not None
    assert not outcome.created
    assert office.tenure.is_idle
    assert office.heard("made") == []


async def test_a_start_that_lost_its_lease_is_left_to_the_store() -> None:
    run = new_run("s1")
    office = Office(FakeDatabase(flush=LeaseLost("taken over"), start=(existing(run, created=True),)))
    outcome = await office.tenure.start(run)
    assert outcome is not None
    assert outcome.created
    assert ("look",) in office.heard("look")


async def test_a_start_that_the_store_refuses_tells_its_caller() -> None:
    office = Office(FakeDatabase(flush=ValueError("no"), start=ValueError("still no")))
    with pytest.raises(ValueError, match="still no"):
        await office.tenure.start(new_run("s1"))


async def test_a_start_whose_answer_was_lost_is_handed_back_to_be_claimed() -> None:
    """It is durable and this worker's, but its times and its signal cursor are unknown, so no turn can begin with it."""
    run = new_run("s1")
    database = FakeDatabase(flush=DatabaseUnavailable("gone"), flushed=True, start=(existing(run),))
    office = Office(database)
    await office.tenure.start(run)
    assert office.tenure.owns_strays
    assert not office.tenure.can_start(new_run("s2")), "nothing is started here until strays are handed back"
    assert office.heard("made") == []


async def test_the_caller_of_a_start_does_not_wait_for_a_database_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_PATIENCE", -1)
    office = Office(FakeDatabase(flush=DatabaseUnavailable("gone")))
    office.script("s1", progress(DONE))
    outcome = office.tenure.start(new_run("s1"))
    with pytest.raises(DatabaseUnavailable, match="start it again with the same id"):
        await outcome

    # It goes on being tried, because nobody knows whether it took effect.
    office.database.answers["flush"] = flushed(started=["s1"])
    (await office.database.next_asked("flushed")).answer.set_result(False)
    while not office.tenure.is_idle:
        await passes()
    assert office.heard("ended") == [("ended", "s1", Status.COMPLETED)]


async def test_a_caller_that_goes_away_does_not_undo_its_start() -> None:
    office = Office(FakeDatabase())
    office.script("s1", progress(DONE))
    outcome = office.tenure.start(new_run("s1"))
    flush = await office.database.next_asked("flush")
    outcome.cancel()
    flush.answer.set_result(flushed(started=["s1"]))
    (await office.database.next_asked("flush")).answer.set_result(flushed())
    await passes()
    assert office.heard("ended") == [("ended", "s1", Status.COMPLETED)]


async def test_what_can_start_here_at_once() -> None:
    office = Office(FakeDatabase(), concurrency=1)
    assert office.tenure.can_start(new_run("s1"))
    assert not office.tenure.can_start(new_run("s1", workflow="unknown"))
    office.tenure.start(new_run("s1"))
    assert not office.tenure.can_start(new_run("s1")), "the same id is under way"
    assert not office.tenure.can_start(new_run("s2")), "no free slot"


async def test_nothing_begins_any_more_when_the_worker_stops() -> None:
    office = Office(FakeDatabase())
    office.script("s1", progress(DONE))
    outcome = office.tenure.start(new_run("s1"))
    flush = await office.database.next_asked("flush")
    office.tenure.take([claimed("r1")])
    office.place.is_stopping = True
    flush.answer.set_result(flushed(started=["s1"]))
    await passes()

    started = await outcome
    assert started is not None
    assert started.created
    assert office.heard("made") == []
    assert office.tenure.is_idle
    assert not office.tenure.can_start(new_run("s2"))


async def test_a_stop_waits_for_a_running_step_and_hands_its_run_back() -> None:
    office = Office(FakeDatabase(flush=flushed()))
    execution = office.script("r1", progress(calls=[FakeStep("a").call()]))
    office.tenure.take([claimed("r1")])
    await passes()
    office.place.is_stopping = True
    await in_callback(office.tenure.settle)
    assert not office.tenure.is_idle

    execution.will(progress(records=[record(0)], calls=[FakeStep("b").call()]))
    attempts: Any = office.place.steps
    await in_callback(lambda: attempts.attempts["a"].end(Returned(1)))
    await passes()

    ((batch),) = office.batches()
    assert batch.records == (("r1", record(0)),)
    assert not batch.writes[0].keep
    assert office.tenure.is_idle
    assert "b" not in attempts.attempts


async def test_closing_drops_what_has_not_ended() -> None:
    office = Office(FakeDatabase())
    execution = office.script("r1", progress(records=[record(0)]))
    office.tenure.take([claimed("r1")])
    await office.database.next_asked("flush")
    await in_callback(office.tenure.close)
    assert execution.is_closed
    assert office.tenure.is_idle
    assert office.lost == [], "nobody took it away"
