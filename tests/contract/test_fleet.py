"""Many at once, on real databases: no deadlock reaches anybody, no wait is without end, no run is lost or done twice."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from outlast.model.ids import RunId, WorkerId
from outlast.model.run import TERMINAL, Status, StopKind
from outlast.ports.operation import Op, Statement
from outlast.ports.store import Batch, ClaimRequest, Lease, NewSignal, Reaped, RunFilter, RunWrite, Wait
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database
from outlast.stores.sql import SqlStore
from outlast.testing.contract.desk import finished, new_run, parked, step
from support.processes import StartProcess

CLAIMING = Path(__file__).parent / "claiming.py"


async def _do(database: SqlDatabase, make: Callable[[SqlStore], Op[Any]]) -> Any:
    return await database.run(lambda: make(database.store))


async def test_runs_of_a_worker_whose_row_is_gone_are_found_by_themselves(shared_database_url: str) -> None:
    """Somebody tidied up the workers' table: the run alone must tell that its worker is no more."""
    database = open_database(shared_database_url)
    await database.migrate()
    lease = await _do(database, lambda store: store.register(WorkerId("gone"), lease_us=60_000_000, host=""))
    await _do(database, lambda store: store.flush(lease, Batch(starts=(new_run("r"),))))

    def prune(_: SqlStore) -> Op[None]:
        yield Statement(database._basis.tables.workers.delete())

    await _do(database, prune)

    assert await _do(database, lambda store: store.reap()) == Reaped(1, ((WorkerId("gone"), None),))
    details = await _do(database, lambda store: store.get(RunId("r"), journal=False))
    assert (details.run.owner, details.run.lapses) == (None, 1)
    await database.close()


async def test_workers_senders_cancels_and_reapers_on_the_same_runs_never_deadlock(postgres_url: str) -> None:
    await _do_all_at_once(postgres_url)

    connection = await asyncpg.connect(postgres_url)
    # The server's own count may lag a moment behind.
    await connection.execute("select pg_stat_clear_snapshot()")
    deadlocks = await connection.fetchval("select deadlocks from pg_stat_database where datname = current_database()")
    await connection.close()
    assert deadlocks == 0


async def test_on_mysql_no_deadlock_of_theirs_reaches_anybody(mysqlish_url: str) -> None:
    """InnoDB locks ranges and indexes too, so two that keep every order may still meet; who lost tries again."""
    await _do_all_at_once(mysqlish_url)


async def _do_all_at_once(url: str) -> None:
    """Claim, write, send, stop and reap on the same runs: nobody gets an error, and every run is in one coherent state."""
    names = [f"r{n:02}" for n in range(30)]
    databases = [open_database(url) for _ in range(6)]
    await databases[0].migrate()
    await _do(databases[0], lambda store: store.start([new_run(name) for name in names]))
    # What each draws depends on who comes first; no order of theirs may matter.
    chance = random.Random(7)

    async def work(database: SqlDatabase, number: int) -> None:
        lease = await _do(database, lambda store: store.register(WorkerId(f"w{number}"), lease_us=60_000_000, host=""))
        for turn in range(25):
            request = ClaimRequest(lease, chance.randint(1, 12), (("work", 1),), {})
            claim = await _do(database, lambda store: store.claim(request))  # noqa: B023 - done at once
            claimed = [run.id for run in claim.runs]
            chance.shuffle(claimed)
            writes = tuple(_write(run_id, chance) for run_id in claimed)
            records = tuple((run_id, step(1_000 * number + turn, "s")) for run_id in claimed)
            await _do(database, lambda store: store.flush(lease, Batch(records=records, writes=writes)))  # noqa: B023
        await _do(database, lambda store: store.retire(lease))

    async def disturb(database: SqlDatabase, number: int) -> None:
        for n in range(40):
            topics = chance.sample(["t0", "t1", "t2", "t3"], 3)
            signals = [NewSignal(topic, topic, f"{number}-{n}", "null") for topic in topics]
            await _do(database, lambda store: store.send(signals))  # noqa: B023 - done at once
            stopped = RunId(chance.choice(names))
            await _do(database, lambda store: store.request_stop(stopped, StopKind.TERMINATE, '{"type":"t"}'))  # noqa: B023
            await _do(database, lambda store: store.reap())

    await asyncio.gather(
        *(work(database, n) for n, database in enumerate(databases[:4])),
        *(disturb(database, n) for n, database in enumerate(databases[4:])),
    )

    runs = await _do(databases[0], lambda store: store.list(RunFilter()))
    assert {run.owner for run in runs} == {None}
    assert {run.status for run in runs} <= {*TERMINAL, Status.SUSPENDED, Status.RUNNING, Status.PENDING}
    for database in databases:
        await database.close()


def _write(run_id: RunId, chance: random.Random) -> RunWrite:
    match chance.randrange(4):
        case 0:
            return finished(run_id)
        case 1:
            return parked(run_id, due_at=0)
        case _:
            return parked(run_id, *(Wait(f"t{n}", 0) for n in chance.sample(range(4), 2)))


@pytest.mark.time_limit(180)
def test_processes_on_one_sqlite_file_wait_for_each_other_and_fail_at_nothing(
    tmp_path: Path, start_process: StartProcess
) -> None:
    url = f"sqlite:///{tmp_path}/shared.db"
    database = open_database(url)
    database.migrate_blocking()
    processes = [start_process(str(CLAIMING), url, f"p{n}", "40") for n in range(8)]

    codes = [process.wait(timeout=150) for process in processes]

    assert codes == [0] * 8, "\n".join(process.output for process in processes)
    runs = database.run_blocking(lambda: database.store.list(RunFilter(limit=1_000)))
    assert Counter(run.status for run in runs) == {Status.COMPLETED: 320}
    assert {run.turns for run in runs} == {1}
    database.close_blocking()


async def test_a_long_reader_on_sqlite_holds_up_no_write(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path}/x.db")
    await database.migrate()
    lease: Lease = await _do(database, lambda store: store.register(WorkerId("w"), lease_us=60_000_000, host=""))
    reader = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    reader.execute("begin")
    before = reader.execute("select count(*) from outlast_journal").fetchone()

    await _do(database, lambda store: store.flush(lease, Batch(starts=(new_run("r"),))))
    for n in range(100):
        await _do(database, lambda store, n=n: store.flush(lease, Batch(records=((RunId("r"), step(n, f"s{n}")),))))

    assert reader.execute("select count(*) from outlast_journal").fetchone() == before
    reader.close()
    details = await _do(database, lambda store: store.get(RunId("r"), journal=True))
    assert len(details.journal) == 100
    await database.close()


async def test_a_caller_inside_its_own_open_transaction_can_still_read_on_sqlite(tmp_path: Path) -> None:
    """The worker's write waits for that transaction; the caller's read must not wait behind the worker's write."""
    database = open_database(f"sqlite:///{tmp_path}/x.db")
    await database.migrate()
    await _do(database, lambda store: store.start([new_run("there")]))
    caller = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    caller.execute("begin immediate")
    writing = asyncio.ensure_future(_do(database, lambda store: store.start([new_run("waits")])))
    await asyncio.sleep(0)

    found = await _do(database, lambda store: store.get(RunId("there"), journal=True))

    assert found is not None
    assert not writing.done()
    caller.execute("rollback")
    caller.close()
    assert (await writing)[0].created
    await database.close()
