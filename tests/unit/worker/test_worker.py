"""The life of a worker: start, stop, drain, and what the client of its process may ask. The database is a fake."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from outlast.engine.decision import Finished
from outlast.errors import DatabaseUnavailable, Failure, LeaseLost, OutlastError
from outlast.model.ids import RunId, WorkerId
from outlast.model.options import Retry, WorkerOptions
from outlast.model.run import Status, Stop, StopKind
from outlast.ports.store import Lease, NewRun, Reaped, Renewal
from outlast.worker import shift as module
from outlast.worker.steps import GIVEN_BACK, Returned
from outlast.worker.worker import Worker
from outlast.worker.workplace import Workplace
from support.worker_fakes import (
    PARKED,
    FakeDatabase,
    FakeStep,
    FakeSteps,
    ScriptedExecution,
    claim,
    claimed,
    flushed,
    in_callback,
    passes,
    progress,
    record,
    until,
)

DONE = Finished(Status.COMPLETED, "1", None)
CANCEL = Stop(StopKind.CANCEL, Failure(type="x", message="m"), 5)


class Clock:
    at = 1_000_000

    def now(self) -> int:
        return self.at


class World:
    """A worker whose runs are scripts, on a database whose claims are a queue."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scripts: dict[str, ScriptedExecution] = {}
        self.claims: list[Any] = []
        self.leases = 0
        self.database = FakeDatabase(
            flush=flushed(),
            register=self._register,
            claim=lambda _: self.claims.pop(0) if self.claims else claim(),
        )
        self.steps = FakeSteps()
        monkeypatch.setattr(Workplace, "execution", lambda _, facts, __: self.scripts[facts.id])
        monkeypatch.setattr(module, "Steps", lambda *_, **__: self.steps)

    def worker(self, *, clock: Clock | None = None, shutdown: str = "10s", concurrency: int = 10) -> Worker:
        options = WorkerOptions(poll="1h", lease="1h", shutdown_timeout=shutdown, concurrency=concurrency)
        database: Any = self.database
        workflows: Any = {("w", 1): object()}
        return Worker(database, workflows, options, Retry(), clock)

    def runs(self, *run_ids: str) -> None:
        """Let the next claim bring runs with one step each, which the test ends."""
        for run_id in run_ids:
            self.scripts[run_id] = ScriptedExecution(
                progress(calls=[FakeStep(run_id).call()]), progress(DONE, records=[record(0)])
            )
        self.claims.append(claim(*(claimed(run_id) for run_id in run_ids)))

    async def begun(self, run_id: str) -> None:
        await until(lambda: run_id in self.steps.attempts)

    async def end(self, run_id: str) -> None:
        await in_callback(lambda: self.steps.attempts[run_id].end(Returned(1)))

    def _register(self, worker: WorkerId) -> Lease:
        self.leases += 1
        return Lease(worker, 1)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


@asynccontextmanager
async def started(worker: Worker) -> AsyncIterator[Worker]:
    await worker.start()
    try:
        yield worker
    finally:
        await worker.stop()


def new_run(run_id: str) -> NewRun:
    return NewRun(id=RunId(run_id), workflow="w", version=1, input="null")


async def test_a_worker_takes_what_is_due_and_retires(world: World) -> None:
    world.runs("r1")
    async with started(world.worker()) as worker:
        await world.begun("r1")
        assert worker.holds(RunId("r1"))
        ended = worker.watch(RunId("r1"))
        await world.end("r1")
        assert (await ended).status is Status.COMPLETED
        assert not worker.holds(RunId("r1"))
        name = worker.id
        assert name is not None
        assert name.split(":")[1] == str(os.getpid())

    assert [args[0].worker for args in world.database.asked_for("retire")] == [name]
    assert worker.id is None
    assert "outlast-heartbeat" not in {thread.name for thread in threading.enumerate()}


async def test_a_worker_has_a_new_name_with_each_start(world: World) -> None:
    """A process that restarts in its pod must own nothing of what it had."""
    worker, names = world.worker(), set[str | None]()
    for _ in range(2):
        async with started(worker):
            names.add(worker.id)
    assert len(names) == 2


async def test_starting_twice_is_starting_once(world: World) -> None:
    async with started(world.worker()) as worker:
        await worker.start()
    assert world.leases == 1


