"""Tasks that workflow code leaves behind when it returns: they are cancelled, and not without a word."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path

import pytest

from outlast import Context, Signal, step, workflow
from outlast.engine.decision import Finished, Parked
from outlast.model.run import Status
from support.replaying import Rehearsal, for_every_crash

done = Signal("done")


@step
async def charge(amount: int) -> int:
    return amount


@step(retry=3)
async def audit() -> None: ...


def _line_of(code: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if line.strip() == code)
    return number


def _told(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(r.levelno, r.getMessage()) for r in caplog.records if r.name == "outlast.engine"]


@pytest.fixture(autouse=True)
def every_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


async def record_later(ctx: Context) -> None:
    await ctx.step("record", lambda s: 1)


@workflow("begun-too-late")
async def begun_too_late(ctx: Context, how: str) -> str:
    await ctx.step("reserve", lambda s: 1, compensate=lambda s, result: None)
    task: asyncio.Task[object]
    match how:
        case "a call":
            task = asyncio.create_task(charge(1))
        case _:
            task = asyncio.create_task(record_later(ctx))
    return f"done with {task is not None}"


@pytest.mark.parametrize(
    "how, named",
    [
        ("a call", ("step charge", "task = asyncio.create_task(charge(1))", "charge")),
        ("a coroutine", ("record_later", 'await ctx.step("record", lambda s: 1)', "record")),
    ],
)
def test_a_step_that_never_began_fails_the_run_and_undoes_what_was_done(
    how: str, named: tuple[str, str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """It was dropped without a word, and the run completed."""
    run = Rehearsal(begun_too_late, how)
    end = run.end()

    name, code, step_name = named
    assert isinstance(end, Finished)
    assert end.status is Status.FAILED
    assert end.failure is not None
    assert end.failure.message == (
        f"The code has returned and left a task behind, {name} ({__file__}:{_line_of(code)}): its step {step_name!r} has "
        "not begun, and so has done nothing. Await the task before the return, as with asyncio.gather or "
        "asyncio.TaskGroup; or cancel it."
    )
    assert run.performed == ["reserve", "$compensate:reserve"]
    assert _told(caplog) == []
    for_every_crash(run, lambda again: again.end() == end)


@workflow("fleeting")
async def fleeting(ctx: Context) -> int:
    asyncio.create_task(audit())  # noqa: RUF006  the mistake
    return await charge(1)


def test_a_step_in_flight_is_recorded_and_told_of(caplog: pytest.LogCaptureFixture) -> None:
    run = Rehearsal(fleeting)
    turn = run.begin()
    turn.perform("charge")
    turn.perform("audit")

    assert turn.finished().status is Status.COMPLETED
    assert run.log[-2:] == ["charge done", "audit done"]
    line = _line_of("asyncio.create_task(audit())  # noqa: RUF006  the mistake")
    ((level, told),) = _told(caplog)
    assert level == logging.WARNING
    assert told == (
        "Run 'run-1' of workflow 'fleeting' version 1 has returned and left a task behind, which cancels what had not "
        f"ended: step audit ({__file__}:{line}), at step 'audit', which is in flight: that attempt ends and is "
        "recorded. Await what is to be done (asyncio.gather, asyncio.TaskGroup), and cancel what is not."
    )
    for_every_crash(run, lambda again: again.end() == turn.state)


def test_a_step_that_ended_at_the_same_time_is_recorded_and_told_of(caplog: pytest.LogCaptureFixture) -> None:
    run = Rehearsal(fleeting)
    turn = run.begin()
    for name, value in (("charge", 1), ("audit", None)):
        turn.execution.step_returned(turn.in_flight.pop(name), value)
    turn.run()

    assert turn.finished().status is Status.COMPLETED
    assert run.log == ["charge done", "audit done"]
    ((level, told),) = _told(caplog)
    assert level == logging.WARNING
    assert "at step 'audit', which has ended." in told


def test_a_step_that_was_to_be_tried_again_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    run = Rehearsal(fleeting)
    turn = run.begin()
    turn.raises("audit", OSError("down"))
    turn.perform("charge")

    assert turn.finished().status is Status.COMPLETED
    ((level, told),) = _told(caplog)
    assert level == logging.WARNING
    assert "at step 'audit', which is not tried again." in told


def test_a_replay_that_finds_the_step_not_done_tells_so_and_ends_alike(caplog: pytest.LogCaptureFixture) -> None:
    """Its worker died while it was in flight, after the code's return: whether it was done nobody knows."""
    run = Rehearsal(fleeting)
    turn = run.begin()
    turn.perform("charge")
    caplog.clear()

    again = run.cut(len(run.journal)).begin()

    assert again.finished().output == "1"
    ((level, told),) = _told(caplog)
    assert level == logging.WARNING
    assert "at step 'audit', which is not performed." in told


@workflow("ticking")
async def ticking(ctx: Context, name: str) -> str:
    async def tick() -> None:
        beats = 0
        while True:
            await ctx.sleep(f"beat-{beats}", "1s")
            beats += 1

    async with asyncio.timeout(60):
        task = asyncio.create_task(tick(), name=name or None)
        await ctx.sleep("work", "3500ms")
        if name == "cancelled":
            task.cancel()
        if name == "awaited":
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    return "done"


