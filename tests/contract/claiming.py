"""A program that starts runs and finishes whatever it claims, until there is nothing left: one of several on one file."""

from __future__ import annotations

import asyncio
import sys

from outlast.model.ids import WorkerId
from outlast.model.run import LIVE
from outlast.ports.store import Batch, ClaimRequest, Lease, RunFilter
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database
from outlast.testing.contract.desk import finished, new_run, step


async def main(url: str, name: str, count: int) -> None:
    database = open_database(url)
    store = database.store
    lease = await database.run(lambda: store.register(WorkerId(name), lease_us=600_000_000, host=""))
    for n in range(count):
        await database.run(lambda n=n: store.start([new_run(f"{name}-{n}")]))
        await _work(database, lease)
    while await database.run(lambda: store.list(RunFilter(statuses=tuple(LIVE), limit=1))):
        await _work(database, lease)
    await database.close()


async def _work(database: SqlDatabase, lease: Lease) -> None:
    claim = await database.run(lambda: database.store.claim(ClaimRequest(lease, 5, (("work", 1),), {})))
    for run in claim.runs:
        batch = Batch(records=((run.id, step(0, "s")),), writes=(finished(run.id),))
        await database.run(lambda batch=batch: database.store.flush(lease, batch))


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
