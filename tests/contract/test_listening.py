"""Other processes hear of new work: from the statements that make it on PostgreSQL, from the file's changes on SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from outlast.model.ids import RunId, WorkerId
from outlast.model.run import StopKind
from outlast.ports.database import Notice
from outlast.ports.operation import Op
from outlast.ports.store import Batch, Lease, NewSignal, RunFilter, Wait
from outlast.stores.databases import notifications
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database
from outlast.stores.sql import SqlStore
from outlast.testing.contract.desk import finished, new_run, parked

A = Lease(WorkerId("a"), 1)


class Ear:
    """What was heard, and a wait for the next."""

    def __init__(self) -> None:
        self._heard: asyncio.Queue[str] = asyncio.Queue()

    def __call__(self, notice: str) -> None:
        self._heard.put_nowait(notice)

    async def hears(self, notice: str) -> None:
        """Return when it is said; the test's time limit is the patience."""
        while await self._heard.get() != notice:
            pass

    @property
    def is_quiet(self) -> bool:
        return self._heard.empty()


@asynccontextmanager
async def _two_processes(url: str, *, schema: str = "outlast") -> AsyncIterator[tuple[SqlDatabase, SqlDatabase]]:
    listening, working = open_database(url, schema=schema), open_database(url, schema=schema)
    await working.migrate()
    await working.run(lambda: working.store.register(A.worker, lease_us=60_000_000, host=""))
    yield listening, working
    for database in (listening, working):
        await database.close()


async def _do(database: SqlDatabase, make: Callable[[SqlStore], Op[Any]]) -> object:
    return await database.run(lambda: make(database.store))


async def _one_waits_and_one_runs(database: SqlDatabase) -> None:
    await _do(database, lambda store: store.flush(A, Batch(starts=(new_run("waits"), new_run("runs")))))
    await _do(database, lambda store: store.flush(A, Batch(writes=(parked("waits", Wait("t", 0)),))))


@pytest.mark.parametrize(
    "notice, make",
    [
        ("ready", lambda store: store.start([new_run("r")])),
        ("ready", lambda store: store.start([new_run("r"), new_run("q")])),
        ("ready", lambda store: store.send([NewSignal("t", "t", "1", "null")])),
        ("ready", lambda store: store.request_stop(RunId("waits"), StopKind.CANCEL, '{"type":"t"}')),
        ("stop", lambda store: store.request_stop(RunId("runs"), StopKind.CANCEL, '{"type":"t"}')),
        ("ready", lambda store: store.retire(A)),
        ("ready", lambda store: store.disown(A, [])),
    ],
    ids=[
        "a start",
        "several starts",
        "a signal",
        "a stop of a parked run",
        "a stop of a running run",
        "retire",
        "disown",
    ],
)
async def test_what_makes_work_is_heard_in_other_processes(
    shared_database_url: str, notice: str, make: Callable[[SqlStore], Op[Any]]
) -> None:
    async with _two_processes(shared_database_url) as (listening, working):
        await _one_waits_and_one_runs(working)
        ear = Ear()
        await listening.listen(ear)

        await _do(working, make)

        await ear.hears(notice)


async def test_what_makes_no_work_is_not_heard(postgres_url: str) -> None:
    async with _two_processes(postgres_url) as (listening, working):
        await _one_waits_and_one_runs(working)
        await _do(working, lambda store: store.start([new_run("there")]))
        ear = Ear()
        await listening.listen(ear)

        await _do(working, lambda store: store.start([new_run("there")]))
        await _do(working, lambda store: store.send([NewSignal("u", "u", "1", "null")]))
        await _do(working, lambda store: store.flush(A, Batch(writes=(finished("runs"),))))
        await _do(working, lambda store: store.request_stop(RunId("runs"), StopKind.CANCEL, '{"type":"t"}'))
        await _do(working, lambda store: store.list(RunFilter()))
        await _do(working, lambda store: store.request_stop(RunId("waits"), StopKind.CANCEL, '{"type":"t"}'))

        # Notices come in the order of their transactions, so the first one heard is the last one's.
        await ear.hears("ready")
        assert ear.is_quiet


async def test_a_rolled_back_start_is_not_heard(postgres_url: str) -> None:
    async with _two_processes(postgres_url) as (listening, working):
        ear = Ear()
        await listening.listen(ear)

        def refused() -> Op[None]:
            yield from working.store.start([new_run("p"), new_run("q")])
            raise LookupError

        with pytest.raises(LookupError):
            await working.run(refused)
        await _do(working, lambda store: store.start([new_run("r")]))

        await ear.hears("ready")
        assert ear.is_quiet


