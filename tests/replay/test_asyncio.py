"""Plain asyncio in workflow code: it works, it is durable, and it replays to the same outcome."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import pytest

from outlast import Context, step, workflow
from outlast.engine.decision import Finished, Parked, Working
from outlast.engine.eventloop import running_loop
from outlast.model.run import Status
from support.replaying import START, Rehearsal, ended, for_every_crash

SECOND = 1_000_000


@step
async def letter(word: str) -> str:
    return word


def asked(name: str) -> Any:  # noqa: ANN401, RUF100
    return letter.named(name)(name)


def test_gather_takes_results_in_its_own_order() -> None:
    @workflow("gather")
    async def gather(ctx: Context) -> list[str]:
        return list(await asyncio.gather(asked("a"), asked("b"), asked("c")))

    run = Rehearsal(gather)
    turn = run.begin()
    for name in "cab":
        turn.perform(name)

    assert turn.finished().output == '["a","b","c"]'
    assert run.names == ["c", "a", "b"]
    for_every_crash(run, lambda again: again.end() == turn.state)


def test_a_task_group_waits_for_all() -> None:
    @workflow("group")
    async def group(ctx: Context) -> list[str]:
        async with asyncio.TaskGroup() as tasks:
            made = [tasks.create_task(asked(name)) for name in "abc"]
        return [task.result() for task in made]

    assert ended(group) == ["a", "b", "c"]


@pytest.mark.parametrize("first", ["a", "b"])
def test_the_first_to_complete_stays_the_first(first: str) -> None:
    @workflow("first")
    async def first_completed(ctx: Context) -> str:
        tasks = [asyncio.create_task(asked(name)) for name in "ab"]
        finished, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        (winner,) = finished
        await asyncio.wait(tasks)
        return winner.result()

    run = Rehearsal(first_completed)
    turn = run.begin()
    turn.perform(first)
    turn.perform("b" if first == "a" else "a")
    expected = Finished(Status.COMPLETED, f'"{first}"', None)

    assert turn.state == expected
    for_every_crash(run, lambda again: again.end() == expected, after=f"{first} done")


def test_a_set_of_tasks_is_walked_in_the_same_order_on_every_replay() -> None:
    """`asyncio.wait` returns sets; the order of an ordinary task in one depends on where it lies in memory."""

    @workflow("sets")
    async def sets(ctx: Context) -> list[str]:
        tasks = [asyncio.create_task(asked(name)) for name in "abcdefgh"]
        finished, _ = await asyncio.wait(tasks)
        return [task.result() for task in finished]

    run = Rehearsal(sets)
    end = run.end()

    for_every_crash(run, lambda again: again.end() == end)
    assert isinstance(end, Finished)
    assert sorted(end.output or "") == sorted('["a","b","c","d","e","f","g","h"]')


REPLAYS_IN_ANOTHER_PROCESS = """
import sys
sys.path[:0] = {path!r}
from support.replaying import Rehearsal
from outlast import Context, step, workflow
import asyncio
import gc

@step
async def letter(word: str) -> str:
    return word

@workflow("sets")
async def sets(ctx: Context) -> list[str]:
    tasks = [asyncio.create_task(letter.named(name)(name)) for name in "abcdefgh"]
    finished, _ = await asyncio.wait(tasks)
    return [task.result() for task in finished]

