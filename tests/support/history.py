"""A database with years behind it: 200,000 runs that ended, 20,000 that sleep, and their journals and signals."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from outlast.model.ids import RunId, WorkerId
from outlast.model.run import Status, StopKind
from outlast.ports.operation import Op
from outlast.ports.store import Batch, ClaimRequest, Lease, NewSignal, RunFilter, Wait
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database
from outlast.stores.sql import SqlStore
from outlast.testing.contract.desk import finished, new_run, parked, step

A = Lease(WorkerId("a"), 1)
MANY = 100
Verb = Callable[[SqlStore], Op[Any]]

FINISHED = 200_000
SLEEPING = 20_000
LATER = 4_000_000_000_000_000
"""An instant far ahead, in microseconds."""

_HISTORY = """
insert into {schema}runs
  (id, workflow, version, status, priority, input, output, ready, due_at, stop_unseen, signal_cursor, turns, lapses,
   created_at, started_at, updated_at, finished_at)
select 'ended-' || g, 'work', 1, 'completed', 0, '1', '1', 0, null, 0, 0, 3, 0, 1000 + g, 1000 + g, 2000 + g, 2000 + g
from {ended};

insert into {schema}journal (run_id, seq, kind, phase, name, attempt, payload, recorded_at)
select 'ended-' || g, k, 'step', 'done', 's' || k, 1, '1', 1000 + g
from {ended}, (select 0 as k union all select 1) ks;

insert into {schema}runs
  (id, workflow, version, status, priority, input, ready, due_at, stop_unseen, signal_cursor, turns, lapses,
   created_at, started_at, updated_at)
select 'sleeping-' || g, 'work', 1, 'suspended', 0, '1', 0, {later} + g, 0, 0, 1, 0, 300000 + g, 300000 + g, 300000 + g
from {sleeping};

insert into {schema}waits (run_id, position, topic, after_id)
select 'sleeping-' || g, 0, 'topic-' || g, 0 from {sleeping};

insert into {schema}signals (topic, name, dedupe_id, payload, created_at)
select 'topic-old-' || (g % 100), 'topic', 'd' || g, '1', 1000 + g from {ended};
"""


def history(schema: str, *, series: str) -> list[str]:
    """Return the statements that make it. `schema` stands before each table's name; `series` is how the database says
    "the numbers from 1 to {n}, as g"."""
    filled = _HISTORY.format(
        schema=schema, later=LATER, ended=series.format(n=FINISHED), sleeping=series.format(n=SLEEPING)
    )
    return [statement for statement in filled.split(";") if statement.strip()]


@asynccontextmanager
async def aged_database(url: str) -> AsyncGenerator[SqlDatabase]:
    """A database with a worker, a hundred runs of its own, a hundred ready ones and some that are due."""
    database = open_database(url)
    await _do(database, lambda store: store.register(A.worker, lease_us=600_000_000, host=""))
    await _do(database, lambda store: store.flush(A, Batch(starts=tuple(new_run(f"mine-{n}") for n in range(MANY)))))
    await _do(database, lambda store: store.start([new_run(f"ready-{n}") for n in range(MANY)]))
    starts = tuple(new_run(f"{kind}-{n}") for kind in ("due", "waiting") for n in range(20))
    await _do(database, lambda store: store.flush(A, Batch(starts=starts)))
    parks = [parked(f"due-{n}", Wait(f"topic-old-{n}", FINISHED - 300), due_at=1) for n in range(20)]
    parks += [parked(f"waiting-{n}", Wait(f"topic-old-{n}", 2**40), Wait("topic", 2**40)) for n in range(20)]
    await _do(database, lambda store: store.flush(A, Batch(writes=tuple(parks))))
    yield database
    await database.close()


async def _do(database: SqlDatabase, verb: Verb) -> object:
    return await database.run(lambda: verb(database.store))


VERBS: Mapping[str, Verb] = {
    "start one": lambda store: store.start([new_run("one")]),
    "start a hundred, half of them there": lambda store: store.start(
        [new_run(f"{'ready' if n % 2 else 'new'}-{n}") for n in range(MANY)]
    ),
    "claim": lambda store: store.claim(ClaimRequest(A, MANY, (("work", 1),), {})),
    "flush starts": lambda store: store.flush(A, Batch(starts=tuple(new_run(f"new-{n}") for n in range(MANY)))),
    "flush records": lambda store: store.flush(
        A, Batch(records=tuple((RunId(f"mine-{n}"), step(0, "s")) for n in range(MANY)))
    ),
    "flush ends": lambda store: store.flush(
        A,
        Batch(
            records=tuple((RunId(f"mine-{n}"), step(0, "s")) for n in range(MANY)),
            writes=tuple(finished(f"mine-{n}") for n in range(MANY)),
        ),
    ),
    "flush parks": lambda store: store.flush(
        A, Batch(writes=tuple(parked(f"mine-{n}", due_at=9) for n in range(MANY)))
    ),
    "flush parks on signals": lambda store: store.flush(
        A,
        Batch(writes=tuple(parked(f"mine-{n}", Wait(f"topic-old-{n}", 2**40), Wait("t", 0)) for n in range(MANY))),
    ),
    "flush one end": lambda store: store.flush(A, Batch(writes=(finished("mine-1"),))),
    "flushed": lambda store: store.flushed(A, Batch(records=((RunId("mine-1"), step(0, "s")),))),
    "send one": lambda store: store.send([NewSignal("topic", "topic-7", "new", "null")]),
    "send to many that wait": lambda store: store.send([NewSignal("topic", "topic", "new", "null")]),
    "send again": lambda store: store.send([NewSignal("topic", "topic-old-1", "d1", "null")]),
    "cancel": lambda store: store.request_stop(RunId("sleeping-7"), StopKind.CANCEL, '{"type":"t"}'),
    "renew": lambda store: store.renew(A, lease_us=600_000_000),
    "reap": lambda store: store.reap(),
    "disown": lambda store: store.disown(A, []),
    "retire": lambda store: store.retire(A),
    "get": lambda store: store.get(RunId("ended-7"), journal=True),
    "outcomes": lambda store: store.outcomes([RunId(f"ended-{n}") for n in range(1, MANY)]),
    "waiting for": lambda store: store.waiting_for([RunId(f"sleeping-{n}") for n in range(1, MANY)]),
    "unclaimed": lambda store: store.unclaimed([], overdue=0),
    "retry held": lambda store: store.retry_held([("work", 1)], before=LATER, within=600_000_000, limit=MANY),
    "list the first page": lambda store: store.list(RunFilter(limit=MANY)),
    "list a late page": lambda store: store.list(RunFilter(limit=MANY, after=(150_000, "x"))),
    "list by status": lambda store: store.list(RunFilter(limit=MANY, statuses=(Status.PENDING,))),
    "list by status, late": lambda store: store.list(
        RunFilter(limit=MANY, statuses=(Status.COMPLETED,), after=(150_000, "x"))
    ),
}