async def test_two_installations_do_not_hear_each_other(postgres_url: str) -> None:
    async with (
        _two_processes(postgres_url, schema="mine") as (_, mine),
        _two_processes(postgres_url, schema="yours") as (listening, yours),
    ):
        ear = Ear()
        await listening.listen(ear)

        await _do(mine, lambda store: store.start([new_run("r")]))
        await _do(yours, lambda store: store.request_stop(RunId("nobody"), StopKind.CANCEL, '{"type":"t"}'))
        await _do(yours, lambda store: store.start([new_run("r")]))

        await ear.hears("ready")
        assert ear.is_quiet


async def test_a_listener_comes_back_and_says_that_something_may_have_been_missed(postgres_url: str) -> None:
    async with _two_processes(postgres_url) as (listening, working):
        ear = Ear()
        await listening.listen(ear)
        admin = await asyncpg.connect(postgres_url)
        await admin.execute("select pg_terminate_backend(pid) from pg_stat_activity where query like 'LISTEN%'")

        await ear.hears("ready")
        await ear.hears("stop")

        assert await admin.fetchval("select count(*) from pg_stat_activity where query like 'LISTEN%'") == 1
        await _do(working, lambda store: store.start([new_run("r")]))
        await ear.hears("ready")
        await admin.close()


async def test_a_closed_listener_is_quiet_and_leaves_no_connection(postgres_url: str) -> None:
    async with _two_processes(postgres_url) as (listening, working):
        ear = Ear()
        await listening.listen(ear)
        await listening.close()

        await _do(working, lambda store: store.start([new_run("r")]))

        admin = await asyncpg.connect(postgres_url)
        while await admin.fetchval("select count(*) from pg_stat_activity where query like 'LISTEN%'"):
            await asyncio.wait({asyncio.ensure_future(admin.fetchval("select 1"))})
        assert ear.is_quiet
        await admin.close()


async def test_a_listener_that_cannot_connect_stops_nobody() -> None:
    database = open_database("postgresql://me@127.0.0.1:1/nowhere")

    await database.listen(Ear())
    await database.close()


async def test_closing_outlasts_a_reader_that_swallows_a_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    """psycopg's notifies() may, when it comes while something is read: then closing waited for ever."""
    monkeypatch.setattr(notifications, "_SWALLOWED", 0.01)
    swallowed, for_ever = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def deaf(channel: str, notice: Notice) -> AsyncGenerator[Callable[[], Awaitable[object]]]:
        async def read() -> None:
            try:
                await for_ever.wait()
            except asyncio.CancelledError:
                swallowed.set()
            await for_ever.wait()

        yield read

    listening = notifications.Notifications(deaf, "channel")
    await listening.listen(lambda _: None)
    await listening.close()
    assert swallowed.is_set()


async def test_after_a_fork_the_child_closes_its_own_and_leaves_the_parents_listening_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The child waited for a task of the parent's loop, which is "attached to a different loop"."""
    database = open_database("postgresql://me@127.0.0.1:1/nowhere")
    await database.listen(Ear())
    (listening,) = [task for task in asyncio.all_tasks() if task.get_name() == "outlast-listen"]

    with monkeypatch.context() as child:
        child.setattr("os.getpid", lambda: -1)
        await asyncio.to_thread(asyncio.run, database.close())

    assert not listening.done()
    listening.cancel()


async def test_listening_to_a_database_in_memory_says_nothing() -> None:
    database = open_database("sqlite://")
    await database.migrate()
    ear = Ear()
    await database.listen(ear)

    await _do(database, lambda store: store.start([new_run("r")]))

    assert ear.is_quiet
    await database.close()


async def test_a_process_does_not_hear_its_own_writes_on_sqlite(tmp_path: Path) -> None:
    async with _two_processes(f"sqlite:///{tmp_path}/x.db") as (listening, working):
        ear = Ear()
        await listening.listen(ear)
        await _do(working, lambda store: store.start([new_run("theirs")]))
        await ear.hears("ready")
        await ear.hears("stop")

        for n in range(3):
            await _do(listening, lambda store, n=n: store.start([new_run(f"mine{n}")]))
        changes = asyncio.get_running_loop().create_future()
        watch: Any = listening._listener
        looked = watch._look
        watch._look = lambda *args: (looked(*args), changes.done() or changes.set_result(None))
        await changes

        assert ear.is_quiet
