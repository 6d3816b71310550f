"""The loop by itself: a queue that is run until it is empty, and hooks for everything else."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any, NoReturn

import pytest

from outlast.engine.eventloop import TooManyHandles, WorkflowLoop, running_loop, workflow_loop


class Refused(Exception): ...


class Host:
    """Notes what the loop asks of the run it belongs to."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, float | None]] = []
        self.dropped: list[float] = []
        self.unhandled: list[str] = []

    def refuse_call(self, call: str) -> NoReturn:
        raise Refused(call)

    def loop_time(self) -> float:
        return 42.0

    def start_timer(self, handle: asyncio.TimerHandle, delay: float | None) -> None:
        self.timers.append((handle.when(), delay))

    def drop_timer(self, handle: asyncio.TimerHandle) -> None:
        self.dropped.append(handle.when())

    def report_unhandled(self, context: dict[str, Any]) -> None:
        self.unhandled.append(context["message"])


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def loop(host: Host) -> WorkflowLoop:
    return workflow_loop(host, first_order=7)


def test_callbacks_run_in_the_order_they_became_ready(loop: WorkflowLoop) -> None:
    seen: list[int] = []
    loop.call_soon(lambda: loop.call_soon(seen.append, 3))
    loop.call_soon(seen.append, 1)
    loop.call_soon(seen.append, 2)

    loop.run_ready()

    assert seen == [1, 2, 3]


def test_a_callback_that_was_cancelled_does_not_run(loop: WorkflowLoop) -> None:
    seen: list[int] = []
    loop.call_soon(seen.append, 1).cancel()

    loop.run_ready()

    assert seen == []


def test_it_is_the_running_loop_only_while_it_runs(loop: WorkflowLoop) -> None:
    seen: list[object] = []
    loop.call_soon(lambda: seen.extend([running_loop(), loop.is_running(), asyncio.get_running_loop()]))
    assert not loop.is_running()

    loop.run_ready()

    assert seen == [loop, True, loop]
    assert running_loop() is None


def test_what_is_around_stays_when_a_callback_ends_the_process(loop: WorkflowLoop) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    hooks = sys.get_asyncgen_hooks()
    loop.call_soon(interrupt)
    with pytest.raises(KeyboardInterrupt):
        loop.run_ready()

    assert running_loop() is None
    assert sys.get_asyncgen_hooks() == hooks


def test_async_generators_of_the_code_are_not_those_of_the_loop_around() -> None:
    """The loop around would close them over there, and run the workflow's clean-up as its own."""
    firsts: list[object] = []

    async def numbers() -> AsyncIterator[int]:
        yield 1

    async def walk() -> None:
        async for _ in numbers():
            break

    loop = workflow_loop(Host(), first_order=0)
    former = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(firsts.append, None)
    try:
        task = loop.create_task(walk())
        loop.run_ready()
    finally:
        sys.set_asyncgen_hooks(*former)

    assert task.done()
    assert firsts == []


def test_turning_without_end_is_noticed(loop: WorkflowLoop) -> None:
    def again() -> None:
        loop.call_soon(again)

    loop.call_soon(again)
    with pytest.raises(TooManyHandles):
        loop.run_ready(most=100)


def test_time_and_timers_are_asked_of_the_run(loop: WorkflowLoop, host: Host) -> None:
    assert loop.time() == 42.0
    loop.call_later(5, print).cancel()
    loop.call_at(50, print)

    assert host.timers == [(5, 5), (50, None)]
    assert host.dropped == [5]


def test_a_timer_s_handle_runs_when_it_is_made_ready(loop: WorkflowLoop) -> None:
    seen: list[int] = []
    loop.make_ready(loop.call_later(5, seen.append, 1))

    loop.run_ready()

    assert seen == [1]


def test_tasks_are_known_until_they_end(loop: WorkflowLoop) -> None:
    async def wait(future: asyncio.Future[None]) -> None:
        await future

    gate: asyncio.Future[None] = loop.create_future()
    tasks = [loop.create_task(wait(gate), name=f"task {number}") for number in range(3)]
    loop.run_ready()
    assert loop.tasks == tasks
    assert [task.get_name() for task in loop.tasks] == ["task 0", "task 1", "task 2"]

    gate.set_result(None)
    loop.run_ready()
    assert loop.tasks == []


def test_ended_tasks_are_not_kept(loop: WorkflowLoop) -> None:
    """A run of many thousand short tasks must not grow by them."""

    async def nothing() -> None: ...

    for _ in range(200):
        loop.create_task(nothing())
        loop.run_ready()

    kept = [task for task in gc.get_objects() if issubclass(type(task), asyncio.Task) and task.get_loop() is loop]
    assert len(kept) < 20


def test_tasks_are_hashed_by_their_order(loop: WorkflowLoop) -> None:
    async def nothing() -> None: ...

    tasks = [loop.create_task(nothing()) for _ in range(3)]
    loop.run_ready()

    assert [hash(task) for task in tasks] == [7, 8, 9]
    assert tasks[0] != tasks[1]


def test_dropped_tasks_end_where_they_stand(loop: WorkflowLoop, host: Host) -> None:
    seen: list[str] = []

    async def stubborn(future: asyncio.Future[None]) -> None:
        for _ in range(3):
            try:
                await future
            except BaseException:  # noqa: BLE001
                seen.append("asked to end")

    async def never_began() -> None:
        seen.append("never")

    loop.create_task(stubborn(loop.create_future()))
    loop.run_ready()
    loop.create_task(never_began())
    loop.drop()
    gc.collect()

    assert seen == ["asked to end"] * 3
    assert loop.tasks == []
    assert host.unhandled == []
    assert running_loop() is None


def test_other_threads_are_refused_without_ending_them(
    loop: WorkflowLoop, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles: list[asyncio.Handle] = []
    told: list[str] = []

    def refuse(call: str) -> None:
        told.append(call)
        raise Refused(call)

    monkeypatch.setattr(host, "refuse_call", refuse)
    thread = threading.Thread(target=lambda: handles.append(loop.call_soon_threadsafe(print)))
    thread.start()
    thread.join()

    assert told == ["loop.call_soon_threadsafe() from another thread"]
    assert [handle.cancelled() for handle in handles] == [True]


def test_errors_that_nobody_handles_are_told(loop: WorkflowLoop, host: Host) -> None:
    def fail() -> None:
        raise ValueError

    loop.call_soon(fail)
    loop.run_ready()
    loop.default_exception_handler({"message": "asked for by name"})

    assert "Exception in callback" in host.unhandled[0]
    assert host.unhandled[1:] == ["asked for by name"]


def test_what_libraries_look_at_is_there(loop: WorkflowLoop) -> None:
    async def shut_down() -> None:
        await loop.shutdown_asyncgens()
        await loop.shutdown_default_executor(timeout=1)

    task = loop.create_task(shut_down())
    loop.run_ready()

    assert task.done()
    assert not loop.is_closed()
    assert loop.get_debug() is False
    assert loop.get_task_factory() is None
    assert loop.get_exception_handler() is None


def test_everything_else_is_refused(loop: WorkflowLoop) -> None:
    for name in ("run_in_executor", "create_server", "sock_connect", "add_writer", "subprocess_shell", "run_forever"):
        with pytest.raises(Refused, match=rf"loop\.{name}\(\)"):
            getattr(loop, name)()
