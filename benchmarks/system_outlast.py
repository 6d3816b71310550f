"""outlast, as an application uses it: its public API and its defaults, 100 runs at once."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

from benchmarks.probing import Probe
from benchmarks.system import Counts, Key, Role, System
from outlast import Context, Outlast, Signal, WorkerOptions, step, workflow

GO = Signal("go", dict[str, int])
LATE: list[float] = []


@step
async def work(number: int, position: int) -> dict[str, int]:
    return {"number": number, "position": position}


@workflow("bench")
async def bench(_: Context, job: dict[str, int]) -> dict[str, int] | None:
    done = None
    for position in range(job["steps"]):
        done = await work.named(f"work-{position}")(job["number"], position)
    return done


@workflow("waiter")
async def waiter(ctx: Context, number: int) -> dict[str, int] | None:
    return await ctx.wait_for("go", ctx.signal(GO, key=str(number)))


@workflow("sleeper")
async def sleeper(ctx: Context, until: float) -> int:
    await ctx.sleep_until("wake", datetime.fromtimestamp(until, UTC))
    LATE.append(time.time() - until)
    return 1


class OutlastSystem(System):
    packages = ("outlast", "asyncpg", "asyncmy", "sqlalchemy")

    def __init__(self, database: str) -> None:
        super().__init__(database)
        self._prefix = "outlast." if database.startswith("postgresql") else "outlast_"
        self._app = self._application("client")
        runs, journal = f"{self._prefix}runs", f"{self._prefix}journal"
        self.counts = Counts(
            finished=f"select count(*) from {runs} where status = 'completed'",
            started=f"select count(*) from {runs}",
            steps=f"select count(*) from {journal} where name like 'work-%' and phase = 'done'",
            asleep=f"select count(*) from {runs} where status = 'suspended'",
        )

    def _application(self, role: Role) -> Outlast:
        worker = False if role == "client" else WorkerOptions(concurrency=100)
        return Outlast(self.database, workflows=[bench, waiter, sleeper], worker=worker)

    async def create(self) -> None:
        async with self._application("client"):
            pass

    async def open(self, role: Role) -> None:
        self._app = self._application(role)
        await self._app.__aenter__()

    async def close(self) -> None:
        await self._app.__aexit__(None, None, None)

    async def start(self, number: int, steps: int) -> Key:
        return await self._app.start(bench, {"number": number, "steps": steps})

    async def start_many(self, numbers: range, steps: int) -> None:
        await self._app.start_many(bench, [{"number": number, "steps": steps} for number in numbers])

    async def result(self, key: Key) -> None:
        await key.result()

    async def start_waiting(self, number: int) -> Key:
        handle = await self._app.start(waiter, number)
        while (run := await self._app.get(handle.id)) is None or run.status != "suspended":
            await asyncio.sleep(0.003)
        return handle

    async def signal(self, number: int, key: Key) -> None:
        await self._app.signal(GO, {"number": number}, key=str(number))

    async def start_sleeping(self, until: float) -> Key:
        return await self._app.start(sleeper, until)

    async def lateness(self, probe: Probe) -> list[float]:
        return LATE

    async def load_history(self, probe: Probe, finished: Key, sleeping: Key, counts: tuple[int, int]) -> None:
        for handle, copies in ((finished, counts[0]), (sleeping, counts[1])):
            copy = f"'{handle.id}-' || g"
            await probe.clone(f"{self._prefix}runs", f"s.id = '{handle.id}'", copies, {"id": copy})
            await probe.clone(f"{self._prefix}journal", f"s.run_id = '{handle.id}'", copies, {"run_id": copy})