@pytest.mark.parametrize("name", ["", "heart"])
def test_a_ticker_may_be_left_behind_and_is_told_of_below_warnings(name: str, caplog: pytest.LogCaptureFixture) -> None:
    run = Rehearsal(ticking, name)
    end = run.end()

    assert isinstance(end, Finished)
    assert end.output == '"done"'
    line = _line_of('await ctx.sleep(f"beat-{beats}", "1s")')
    shown = "'heart': " if name else ""
    ((level, told),) = _told(caplog)
    assert level == logging.INFO
    assert told == (
        "Run 'run-1' of workflow 'ticking' version 1 has returned and left a task behind, which cancels what had not "
        f"ended: {shown}ticking.<locals>.tick ({__file__}:{line}). Await what is to be done (asyncio.gather, "
        "asyncio.TaskGroup), and cancel what is not."
    )
    for_every_crash(run, lambda again: again.end() == end)


@pytest.mark.parametrize("name", ["cancelled", "awaited"])
def test_of_a_task_that_was_cancelled_nothing_is_said(name: str, caplog: pytest.LogCaptureFixture) -> None:
    end = Rehearsal(ticking, name).end()

    assert isinstance(end, Finished)
    assert end.status is Status.COMPLETED
    assert _told(caplog) == []


def test_a_race_whose_losers_are_cancelled_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    @workflow("race")
    async def race(ctx: Context) -> int:
        tasks = [asyncio.create_task(charge.named(name)(1)) for name in ("a", "b")]
        first, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            other.cancel()
        return first.pop().result()

    run = Rehearsal(race)
    turn = run.begin()
    turn.perform("b")
    turn.perform("a")

    assert turn.finished().output == "1"
    assert _told(caplog) == []


def test_many_tasks_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    @workflow("many")
    async def many(ctx: Context) -> None:
        background = [asyncio.create_task(ctx.sleep(f"sleep-{n}", "1h")) for n in range(7)]
        background.append(asyncio.create_task(audit()))
        await charge(1)

    run = Rehearsal(many)
    turn = run.begin()
    turn.perform("charge")
    turn.perform("audit")

    ((level, told),) = _told(caplog)
    assert level == logging.WARNING
    assert "left 8 tasks behind" in told
    assert told.index("step audit (") < told.index("ctx.sleep ("), "what matters first"
    assert "; and 3 more. Await" in told


@pytest.mark.parametrize("ending", ["raises", "fails", "is cancelled"])
def test_of_a_run_that_ends_otherwise_nothing_is_said(ending: str, caplog: pytest.LogCaptureFixture) -> None:
    """What had not ended is cancelled, which nobody would call forgotten."""

    @workflow("ends-otherwise")
    async def ends_otherwise(ctx: Context) -> None:
        task = asyncio.create_task(audit())
        await charge(1)
        match ending:
            case "raises":
                raise KeyError(str(task))
            case "fails":
                ctx.fail("no")
            case _:
                await ctx.sleep("nap", "1h")

    run = Rehearsal(ends_otherwise)
    turn = run.begin()
    turn.perform("charge")
    if ending == "is cancelled":
        turn.execution.request_stop(run.ask_stop())
        turn.run()
    turn.perform("audit")

    assert turn.finished().status is not Status.COMPLETED
    assert _told(caplog) == []


def test_a_queue_that_is_empty_is_no_step(caplog: pytest.LogCaptureFixture) -> None:
    @workflow("served")
    async def served(ctx: Context) -> list[int]:
        queue: asyncio.Queue[int] = asyncio.Queue()
        results: list[int] = []

        async def serve(s: int) -> None:
            while True:
                number = await queue.get()
                results.append(await charge.named(f"charge-{number}")(number))
                queue.task_done()

        servers = [asyncio.create_task(serve(n)) for n in range(2)]
        for number in range(4):
            queue.put_nowait(number)
        await queue.join()
        return sorted(results) if servers else []

    run = Rehearsal(served)
    end = run.end()

    assert isinstance(end, Finished)
    assert end.output == "[0,1,2,3]"
    ((level, told),) = _told(caplog)
    assert level == logging.INFO
    assert f"serve ({__file__}:{_line_of('number = await queue.get()')}); " in told


def test_a_generator_that_is_being_closed_is_told_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    """It is a task that nobody made, of which no frame tells where it is."""

    @workflow("closing")
    async def closing(ctx: Context) -> int:
        async def numbers() -> AsyncGenerator[int]:
            try:
                yield 1
            finally:
                await ctx.sleep("clean-up", "1h")

        async for number in numbers():
            return number
        return 0

    end = Rehearsal(closing).end()

    assert isinstance(end, Finished)
    assert end.output == "1"
    ((level, told),) = _told(caplog)
    assert level == logging.INFO
    assert "had not ended: closing of " in told


def test_a_run_that_is_parked_with_tasks_is_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    @workflow("parked")
    async def parked(ctx: Context) -> None:
        task = asyncio.create_task(ctx.sleep("long", "1d"))
        await ctx.wait_for("done", ctx.signal(done))
        await task

    turn = Rehearsal(parked).turn()

    assert isinstance(turn.state, Parked)
    assert _told(caplog) == []


def test_a_step_that_a_task_asks_for_while_it_is_cancelled_is_not_lost(caplog: pytest.LogCaptureFixture) -> None:
    """Its `finally` may do nothing any more, and it did not ask before."""

    @workflow("cleaning")
    async def cleaning(ctx: Context) -> str:
        async def clean() -> None:
            try:
                await ctx.sleep("long", "1d")
            finally:
                await charge(1)

        task = asyncio.create_task(clean())
        await ctx.sleep("nap", "1s")
        return "done" if task else ""

    run = Rehearsal(cleaning)
    end = run.end()

    assert isinstance(end, Finished)
    assert end.output == '"done"'
    assert run.performed == []
    ((level, _),) = _told(caplog)
    assert level == logging.INFO
