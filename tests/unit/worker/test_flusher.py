"""Group commit: who shares a batch, and what is told when the database fails."""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Callable
from typing import Any

import pytest

from outlast.errors import DatabaseBusy, DatabaseUnavailable, LeaseLost
from outlast.model.ids import RunId
from outlast.model.run import Status
from outlast.ports.database import HeldUp
from outlast.ports.store import Batch, NewRun, RunWrite, Wait
from outlast.worker import flusher as module
from outlast.worker.flusher import Flusher, Staged
from support.worker_fakes import LEASE, FakeDatabase, flushed, passes, record


class Writes:
    """A writer whose records the test adds to until they are taken."""

    def __init__(self, run_id: str, flusher: Flusher, *, write: RunWrite | None = None) -> None:
        self.id = RunId(run_id)
        self.records = [record(0)]
        self.write = write
        self.told: list[Any] = []
        flusher.write(self)

    def take(self) -> Staged:
        return Staged(self.id, tuple(self.records), self.write)

    def written(self, lost: bool, ready: bool) -> None:
        self.told.append("lost" if lost else "ready" if ready else "written")

    def refused(self, error: Exception) -> None:
        self.told.append(error)


class Starts:
    def __init__(self, run_id: str, flusher: Flusher) -> None:
        self.run = NewRun(id=RunId(run_id), workflow="w", version=1, input="null")
        self.told: list[Any] = []
        flusher.start(self)

    def started(self, at: int, signal_cursor: int) -> None:
        self.told.append("started")

    def not_started(self) -> None:
        self.told.append("not started")

    def held_up(self) -> None:
        self.told.append("held up")

    def unsure(self) -> None:
        self.told.append("unsure")

    def unanswered(self, why: DatabaseUnavailable) -> None:
        self.told.append("unanswered")


class Lost:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


def make(database: FakeDatabase, lost: Lost | None = None) -> Flusher:
    return Flusher(
        database,  # type: ignore[arg-type]  # the part of it that is used
        LEASE,
        loop=asyncio.get_running_loop(),
        context=contextvars.Context(),
        on_lease_lost=lost or Lost(),
    )


async def test_a_lone_writer_is_written_without_waiting_for_company() -> None:
    database = FakeDatabase()
    writer = Writes("r1", make(database))

    asked = await database.next_asked("flush")
    assert [run_id for run_id, _ in asked.batch.records] == ["r1"]
    assert writer.told == []

    asked.answer.set_result(flushed())
    await passes()
    assert writer.told == ["written"]


async def test_what_arrives_during_a_flush_forms_the_next_one() -> None:
    database = FakeDatabase()
    flusher = make(database)
    Writes("r1", flusher)
    first = await database.next_asked("flush")

    Writes("r2", flusher)
    Writes("r3", flusher)
    await passes()
    assert database.is_quiet, "one flush in flight at a time"

    first.answer.set_result(flushed())
    second = await database.next_asked("flush")
    assert [run_id for run_id, _ in second.batch.records] == ["r2", "r3"]
    second.answer.set_result(flushed())


async def test_while_it_is_held_no_batch_is_formed_and_then_one_for_all() -> None:
    database = FakeDatabase()
    flusher = make(database)
    Writes("r1", flusher)
    first = await database.next_asked("flush")
    flusher.hold()
    Writes("r2", flusher)
    first.answer.set_result(flushed())
    await passes()
    Starts("s1", flusher)
    await passes()
    assert database.is_quiet

    flusher.release()
    second = await database.next_asked("flush")
    assert [run_id for run_id, _ in second.batch.records] == ["r2"]
    assert [run.id for run in second.batch.starts] == ["s1"]
    second.answer.set_result(flushed())
    await passes()
    flusher.hold()
    flusher.release()
    await passes()
    assert database.is_quiet, "nobody has anything to write"


