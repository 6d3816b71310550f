"""Runs of many small steps, for a process that is paused in the middle of them."""

from __future__ import annotations

import asyncio

from outlast import Context, Outlast, StepContext, WorkerOptions, step, workflow
from support.programs.dying import keep_no_locks_for_long
from support.programs.ledger import Effect, Ledger

STEPS = 60
_ledger: Ledger


@step
async def tick(s: StepContext) -> None:
    _ledger.add(Effect(s.run_id, s.idempotency_key, s.idempotency_key, s.attempt))


@workflow("ticking")
async def ticking(ctx: Context) -> None:
    for number in range(STEPS):
        await tick.named(f"tick-{number}")()


async def serve(database: str, ledger: str, lease: str) -> None:
    """Work until the end of the process."""
    keep_no_locks_for_long()
    global _ledger  # noqa: PLW0603 -- the outside world, one for each process
    _ledger = Ledger(ledger)
    async with Outlast(database, workflows=[ticking], worker=WorkerOptions(lease=lease)):
        print("works")
        await asyncio.Event().wait()