async def test_a_worker_that_cannot_register_says_so_and_leaves_nothing_behind(world: World) -> None:
    world.database.answers["register"] = DatabaseUnavailable("gone")
    worker = world.worker()
    with pytest.raises(DatabaseUnavailable):
        await worker.start()
    assert worker.offer(new_run("s1")) is None
    assert "outlast-heartbeat" not in {thread.name for thread in threading.enumerate()}


async def test_a_stop_waits_for_the_steps_that_run(world: World) -> None:
    """Incident F005: heartbeats ended first, and a second worker took the step that was still finishing."""
    world.runs("r1")
    worker = world.worker()
    await worker.start()
    await world.begun("r1")

    stopping = asyncio.create_task(worker.stop())
    await passes(30)
    assert not stopping.done()
    assert world.database.asked_for("retire") == []
    assert worker.offer(new_run("s1")) is None

    await world.end("r1")
    await stopping
    ((_, batch),) = world.database.asked_for("flush")
    assert batch.records == (("r1", record(0)),)
    assert [verb for verb, _ in world.database.log][-1] == "retire"


async def test_a_stop_cuts_steps_short_when_their_time_is_over(world: World) -> None:
    """Incident F089: interrupted attempts were counted."""
    world.runs("r1")
    worker = world.worker(shutdown="1ms")
    await worker.start()
    await world.begun("r1")
    stopping = asyncio.create_task(worker.stop())
    await until(lambda: world.steps.attempts["r1"].told)
    assert world.steps.attempts["r1"].told == ["cut"]

    await in_callback(lambda: world.steps.attempts["r1"].end(GIVEN_BACK))
    await stopping

    ((_, batch),) = world.database.asked_for("flush")
    assert batch.records == ()
    assert (batch.writes[0].keep, batch.writes[0].due_at) == (False, 0)
    assert len(world.database.asked_for("retire")) == 1


