"""DBOS: asynchronous workflows, executed in the process that starts them or taken from its queue.

Library defaults, but for the queue: it asks each 50 ms instead of each second, and a worker takes up to 100 at once.
"""

from __future__ import annotations

import asyncio
import time

from dbos import DBOS, DBOSClient, DBOSConfig  # pyright: ignore[reportMissingImports]  # of the peers

from benchmarks.probing import Probe
from benchmarks.system import Counts, Key, Role, System

QUEUE = "bench"
VERSION = "1"
LATE: list[float] = []


@DBOS.step()
async def work(number: int, position: int) -> dict[str, int]:
    return {"number": number, "position": position}


@DBOS.workflow()
async def bench(number: int, steps: int) -> dict[str, int] | None:
    done = None
    for position in range(steps):
        done = await work(number, position)
    return done


@DBOS.workflow()
async def waiter() -> object:
    return await DBOS.recv_async("go", timeout_seconds=60)


@DBOS.workflow()
async def sleeper(until: float) -> int:
    await DBOS.sleep_async(max(0.0, until - time.time()))
    LATE.append(time.time() - until)
    return 1


class DbosSystem(System):
    packages = ("dbos",)

    def __init__(self, database: str) -> None:
        super().__init__(database)
        self._client: DBOSClient | None = None
        self._schema = "" if self.is_sqlite else "dbos."
        runs, steps = f"{self._schema}workflow_status", f"{self._schema}operation_outputs"
        self.counts = Counts(
            finished=f"select count(*) from {runs} where status = 'SUCCESS'",
            started=f"select count(*) from {runs}",
            steps=f"select count(*) from {steps} where function_name like '%work%'",
            asleep=f"select count(*) from {steps} where function_name = 'DBOS.sleep'",
        )

    def _launch(self) -> None:
        config = DBOSConfig(
            name="bench",
            system_database_url=self.database,
            log_level="ERROR",
            application_version=VERSION,
            executor_id="bench",
        )
        DBOS(config=config)
        DBOS.launch()

    async def create(self) -> None:
        self._launch()
        await DBOS.register_queue_async(QUEUE, worker_concurrency=100, polling_interval_sec=0.05)
        await asyncio.to_thread(DBOS.destroy)

    async def open(self, role: Role) -> None:
        if role == "client":
            self._client = DBOSClient(system_database_url=self.database, system_database_pool_size=20)
        else:
            self._launch()
        if role == "worker":
            await DBOS.register_queue_async(QUEUE, worker_concurrency=100, polling_interval_sec=0.05)

    async def close(self) -> None:
        if self._client is None:
            await asyncio.to_thread(DBOS.destroy)
        else:
            self._client.destroy()

    async def start(self, number: int, steps: int) -> Key:
        if self._client is None:
            return await DBOS.start_workflow_async(bench, number, steps)
        options = {"queue_name": QUEUE, "workflow_name": bench.__qualname__, "app_version": VERSION}
        return await self._client.enqueue_async(options, number, steps)

    async def result(self, key: Key) -> None:
        await key.get_result()

    async def start_waiting(self, number: int) -> Key:
        handle = await DBOS.start_workflow_async(waiter)
        await asyncio.sleep(0.03)  # it leaves no trace of its waiting to look for
        return handle

    async def signal(self, number: int, key: Key) -> None:
        await DBOS.send_async(key.get_workflow_id(), {"number": number}, "go")

    async def start_sleeping(self, until: float) -> Key:
        return await DBOS.start_workflow_async(sleeper, until)

    async def lateness(self, probe: Probe) -> list[float]:
        return LATE

    async def load_history(self, probe: Probe, finished: Key, sleeping: Key, counts: tuple[int, int]) -> None:
        """The sleeping ones belong to another executor: this one would recover them into its memory at its start."""
        others = {"executor_id": "'another'"}
        for handle, copies, changed in ((finished, counts[0], {}), (sleeping, counts[1], others)):
            source = handle.get_workflow_id()
            where, key = f"s.workflow_uuid = '{source}'", {"workflow_uuid": f"'{source}-' || g"}
            await probe.clone(f"{self._schema}workflow_status", where, copies, key | changed)
            await probe.clone(f"{self._schema}operation_outputs", where, copies, key)
