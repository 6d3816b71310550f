"""Workflow code and what is outside of it: what it may not reach, and what it must not leak."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

from outlast import Context, DefinitionError, WorkflowIOError, step, workflow
from outlast.engine.decision import Finished, Working
from outlast.engine.eventloop import running_loop
from outlast.model.run import Status
from support.replaying import Rehearsal, for_every_crash, outcome

SECOND = 1_000_000


@step
async def letter(word: str) -> str:
    return word


def asked(name: str) -> Any:  # noqa: ANN401, RUF100
    return letter.named(name)(name)


@workflow("endless")
async def endless(ctx: Context) -> None:
    while True:  # noqa: ASYNC110 - what must not be done
        await asyncio.sleep(0)


def test_code_that_never_waits_ends_with_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.engine.eventloop.MOST_HANDLES", 10_000)
    end = outcome(endless)

    assert isinstance(end, Finished)
    assert end.failure is not None
    assert (end.status, end.failure.type) == (Status.FAILED, "outlast.errors.DefinitionError")
    assert "never waits" in end.failure.message


def test_code_that_waits_for_nothing_ends_with_an_error_that_says_so() -> None:
    undone: list[str] = []

    @workflow("stuck")
    async def stuck(ctx: Context) -> None:
        await ctx.step("a", lambda s: "a", compensate=lambda s, a: undone.append(a))
        await asyncio.Event().wait()

    end = outcome(stuck)

    assert isinstance(end, Finished)
    assert end.failure is not None
    assert (end.status, end.failure.type) == (Status.FAILED, "outlast.errors.DefinitionError")
    assert "waits for something that nothing will ever give it" in end.failure.message
    assert "stuck (line" in end.failure.message
    assert f"of {__name__}). " in end.failure.message
    assert "real I/O answers belongs in a step" in end.failure.message
    assert undone == ["a"]


def test_a_driver_on_a_thread_of_its_own_is_told_to_be_in_a_step_and_its_thread_is_left_alone() -> None:
    """The thread of a driver (aiosqlite, and SQLAlchemy over it) ended with a traceback on stderr, and the run was told to
    wait for a signal."""
    handles: list[asyncio.Handle] = []

    def answer(future: asyncio.Future[str]) -> None:
        handles.append(future.get_loop().call_soon_threadsafe(future.set_result, "row"))

    async def execute(*, answers_at_once: bool) -> str:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        thread = threading.Thread(target=answer, args=[future])
        if answers_at_once:
            thread.start()
            thread.join()
        return await future

    @workflow("driver")
    async def driver(ctx: Context, answers_at_once: bool) -> str:
        return await execute(answers_at_once=answers_at_once)

    for answers_at_once, told in [(True, "call_soon_threadsafe"), (False, "execute (line")]:
        end = outcome(driver, answers_at_once)

        assert isinstance(end, Finished)
        assert end.failure is not None
        assert told in end.failure.message
        assert "step" in end.failure.message
    assert [handle.cancelled() for handle in handles] == [True]


Reach = Callable[[asyncio.AbstractEventLoop], Any]

REACHES: dict[str, Reach] = {
    "run_in_executor": lambda loop: loop.run_in_executor(None, print),
    "getaddrinfo": lambda loop: loop.getaddrinfo("localhost", 80),
    "create_connection": lambda loop: loop.create_connection(asyncio.Protocol, "localhost", 80),
    "sock_recv": lambda loop: loop.sock_recv(None, 1),  # type: ignore[arg-type]
    "add_reader": lambda loop: loop.add_reader(0, print),
    "add_signal_handler": lambda loop: loop.add_signal_handler(2, print),
    "subprocess_exec": lambda loop: loop.subprocess_exec(asyncio.SubprocessProtocol, "true"),
    "run_until_complete": lambda loop: loop.run_until_complete(loop.create_future()),
    "run_forever": lambda loop: loop.run_forever(),
    "stop": lambda loop: loop.stop(),
    "close": lambda loop: loop.close(),
    "set_debug": lambda loop: loop.set_debug(True),
}


@pytest.mark.parametrize("name", REACHES)
def test_reaching_outside_fails_at_once_and_names_the_call_and_the_remedy(name: str) -> None:
    @workflow("outside")
    async def outside(ctx: Context) -> str:
        try:
            await REACHES[name](asyncio.get_running_loop())
        except Exception:  # noqa: BLE001
            await asked("after")
        return "swallowed"

    run = Rehearsal(outside)
    end = run.end()

    assert isinstance(end, Finished)
    assert end.failure is not None
    assert (end.status, end.failure.type) == (Status.FAILED, "outlast.errors.WorkflowIOError")
    assert f"loop.{name}() is not available in workflow code" in end.failure.message
    assert "ctx.step" in end.failure.message
    assert run.performed == []


@pytest.mark.parametrize(
    "reach",
    [
        lambda: asyncio.to_thread(print),
        lambda: asyncio.open_connection("localhost", 80),
        lambda: asyncio.create_subprocess_exec("true"),
        lambda: asyncio.start_server(print, "localhost"),
    ],
    ids=["to_thread", "open_connection", "create_subprocess_exec", "start_server"],
)
def test_what_asyncio_builds_on_these_fails_too(reach: Callable[[], Any]) -> None:
    @workflow("outside")
    async def outside(ctx: Context) -> None:
        await reach()

    end = outcome(outside)
    assert isinstance(end, Finished)
    assert end.failure is not None
    assert end.failure.type == "outlast.errors.WorkflowIOError"


def test_every_method_of_a_loop_is_either_offered_or_refused() -> None:
    """Whatever a later Python adds to loops is refused as well."""
    refused: list[str] = []

    @workflow("all")
    async def every(ctx: Context) -> None:
        loop = asyncio.get_running_loop()
        for name in dir(asyncio.AbstractEventLoop):
            method = getattr(loop, name)
            if not name.startswith("_") and "refused" in method.__qualname__:
                with pytest.raises(WorkflowIOError):
                    method()
                refused.append(name)
            else:
                assert name.startswith("_") or name in vars(type(loop)), name

    Rehearsal(every).end()
    assert len(refused) > 30


def test_waking_the_workflow_from_a_thread_is_refused() -> None:
    handles: list[asyncio.Handle] = []

    @workflow("thread")
    async def threads(ctx: Context) -> str:
        loop = asyncio.get_running_loop()
        thread = threading.Thread(target=lambda: handles.append(loop.call_soon_threadsafe(print)))
        thread.start()
        thread.join()
        return "swallowed"

    end = outcome(threads)
    assert isinstance(end, Finished)
    assert end.failure is not None
    assert "call_soon_threadsafe() from another thread" in end.failure.message
    assert [handle.cancelled() for handle in handles] == [True]


@pytest.mark.parametrize("delay", [math.inf, 4e9, 1e300])
def test_a_timer_beyond_a_hundred_years_is_refused(delay: float) -> None:
    @workflow("far")
    async def far(ctx: Context) -> None:
        await asyncio.sleep(delay)

    end = outcome(far)
    assert isinstance(end, Finished)
    assert end.failure is not None
    assert end.failure.type == "outlast.errors.InvalidDuration"


def test_not_a_number_is_refused_as_a_delay() -> None:
    @workflow("nan")
    async def nan(ctx: Context) -> None:
        await asyncio.sleep(math.nan)

    end = outcome(nan)
    assert isinstance(end, Finished)
    assert end.status is Status.FAILED


def test_a_workflow_that_leaves_the_process_only_fails() -> None:
    @workflow("exit")
    async def leaving(ctx: Context) -> None:
        raise SystemExit(3)

    end = outcome(leaving)
    assert isinstance(end, Finished)
    assert end.failure is not None
    assert (end.status, end.failure.type) == (Status.FAILED, "SystemExit")


def test_an_interrupt_of_the_process_goes_through() -> None:
    @workflow("interrupt")
    async def interrupted(ctx: Context) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Rehearsal(interrupted).begin()
    assert running_loop() is None


def test_nothing_of_the_outside_is_seen_and_nothing_gets_out() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="nothing")

    @workflow("context")
    async def context(ctx: Context) -> list[str]:
        before = variable.get()
        variable.set(f"of {ctx.run_id}")
        inside = await asyncio.gather(asyncio.ensure_future(read()), asked("a"))
        in_step = await ctx.step("b", lambda s: variable.get())
        return [before, inside[0], in_step]

    async def read() -> str:
        return variable.get()

    variable.set("of the request")
    run = Rehearsal(context)
    turn = run.begin()
    turn.returns("a", "a")
    outer = contextvars.Context()
    turn.returns("b", outer.run(turn.in_flight["b"].invoke))

    assert turn.finished().output == '["nothing","of run-1","nothing"]'
    assert variable.get() == "of the request"


def test_the_loop_around_is_the_running_one_again() -> None:
    async def main() -> None:
        loop, told = asyncio.get_running_loop(), asyncio.Event()

        def drive() -> None:
            run = Rehearsal(endless_wait)
            run.begin()
            assert running_loop() is loop
            told.set()

        loop.call_soon(drive)
        await told.wait()

    asyncio.run(main())


@workflow("wait")
async def endless_wait(ctx: Context) -> None:
    await ctx.sleep("long", "1h")


def test_an_error_that_nobody_asked_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    @workflow("background")
    async def background(ctx: Context) -> str:
        async def fail() -> None:
            raise ValueError("unseen")

        asyncio.get_running_loop().call_soon(divide_by_zero)
        task = asyncio.ensure_future(fail())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        del task
        return "done"

    def divide_by_zero() -> None:
        raise ZeroDivisionError("in a callback")

    with caplog.at_level(logging.ERROR, "outlast.engine"):
        assert outcome(background) == Finished(Status.COMPLETED, '"done"', None)

    assert [record.exc_info[1].args for record in caplog.records if record.exc_info and record.exc_info[1]] == [
        ("in a callback",),
        ("unseen",),
    ]


def test_what_goes_on_after_the_return_is_cancelled() -> None:
    ended_with: list[str] = []

    @workflow("leftover")
    async def leftover(ctx: Context) -> str:
        async def background() -> None:
            try:
                await ctx.sleep("long", "1h")
            except asyncio.CancelledError:
                ended_with.append("cancelled")
                await ctx.step("never", lambda s: None)

        task = asyncio.ensure_future(background())
        await asked("a")
        return "done" if not task.done() else "too early"

    run = Rehearsal(leftover)
    assert run.end() == Finished(Status.COMPLETED, '"done"', None)
    assert ended_with == ["cancelled"]
    assert run.performed == ["a"]


def test_a_step_in_flight_at_the_return_is_waited_for_and_recorded() -> None:
    @workflow("leftover")
    async def leftover(ctx: Context) -> str:
        task = asyncio.ensure_future(asked("background"))
        await asked("a")
        return "done" if not task.done() else "too early"

    run = Rehearsal(leftover)
    turn = run.begin()
    turn.perform("a")
    assert turn.state == Working(None)
    turn.perform("background")

    assert turn.state == Finished(Status.COMPLETED, '"done"', None)
    assert run.names == ["a", "background"]
    for_every_crash(run, lambda again: again.end() == turn.state, after="a done")


def test_the_code_can_cancel_itself() -> None:
    @workflow("self")
    async def cancels_itself(ctx: Context) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await ctx.sleep("never", "1h")

    end = outcome(cancels_itself)
    assert isinstance(end, Finished)
    assert end.failure is not None
    assert (end.status, end.failure.type) == (Status.FAILED, "asyncio.exceptions.CancelledError")


def test_closing_drops_the_code_without_letting_it_go_on() -> None:
    seen: list[str] = []

    @workflow("dropped")
    async def dropped(ctx: Context) -> None:
        try:
            await ctx.sleep("long", "1h")
        finally:
            seen.append("finally")
            await asked("never")

    run = Rehearsal(dropped)
    turn = run.turn()
    turn.execution.close()

    assert seen == ["finally"]
    assert run.performed == []
    assert turn.rehearsal.names == ["long"]


def test_a_definition_error_of_the_application_fails_as_any_other() -> None:
    undone: list[str] = []

    @workflow("misused")
    async def misused(ctx: Context) -> None:
        await ctx.step("a", lambda s: "a", compensate=lambda s, a: undone.append(a))
        raise DefinitionError("this can never work")

    end = outcome(misused)
    assert isinstance(end, Finished)
    assert end.status is Status.FAILED
    assert undone == ["a"]
