"""Workers as real processes that are killed, stopped and paused, on one SQLite file and on PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from outlast import Outlast, RunFailed
from support.probing import Tables
from support.probing import until as until_so
from support.processes import ChildProcess, StartProcess
from tests.e2e.worker_program import WORKFLOWS, forking, order, poison, quick

PROGRAM = str(Path(__file__).with_name("worker_program.py"))

StartWorker = Callable[..., ChildProcess]


@pytest.fixture
def gates(tmp_path: Path) -> Path:
    folder = tmp_path / "gates"
    folder.mkdir()
    return folder


@pytest.fixture
def start_worker(start_process: StartProcess, shared_database_url: str, gates: Path) -> StartWorker:
    def start(name: str, **options: str | int) -> ChildProcess:
        given = json.dumps({"lease": "1s", "poll": "50ms", **options})
        child = start_process(PROGRAM, shared_database_url, name, given, env={"GATES": str(gates)})
        child.wait_for("ready")
        return child

    return start


@pytest.fixture
def app(shared_database_url: str) -> Outlast:
    return Outlast(shared_database_url, workflows=WORKFLOWS, worker=False)


async def heard(child: ChildProcess, marker: str) -> str:
    return await asyncio.to_thread(child.wait_for, marker)


def wait_for_renewals(url: str, leases: int) -> None:
    """Wait until the lease of the first worker was renewed for so many leases of 300 ms."""
    tables = Tables(url)

    def lease_until() -> int:
        until: int = tables("select lease_until from {workers} order by started_at limit 1")[0][0]
        return until

    begin = lease_until()
    until_so(lambda: lease_until() >= begin + leases * 300_000, "renewals")


def pause_between_transactions(child: ChildProcess, url: str) -> None:
    """Pause a process, but not while it holds the lock of a SQLite file: there nobody can write then, as on any file.

    PostgreSQL ends a transaction whose process is away.
    """
    while True:
        child.pause()
        if not url.startswith("sqlite"):
            return
        try:
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=1)) as connection:
                connection.execute("begin immediate")
                return
        except sqlite3.OperationalError:
            child.resume()


def open_gate(gates: Path, run_id: str) -> None:
    (gates / run_id).touch()


@pytest.mark.every_database("mysql")
async def test_a_killed_worker_is_taken_over_from(app: Outlast, start_worker: StartWorker, gates: Path) -> None:
    async with app:
        first = start_worker("first")
        run = await app.start(order, id="o-1")
        await heard(first, "charge o-1 attempt 1 key o-1:charge")
        second = start_worker("second")

        first.kill()

        # The same key: the provider can tell that it is the same charge.
        await heard(second, "charge o-1 attempt 2 key o-1:charge")
        open_gate(gates, "o-1")
        assert await run.result(timeout="30s") == "charged by second"
        assert "reserve" not in second.output, "what is recorded is not done again"


@pytest.mark.every_database("mariadb")
async def test_a_terminated_worker_hands_its_runs_over_at_once(
    app: Outlast, start_worker: StartWorker, gates: Path
) -> None:
    async with app:
        first = start_worker("first", lease="1h", shutdown_timeout="0s")
        run = await app.start(order, id="o-1")
        await heard(first, "charge o-1 attempt 1")
        second = start_worker("second", lease="1h")

        first.terminate()

        # The lease would last an hour. The interrupted attempt does not count.
        await heard(second, "charge o-1 attempt 1")
        assert first.wait() == 0
        assert "stopped" in first.output
        open_gate(gates, "o-1")
        assert await run.result(timeout="30s") == "charged by second"


@pytest.mark.every_database("mysql")
async def test_a_terminated_worker_lets_its_step_end_and_is_not_robbed_of_it(
    app: Outlast, start_worker: StartWorker, gates: Path, shared_database_url: str
) -> None:
    """Incident F005: heartbeats stopped before the work had drained. The step ends three leases after the SIGTERM."""
    async with app:
        first = start_worker("first", lease="300ms", shutdown_timeout="1h")
        run = await app.start(order, id="o-1")
        await heard(first, "charge o-1 attempt 1")
        second = start_worker("second", lease="300ms")
        first.terminate()
        await heard(first, "stopping")
        await asyncio.to_thread(wait_for_renewals, shared_database_url, 3)

        open_gate(gates, "o-1")

        assert await run.result(timeout="30s") == "charged by first"
        assert first.wait() == 0
        assert "charge o-1" not in second.output
        assert "ship o-1" in second.output


@pytest.mark.every_database("mariadb")
async def test_a_paused_worker_writes_nothing_after_its_lease(
    app: Outlast, start_worker: StartWorker, gates: Path, shared_database_url: str
) -> None:
    async with app:
        first = start_worker("first")
        run = await app.start(order, id="o-1")
        await heard(first, "charge o-1 attempt 1")
        second = start_worker("second")
        await asyncio.to_thread(pause_between_transactions, first, shared_database_url)
        await heard(second, "charge o-1 attempt 2")
        open_gate(gates, "o-1")
        assert await run.result(timeout="30s") == "charged by second"
        journal = await app.get("o-1", journal=True)

        first.resume()

        # It is on its feet again under another name, and does its share.
        await heard(first, "lost its lease")
        second.terminate()
        assert second.wait() == 0
        open_gate(gates, "o-2")
        other = await app.start(order, id="o-2")
        assert await other.result(timeout="30s") == "charged by first"
        assert await app.get("o-1", journal=True) == journal
        assert "ship o-1" not in first.output


@pytest.mark.every_database("mysql")
async def test_a_step_that_kills_every_worker_ends(app: Outlast, start_worker: StartWorker) -> None:
    async with app:
        run = await app.start(poison, id="p-1")
        for attempt in (1, 2, 3):
            child = start_worker(f"worker-{attempt}")
            await heard(child, f"deadly p-1 attempt {attempt}")
            assert child.wait() == 9
        last = start_worker("last")
        await heard(last, "release p-1")
        with pytest.raises(RunFailed, match="StepInterrupted"):
            await run.result(timeout="30s")


@pytest.mark.every_database("mariadb")
@pytest.mark.time_limit(120)
async def test_workers_share_many_runs_and_do_each_once_while_one_of_them_dies(
    app: Outlast, start_worker: StartWorker
) -> None:
    """Incident F004: a claim in two statements gave one run to two workers."""
    async with app:
        runs = await app.start_many(quick, range(300))
        workers = [start_worker(f"worker-{number}", concurrency=10) for number in range(3)]
        await runs[50].result(timeout="60s")
        workers[0].kill()

        assert [await run.result(timeout="60s") for run in runs] == [number + 2 for number in range(300)]
        for run in runs:
            details = await app.get(run.id, journal=True)
            assert details is not None
            assert [entry.name for entry in details.journal] == ["first", "second"]
            assert details.worker is None


@pytest.mark.every_database("mysql")
async def test_a_forked_child_may_start_runs_and_its_parent_goes_on_working(
    app: Outlast, start_worker: StartWorker, shared_database_url: str
) -> None:
    """Incident F181: child and parent spoke over one connection, and both renewed one lease."""
    async with app:
        worker = start_worker("parent")
        for number in range(3):
            run = await app.start(forking, id=f"f-{number}")
            assert await run.result(timeout="30s") == 0, worker.output
            if not shared_database_url.startswith("sqlite"):
                assert await app.result(f"f-{number}-child", timeout="30s") == 42
        worker.terminate()
        assert worker.wait() == 0
        assert "log:" not in worker.output


@pytest.mark.every_database
async def test_the_application_may_be_the_worker(shared_database_url: str, app: Outlast) -> None:
    async with Outlast(shared_database_url, workflows=WORKFLOWS) as working:
        assert await working.start_and_wait(quick, 1) == 3
    async with app:
        assert await app.drain() == 0
