"""The worker with everything real but its processes: SQLite, the engine, the client, and a clock that the test moves.

A crashed worker is one whose lease nobody renews while the clock passes it; what it does later is a zombie's doing.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from outlast import (
    CompensationContext,
    Context,
    Outlast,
    Retry,
    RunFailed,
    Signal,
    Status,
    StepContext,
    WorkerOptions,
    step,
    workflow,
)
from outlast.testing import ManualClock
from support.worker_fakes import until


@dataclass
class Effects:
    """What the steps of a test did, and a gate that a step may wait at."""

    done: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    keys: set[str] = field(default_factory=set[str])
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    last: StepContext | None = None

    def did(self, what: str, s: StepContext) -> None:
        self.done.append((what, s.attempt))
        self.keys.add(s.idempotency_key)
        self.last = s
        if what not in ("prepare", "finish"):
            self.entered.set()

    def again(self) -> None:
        """Make the gate ready for another attempt."""
        self.entered, self.gate = asyncio.Event(), asyncio.Event()


effects = Effects()


@pytest.fixture(autouse=True)
def _fresh_effects() -> None:
    effects.__init__()  # type: ignore[misc]  # steps refer to the one object


@step(retry=Retry(attempts=3, delay="1s"))
async def prepare(s: StepContext) -> str:
    effects.did("prepare", s)
    return "prepared"


@prepare.compensate
async def unprepare(s: CompensationContext, result: str) -> None:
    effects.did(f"undo {result}", s)


@step(retry=Retry(attempts=3, delay="1s"))
async def slow(s: StepContext) -> str:
    gate = effects.gate
    effects.did("slow", s)
    await gate.wait()
    return "slow result"


@step
async def finish(s: StepContext) -> str:
    effects.did("finish", s)
    return "finished"


@workflow("order")
async def order(ctx: Context) -> str:
    await prepare()
    result = await slow()
    await finish()
    return result


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/outlast.db"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@asynccontextmanager
async def opened(app: Outlast) -> AsyncIterator[Outlast]:
    try:
        yield app
    finally:
        await app.close()


def drained(url: str, clock: ManualClock, *workflows: object) -> Outlast:
    """An application that executes runs only when it is told to."""
    return Outlast(url, workflows=workflows or [order], worker=False, clock=clock)


async def status(app: Outlast, run_id: str) -> Status:
    run = await app.get(run_id)
    assert run is not None
    return run.status


async def test_a_run_of_a_dead_worker_goes_on_where_it_was(url: str, clock: ManualClock) -> None:
    async with opened(drained(url, clock)) as dead, opened(drained(url, clock)) as living:
        run = await dead.start(order)
        dying = asyncio.create_task(dead.drain())
        await effects.entered.wait()
        first_gate = effects.gate
        effects.again()

        clock.advance("29s")
        assert await living.drain() == 0, "its lease is not over"
        clock.advance("2s")
        taking_over = asyncio.create_task(living.drain())
        await effects.entered.wait()
        effects.gate.set()
        await taking_over

        assert await run.result() == "slow result"
        assert effects.done == [("prepare", 1), ("slow", 1), ("slow", 2), ("finish", 1)]
        assert f"{run.id}:slow" in effects.keys
        assert len(effects.keys) == 3, "each step has one key, whatever attempt it is"

        # The dead one wakes up: its step ends, and it can record nothing of that.
        journal = await living.get(run.id, journal=True)
        first_gate.set()
        await dying
        assert await living.get(run.id, journal=True) == journal


async def test_a_zombie_drops_its_turns_and_goes_on_under_another_name(url: str, clock: ManualClock) -> None:
    async with opened(drained(url, clock)) as paused, opened(drained(url, clock)) as living:
        await paused.start(order)
        pausing = asyncio.create_task(paused.drain())
        await effects.entered.wait()
        first_gate = effects.gate
        effects.again()
        clock.advance("31s")
        taking_over = asyncio.create_task(living.drain())
        await effects.entered.wait()
        second_gate = effects.gate
        effects.again()
        effects.gate.set()

        other = await paused.start(order)
        first_gate.set()
        await pausing
        assert await status(living, other.id) is Status.COMPLETED

        second_gate.set()
        await taking_over
        assert [what for what, _ in effects.done].count("slow") == 3


async def test_a_step_that_kills_its_worker_ends_by_its_attempts(url: str, clock: ManualClock) -> None:
    """Without a bound it would kill every worker, one after the other."""
    drains: list[asyncio.Task[int]] = []
    async with opened(drained(url, clock)) as starting:
        run = await starting.start(order)
    apps = [drained(url, clock) for _ in range(4)]
    try:
        for app in apps[:3]:
            drains.append(asyncio.create_task(app.drain()))
            await effects.entered.wait()
            effects.entered.clear()
            clock.advance("31s")
        await apps[3].drain()

        with pytest.raises(RunFailed, match="StepInterrupted"):
            await apps[3].result(run.id)
        assert effects.done == [
            ("prepare", 1), ("slow", 1), ("slow", 2), ("slow", 3), ("undo prepared", 1),
        ]  # fmt: skip
    finally:
        effects.gate.set()
        await asyncio.gather(*drains)
        for app in apps:
            await app.close()


async def test_progress_forgives_lapses(url: str, clock: ManualClock) -> None:
    """Workers that die in different steps are no sign of a step that kills them."""
    async with opened(drained(url, clock)) as dead, opened(drained(url, clock)) as living:
        run = await dead.start(order)
        dying = asyncio.create_task(dead.drain())
        await effects.entered.wait()
        first_gate = effects.gate
        effects.again()
        clock.advance("31s")
        taking_over = asyncio.create_task(living.drain())
        await effects.entered.wait()
        details = await living.get(run.id)
        assert details is not None
        assert details.lapses == 1

        effects.gate.set()
        await taking_over
        details = await living.get(run.id)
        assert details is not None
        assert details.lapses == 0
        first_gate.set()
        await dying


async def test_deploys_do_not_use_up_attempts(url: str) -> None:
    """Incident F089: each restart in the middle of a step counted as a failed attempt."""
    options = WorkerOptions(shutdown_timeout="0s", poll="10ms")
    run_id = "r"
    for deploy in range(5):
        async with Outlast(url, workflows=[order], worker=options) as app:
            await app.start(order, id=run_id)
            await effects.entered.wait()
            effects.entered.clear()
        assert effects.done[-1] == ("slow", 1), f"deploy {deploy}"

    effects.gate.set()
    async with Outlast(url, workflows=[order], worker=options) as app:
        assert await app.result(run_id) == "slow result"
        run = await app.get(run_id)
        assert run is not None
        assert run.lapses == 0
    assert [what for what, _ in effects.done].count("prepare") == 1


async def test_a_stop_hands_runs_back_at_once(url: str) -> None:
    """The lease is an hour: whoever waited for it to run out would never finish here."""
    leaving = Outlast(url, workflows=[order], worker=WorkerOptions(lease="1h", shutdown_timeout="0s"))
    async with Outlast(url, workflows=[order], worker=WorkerOptions(lease="1h", poll="10ms", concurrency=1)) as staying:
        async with leaving:
            run = await leaving.start(order)
            await effects.entered.wait()
        effects.gate.set()
        assert await staying.result(run.id, timeout="30s") == "slow result"


async def test_a_stop_lets_a_running_step_end(url: str) -> None:
    async with Outlast(url, workflows=[order], worker=WorkerOptions(shutdown_timeout="1h")) as app:
        run = await app.start(order)
        await effects.entered.wait()
        asyncio.get_running_loop().call_later(0.02, effects.gate.set)

    async with opened(Outlast(url, workflows=[order], worker=False)) as later:
        details = await later.get(run.id, journal=True)
        assert details is not None
        assert [entry.name for entry in details.journal] == ["prepare", "slow"]
        assert details.worker is None
        await later.drain()
        assert await later.result(run.id) == "slow result"
    assert effects.done == [("prepare", 1), ("slow", 1), ("finish", 1)]


async def test_a_cancel_waits_for_the_step_that_runs_and_undoes_what_is_done(url: str) -> None:
    async with Outlast(url, workflows=[order], worker=WorkerOptions(poll="1h")) as app:
        run = await app.start(order)
        await effects.entered.wait()
        assert (await app.cancel(run.id, "changed my mind")).accepted
        await until(lambda: effects.last and effects.last.stop_requested)
        effects.gate.set()
        with pytest.raises(RunFailed, match="changed my mind"):
            await run.result(timeout="30s")
        journal = (await app.get(run.id, journal=True)).journal  # type: ignore[union-attr]
        assert "slow" in [entry.name for entry in journal], "it finished, so it is recorded"
    assert [what for what, _ in effects.done] == ["prepare", "slow", "undo prepared"]


async def test_a_cancel_from_another_process_reaches_a_running_step(url: str) -> None:
    """By the notice of the file's change, not by the renewal, which is 20 minutes away."""
    told = asyncio.Event()

    @step
    async def patient(s: StepContext) -> str:
        effects.did("patient", s)
        await until(lambda: s.stop_requested)
        told.set()
        return "gave in"

    @workflow("patience")
    async def patience(ctx: Context) -> str:
        return await patient()

    async with (
        Outlast(url, workflows=[patience], worker=WorkerOptions(lease="1h")) as working,
        opened(Outlast(url, workflows=[patience], worker=False)) as asking,
    ):
        run = await working.start(patience)
        await effects.entered.wait()
        await asking.cancel(run.id)
        await told.wait()
        with pytest.raises(RunFailed):
            await run.result()


