"""absurd-sdk: tasks with checkpointed steps in PostgreSQL's stored procedures; workers and waiting clients poll.

Its worker asks each 5 ms (default 250 ms) and the client looks for a result each 2 ms (default 50 ms and more), so that
its latency is not that of a default interval. The schema comes from the distribution `absurdctl` of the same version.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from pathlib import Path
from typing import Any

from absurd_sdk import AsyncAbsurd, AsyncTaskContext  # pyright: ignore[reportMissingImports]  # of the peers

from benchmarks.probing import Probe
from benchmarks.system import Counts, Key, Role, System

QUEUE = "bench"
CONNECTIONS = 10
"""Of a client that starts runs; the SDK holds one connection in each object."""


def application(database: str) -> AsyncAbsurd:
    app = AsyncAbsurd(database, queue_name=QUEUE)

    @app.register_task("bench")
    async def bench(params: dict[str, Any], ctx: AsyncTaskContext) -> object:
        done = None
        for position in range(params["steps"]):

            async def work(position: int = position) -> dict[str, int]:
                return {"number": params["number"], "position": position}

            done = await ctx.step(f"work-{position}", work)
        return done

    @app.register_task("waiter")
    async def waiter(params: dict[str, Any], ctx: AsyncTaskContext) -> object:
        return await ctx.await_event(f"go-{params['number']}")

    @app.register_task("sleeper")
    async def sleeper(params: dict[str, Any], ctx: AsyncTaskContext) -> float:
        await ctx.sleep_until("wake", params["until"])
        return time.time() - params["until"]

    return app


class AbsurdSystem(System):
    packages = ("absurd-sdk", "absurdctl")
    executes_in_process = False
    counts = Counts(
        finished=f"select count(*) from absurd.t_{QUEUE} where state = 'completed'",
        started=f"select count(*) from absurd.t_{QUEUE}",
        steps=f"select count(*) from absurd.c_{QUEUE} where checkpoint_name like 'work-%'",
        asleep=f"select count(*) from absurd.r_{QUEUE} where state = 'sleeping'",
    )

    def __init__(self, database: str) -> None:
        super().__init__(database)
        self._apps: list[Any] = []
        self._serving: asyncio.Task[None] | None = None
        self._numbers = itertools.count()

    async def create(self) -> None:
        command = Path(sys.executable).with_name("absurdctl")
        process = await asyncio.create_subprocess_exec(
            command, "init", "--database", self.database, stdout=asyncio.subprocess.DEVNULL
        )
        if await process.wait() != 0:
            raise RuntimeError("absurdctl could not make its schema")
        app = AsyncAbsurd(self.database, queue_name=QUEUE)
        await app.create_queue(QUEUE)
        await app.close()

    async def open(self, role: Role) -> None:
        self._apps = [application(self.database) for _ in range(1 if role == "worker" else CONNECTIONS)]
        if role == "worker":
            self._serving = asyncio.create_task(self._apps[0].start_worker(concurrency=100, poll_interval=0.005))

    async def close(self) -> None:
        if self._serving is not None:
            self._apps[0].stop_worker()
            await self._serving
        for app in self._apps:
            await app.close()

    async def _spawn(self, name: str, number: int, params: dict[str, Any]) -> Key:
        return (await self._apps[number % CONNECTIONS].spawn(name, params))["task_id"]

    async def start(self, number: int, steps: int) -> Key:
        return await self._spawn("bench", number, {"number": number, "steps": steps})

    async def result(self, key: Key) -> None:
        await self._state(key, "completed")

    async def _state(self, key: Key, wanted: str) -> None:
        while (found := await self._apps[0].fetch_task_result(key)) is None or found.state != wanted:
            if found is not None and found.state in {"failed", "cancelled"}:
                raise RuntimeError(f"task {key} is {found.state}")
            await asyncio.sleep(0.002)

    async def start_waiting(self, number: int) -> Key:
        key = await self._spawn("waiter", number, {"number": number})
        await self._state(key, "sleeping")
        return key

    async def signal(self, number: int, key: Key) -> None:
        await self._apps[0].emit_event(f"go-{number}", {"number": number})

    async def start_sleeping(self, until: float) -> Key:
        return await self._spawn("sleeper", next(self._numbers), {"until": until})

    async def lateness(self, probe: Probe) -> list[float]:
        column = f"select completed_payload::text::float from absurd.t_{QUEUE} where task_name = 'sleeper'"
        return await probe.column(column)

    async def load_history(self, probe: Probe, finished: Key, sleeping: Key, counts: tuple[int, int]) -> None:
        """Ids are made from the copy's number, so that the rows of a copy agree in all three tables."""
        task, run = "md5('task' || s.task_id || g)::uuid", "md5('run' || s.task_id || g)::uuid"
        keys = {"t": {"last_attempt_run": run}, "r": {"run_id": run}, "c": {"owner_run_id": run}}
        for source, copies in ((finished, counts[0]), (sleeping, counts[1])):
            for letter, key in keys.items():
                where = f"s.task_id = '{source}'"
                await probe.clone(f"absurd.{letter}_{QUEUE}", where, copies, {"task_id": task} | key)
