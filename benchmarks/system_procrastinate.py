"""procrastinate: a plain job queue. A run is one job without durable steps: its figures stand aside, not beside."""

from __future__ import annotations

import asyncio
from typing import Any

import procrastinate  # pyright: ignore[reportMissingImports]  # of the peers

from benchmarks.probing import probe_of
from benchmarks.system import Counts, Key, Role, System


class ProcrastinateSystem(System):
    packages = ("procrastinate", "psycopg")
    executes_in_process = False
    counts = Counts(
        finished="select count(*) from procrastinate_jobs where status = 'succeeded'",
        started="select count(*) from procrastinate_jobs",
    )

    def __init__(self, database: str) -> None:
        super().__init__(database)
        self._look = probe_of(database)
        self._worker: asyncio.Task[None] | None = None
        self._app, self._task = self._application()

    def _application(self) -> tuple[Any, Any]:
        connector = procrastinate.PsycopgConnector(conninfo=self.database, min_size=1, max_size=20)
        app = procrastinate.App(connector=connector)

        @app.task(name="bench")
        async def bench(number: int) -> dict[str, int]:
            return {"number": number}

        return app, bench

    async def create(self) -> None:
        async with self._application()[0].open_async() as app:
            await app.schema_manager.apply_schema_async()

    async def open(self, role: Role) -> None:
        await self._app.open_async()
        await self._look.__aenter__()
        if role == "worker":
            serving = self._app.run_worker_async(concurrency=100, install_signal_handlers=False)
            self._worker = asyncio.create_task(serving)
            await asyncio.sleep(0.5)  # it does not tell when it listens

    async def close(self) -> None:
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        await self._look.__aexit__()
        await self._app.close_async()

    async def start(self, number: int, steps: int) -> Key:
        return await self._task.defer_async(number=number)

    async def start_many(self, numbers: range, steps: int) -> None:
        await self._task.batch_defer_async(*({"number": number} for number in numbers))

    async def result(self, key: Key) -> None:
        """Its clients cannot await a result; the row is looked at each millisecond."""
        while not await self._look.count(f"{self.counts.finished} and id = {int(key)}"):
            await asyncio.sleep(0.001)