async def test_a_cancel_aborts_a_step_that_says_so(url: str) -> None:
    @step(on_cancel="abort")
    async def hanging(s: StepContext) -> None:
        effects.did("hanging", s)
        await asyncio.Event().wait()

    @workflow("hangs")
    async def hangs(ctx: Context) -> None:
        await prepare()
        await hanging()

    async with Outlast(url, workflows=[hangs]) as app:
        run = await app.start(hangs)
        await until(lambda: ("hanging", 1) in effects.done)
        await app.cancel(run.id)
        with pytest.raises(RunFailed):
            await run.result(timeout="30s")
    assert effects.done[-1] == ("undo prepared", 1)


async def test_a_step_that_takes_too_long_is_tried_again_and_given_up(url: str) -> None:
    @step(timeout="5ms", retry=Retry(attempts=2, delay="1ms"))
    async def hanging(s: StepContext) -> None:
        effects.did("hanging", s)
        await asyncio.Event().wait()

    @workflow("hangs")
    async def hangs(ctx: Context) -> None:
        await hanging()

    async with Outlast(url, workflows=[hangs]) as app:
        with pytest.raises(RunFailed, match="TimeoutError"):
            await app.start_and_wait(hangs)
    assert effects.done == [("hanging", 1), ("hanging", 2)]


async def test_a_plain_function_runs_on_a_thread_and_may_block(url: str) -> None:
    release = threading.Event()

    @step
    def blocks() -> str:
        release.wait(30)
        return threading.current_thread().name

    @step
    async def releases() -> None:
        release.set()

    @workflow("both")
    async def both(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            blocked = group.create_task(blocks())
            group.create_task(releases())
        return blocked.result()

    async with Outlast(url, workflows=[both]) as app:
        assert (await app.start_and_wait(both)).startswith("outlast-step")


async def test_parallel_steps_overlap_and_share_their_flushes(url: str) -> None:
    inside = 0
    most = 0

    @workflow("fan")
    async def fan(ctx: Context) -> int:
        async def body(_: StepContext) -> int:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            inside -= 1
            return 1

        return sum(await asyncio.gather(*(ctx.step(f"s{number}", body) for number in range(50))))

    async with Outlast(url, workflows=[fan]) as app:
        assert await app.start_and_wait(fan) == 50
    assert most == 50


async def test_one_unreadable_run_does_not_strand_the_others(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Incident F007: five runs are due, the second one's input cannot be read."""

    @workflow("plain")
    async def plain(ctx: Context, number: int) -> int:
        return number

    async with opened(Outlast(url, workflows=[plain], worker=False)) as app:
        runs = await app.start_many(plain, range(5))
        with sqlite3.connect(url.removeprefix("sqlite:///")) as database:
            database.execute("update outlast_runs set input = '{broken' where id = ?", (runs[1].id,))
        database.close()
        await app.drain()

        assert [await runs[number].result() for number in (0, 2, 3, 4)] == [0, 2, 3, 4]
        broken = await app.get(runs[1].id)
        assert broken is not None
        assert (broken.status, broken.worker) in [(Status.SUSPENDED, None), (Status.FAILED, None)]
        assert broken.held is not None or broken.failure is not None


async def test_code_that_does_not_match_holds_a_run_until_it_does(url: str, clock: ManualClock) -> None:
    go = Signal("go")

    @workflow("changing")
    async def before(ctx: Context) -> str:
        await ctx.step("one", lambda _: "1")
        await ctx.wait_for("go", ctx.signal(go))
        return "done"

    @workflow("changing")
    async def after(ctx: Context) -> str:
        await ctx.step("renamed", lambda _: "1")
        return "wrong"

    async with opened(drained(url, clock, before)) as old:
        run = await old.start(before)
        await old.drain()
        await old.signal(go)
    async with opened(drained(url, clock, after)) as new:
        await new.drain()
        held = await new.get(run.id)
        assert held is not None
        assert held.status is Status.SUSPENDED
        assert held.held is not None
        assert await new.drain() == 0, "not before its time"
    clock.advance("31s")
    async with opened(drained(url, clock, before)) as old:
        await old.drain()
        assert await old.result(run.id) == "done"
        restored = await old.get(run.id)
        assert restored is not None
        assert restored.held is None


async def test_a_start_is_not_taken_twice_while_a_worker_boots(url: str) -> None:
    """Incident F013: recovery at boot and a fresh start in the same process both ran the body."""
    counts: dict[str, int] = {}

    @workflow("counted")
    async def counted(ctx: Context) -> None:
        def count(s: StepContext) -> None:
            counts[s.run_id] = counts.get(s.run_id, 0) + 1

        await ctx.step("count", count)

    ready = Outlast(url, workflows=[counted], worker=False)
    await ready.migrate()
    for boot in range(20):
        app = Outlast(url, workflows=[counted])
        run_id = f"wf-{boot}"
        starting = threading.Thread(target=lambda app=app, run_id=run_id: app.blocking.start(counted, id=run_id))
        starting.start()
        async with app:
            await asyncio.to_thread(starting.join)
            await app.result(run_id, timeout="30s")
        app.blocking.close()
    assert set(counts.values()) == {1}
    assert len(counts) == 20


async def test_waking_a_parked_run_needs_no_replay(url: str) -> None:
    go = Signal("go", int)
    passes_of_code: list[int] = []

    @workflow("waits")
    async def waits(ctx: Context) -> int:
        passes_of_code.append(1)
        total = 0
        for number in range(3):
            total += await ctx.wait_for(f"go {number}", ctx.signal(go)) or 0
        return total

    async with Outlast(url, workflows=[waits]) as app:
        run = await app.start(waits)
        for number in range(3):
            await app.signal(go, number)
        assert await run.result(timeout="30s") == 3
    assert len(passes_of_code) == 1

    async with Outlast(url, workflows=[waits], worker=WorkerOptions(cached_runs=0, poll="10ms")) as app:
        run = await app.start(waits)
        await parked(app, run.id)
        for number in range(3):
            await app.signal(go, number)
        assert await run.result(timeout="30s") == 3
    assert len(passes_of_code) > 2


async def test_more_runs_than_slots_all_end(url: str) -> None:
    running = 0
    most = 0

    @workflow("plain")
    async def plain(ctx: Context, number: int) -> int:
        async def body(_: StepContext) -> int:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return number

        return await ctx.step("body", body)

    async with Outlast(url, workflows=[plain], worker=WorkerOptions(concurrency=3, poll="1h")) as app:
        runs = await app.start_many(plain, range(50))
        assert [await run.result(timeout="30s") for run in runs] == list(range(50))
    assert most <= 3


async def test_smaller_priorities_go_first(url: str, clock: ManualClock) -> None:
    """Incident F017."""
    order_of_runs: list[int] = []

    @workflow("plain")
    async def plain(ctx: Context, number: int) -> None:
        await ctx.step("note", lambda _: order_of_runs.append(number))

    app = Outlast(url, workflows=[plain], worker=WorkerOptions(concurrency=1), clock=clock)
    async with opened(app):
        for number, priority in enumerate([5, 0, 9, 0]):
            await app.start(plain, number, priority=priority)
        await app.drain()
    assert order_of_runs == [1, 3, 0, 2]


async def test_a_blocked_loop_keeps_its_lease(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Incident F002: a step hogs the loop for longer than the lease; the run must not be taken by another worker."""
    hogging = threading.Event()

    @step
    async def hogs(s: StepContext) -> str:
        effects.did("hogs", s)
        before = lease_until()
        hogging.set()
        poll = threading.Event()
        while lease_until() < before + 900_000:  # three leases later
            poll.wait(0.005)
        while "blocked by step 'hogs'" not in caplog.text:
            poll.wait(0.005)
        return "alone"

    @workflow("hog")
    async def hog(ctx: Context) -> str:
        return await hogs()

    def lease_until() -> int:
        with sqlite3.connect(url.removeprefix("sqlite:///")) as database:
            (until,) = database.execute("select max(lease_until) from outlast_workers").fetchone()
        database.close()
        return int(until)

    def run_another() -> None:
        async def main() -> None:
            hogging.wait(30)
            async with Outlast(url, workflows=[hog], worker=WorkerOptions(lease="300ms", poll="10ms")):
                await asyncio.to_thread(ended.wait, 30)

        asyncio.run(main())

    caplog.set_level(logging.WARNING)
    ended = threading.Event()
    other = threading.Thread(target=run_another)
    other.start()
    async with Outlast(url, workflows=[hog], worker=WorkerOptions(lease="300ms", poll="1h")) as app:
        run = await app.start(hog)
        assert await run.result() == "alone"
        ended.set()
        await asyncio.to_thread(other.join)
        details = await app.get(run.id)
        assert details is not None
        assert details.lapses == 0
    assert effects.done == [("hogs", 1)]


async def parked(app: Outlast, run_id: str) -> None:
    while await status(app, run_id) is not Status.SUSPENDED:
        pass