print(Rehearsal(sets).end().output)
"""


def test_a_set_of_tasks_is_walked_in_the_same_order_in_every_process() -> None:
    program = REPLAYS_IN_ANOTHER_PROCESS.format(path=sys.path)
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }

    assert len(outputs) == 1


def test_results_come_as_they_complete() -> None:
    @workflow("as-completed")
    async def as_completed(ctx: Context) -> list[str]:
        tasks = [asyncio.create_task(asked(name)) for name in "abc"]
        return [await task for task in asyncio.as_completed(tasks)]

    run = Rehearsal(as_completed)
    turn = run.begin()
    for name in "bca":
        turn.perform(name)

    assert turn.finished().output == '["b","c","a"]'
    for_every_crash(run, lambda again: again.end() == turn.state, after="a done")


@pytest.mark.parametrize("catches", [False, True])
def test_as_completed_takes_no_bare_coroutines(catches: bool) -> None:
    """It makes tasks of a set of them, by where they lie in memory: what such code recorded held it on replay."""

    @workflow("as-completed")
    async def as_completed(ctx: Context) -> list[str]:
        calls = [asked(name) for name in "abc"]
        try:
            return [await task for task in asyncio.as_completed(calls)]
        except Exception:
            if not catches:
                raise
            return ["caught"]
        finally:
            for call in calls:
                call.close()

    run = Rehearsal(as_completed)
    end = run.end()

    assert isinstance(end, Finished)
    assert end.failure is not None
    assert end.failure.type == "outlast.errors.DefinitionError"
    assert "asyncio.as_completed([asyncio.create_task(call) for call in calls])" in end.failure.message
    assert run.performed == []


def test_code_that_goes_on_after_a_refused_as_completed_comes_to_an_end() -> None:
    @workflow("stubborn")
    async def stubborn(ctx: Context) -> None:
        while True:
            call = asked("a")
            with suppress(Exception):
                for task in asyncio.as_completed([call]):
                    await task
            call.close()

    end = Rehearsal(stubborn).end()

    assert isinstance(end, Finished)
    assert end.failure is not None
    assert "asyncio.as_completed was given coroutines" in end.failure.message


def test_sleeping_is_durable() -> None:
    @workflow("sleep")
    async def sleep(ctx: Context) -> str:
        return await asyncio.sleep(90, "slept")

    run = Rehearsal(sleep)
    assert run.turn().state == Parked(Status.SUSPENDED, START + 90 * SECOND, ())
    assert run.log == ["$timer:0 open"]

    run.advance("60s")
    assert run.cut(1).turn().parked().due_at == START + 90 * SECOND

    run.advance("30s")
    assert run.turn().finished().output == '"slept"'
    assert run.log == ["$timer:0 open", "$timer:0 done"]


def test_sleeping_for_no_time_only_lets_others_go_on() -> None:
    @workflow("yield")
    async def yielding(ctx: Context) -> list[str]:
        said: list[str] = []

        async def say(word: str) -> None:
            for _ in range(2):
                said.append(word)
                await asyncio.sleep(0)

        await asyncio.gather(say("a"), say("b"))
        return said

    run = Rehearsal(yielding)
    assert run.end() == Finished(Status.COMPLETED, '["a","b","a","b"]', None)
    assert run.journal == []


def test_a_time_limit_counts_by_the_run_s_clock() -> None:
    @workflow("limit")
    async def limit(ctx: Context) -> str:
        try:
            async with asyncio.timeout(3600):
                return await asked("slow")
        except TimeoutError:
            return "late"

    run = Rehearsal(limit)
    turn = run.begin()
    assert turn.state == Working(START + 3600 * SECOND)
    again = run.cut(2)

    run.advance("1h")
    turn.run()
    assert turn.state == Working(None), "the step is in flight still"
    turn.perform("slow")
    assert turn.finished().output == '"late"'

    assert again.turn().finished().output == '"slow"'
    for_every_crash(run, lambda once_more: once_more.end() == turn.state, after="$timer:0 done")


def test_waiting_for_with_a_time_limit() -> None:
    @workflow("wait-for")
    async def wait_for(ctx: Context) -> str:
        try:
            await asyncio.wait_for(asyncio.get_running_loop().create_future(), 10)
        except TimeoutError:
            return "late"
        return "in time"

    assert ended(wait_for) == "late"


def test_a_time_limit_that_was_not_needed_leaves_nothing_behind() -> None:
    @workflow("unneeded")
    async def unneeded(ctx: Context) -> None:
        async with asyncio.timeout(10):
            await asked("quick")
        await ctx.sleep("rest", "1d")

    run = Rehearsal(unneeded)

    assert run.turn().parked().due_at == START + 86_400 * SECOND


def test_a_time_limit_may_be_moved() -> None:
    @workflow("moved")
    async def moved(ctx: Context) -> str:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(None) as limit:
            limit.reschedule(loop.time() + 50)
            limit.reschedule(loop.time() + 20)
            await loop.create_future()
        return "unreached"

    run = Rehearsal(moved)
    assert run.turn().parked().due_at == START + 20 * SECOND
    end = run.end()
    assert isinstance(end, Finished)
    assert end.failure is not None
    assert end.failure.type == "TimeoutError"


def test_two_things_at_the_same_time_happen_in_the_order_they_were_asked_for() -> None:
    @workflow("ties")
    async def ties(ctx: Context) -> list[int]:
        woken: list[int] = []

        async def wake(number: int) -> None:
            await asyncio.sleep(10)
            woken.append(number)

        await asyncio.gather(*(wake(number) for number in range(5)))
        return woken

    assert ended(ties) == [0, 1, 2, 3, 4]


def test_queues_events_and_locks_work() -> None:
    @workflow("tools")
    async def tools(ctx: Context) -> list[str]:
        queue: asyncio.Queue[str] = asyncio.Queue(maxsize=1)
        ready, lock, got = asyncio.Event(), asyncio.Lock(), list[str]()

        async def produce() -> None:
            for name in "abc":
                await queue.put(await asked(name))
            ready.set()

        async def consume() -> None:
            while len(got) < 3:
                async with lock:
                    got.append(await queue.get())

        await asyncio.gather(produce(), consume(), ready.wait())
        return got

    assert ended(tools) == ["a", "b", "c"]


def test_a_shielded_step_outlives_its_waiter() -> None:
    @workflow("shield")
    async def shield(ctx: Context) -> str:
        inner = asyncio.ensure_future(asked("inner"))
        try:
            await asyncio.wait_for(asyncio.shield(inner), 10)
        except TimeoutError:
            return await inner + " after all"
        return "in time"

    run = Rehearsal(shield)
    turn = run.begin()
    run.advance("10s")
    turn.run()
    turn.perform("inner")

    assert turn.finished().output == '"inner after all"'


def test_async_generators_and_callbacks_belong_to_the_workflow_s_loop() -> None:
    loops: list[object] = []

    @workflow("generators")
    async def generators(ctx: Context) -> list[str]:
        async def letters() -> AsyncIterator[str]:
            try:
                for name in "ab":
                    yield await asked(name)
            finally:
                loops.append(running_loop())

        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: loops.append(asyncio.get_running_loop()))
        loop.call_soon_threadsafe(lambda: loops.append(asyncio.get_running_loop()))
        got = [name async for name in letters()]
        loops.append(loop)
        return got

    assert ended(generators) == ["a", "b"]
    assert len(loops) % 4 in (0, 2)
    assert all(type(loop).__name__ == "WorkflowLoop" for loop in loops)


def test_an_async_generator_is_closed_where_the_code_lets_go_of_it() -> None:
    @workflow("let-go")
    async def let_go(ctx: Context) -> list[str]:
        told: list[str] = []

        async def letters() -> AsyncGenerator[str]:
            try:
                yield "first"
                yield "second"
            finally:
                told.append(await asked("closed"))

        async for letter in letters():
            told.append(letter)
            break
        await ctx.sleep("nap", "1h")
        return [*told, await asked("last")]

    run = Rehearsal(let_go)
    end = run.end()
    assert isinstance(end, Finished)
    assert end.output == '["first","closed","last"]'
    for_every_crash(run, lambda again: again.end() == end)


@pytest.fixture
def no_garbage_is_collected() -> Iterator[None]:
    """But where the test says so: Python may else do it while the run's loop runs, where the generator may be closed."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_garbage_is_collected")
@pytest.mark.parametrize("ends", ["by itself", "by a drop"])
def test_an_async_generator_that_is_collected_elsewhere_does_nothing_there(ends: str) -> None:
    """Its `finally` would do a step outside of the run, without a record, whenever Python gets round to it."""
    closed: list[bool] = []
    effects: list[str] = []

    @step
    async def clean_up() -> None:
        effects.append("cleaned up")

    @workflow("circular")
    async def circular(ctx: Context) -> str:
        async def letters() -> AsyncGenerator[str]:
            try:
                yield "a"
            finally:
                closed.append(running_loop() is not None)
                await clean_up()

        circle: list[Any] = [letters()]
        circle.append(circle)
        await anext(circle[0])
        del circle
        await ctx.sleep("nap", "1h")
        return "ended"

    run = Rehearsal(circular)
    turn = run.turn()
    gc.collect()
    assert (closed, effects) == ([], [])

    if ends == "by itself":
        run.advance("1h")
        turn = run.turn(kept=turn.execution)
        assert turn.finished().output == '"ended"'
    turn.execution.close()

    assert (closed, effects) == ([True], [])
