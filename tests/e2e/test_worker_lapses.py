"""Workers that die, pause and leave: what becomes of their runs. On SQLite, in one process, on a clock that the test moves.

A crashed worker is one whose lease nobody renews while the clock passes it; what it does later is a zombie's doing.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from pathlib import Path

import pytest

from outlast import Context, Outlast, RunFailed, Status, StepContext, WorkerOptions, step, workflow
from outlast.testing import ManualClock
from support.gated_order import drained, effects, opened, order, status


@pytest.fixture(autouse=True)
def _fresh_effects() -> None:
    effects.clear()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/outlast.db"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def test_a_run_of_a_dead_worker_goes_on_where_it_was(
    url: str, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(drained(url, clock)) as dead, opened(drained(url, clock)) as living:
        run = await dead.start(order)
        dying = asyncio.create_task(dead.drain())
        await effects.entered.wait()
        first_gate = effects.gate
        effects.again()

        clock.advance("29s")
        assert await living.drain() == 0, "its lease is not over"
        assert caplog.records == []
        left = await living.get(run.id)
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

    assert left is not None
    taken_over, lost = caplog.messages
    assert (
        f": {left.worker} (its lease ended 1.0 s ago). Taken over from them, each with a lapse counted: 1."
        in taken_over
    )
    assert lost.startswith(f"Worker {left.worker} lost its lease")


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
