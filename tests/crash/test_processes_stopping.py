"""Workers that are told to end: they are quiet while they wait, keep what they have until then, and lose nothing."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from pathlib import Path

import pytest

from outlast import Outlast, serving
from support.nursery import Nursery
from support.polls import poll_for
from support.probing import Tables, until
from support.programs import fleet
from support.programs.ledger import Ledger

TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    return str(tmp_path / "ledger")


@pytest.mark.time_limit(120)
def test_workers_replaced_one_after_the_other_do_each_step_once(
    nursery: Nursery, shared_database_url: str, ledger: str
) -> None:
    """A deploy that replaces two workers eight times while they are at work. Nobody's lease ends: five minutes are longer
    than this test, so whatever was not handed back would stand still."""
    client = Outlast(shared_database_url, workflows=[fleet.working], worker=False)
    options = {"database": shared_database_url, "ledger": ledger, "concurrency": 5}
    workers = [nursery.start(fleet.work_until_told, **options) for _ in range(2)]
    for worker in workers:
        worker.wait_for("works in process")
    client.blocking.start_many(fleet.working, range(400), ids=[fleet.run_id(number) for number in range(400)])

    for progress in range(40, 360, 40):
        until(lambda least=progress: len(Ledger(ledger).effects()) >= least, f"{progress} steps")
        leaving = workers.pop(0)
        leaving.terminate()
        workers.append(nursery.start(fleet.work_until_told, **options))
        workers[-1].wait_for("works in process")
        assert leaving.wait() == 0, leaving.output

    tables = Tables(shared_database_url)
    until(lambda: tables("select count(*) from {runs} where finished_at is null") == [(0,)], "all runs to end")
    client.blocking.close()
    assert Counter(effect.run for effect in Ledger(ledger).effects()) == {fleet.run_id(n): 1 for n in range(400)}
    assert tables("select distinct status, owner, lapses from {runs}") == [("completed", None, 0)]


def test_a_run_that_a_stopping_worker_gave_back_goes_on_elsewhere_at_once(
    nursery: Nursery, shared_database_url: str, ledger: str, tmp_path: Path
) -> None:
    """Its step ended while the worker stopped, and the next one is another's. Where that one is told, it looks by itself but
    once an hour."""
    pipe, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(pipe)
    file.write_text("file")
    poll = poll_for(shared_database_url)
    options = {"database": shared_database_url, "ledger": ledger, "poll": poll, "lease": "3h", "shutdown_timeout": "1h"}
    worker = nursery.start(fleet.work_until_told, **options)
    worker.wait_for("works in process")
    client = Outlast(shared_database_url, workflows=[fleet.reading_in_turn], worker=False)
    run = client.blocking.start(fleet.reading_in_turn, [str(pipe), str(file)])
    worker.wait_for("reads")
    nursery.start(fleet.work_until_told, **options).wait_for("works in process")

    worker.terminate()
    worker.wait_for("Stopping")
    pipe.write_text("pipe")

    assert worker.wait() == 0
    assert client.blocking.result(run.id, timeout="20s") == ["pipe", "file"]
    client.blocking.close()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="CPU times are read from /proc")
def test_a_stopping_worker_is_quiet_and_keeps_its_lease(
    nursery: Nursery, shared_database_url: str, ledger: str, tmp_path: Path
) -> None:
    """One read a closed stream in a tight loop until it was killed. This one waits for a step on a thread and one in a task,
    for longer than its lease; another worker stands by and must not get the run."""
    pipes = [tmp_path / "thread", tmp_path / "task"]
    for pipe in pipes:
        os.mkfifo(pipe)
    options = {"database": shared_database_url, "ledger": ledger, "lease": "2s", "shutdown_timeout": "1h"}
    worker = nursery.start(fleet.work_until_told, **options)
    worker.wait_for("works in process")
    client = Outlast(shared_database_url, workflows=[fleet.reading], worker=False)
    run = client.blocking.start(fleet.reading, [str(pipe) for pipe in pipes])
    worker.wait_for("reads")
    other = nursery.start(fleet.work_until_told, **options)
    other.wait_for("works in process")
    tables = Tables(shared_database_url)
    owner = tables.owner(run.id)

    worker.terminate()
    worker.wait_for("Stopping")
    spent = _cpu_seconds(worker.pid)
    leases: set[int] = set()
    until(lambda: _count_renewals(tables, owner, leases) > 4, "four renewals")
    spent = _cpu_seconds(worker.pid) - spent

    # Four renewals take more than two and a half seconds.
    assert spent < 0.1
    assert tables.owner(run.id) == owner
    for pipe in pipes:
        pipe.write_text(pipe.name)
    assert worker.wait() == 0
    # Nothing was left to do after the two steps, so the run ended in the turn in which it began.
    assert client.blocking.result(run.id, timeout="20s") == ["thread", "task"]
    client.blocking.close()
    assert tables("select turns, lapses from {runs}") == [(1, 0)]


def test_a_worker_outside_of_the_main_thread_leaves_signals_alone(shared_database_url: str, ledger: str) -> None:
    """Installing handlers raised ValueError there."""
    app = fleet.app_for(shared_database_url, ledger)
    said: list[str] = []
    works = threading.Event()
    stop: list[asyncio.Task[object]] = []

    def announce(text: str) -> None:
        said.append(text)
        works.set()

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        stop.append(task)
        await serving.work(app, announce)

    def run() -> None:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(work())

    thread = threading.Thread(target=run)
    thread.start()
    assert works.wait(20)
    client = Outlast(shared_database_url, workflows=[fleet.working], worker=False)
    assert client.blocking.start_and_wait(fleet.working, 7, wait="20s") == 7
    client.blocking.close()

    stop[0].get_loop().call_soon_threadsafe(stop[0].cancel)

    thread.join(20)
    assert not thread.is_alive()
    assert Tables(shared_database_url)("select count(*) from {workers}") == [(0,)]


def _count_renewals(tables: Tables, worker: str | None, seen: set[int]) -> int:
    seen.update(row[0] for row in tables("select lease_until from {workers} where id = %s", worker))
    return len(seen)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS
