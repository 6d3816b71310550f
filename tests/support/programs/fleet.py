"""Workers that several processes run over one database."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from outlast import Context, Outlast, StepContext, WorkerOptions, serving, step, workflow
from support.programs.dying import die_before_statement
from support.programs.ledger import Effect, Ledger


class _World:
    """What the steps of this process touch. While `holds` is set, none of them ends."""

    ledger: Ledger
    holds: asyncio.Event | None = None
    held = 0
    to_hold = 0


@step
async def work(s: StepContext, number: int) -> int:
    _World.ledger.add(Effect(s.run_id, "work", s.idempotency_key, s.attempt))
    if _World.holds is not None:
        _World.held += 1
        if _World.held == _World.to_hold:
            _World.holds.set()
        await asyncio.Event().wait()
    return number


@step
def read_on_a_thread(path: str) -> str:
    """Wait, without any CPU, until somebody opens this named pipe at its other end."""
    return Path(path).read_text()


@step
async def read_in_a_task(path: str) -> str:
    return await asyncio.to_thread(Path(path).read_text)


@workflow("reading")
async def reading(ctx: Context, paths: list[str]) -> list[str]:
    print("reads")
    return list(await asyncio.gather(read_on_a_thread(paths[0]), read_in_a_task(paths[1])))


@workflow("reading-in-turn")
async def reading_in_turn(ctx: Context, paths: list[str]) -> list[str]:
    print("reads")
    return [await read_on_a_thread(paths[0]), await read_in_a_task(paths[1])]


@workflow("working")
async def working(ctx: Context, number: int) -> int:
    return await work(number)


def run_id(number: int) -> str:
    return f"run-{number}"


def app_for(database: str, ledger: str, *, schema: str = "outlast", **options: Any) -> Outlast:
    """An app that notes its effects in this ledger."""
    _World.ledger = Ledger(ledger)
    given: dict[str, Any] = {"lease": "5m", "poll": "50ms", **options}
    return Outlast(
        database, workflows=[working, reading, reading_in_turn], worker=WorkerOptions(**given), schema=schema
    )


async def hold(database: str, ledger: str, count: int) -> None:
    """Start runs, say so when each of them is in the middle of a step, and leave them there."""
    _World.holds, _World.to_hold = asyncio.Event(), count
    async with app_for(database, ledger) as app:
        await app.start_many(working, range(count), ids=[run_id(number) for number in range(count)])
        await _World.holds.wait()
        print(f"holds {count}")
        await asyncio.Event().wait()


async def serve(database: str, ledger: str, **options: Any) -> None:
    """Work until the end of the process."""
    async with app_for(database, ledger, **options):
        print("works")
        await asyncio.Event().wait()


async def work_until_told(database: str, ledger: str, **options: Any) -> None:
    """Be what `outlast worker` is, its exit code included."""
    sys.exit(await serving.work(app_for(database, ledger, **options), print))


async def boot(database: str, ledger: str, number: int, schema: str) -> None:
    """Open an app, on a database that may be empty, have it do one run of its own, and close it."""
    async with app_for(database, ledger, schema=schema) as app:
        served: int = await app.start_and_wait(working, number, id=run_id(number), wait="30s")
        print("served", served)


async def make_tables(database: str, schema: str, die_before: int) -> None:
    """Open an app without a worker, unless this process dies before its n-th statement."""
    die_before_statement(die_before)
    async with Outlast(database, worker=False, schema=schema):
        print("opened")
