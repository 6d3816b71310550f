"""Incidents that others had, as far as they touch what callers do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest

from outlast import (
    Context,
    InvalidName,
    Outlast,
    RunFailed,
    Signal,
    Status,
    UnknownWorkflow,
    ValueUnreadable,
    WorkflowIOError,
    step,
    workflow,
)
from outlast.testing import ManualClock
from support.callers import ROADS
from support.colours import Ask, parked, result_of
from support.probing import Tables

pytestmark = pytest.mark.every_database
approve = Signal("approve", dict[str, str])
number = Signal("number", int)
note = Signal("note", str)
done, failed = Signal("done", None), Signal("failed", None)
go_on: asyncio.Event | None = None


@workflow("echo")
async def echo(ctx: Context, value: Any) -> Any:
    return value


@workflow("sleepy")
async def sleepy(ctx: Context) -> str:
    await ctx.sleep("a-day", "1d")
    return "awake"


@step
async def held() -> None:
    assert go_on is not None
    await go_on.wait()


@workflow("approval")
async def approval(ctx: Context) -> dict[str, str] | None:
    await held()
    return await ctx.wait_for("approval", ctx.signal(approve), timeout="60s")


@workflow("count")
async def count(ctx: Context) -> list[int | None]:
    return [await ctx.wait_for(f"number-{turn}", ctx.signal(number)) for turn in range(100)]


@workflow("race")
async def race(ctx: Context) -> str:
    good, bad = ctx.signal(done), ctx.signal(failed)
    await ctx.first("outcome", good, bad)
    return "good" if good.won else "bad"


@workflow("listen")
async def listen(ctx: Context, key: str) -> str | None:
    return await ctx.wait_for("note", ctx.signal(note, key=key))


@workflow("complain")
async def complain(ctx: Context, message: str) -> None:
    ctx.fail(message)


WORKFLOWS = [echo, sleepy, approval, count, race, listen, complain]


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncGenerator[Outlast, None]:
    app = Outlast(url, workflows=options.pop("workflows", WORKFLOWS), **options)
    async with app:
        yield app
    await asyncio.to_thread(app.blocking.close)


async def still_there_after_a_look(tasks: set[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
    """What is left once the look that was under way, which others may share, has been answered."""
    if tasks:
        _, tasks = await asyncio.wait(tasks, timeout=10)
    return tasks


async def test_a_signal_sent_while_the_first_step_runs_is_seen_by_the_wait_after_it(database_url: str) -> None:
    """Seen in the field: messages that came before the wait was reached were dropped, and the workflow waited in vain."""
    global go_on  # noqa: PLW0603
    go_on = asyncio.Event()
    async with opened(database_url) as app:
        handle = await app.start(approval)
        assert (await app.signal(approve, {"by": "ann"})).woken == 0

        go_on.set()

        assert await handle.result(timeout="20s") == {"by": "ann"}


async def test_a_hundred_signals_of_one_transaction_come_each_once_and_in_order(shared_database_url: str) -> None:
    """Seen in the field: messages of the same millisecond were merged, or came in another order."""
    async with opened(shared_database_url, worker=False) as app, ROADS["AsyncSession"](shared_database_url) as caller:
        handle = await app.start(count)
        async with caller.transaction() as tx:
            for value in range(100):
                await app.signal(number, value, tx=tx)
        await app.drain()

        assert await handle.result(timeout="0s") == list(range(100))


async def test_the_losing_side_of_a_race_does_not_keep_the_run_open(database_url: str) -> None:
    """Seen in the field: the loser of two waits held the run until its own timeout."""
    async with opened(database_url) as app:
        handle = await app.start(race)
        await parked(app, handle.id)

        assert (await app.signal(done)).woken == 1
        assert await handle.result(timeout="20s") == "good"

        run = await app.get(handle.id)
        assert run is not None
        assert (run.status, run.waiting_for) == (Status.COMPLETED, ())
        late = await app.signal(failed)
        assert (late.created, late.woken) == (True, 0)


async def test_a_caller_that_goes_away_stops_nothing(database_url: str) -> None:
    """Seen in the field: cancelling the await on a result stopped or wedged the workflow."""
    async with opened(database_url) as app:
        handle = await app.start(race)
        await parked(app, handle.id)
        before = asyncio.all_tasks()

        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(handle.result(), 0.05)
        assert await still_there_after_a_look(asyncio.all_tasks() - before) == set()

        await app.signal(done)
        assert await handle.result(timeout="20s") == "good"


@pytest.mark.parametrize("value", ["a\0b", "\\u0000", "\\\\u0000", "\0"], ids=ascii)
async def test_a_nul_in_a_value_comes_back_and_one_in_a_name_is_refused(
    database_url: str, ask: Ask, value: str
) -> None:
    """Seen in the field: the database refused U+0000 when the work was done, and the caller waited out its timeout."""
    async with opened(database_url) as app:
        assert await ask(app, "start_and_wait", echo, {"t": value}, wait="20s") == {"t": value}
        with pytest.raises(RunFailed) as raised:
            await ask(app, "start_and_wait", complain, value, wait="20s")
        assert raised.value.failure.message == value
        handle = await ask(app, "start", listen, "k")
        await ask(app, "signal", note, value, key="k")
        assert await result_of(handle) == value
        await parked(app, (await ask(app, "start", race, id="r")).id)
        await ask(app, "cancel", "r", f"because {value}")
        with pytest.raises(RunFailed, match="because"):
            await ask(app, "result", "r", timeout="20s")
        for names in ({"id": "a\0b"}, {"key": "a\0b"}):
            with pytest.raises(InvalidName, match="control characters"):
                await ask(app, "signal", note, "x", **names)


@pytest.mark.every_database
@pytest.mark.parametrize(
    "value", [9007199254740993, 1970670598291982290, 2**63, 2**64 + 1, -(2**70), 10**400, -0.0, 5e-324], ids=str
)
async def test_numbers_are_exact(database_url: str, ask: Ask, value: float) -> None:
    """Seen in the field: a number type of a database or of JavaScript rounded large integers."""
    async with opened(database_url) as app:
        result = await ask(app, "start_and_wait", echo, value, id="n", wait="20s")

        assert (result, type(result), str(result)) == (value, type(value), str(value))
        assert not (await ask(app, "start", echo, value, id="n")).created


TEXTS = [
    "\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "\U00020bb7",
    "e\u0301",
    "\u00e9",
    "\u05e9\u05dc\u05d5\u05dd \u0645",
]


@pytest.mark.parametrize("value", TEXTS, ids=ascii)
async def test_text_is_exact_wherever_callers_put_it(database_url: str, ask: Ask, value: str) -> None:
    """Seen in the field: a narrow character set broke or altered text."""
    async with opened(database_url) as app:
        handle = await ask(app, "start", listen, value, id=f"run {value}")
        receipt = await ask(app, "signal", note, value, key=value, id=f"event {value}")
        assert await result_of(handle) == value

        run = await ask(app, "get", f"run {value}")
        assert (run.id, run.input, run.output) == (f"run {value}", value, value)
        assert receipt.id == f"event {value}"
        with pytest.raises(RunFailed) as raised:
            await ask(app, "start_and_wait", complain, value, wait="20s")
        assert raised.value.failure.message == value


async def test_composed_and_decomposed_keys_are_different_lines(database_url: str) -> None:
    async with opened(database_url) as app:
        handle = await app.start(listen, "e\u0301")
        await parked(app, handle.id)

        assert (await app.signal(note, "composed", key="\u00e9")).woken == 0
        assert (await app.signal(note, "decomposed", key="e\u0301")).woken == 1

        assert await handle.result(timeout="20s") == "decomposed"


async def test_a_version_that_is_not_there_is_never_replaced_by_another(shared_database_url: str, ask: Ask) -> None:
    """Seen in the field: asking for a version that was not there ran the newest."""

    @workflow("v", version=1)
    async def first(ctx: Context) -> int:
        await ctx.wait_for("done", ctx.signal(done))
        return 1

    @workflow("v", version=3)
    async def third(ctx: Context) -> int:
        return 3

    clock = ManualClock()
    async with opened(shared_database_url, workflows=[first], worker=False, clock=clock) as app:
        old = await ask(app, "start", first, id="old")
        await app.drain()
    async with opened(shared_database_url, workflows=[first, third], worker=False, clock=clock) as app:
        with pytest.raises(UnknownWorkflow, match="version 2"):
            await ask(app, "start", first, id="none", version=2)
        assert await app.get("none") is None
        assert [(await ask(app, "start", first, version=version)).version for version in (1, None)] == [1, 3]
    async with opened(shared_database_url, workflows=[third], worker=False, clock=clock) as app:
        await app.signal(done)
        assert await app.drain() == 1  # the one of version 3; the old ones wait for their code
        run = await app.get(old.id)
        assert run is not None
        assert (run.version, run.status.is_terminal) == (1, False)
    async with opened(shared_database_url, workflows=[first, third], worker=False, clock=clock) as app:
        await app.drain()
        assert await app.result("old", timeout="0s") == 1


async def test_a_hundred_waiting_callers_hold_no_thread(database_url: str) -> None:
    """Seen in the field: each waiting call held a thread of the executor, so that a status call waited for all of them."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    async with opened(database_url) as app:
        handles = await app.start_many(sleepy, [None] * 100)
        threads = threading.active_count()
        waiting = [asyncio.ensure_future(handle.result()) for handle in handles]
        await asyncio.wait(waiting, timeout=0.1)

        run = await asyncio.wait_for(app.get(handles[0].id), 1)
        assert run is not None
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)

        assert threading.active_count() <= threads
        looking = {task for task in asyncio.all_tasks() if task.get_name() == "outlast-client"}
        assert await still_there_after_a_look(looking) == set()