async def test_a_writer_is_asked_for_its_records_when_its_batch_is_formed() -> None:
    database = FakeDatabase()
    flusher = make(database)
    Writes("r1", flusher)
    first = await database.next_asked("flush")

    late = Writes("r2", flusher)
    late.records.append(record(1))
    first.answer.set_result(flushed())

    second = await database.next_asked("flush")
    assert len(second.batch.records) == 2
    second.answer.set_result(flushed())


async def test_each_writer_hears_what_became_of_its_own_run() -> None:
    database = FakeDatabase(flush=flushed(lost=["r2"], ready=["r3"], started=["s1"]))
    flusher = make(database)
    writers = [Writes(name, flusher) for name in ("r1", "r2", "r3")]
    starters = [Starts(name, flusher) for name in ("s1", "s2")]

    await passes()

    assert [writer.told for writer in writers] == [["written"], ["lost"], ["ready"]]
    assert [starter.told for starter in starters] == [["started"], ["not started"]]


async def test_a_batch_is_bounded() -> None:
    database = FakeDatabase(flush=flushed())
    flusher = make(database)
    writers = [Writes(f"r{number}", flusher) for number in range(501)]

    await passes(20)

    assert [len(batch.records) for _, batch in database.asked_for("flush")] == [500, 1]
    assert all(writer.told == ["written"] for writer in writers)


async def test_a_failing_writer_does_not_keep_the_others_from_hearing() -> None:
    database = FakeDatabase(flush=flushed())
    flusher = make(database)
    first, second = Writes("r1", flusher), Writes("r2", flusher)
    first.told = None  # type: ignore[assignment]  # appending to it fails

    await passes()

    assert second.told == ["written"]


async def test_one_item_that_the_database_refuses_does_not_strand_its_batch() -> None:
    """Incident F007: an error about one dequeued item left all the others of its batch running with nobody."""

    def flush(_lease: object, batch: Batch) -> object:
        if any(run_id == "bad" for run_id, _ in batch.records):
            return ValueError("cannot be stored")
        return flushed(started=[run.id for run in batch.starts])

    database = FakeDatabase(flush=flush)
    flusher = make(database)
    good, bad, other = Writes("good", flusher), Writes("bad", flusher), Writes("other", flusher)
    starter = Starts("s1", flusher)

    await passes(20)

    assert good.told == other.told == ["written"]
    assert starter.told == ["started"]
    assert len(bad.told) == 1
    assert isinstance(bad.told[0], ValueError)


async def test_a_lost_lease_is_told_once_and_nobody_hears_that_anything_was_written() -> None:
    database, lost = FakeDatabase(), Lost()
    flusher = make(database, lost)
    in_flight = Writes("r1", flusher)
    asked = await database.next_asked("flush")
    waiting = Writes("r2", flusher)

    asked.answer.set_exception(LeaseLost("taken over"))
    await passes()
    late = Writes("r3", flusher)
    await passes()

    assert lost.times == 1
    assert in_flight.told == waiting.told == late.told == []
    assert database.is_quiet


async def test_a_lost_lease_in_the_middle_of_splitting_a_batch_ends_it() -> None:
    answers: list[Any] = [ValueError("bad"), flushed(), LeaseLost("taken over")]
    database, lost = FakeDatabase(flush=lambda *_: answers.pop(0)), Lost()
    flusher = make(database, lost)
    writers = [Writes(name, flusher) for name in ("r1", "r2", "r3")]

    await passes(20)

    assert [writer.told for writer in writers] == [["written"], [], []]
    assert lost.times == 1


async def test_a_flush_that_the_database_did_not_take_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Incident F085: the connection is lost at the moment of the result's write; the body must not run again."""
    monkeypatch.setattr(module, "_FIRST_PAUSE", 0)
    answers: list[Any] = [DatabaseUnavailable("gone"), DatabaseUnavailable("gone"), flushed()]
    database = FakeDatabase(flush=lambda *_: answers.pop(0), flushed=False)
    writer = Writes("r1", make(database))

    await passes(30)

    first, second, third = (batch for _, batch in database.asked_for("flush"))
    assert first == second == third
    assert writer.told == ["written"]