async def test_a_stop_does_not_wait_for_a_step_that_ignores_it(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_GRACE", 0.001)
    world.runs("r1")
    worker = world.worker(shutdown="1ms")
    await worker.start()
    await world.begun("r1")
    await worker.stop()

    assert world.steps.attempts["r1"].told == ["cut", "drop"]
    assert "r1" in caplog.text
    assert len(world.database.asked_for("retire")) == 1


async def test_a_hurried_stop_hands_back_at_once(world: World) -> None:
    """Incident F178: after a second SIGTERM the work must be recoverable at once."""
    world.runs("r1")
    worker = world.worker(shutdown="1h")
    await worker.start()
    await world.begun("r1")
    stopping = asyncio.create_task(worker.stop())
    await passes(30)
    worker.hurry()
    await until(lambda: world.steps.attempts["r1"].told)
    await in_callback(lambda: world.steps.attempts["r1"].end(GIVEN_BACK))
    await stopping
    assert len(world.database.asked_for("retire")) == 1


async def test_a_cancelled_stop_still_hands_back(world: World) -> None:
    world.runs("r1")
    worker = world.worker(shutdown="1h")
    await worker.start()
    await world.begun("r1")
    stopping = asyncio.create_task(worker.stop())
    await passes(30)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert len(world.database.asked_for("retire")) == 1
    assert world.steps.attempts["r1"].told == ["drop"]


async def test_stopping_twice_at_once_is_stopping_once(world: World) -> None:
    world.runs("r1")
    worker = world.worker()
    await worker.start()
    await world.begun("r1")
    both = [asyncio.create_task(worker.stop()) for _ in range(2)]
    await passes(30)
    assert not any(task.done() for task in both)
    await world.end("r1")
    await asyncio.gather(*both)
    assert len(world.database.asked_for("retire")) == 1
    await worker.stop()


@pytest.mark.parametrize("error", [DatabaseUnavailable("gone"), LeaseLost("taken over"), RuntimeError("unexpected")])
async def test_a_stop_ends_even_when_nothing_can_be_handed_back(world: World, error: Exception) -> None:
    world.database.answers["retire"] = error
    worker = world.worker()
    await worker.start()
    await worker.stop()
    assert worker.id is None


async def test_after_a_lost_lease_a_worker_goes_on_under_another_name(world: World) -> None:
    world.runs("r1")
    async with started(world.worker()) as worker:
        await world.begun("r1")
        first = worker.id
        world.database.answers["flush"] = LeaseLost("taken over")
        await world.end("r1")
        await until(lambda: worker.id not in (None, first))
        assert not worker.holds(RunId("r1"))

        world.database.answers["flush"] = flushed()
        world.runs("r2")
        worker.wake()
        await world.begun("r2")
        await world.end("r2")
    assert world.leases == 2
    assert len(world.database.asked_for("retire")) == 1, "the lost lease is not given back"


async def test_a_local_start_is_taken_at_once(world: World) -> None:
    world.scripts["s1"] = ScriptedExecution(progress(DONE))
    world.database.answers["flush"] = lambda _, batch: flushed(started=[run.id for run in batch.starts])
    async with started(world.worker()) as worker:
        assert (offered := worker.offer(new_run("s1"))) is not None
        ended = worker.watch(RunId("s1"))
        assert (created := await offered) is not None
        assert created.created
        assert (await ended).status is Status.COMPLETED


async def test_local_starts_do_not_overtake_what_waits(world: World) -> None:
    """Incident F017: recovered high-priority work starved behind a stream of fresh work."""
    world.runs("r1")
    async with started(world.worker(concurrency=1)) as worker:
        await world.begun("r1")
        await world.end("r1")
        assert not worker.holds(RunId("s1"))
        world.runs("r2")
        worker.wake()
        await world.begun("r2")
        # Its one slot was filled by a claim, so more may be waiting: the next to begin is the store's choice.
        world.scripts["s1"] = ScriptedExecution(progress(DONE))
        assert worker.offer(new_run("s1")) is None
        await world.end("r2")


async def test_nothing_is_offered_to_a_worker_on_another_loop(world: World) -> None:
    async with started(world.worker()) as worker:

        async def elsewhere() -> object:
            return worker.offer(new_run("s1"))

        assert await asyncio.to_thread(lambda: asyncio.run(elsewhere())) is None
        assert await asyncio.to_thread(worker.offer, new_run("s1")) is None


async def test_a_worker_can_be_woken_from_any_thread(world: World) -> None:
    async with started(world.worker()) as worker:
        await until(lambda: world.database.asked_for("claim"))
        world.runs("r1")
        await asyncio.to_thread(worker.wake)
        await world.begun("r1")
        await world.end("r1")


async def test_waking_a_worker_that_is_not_there_does_nothing(world: World) -> None:
    worker = world.worker()
    worker.wake()
    worker.stop_requested(RunId("r1"))
    worker.hurry()
    assert not worker.holds(RunId("r1"))
    assert not worker.watch(RunId("r1")).done()
    await worker.stop()
    assert world.database.log == []


async def test_a_notice_of_another_process_makes_it_look(world: World) -> None:
    async with started(world.worker()):
        await until(lambda: world.database.asked_for("claim"))
        world.runs("r1")
        assert world.database.notice is not None
        world.database.notice("ready")
        await world.begun("r1")
        await world.end("r1")


@pytest.mark.parametrize("how", ["local", "notice"])
async def test_a_stop_request_reaches_a_running_step_at_once(world: World, how: str) -> None:
    world.runs("r1")
    async with started(world.worker()) as worker:
        await world.begun("r1")
        world.database.answers["renew"] = Renewal(0, ((RunId("r1"), CANCEL),))
        if how == "local":
            worker.stop_requested(RunId("r1"))
        else:
            assert world.database.notice is not None
            world.database.notice("stop")
        await until(lambda: world.steps.attempts["r1"].told)
        assert ("stop", CANCEL) in world.scripts["r1"].told


async def test_many_stop_requests_are_looked_for_together(world: World) -> None:
    world.runs("r1")
    async with started(world.worker()) as worker:
        await world.begun("r1")
        before = len(world.database.asked_for("renew"))
        for _ in range(100):
            worker.stop_requested(RunId("r1"))
        await passes(20)
        assert len(world.database.asked_for("renew")) <= before + 2
        await world.end("r1")


async def test_an_idle_worker_does_not_look_for_stop_requests(world: World) -> None:
    async with started(world.worker()) as worker:
        await until(lambda: world.database.asked_for("claim"))
        await passes()
        before = len(world.database.asked_for("renew"))
        worker.stop_requested(RunId("elsewhere"))
        await passes()
        assert len(world.database.asked_for("renew")) == before


async def test_runs_of_dead_workers_are_looked_for_at_once_and_then_now_and_again(world: World) -> None:
    world.database.answers["reap"] = Reaped(1)
    async with started(world.worker()):
        await until(lambda: len(world.database.asked_for("claim")) >= 2)
    assert len(world.database.asked_for("reap")) == 1


async def test_a_watch_that_is_not_wanted_any_more_leaves_nothing_behind(world: World) -> None:
    async with started(world.worker()) as worker:
        worker.watch(RunId("r1")).cancel()
        kept = worker.watch(RunId("r1"))
        await passes()
        shift: Any = worker._shift
        assert list(shift._watchers) == ["r1"]
        kept.cancel()
        await passes()
        assert shift._watchers == {}


async def test_a_forked_child_does_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with started(world.worker()) as worker:
        await until(lambda: world.database.asked_for("claim"))
        before, parents = list(world.database.log), worker._shift
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: -1)
            worker.wake()
            assert worker.offer(new_run("s1")) is None
            worker.stop_requested(RunId("r1"))
            await worker.stop()
            await passes()
        assert world.database.log == before
        worker._shift = parents