@pytest.mark.two_databases  # it never comes to the store
@pytest.mark.parametrize("verb", ["start", "signal", "get", "result", "cancel", "list"])
async def test_a_verb_in_workflow_code_is_an_error_at_once_in_both_colours(database_url: str, verb: str) -> None:
    """Seen in the field: a blocking call in workflow code waited for work that needed the same loop."""
    arguments: dict[str, tuple[object, ...]] = {"start": (race,), "signal": (done,), "list": ()}
    told: list[str] = []
    app: Outlast

    @workflow("meddler")
    async def meddler(ctx: Context) -> None:
        chosen = arguments.get(verb, ("some-run",))
        for call in (lambda: getattr(app.blocking, verb)(*chosen), lambda: getattr(app, verb)(*chosen)):
            try:
                await call()
            except WorkflowIOError as error:
                told.append(str(error))

    async with opened(database_url, workflows=[meddler, race]) as app:
        await app.start_and_wait(meddler, wait="20s")

    assert [
        f"{where}{verb}(...)" in message for where, message in zip(("app.blocking.", "app."), told, strict=True)
    ] == [
        True,
        True,
    ]
    assert all("into a step" in message for message in told)


async def test_blocking_verbs_work_in_a_plain_step(database_url: str) -> None:
    app: Outlast

    @step
    def start_other() -> str:
        handle = app.blocking.start(race)
        app.blocking.signal(done)
        return app.blocking.result(handle.id, timeout="20s") + " " + handle.id

    @workflow("starter")
    async def starter(ctx: Context) -> str:
        return await start_other()

    async with opened(database_url, workflows=[starter, race]) as app:
        assert (await app.start_and_wait(starter, wait="20s")).startswith("good ")


async def test_one_damaged_result_does_not_hide_a_list(shared_database_url: str, ask: Ask) -> None:
    """Seen in the field: one result whose class had been renamed made the whole page fail."""
    async with opened(shared_database_url) as app:
        handles = await app.start_many(echo, range(20))
        for handle in handles:
            await handle.result(timeout="20s")
        renamed = '{"$":"gone.module:Class","v":{"x":1}}'
        await asyncio.to_thread(
            Tables(shared_database_url), "update {runs} set output = %s where id = %s", renamed, handles[7].id
        )

        page = await ask(app, "list")

        assert len(page.runs) == 20
        assert [run.id for run in page.runs if run.unreadable] == [handles[7].id]
        with pytest.raises(ValueUnreadable, match=handles[7].id):
            await ask(app, "result", handles[7].id)
        assert await ask(app, "result", handles[8].id) == 8