async def test_a_flush_whose_commit_took_effect_unheard_is_not_repeated() -> None:
    database = FakeDatabase(flush=DatabaseUnavailable("gone"), flushed=True)
    flusher = make(database)
    writer, starter = Writes("r1", flusher), Starts("s1", flusher)

    await passes(20)

    assert len(database.asked_for("flush")) == 1
    assert writer.told == ["ready"], "whether it can be claimed at once is not known, so somebody must look"
    assert starter.told == ["unanswered", "unsure"]


async def test_nothing_is_repeated_before_it_is_known_whether_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONGEST_PAUSE", 0)
    monkeypatch.setattr(module, "_FIRST_PAUSE", 0)
    answers: list[Any] = [DatabaseUnavailable("gone"), flushed()]
    database = FakeDatabase(flush=lambda *_: answers.pop(0))
    writer = Writes("r1", make(database))

    for _ in range(3):
        (await database.next_asked("flushed")).answer.set_exception(DatabaseUnavailable("still gone"))
        await passes()
        assert len(database.asked_for("flush")) == 1
        assert writer.told == []
    (await database.next_asked("flushed")).answer.set_result(False)
    await passes()
    assert writer.told == ["written"]


async def test_the_lease_may_turn_out_to_be_lost_when_the_database_is_back() -> None:
    database, lost = FakeDatabase(flush=DatabaseUnavailable("gone"), flushed=LeaseLost("taken over")), Lost()
    writer = Writes("r1", make(database, lost))

    await passes(20)

    assert writer.told == []
    assert lost.times == 1


async def test_a_forked_child_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Incident F181: parent and child shared a connection. A worker that was forked is its parent's."""
    database = FakeDatabase(flush=flushed())
    flusher = make(database)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    writer = Writes("r1", flusher)

    await passes()

    assert database.log == []
    assert writer.told == []


async def test_a_writer_that_cannot_say_what_to_write_is_refused_alone() -> None:
    database = FakeDatabase(flush=flushed())
    flusher = make(database)
    broken, other = Writes("r1", flusher), Writes("r2", flusher)
    broken.records = None  # type: ignore[assignment]  # tuple() of it fails

    await passes()

    assert isinstance(broken.told[0], TypeError)
    assert other.told == ["written"]


async def test_run_writes_go_with_the_records_of_their_batch() -> None:
    database = FakeDatabase(flush=flushed())
    parked = RunWrite(id=RunId("r1"), status=Status.SUSPENDED, keep=False)
    Writes("r1", make(database), write=parked)

    await passes()

    ((_, batch),) = database.asked_for("flush")
    assert batch.writes == (parked,)


def busy(*held: str) -> Callable[[object, Batch], object]:
    """Answer flushes; those of runs by these names, or that are about to wait for these topics, are held up."""

    def flush(_lease: object, batch: Batch) -> object:
        names = {str(run_id) for run_id, _ in batch.records} | {str(run.id) for run in batch.starts}
        topics = {wait.topic for write in batch.writes for wait in write.waits}
        if (names | topics) & set(held):
            return HeldUp("others have it")
        return flushed(started=[run.id for run in batch.starts])

    return flush


def waiting(run_id: str, flusher: Flusher, *topics: str) -> Writes:
    waits = tuple([Wait(topic, 0) for topic in topics])
    return Writes(run_id, flusher, write=RunWrite(id=RunId(run_id), status=Status.SUSPENDED, waits=waits))