async def test_drain_runs_all_that_is_due_and_counts_the_turns(world: World) -> None:
    clock = Clock()
    for run_id in ("r1", "r2"):
        world.scripts[run_id] = ScriptedExecution(progress(DONE))
    world.scripts["r3"] = ScriptedExecution(progress(PARKED), progress(DONE))
    world.claims += [
        claim(claimed("r1"), claimed("r3")),
        claim(claimed("r2"), claimed("r3", turns=2, records=None)),
    ]
    worker = world.worker(clock=clock)

    assert await worker.drain() == 4
    assert await worker.drain() == 0

    verbs = [verb for verb, _ in world.database.log]
    assert verbs.count("register") == verbs.count("retire") == 2
    assert verbs.index("renew") < verbs.index("reap") < verbs.index("claim"), "its own lease first: the clock was moved"


async def test_drain_waits_for_steps_and_takes_what_they_make_due(world: World) -> None:
    world.runs("r1")
    worker = world.worker(clock=Clock())
    draining = asyncio.create_task(worker.drain())
    await world.begun("r1")
    world.runs("r2")
    worker.wake()
    await world.begun("r2")
    await world.end("r2")
    await world.end("r1")
    assert await draining == 2


async def test_drain_says_when_runs_never_come_to_rest(world: World) -> None:
    world.scripts["r1"] = ScriptedExecution(*[progress(PARKED)] * 4)
    world.claims += [claim(claimed("r1", turns=turn, records=None if turn > 1 else ())) for turn in range(1, 5)]
    with pytest.raises(OutlastError, match="after 3 rounds"):
        await world.worker(clock=Clock()).drain(max_rounds=3)
    assert len(world.database.asked_for("retire")) == 1


async def test_drain_works_beside_a_started_worker(world: World) -> None:
    world.runs("r1")
    async with started(world.worker()) as worker:
        await world.begun("r1")
        draining = asyncio.create_task(worker.drain())
        await passes(20)
        await world.end("r1")
        await draining
        assert world.leases == 1


async def test_drain_tells_what_a_claim_raises(world: World) -> None:
    world.database.answers["claim"] = RuntimeError("broken")
    with pytest.raises(RuntimeError, match="broken"):
        await world.worker(clock=Clock()).drain()


async def test_drain_goes_on_after_a_lost_lease(world: World) -> None:
    world.scripts["r1"] = ScriptedExecution(progress(DONE))
    world.claims += [LeaseLost("taken over"), claim(claimed("r1"))]
    assert await world.worker(clock=Clock()).drain() == 1
    assert world.leases == 2


async def test_a_cancelled_drain_hands_back_what_it_had(world: World) -> None:
    world.runs("r1")
    worker = world.worker(clock=Clock())
    draining = asyncio.create_task(worker.drain())
    await world.begun("r1")
    draining.cancel()
    await until(lambda: world.steps.attempts["r1"].told)
    await in_callback(lambda: world.steps.attempts["r1"].end(GIVEN_BACK))
    with pytest.raises(asyncio.CancelledError):
        await draining
    assert len(world.database.asked_for("retire")) == 1


async def test_a_drain_without_a_test_clock_renews_its_lease_meanwhile(world: World) -> None:
    world.runs("r1")
    worker = world.worker()
    draining = asyncio.create_task(worker.drain())
    await world.begun("r1")
    assert "outlast-heartbeat" in {thread.name for thread in threading.enumerate()}
    await world.end("r1")
    await draining
    assert "outlast-heartbeat" not in {thread.name for thread in threading.enumerate()}
