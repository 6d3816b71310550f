"""The threads that code of plain workflows runs on: who gets which, and what happens there in which order."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import threading
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import NoReturn

import pytest

from outlast.engine.decision import Finished, Held, Progress
from outlast.errors import Failure
from outlast.model.journal import Record
from outlast.model.run import Status
from outlast.worker import bodies as module
from outlast.worker.bodies import Bodies, Body, Drive
from support.worker_fakes import PARKED, ScriptedExecution, progress, record

flavour: contextvars.ContextVar[str] = contextvars.ContextVar("flavour", default="none")


class Recited(ScriptedExecution):
    """An execution whose code is `what`; it notes on which thread that happened."""

    def __init__(self, what: Callable[[], Progress] = lambda: progress(PARKED)) -> None:
        super().__init__()
        self.what = what
        self.seen: list[tuple[str, threading.Thread]] = []

    def run(self) -> Progress:
        self.seen.append(("run", threading.current_thread()))
        return self.what()

    def close(self) -> None:
        self.seen.append(("close", threading.current_thread()))

    def recorded_meanwhile(self) -> tuple[Record, ...]:
        return (record(0),)

    @property
    def threads(self) -> set[threading.Thread]:
        return {thread for _, thread in self.seen}


class Gate:
    """Code that stands at a gate, as if it computed."""

    def __init__(self) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()

    def __call__(self) -> Progress:
        self.entered.set()
        assert self.opened.wait(30)
        return progress(PARKED)


@asynccontextmanager
async def threads(most: int = 2) -> AsyncGenerator[Bodies, None]:
    made = Bodies(asyncio.get_running_loop(), contextvars.copy_context(), most=most)
    try:
        yield made
    finally:
        await made.end(30)


def begun(body: Body) -> asyncio.Future[Progress | BaseException]:
    """Have a body go on; the future is what came of it."""
    answer: asyncio.Future[Progress | BaseException] = asyncio.get_running_loop().create_future()

    def then(_: Drive, outcome: Progress | BaseException) -> None:
        assert threading.current_thread() is threading.main_thread()
        answer.set_result(outcome)

    body.drive(Drive(then))
    return answer


async def test_a_thread_is_begun_only_when_code_is_to_run() -> None:
    before = threading.active_count()
    async with threads() as bodies:
        execution = Recited()
        body = Body(execution, bodies)
        body.request_stop(None)  # type: ignore[arg-type]  # it is passed on as it is
        assert execution.told == [("stop", None)]
        assert threading.active_count() == before

        assert await begun(body) == progress(PARKED)

        assert threading.active_count() == before + 1
    assert threading.active_count() == before


async def test_an_execution_keeps_to_its_thread_and_is_closed_there() -> None:
    async with threads() as bodies:
        execution, gate = Recited(), Gate()
        body = Body(execution, bodies)
        await begun(body)
        # Its own thread is the one that is busy now.
        other = begun(Body(Recited(gate), bodies))
        again = begun(body)
        gate.opened.set()
        await other
        await again
        body.close()
        body.close()
    assert [what for what, _ in execution.seen] == ["run", "run", "close"]
    assert len(execution.threads) == 1
    assert threading.current_thread() not in execution.threads


async def test_code_that_blocks_leaves_another_thread_to_the_others() -> None:
    async with threads(most=2) as bodies:
        gate = Gate()
        blocked = Body(Recited(gate), bodies)
        blocking = begun(blocked)
        others = [Recited() for _ in range(5)]
        for other in others:
            await begun(Body(other, bodies))
        assert not blocking.done()
        assert blocked.recorded_meanwhile() == (record(0),)
        assert len(set[threading.Thread]().union(*(other.threads for other in others))) == 1
        gate.opened.set()
        await blocking


async def test_there_are_no_more_threads_than_may_be() -> None:
    async with threads(most=2) as bodies:
        gates = [Gate() for _ in range(4)]
        executions = [Recited(gate) for gate in gates]
        answers = [begun(Body(execution, bodies)) for execution in executions]
        for gate in gates:
            gate.opened.set()
        await asyncio.gather(*answers)
        assert len(set[threading.Thread]().union(*(execution.threads for execution in executions))) == 2


async def test_an_error_comes_back_whatever_it_is() -> None:
    def ends() -> NoReturn:
        raise KeyboardInterrupt

    async with threads() as bodies:
        assert isinstance(await begun(Body(Recited(ends), bodies)), KeyboardInterrupt)


async def test_what_nobody_wants_is_not_begun_and_the_thread_is_free_again() -> None:
    async with threads(most=1) as bodies:
        gate, unwanted = Gate(), Recited()
        answer = begun(Body(Recited(gate), bodies))
        heard: list[object] = []
        drive = Drive(lambda _, outcome: heard.append(outcome))
        Body(unwanted, bodies).drive(drive)
        drive.is_wanted = False
        gate.opened.set()
        await answer
        await begun(Body(Recited(), bodies))
        assert unwanted.seen == []
        assert heard == []
        assert not bodies.thread().busy


@pytest.mark.parametrize("state", [Finished(Status.COMPLETED, "1", None), Held(Failure(type="x", message="m"))])
async def test_one_that_is_over_has_closed_itself(state: Finished | Held) -> None:
    async with threads() as bodies:
        execution = Recited(lambda: progress(state))
        body = Body(execution, bodies)
        await begun(body)
        body.close()
    assert [what for what, _ in execution.seen] == ["run"]


async def test_one_that_never_ran_is_closed_where_it_is() -> None:
    async with threads() as bodies:
        execution = Recited()
        Body(execution, bodies).close()
    assert execution.seen == [("close", threading.current_thread())]


async def test_an_end_waits_for_what_is_put_away_but_not_for_code_that_blocks() -> None:
    bodies = Bodies(asyncio.get_running_loop(), contextvars.copy_context(), most=2)
    gate, execution = Gate(), Recited()
    body = Body(execution, bodies)
    await begun(body)
    answer = begun(Body(Recited(gate), bodies))
    body.close()
    # The two share a thread now, or not: what is put away has its turn before the end.
    gate.opened.set()
    await answer
    await bodies.end(30)
    assert [what for what, _ in execution.seen] == ["run", "close"]

    stuck = Bodies(asyncio.get_running_loop(), contextvars.copy_context())
    forever = Gate()
    begun(Body(Recited(forever), stuck))
    assert await asyncio.to_thread(forever.entered.wait, 30)
    await stuck.end(3600)
    forever.opened.set()


async def test_what_cannot_be_put_away_is_told_and_the_thread_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Recited):
        def close(self) -> NoReturn:
            raise ValueError("no")

    async with threads(most=1) as bodies:
        body = Body(Broken(), bodies)
        await begun(body)
        body.close()
        await begun(Body(Recited(), bodies))
    assert "could not be put away" in caplog.text
    assert [entry.levelno for entry in caplog.records] == [logging.ERROR]


async def test_code_sees_the_context_of_the_worker() -> None:
    flavour.set("the worker's")
    seen: list[str] = []

    def look() -> Progress:
        seen.append(flavour.get())
        return progress(PARKED)

    async with threads() as bodies:
        flavour.set("the caller's")
        await begun(Body(Recited(look), bodies))
    assert seen == ["the worker's"]


async def test_a_thread_that_is_idle_keeps_nothing_alive() -> None:
    async with threads() as bodies:
        body = Body(Recited(), bodies)
        await begun(body)
        gone = weakref.ref(body._execution)  # pyright: ignore[reportPrivateUsage]
        await begun(Body(Recited(), bodies))
        del body
        gc.collect()
        assert gone() is None


async def test_without_a_further_thread_those_that_are_there_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> NoReturn:
        raise RuntimeError("can't start new thread")

    async with threads(most=2) as bodies:
        gate = Gate()
        answer = begun(Body(Recited(gate), bodies))
        monkeypatch.setattr(module, "Thread", refused)
        second = begun(Body(Recited(), bodies))
        gate.opened.set()
        await answer
        await second
    alone = Bodies(asyncio.get_running_loop(), contextvars.copy_context())
    with pytest.raises(RuntimeError, match="can't start new thread"):
        Body(Recited(), alone).drive(Drive(lambda *_: None))


def test_a_loop_that_is_closed_hears_nothing_more() -> None:
    """The process ends while the code blocks."""
    gate = Gate()
    ended = threading.Event()
    seen: list[threading.Thread] = []

    class Last(Recited):
        def close(self) -> None:
            seen.append(threading.current_thread())
            ended.set()

    async def leave() -> Body:
        body = Body(Last(gate), Bodies(asyncio.get_running_loop(), contextvars.copy_context()))
        body.drive(Drive(lambda *_: None))
        return body

    body = asyncio.run(leave())
    gate.opened.set()
    body.close()
    assert ended.wait(30)
    assert seen[0].daemon
    thread = body._thread  # pyright: ignore[reportPrivateUsage]
    assert thread is not None
    thread.end()
    seen[0].join(30)
    assert not seen[0].is_alive()
