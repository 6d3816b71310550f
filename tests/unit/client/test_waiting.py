"""Waiting for results, and what is left when the waiting ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from itertools import islice
from typing import Any

import pytest

from outlast.client.access import Access, Local
from outlast.client.blocking import BlockingClient
from outlast.client.calls import Calls
from outlast.client.catalog import Catalog
from outlast.client.client import Client
from outlast.client.endings import pauses
from outlast.client.publishing import Publishing
from outlast.engine.context import Context
from outlast.engine.definition import workflow
from outlast.errors import AppClosed, InvalidDuration, ResultTimeout, RunNotFound
from outlast.events.routes import Routes
from outlast.model.ids import RunId
from outlast.model.run import Status
from outlast.ports.store import NewRun, Outcome, StartOutcome
from support.fake_database import FakeDatabase


@workflow("count")
async def count(ctx: Context) -> int:
    return 1


class FakeWorker:
    """A worker that ends runs when the test says so. `held` are the runs that have a turn in it."""

    def __init__(self) -> None:
        self.watchers: dict[RunId, set[asyncio.Future[Outcome]]] = {}
        self.held: set[RunId] = set()
        self.wakes = 0
        self.stops: list[RunId] = []
        self.is_full = True
        self.offered: list[NewRun] = []
        self.watched = asyncio.Event()

    def offer(self, run: NewRun) -> Awaitable[StartOutcome] | None:
        if self.is_full:
            return None
        self.offered.append(run)
        future: asyncio.Future[StartOutcome] = asyncio.get_running_loop().create_future()
        future.set_result(
            StartOutcome(
                id=run.id,
                workflow=run.workflow,
                version=run.version,
                input=run.input,
                status=Status.RUNNING,
                created=True,
                created_at=0,
            )
        )
        return future

    def watch(self, run_id: RunId) -> asyncio.Future[Outcome]:
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        watchers = self.watchers.setdefault(run_id, set())
        watchers.add(future)
        future.add_done_callback(watchers.discard)
        self.watched.set()
        return future

    def holds(self, run_id: RunId) -> bool:
        return run_id in self.held

    def wake(self) -> None:
        self.wakes += 1

    def stop_requested(self, run_id: RunId) -> None:
        self.stops.append(run_id)

    def end(self, run_id: RunId, outcome: Outcome) -> None:
        for watcher in list(self.watchers[run_id]):
            watcher.set_result(outcome)


class World:
    """A client and its surroundings."""

    def __init__(self, worker: FakeWorker | None = None) -> None:
        self.database: Any = FakeDatabase()
        self.access = Access(self.database, migrates=False)
        calls = Calls(self.database.store, Catalog([count]))
        publishing = Publishing(calls, Routes(()))
        self.client = Client(self.access, calls, publishing)
        self.blocking = BlockingClient(self.access, calls, publishing)
        self.worker = worker or FakeWorker()
        if worker is not None:
            self.access.local = Local(worker, asyncio.get_running_loop())

    def complete(self, run_id: str) -> Outcome:
        outcome: Outcome = self.database.store.end(run_id, Status.COMPLETED, output="1")
        return outcome


async def settled() -> None:
    """Let everything go on that can go on without time passing."""
    for _ in range(20):
        await asyncio.sleep(0)


def others() -> set[asyncio.Task[Any]]:
    me = asyncio.current_task()
    return {task for task in asyncio.all_tasks() if task is not me}


def test_pauses_double_from_25_ms_to_a_second() -> None:
    assert list(islice(pauses(), 8)) == [0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


async def test_a_run_that_has_ended_answers_at_once() -> None:
    world = World()
    handle = await world.client.start(count)
    world.complete(handle.id)

    assert await handle.result(timeout="0s") == 1


async def test_who_asks_again_and_again_lets_the_worker_go_on() -> None:
    """A loop around a `result` that does not wait stood still for ever, and all else in its process with it."""
    world = World(FakeWorker())
    handle = await world.client.start(count)
    world.worker.held = {handle.id}
    asyncio.get_running_loop().call_soon(world.worker.held.clear)

    with pytest.raises(ResultTimeout):
        await handle.result(timeout="0s")

    assert not world.worker.held


async def test_an_end_recorded_elsewhere_is_found_by_looking() -> None:
    world = World()
    handle = await world.client.start(count)
    waiting = asyncio.ensure_future(handle.result())
    await settled()

    world.complete(handle.id)

    assert await waiting == 1


async def test_an_end_recorded_by_this_process_is_told_without_looking() -> None:
    world = World(FakeWorker())
    handle = await world.client.start(count)
    world.worker.held.add(handle.id)
    waiting = asyncio.ensure_future(handle.result())
    await settled()

    world.worker.end(handle.id, world.complete(handle.id))

    assert await waiting == 1
    assert world.database.store.looks == []


async def test_waiters_of_one_moment_look_together() -> None:
    world = World()
    handles = [await world.client.start(count) for _ in range(50)]
    waiting = [asyncio.ensure_future(handle.result()) for handle in handles]
    await settled()

    for handle in handles:
        world.complete(handle.id)
    await asyncio.gather(*waiting)

    assert len(world.database.store.looks) <= 4


async def test_a_time_limit_ends_the_waiting_and_not_the_run() -> None:
    world = World()
    handle = await world.client.start(count)

    with pytest.raises(ResultTimeout, match="goes on") as raised:
        await handle.result(timeout="30ms")

    assert raised.value.run_id == handle.id
    assert world.database.store.stops == {}
    world.complete(handle.id)
    assert await handle.result(timeout="30ms") == 1


async def test_a_cancelled_caller_leaves_nothing_behind_and_may_ask_again() -> None:
    world = World(FakeWorker())
    handle = await world.client.start(count)

    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(handle.result(), 0.03)
    await asyncio.sleep(0)  # what a future calls at its end is called in the loop's next pass

    assert others() == set()
    assert world.worker.watchers == {handle.id: set()}
    assert world.database.store.stops == {}
    world.complete(handle.id)
    assert await handle.result() == 1


async def test_a_hundred_cancelled_waiters_hold_no_thread_and_no_task() -> None:
    world = World()
    handles = [await world.client.start(count) for _ in range(100)]
    threads = threading.active_count()
    waiting = [asyncio.ensure_future(handle.result()) for handle in handles]
    await settled()

    assert (await asyncio.wait_for(world.client.get(handles[0].id), 1)) is not None
    assert threading.active_count() == threads
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)

    assert others() == set()


async def test_an_unknown_run_is_not_waited_for() -> None:
    with pytest.raises(RunNotFound):
        await World().client.result("nobody")


@pytest.mark.parametrize("timeout", ["-1s", "nan", 3])
async def test_an_unusable_time_limit_is_refused(timeout: Any) -> None:
    with pytest.raises(InvalidDuration):
        await World().client.result("a", timeout=timeout)


async def test_closing_ends_the_waiting_with_an_error_that_says_so() -> None:
    world = World()
    handle = await world.client.start(count)
    waiting = asyncio.ensure_future(handle.result())
    await settled()

    await world.client.close()

    with pytest.raises(AppClosed, match="goes on"):
        await waiting
    assert others() == set()


async def test_closing_in_the_middle_of_a_look_asks_the_database_nothing_more() -> None:
    """Seen here: who was just looking did not hear of it, and looked again into a database in memory that was gone."""
    world = World()
    handle = await world.client.start(count)
    answered = asyncio.Event()
    run = world.database.run

    async def slowly(make: Any, **options: Any) -> Any:
        await answered.wait()
        return await run(make, **options)

    world.database.run = slowly
    waiting = asyncio.ensure_future(handle.result())
    await settled()
    closing = asyncio.ensure_future(world.client.close())
    await settled()

    answered.set()
    await closing

    with pytest.raises(AppClosed):
        await waiting
    assert len(world.database.store.looks) == 1


async def test_a_start_is_offered_to_the_worker_of_this_process_first() -> None:
    world = World(FakeWorker())
    world.worker.is_full = False

    handle = await world.client.start(count)

    assert [run.id for run in world.worker.offered] == [handle.id]
    assert world.database.store.batches == []


async def test_a_full_worker_is_woken_for_the_run_it_could_not_take() -> None:
    world = World(FakeWorker())

    await world.client.start(count)

    assert (world.database.store.batches, world.worker.wakes) == ([1], 1)


async def test_starts_of_one_moment_share_a_transaction() -> None:
    world = World()

    await asyncio.gather(*(world.client.start(count) for _ in range(50)))

    assert world.database.store.batches == [50]


async def test_a_stop_is_looked_for_at_once_in_this_process() -> None:
    world = World(FakeWorker())
    handle = await world.client.start(count)

    await world.client.cancel(handle.id)
    await world.client.cancel(handle.id)
    await settled()

    assert world.worker.stops == [handle.id]


# Blocking.


@pytest.fixture
def world() -> World:
    return World()


def test_blocking_waiting_finds_an_end_recorded_elsewhere(world: World) -> None:
    handle = world.blocking.start(count)
    looks = world.database.store.looks
    world.database.before = lambda: world.complete(handle.id) if len(looks) == 3 else None

    assert handle.result() == 1
    assert len(looks) >= 3


def test_a_blocking_time_limit_ends_the_waiting_and_not_the_run(world: World) -> None:
    handle = world.blocking.start(count)

    with pytest.raises(ResultTimeout):
        handle.result(timeout="30ms")

    assert world.database.store.stops == {}


def test_closing_ends_a_blocking_wait_with_an_error_that_names_the_run(world: World) -> None:
    handle = world.blocking.start(count)
    world.access.is_open = True
    world.database.before = world.access.closed

    with pytest.raises(AppClosed, match="goes on") as told:
        handle.result()

    assert told.value.run_id == handle.id


async def test_the_worker_of_this_process_cuts_a_blocking_pause_short() -> None:
    world = World(FakeWorker())
    handle = await world.client.start(count)
    result: list[object] = []
    thread = threading.Thread(target=lambda: result.append(world.blocking.result(handle.id)))
    thread.start()
    await world.worker.watched.wait()

    world.worker.end(handle.id, world.complete(handle.id))
    await asyncio.to_thread(thread.join)
    await settled()

    assert result == [1]
    assert world.worker.watchers == {handle.id: set()}
