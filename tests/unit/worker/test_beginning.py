"""Claimed runs on their way to their turns."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.engine.decision import Finished
from outlast.model.ids import RunId
from outlast.model.run import Status
from outlast.ports.store import ClaimedRun
from outlast.worker import beginning as module
from outlast.worker.beginning import Beginning
from outlast.worker.drivable import Drivable
from outlast.worker.steps import Returned
from outlast.worker.tenure import Tenure
from support.worker_fakes import (
    LEASE,
    PARKED,
    FakeDatabase,
    FakeStep,
    ScriptedExecution,
    claimed,
    flushed,
    in_callback,
    passes,
    progress,
    until,
    workplace,
)

DONE = Finished(Status.COMPLETED, "1", None)


class Queue:
    """A queue before a host of so many slots; what it does is noted in `told`."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.told: list[Any] = []
        self.place = workplace(FakeDatabase())
        flusher: Any = self
        self.queue = Beginning(self, self.place, flusher)

    def begin(self, run: ClaimedRun, kept: Drivable | None) -> None:
        self.slots -= 1
        self.told.append((run.id, kept) if kept is not None else run.id)

    def give_up(self, runs: list[ClaimedRun]) -> None:
        self.told.append(("given up", *(run.id for run in runs)))

    def hold(self) -> None:
        self.told.append("hold")

    def release(self) -> None:
        self.told.append("release")

    def add(self, *run_ids: str) -> None:
        self.queue.add([claimed(run_id) for run_id in run_ids])


async def test_runs_begin_in_their_order_and_write_together() -> None:
    q = Queue(slots=10)
    q.add("r2", "r1")
    q.add("r3")
    assert (list(q.queue), q.told) == (["r2", "r1", "r3"], [])
    await passes()
    assert (list(q.queue), q.told) == ([], ["hold", "r2", "r1", "r3", "release"])


async def test_others_are_served_between_slices_but_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SLICE", -1.0)
    monkeypatch.setattr(module, "_TOGETHER", 3600.0)
    q = Queue(slots=10)
    q.add("r1", "r2", "r3")
    q.place.loop.call_soon(q.told.append, "another")
    await passes()
    assert q.told == ["hold", "r1", "another", "r2", "r3", "release"]


async def test_what_takes_long_to_begin_is_written_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SLICE", -1.0)
    monkeypatch.setattr(module, "_TOGETHER", -1.0)
    q = Queue(slots=10)
    q.add("r1", "r2")
    await passes()
    assert q.told == ["hold", "r1", "release", "hold", "r2", "release"]


async def test_the_others_can_write_though_one_could_not_be_begun() -> None:
    q = Queue(slots=10)
    heard: list[Any] = []
    q.place.loop.set_exception_handler(lambda _, context: heard.append(context["exception"]))

    def begin(run: ClaimedRun, kept: Drivable | None) -> None:
        raise KeyError(run.id)

    q.begin = begin  # type: ignore[method-assign]  # what begins runs fails
    q.add("r1")
    await passes()
    assert (q.told, [repr(error) for error in heard]) == (["hold", "release"], ["KeyError('r1')"])


async def test_without_slots_runs_wait_for_them() -> None:
    q = Queue(slots=1)
    q.add("r1", "r2", "r3")
    await passes()
    assert (list(q.queue), q.told) == (["r2", "r3"], ["hold", "r1", "release"])

    q.slots = 1
    q.told.clear()
    q.queue.go_on()
    await passes()
    assert (list(q.queue), q.told) == (["r3"], ["hold", "r2", "release"])


async def test_runs_that_find_no_slot_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONGEST_WAIT", 0.0)
    q = Queue(slots=0)
    q.add("r1", "r2")
    await until(lambda: ("given up", "r1", "r2") in q.told)
    assert list(q.queue) == []


async def test_nobody_is_given_up_as_long_as_runs_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    q = Queue(slots=0)
    q.add("r1", "r2")
    await passes()
    (impatience,) = [timer for timer in (q.queue._impatience,) if timer is not None]
    q.slots = 1
    q.queue.go_on()
    await passes()
    impatience._run()
    await passes()
    assert q.told == ["hold", "release", "hold", "r1", "release", "hold", "release"]
    assert list(q.queue) == ["r2"]


async def test_what_is_kept_in_memory_goes_along_or_is_closed() -> None:
    q = Queue(slots=1)
    one, other = ScriptedExecution(), ScriptedExecution()
    q.place.parked.put(RunId("r1"), one, 1)
    q.place.parked.put(RunId("r2"), other, 1)
    q.queue.add([claimed("r1", records=None), claimed("r2", records=None)])
    await passes()
    q.queue.forget()
    assert (q.told[1], other.is_closed, one.is_closed) == (("r1", one), True, False)


async def test_runs_that_found_no_slot_are_handed_back_and_none_is_claimed_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """But for one whose own parking is still to be answered: it goes on with the turn it was claimed for."""
    monkeypatch.setattr(module, "_LONGEST_WAIT", 0.0)
    place = workplace(FakeDatabase(flush=flushed()), concurrency=16)
    looks: list[None] = []
    place.look = lambda: looks.append(None)
    tenure = Tenure(place, LEASE, on_lease_lost=lambda _: None)
    busy = [f"b{number}" for number in range(16)]
    for run_id in busy:
        place.scripts[run_id] = ScriptedExecution(
            progress(calls=[FakeStep(run_id).call()]), progress(PARKED), progress(DONE)
        )
    tenure.take([claimed(run_id) for run_id in busy])
    await passes()
    tenure.take([claimed("r1"), claimed("b3", turns=2)])
    await until(lambda: looks)

    assert (tenure.given_up, tenure.owns_strays) == ({"r1"}, False)
    assert [*tenure.held] == [*busy, "r1"]
    assert (tenure.free, tenure.room) == (0, 0)

    attempts: Any = place.steps
    await in_callback(lambda: attempts.attempts["b3"].end(Returned(1)))
    await until(lambda: ("ended", "b3", Status.COMPLETED) in place.heard)
    assert tenure.room == tenure.free == 1


async def test_a_worker_that_stops_lets_waiting_runs_go_at_once() -> None:
    place = workplace(FakeDatabase(flush=flushed()), concurrency=1)
    tenure = Tenure(place, LEASE, on_lease_lost=lambda _: None)
    place.scripts["r1"] = ScriptedExecution(progress(calls=[FakeStep("a").call()]))
    tenure.take([claimed("r1"), claimed("r2")])
    await passes()
    assert [*tenure.held] == ["r1", "r2"]
    place.is_stopping = True
    await in_callback(tenure.settle)
    await passes()
    assert [*tenure.held] == ["r1"]