async def test_what_is_held_up_by_others_is_set_aside_and_the_rest_goes_on() -> None:
    database = FakeDatabase(flush=busy("b", "s2", "line"))
    flusher = make(database)
    a, b = Writes("a", flusher), Writes("b", flusher)
    s1, s2 = Starts("s1", flusher), Starts("s2", flusher)
    parking = [waiting(f"w{number}", flusher, "line") for number in range(60)]
    elsewhere = waiting("e", flusher, "quiet")

    await passes(20)
    assert (a.told, elsewhere.told) == (["written"], ["written"])
    assert (b.told, {tuple(one.told) for one in parking}) == ([], {()})
    assert s1.told == s2.told == ["held up"], "starts are left to whoever asked for them"
    tried = sorted(len(batch.records) for _, batch in database.asked_for("flush") if not batch.starts)
    assert tried == [1, 1, 1, 2, 60], "what waits for the same is tried together"

    late = Writes("late", flusher)
    await passes()
    assert late.told == ["written"], "at once, whatever the others wait for"


async def test_a_start_that_is_busy_for_no_lock_of_its_own_is_tried_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody has the one write lock of an SQLite file: it is the same for everybody, and nothing to sort out."""
    monkeypatch.setattr(module, "_FIRST_PAUSE", 0)
    answers: list[Any] = [DatabaseBusy("somebody has the write lock"), flushed(started=["s1"])]
    database = FakeDatabase(flush=lambda *_: answers.pop(0))
    starter = Starts("s1", make(database))

    await passes(20)
    assert starter.told == ["unanswered", "started"]


async def test_who_is_about_to_wait_for_what_is_held_up_follows_those_set_aside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE", 0)
    database = FakeDatabase()
    flusher = make(database)
    first = waiting("w1", flusher, "line")
    (await database.next_asked("flush")).answer.set_exception(HeldUp("others have it"))
    again = await database.next_asked("flush")

    second, third = waiting("w2", flusher, "line"), waiting("w3", flusher, "line")
    other = waiting("w4", flusher, "another")
    at_once = await database.next_asked("flush")
    assert [write.id for write in at_once.batch.writes] == ["w4"]
    at_once.answer.set_result(flushed())
    followers = await database.next_asked("flush")
    assert [write.id for write in followers.batch.writes] == ["w2", "w3"]
    again.answer.set_result(flushed())
    followers.answer.set_result(flushed())
    await passes()
    assert first.told == second.told == third.told == other.told == ["written"]


async def test_no_more_than_four_wait_for_locks_at_once() -> None:
    database = FakeDatabase()
    flusher = make(database)
    for number in range(9):
        waiting(f"w{number}", flusher, f"topic {number}")
    (await database.next_asked("flush")).answer.set_exception(HeldUp("others have it"))
    asked = [await database.next_asked("flush") for _ in range(4)]
    await passes()
    assert database.is_quiet
    assert [write.id for one in asked for write in one.batch.writes] == ["w0", "w1", "w2", "w3"]
    asked[0].answer.set_result(flushed())
    assert [write.id for write in (await database.next_asked("flush")).batch.writes] == ["w4"]
    flusher.abandon()


async def test_who_is_set_aside_while_the_last_tries_end_is_tried_too() -> None:
    database = FakeDatabase()
    flusher = make(database)
    first = [waiting(f"w{number}", flusher, f"topic {number}") for number in range(4)]
    (await database.next_asked("flush")).answer.set_exception(HeldUp("others have it"))
    tries = [await database.next_asked("flush") for _ in range(4)]
    second = [waiting(f"v{number}", flusher, f"line {number}") for number in range(2)]
    busy_again = await database.next_asked("flush")

    for one in tries:
        one.answer.set_result(flushed())
    busy_again.answer.set_exception(HeldUp("others have it"))
    for _ in range(2):
        (await database.next_asked("flush")).answer.set_result(flushed())
    await passes()
    assert [writer.told for writer in first + second] == [["written"]] * 6


async def test_a_lone_writer_that_is_held_up_pauses_between_its_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for a lock holds the worker's row: without a pause the lease could never be renewed."""
    monkeypatch.setattr(module, "_FIRST_PAUSE", 3600)
    database = FakeDatabase()
    flusher = make(database)
    Writes("r1", flusher)
    (await database.next_asked("flush")).answer.set_exception(HeldUp("others have it"))
    await passes()
    assert database.is_quiet
    flusher.abandon()
