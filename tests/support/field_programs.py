"""Programs that tests end with SIGKILL or SIGTERM while they have many runs in hand."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter

from outlast import CompensationContext, Context, Outlast, StepContext, WorkerOptions, workflow
from support.programs.dying import die_at, point
from support.programs.ledger import Effect, Ledger

_ledger: Ledger
_passed: Counter[str] = Counter()


def _pass(place: str) -> None:
    """A place that many runs pass; a test may want the process to die when the n-th of them does."""
    _passed[place] += 1
    point(f"{place}:{_passed[place]}")


def _affect(s: StepContext) -> str:
    _ledger.add(Effect(s.run_id, s.idempotency_key.removeprefix(f"{s.run_id}:"), s.idempotency_key, s.attempt))
    return s.idempotency_key


async def _first(s: StepContext) -> str:
    return _affect(s)


async def _second(s: StepContext) -> str:
    _pass("second")
    return _affect(s)


@workflow("chain")
async def chain(ctx: Context, number: int) -> int:
    """Two steps, one after the other."""
    await ctx.step("first", _first)
    await ctx.step("second", _second)
    _pass("returned")
    return number


async def _undo(s: CompensationContext, result: str) -> None:
    _pass(f"undo-{s.step}")
    _affect(s)


@workflow("unwound")
async def unwound(ctx: Context, number: int) -> None:
    """Three steps that are undone."""
    for name in "abc":
        await ctx.step(name, _first, compensate=_undo)
    ctx.fail("no customer")


def _app(database: str, concurrency: int) -> Outlast:
    """Nobody waits for a lease: tests end it by hand."""
    options = WorkerOptions(concurrency=concurrency, lease="5m", poll="30s")
    return Outlast(database, workflows=[chain, unwound], worker=options)


def ids(count: int) -> list[str]:
    return [f"run-{number}" for number in range(count)]


async def begin(*, database: str, ledger: str, workflow: str, count: int, die: str, concurrency: int) -> None:
    """Start so many runs and work on them until this process dies as it is told to."""
    global _ledger  # noqa: PLW0603 -- the outside world, one for each process
    _ledger = Ledger(ledger)
    die_at(die)
    async with _app(database, concurrency) as app:
        if workflow == "chain":
            await app.start_many(chain, range(count), ids=ids(count))
        else:
            await app.start_many(unwound, range(count), ids=ids(count))
        await asyncio.Event().wait()


async def finish(*, database: str, ledger: str, count: int, concurrency: int) -> None:
    """Work on the runs until all of them have ended, as a process does that is started after another has died."""
    global _ledger  # noqa: PLW0603 -- the same
    _ledger = Ledger(ledger)
    async with _app(database, concurrency) as app:
        await asyncio.gather(*(app.result(run_id) for run_id in ids(count)), return_exceptions=True)


async def end_by_signal(*, database: str, ledger: str, count: int) -> None:
    """Be told to end in the moment in which the last of the runs has ended."""
    global _ledger  # noqa: PLW0603 -- the same
    _ledger = Ledger(ledger)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with _app(database, 100) as app:
        runs = await app.start_many(chain, range(count), ids=ids(count))
        await asyncio.gather(*(run.result() for run in runs))
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()
