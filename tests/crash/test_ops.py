"""An operation that stops before any of its statements, or before COMMIT, has done nothing; one that ends has done all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from outlast.model.ids import RunId, WorkerId
from outlast.model.run import StopKind
from outlast.ports.operation import Op
from outlast.ports.store import Batch, ClaimRequest, Lease, NewSignal, Wait
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database
from outlast.stores.sql import SqlStore
from outlast.testing import ManualClock
from outlast.testing.contract.desk import finished, kept, new_run, parked, step
from support.stopping import assert_all_or_nothing

A, GONE = Lease(WorkerId("a"), 1), Lease(WorkerId("gone"), 1)

WRITERS: dict[str, Callable[[SqlStore], Op[Any]]] = {
    "start one": lambda store: store.start([new_run("new")]),
    "start three, one of them taken": lambda store: store.start([new_run("x"), new_run("pending"), new_run("y")]),
    "cancel a parked run": lambda store: store.request_stop(RunId("waits"), StopKind.CANCEL, '{"type":"t"}'),
    "send, new and known": lambda store: store.send(
        [NewSignal("t", "t", "2", "2"), NewSignal("t", "t", "1", "1"), NewSignal("u", "u", "1", "1")]
    ),
    "register": lambda store: store.register(WorkerId("new"), lease_us=1, host=""),
    "renew": lambda store: store.renew(A, lease_us=99_000_000),
    "retire": lambda store: store.retire(A),
    "disown": lambda store: store.disown(A, [RunId("owned")]),
    "reap": lambda store: store.reap(),
    "claim": lambda store: store.claim(ClaimRequest(A, 9, (("work", 1),), {})),
    "flush everything": lambda store: store.flush(
        A,
        Batch(
            starts=(new_run("leased"), new_run("pending")),
            records=((RunId("owned"), step(0, "s")), (RunId("other"), step(0, "s"))),
            writes=(finished("owned"), parked("other", Wait("t", 0), Wait("v", 0)), kept("third", progressed=True)),
        ),
    ),
    "flush without waits": lambda store: store.flush(
        A, Batch(records=((RunId("owned"), step(0, "s")),), writes=(finished("owned"), parked("other", due_at=2**60)))
    ),
}


async def _opened(url: str) -> SqlDatabase:
    clock = ManualClock()
    database = open_database(url, clock=clock)
    await database.open()
    await database.migrate()
    await _do(database, lambda store: store.register(GONE.worker, lease_us=0, host=""))
    await _do(database, lambda store: store.register(A.worker, lease_us=1_000_000, host=""))
    await _do(database, lambda store: store.flush(GONE, Batch(starts=(new_run("orphan"),))))
    names = ("owned", "other", "third", "waits", "sleeps")
    await _do(database, lambda store: store.flush(A, Batch(starts=tuple(new_run(name) for name in names))))
    parks = (parked("waits", Wait("t", 0), Wait("u", 0)), parked("sleeps", due_at=clock.now() + 1_000))
    await _do(database, lambda store: store.flush(A, Batch(writes=parks)))
    await _do(database, lambda store: store.send([NewSignal("t", "else", "1", "1")]))
    await _do(database, lambda store: store.start([new_run("pending")]))
    clock.advance("1ms")
    return database


async def _do(database: SqlDatabase, make: Callable[[SqlStore], Op[Any]]) -> object:
    return await database.run(lambda: make(database.store), repeatable=False)


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS.keys())
async def test_a_stop_before_any_statement_leaves_nothing_and_another_try_does_it_all(
    database_url: str, writer: Callable[[SqlStore], Op[Any]]
) -> None:
    database = await _opened(database_url)

    await assert_all_or_nothing(database, writer)

    await database.close()
    database.close_blocking()
