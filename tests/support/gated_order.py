"""An order whose middle step waits at a gate, for tests of the worker with everything real but its processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from outlast import CompensationContext, Context, Outlast, Retry, Status, StepContext, step, workflow
from outlast.testing import ManualClock


@dataclass
class Effects:
    """What the steps of a test did, and a gate that a step may wait at."""

    done: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    keys: set[str] = field(default_factory=set[str])
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    last: StepContext | None = None

    def did(self, what: str, s: StepContext) -> None:
        self.done.append((what, s.attempt))
        self.keys.add(s.idempotency_key)
        self.last = s
        if what not in ("prepare", "finish"):
            self.entered.set()

    def clear(self) -> None:
        """Begin again; the steps refer to this one object."""
        self.done.clear()
        self.keys.clear()
        self.last = None
        self.again()

    def again(self) -> None:
        """Make the gate ready for another attempt."""
        self.entered, self.gate = asyncio.Event(), asyncio.Event()


effects = Effects()


@step(retry=Retry(attempts=3, delay="1s"))
async def prepare(s: StepContext) -> str:
    effects.did("prepare", s)
    return "prepared"


@prepare.compensate
async def unprepare(s: CompensationContext, result: str) -> None:
    effects.did(f"undo {result}", s)


@step(retry=Retry(attempts=3, delay="1s"))
async def slow(s: StepContext) -> str:
    gate = effects.gate
    effects.did("slow", s)
    await gate.wait()
    return "slow result"


@step
async def finish(s: StepContext) -> str:
    effects.did("finish", s)
    return "finished"


@workflow("order")
async def order(ctx: Context) -> str:
    await prepare()
    result = await slow()
    await finish()
    return result


@asynccontextmanager
async def opened(app: Outlast) -> AsyncGenerator[Outlast, None]:
    try:
        yield app
    finally:
        await app.close()


def drained(url: str, clock: ManualClock, *workflows: object) -> Outlast:
    """An application that executes runs only when it is told to."""
    return Outlast(url, workflows=workflows or [order], worker=False, clock=clock)


async def status(app: Outlast, run_id: str) -> Status:
    run = await app.get(run_id)
    assert run is not None
    return run.status


async def parked(app: Outlast, run_id: str) -> None:
    while await status(app, run_id) is not Status.SUSPENDED:
        pass
