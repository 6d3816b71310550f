"""A bank in a process that may die or freeze: transfers are transactional steps, in transactions that outlast gives."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from outlast import Context, Outlast, Signal, StepContext, WorkerOptions, workflow
from support.programs.dying import die_before_statement

TABLES = (
    "create table if not exists accounts (id varchar(40) primary key, cents integer)",
    "create table if not exists transfers (run varchar(40), attempt integer, cents integer)",
)
moved = Signal("moved", int)
_is_sqlite = False
_is_mysql = False
_inside: Callable[[StepContext], None] = lambda s: None  # noqa: E731  what a test makes of the middle of a step


def statements(run: str, attempt: int, cents: int) -> tuple[str, ...]:
    return (
        f"insert into transfers values ('{run}', {attempt}, {cents})",
        f"update accounts set cents = cents - {cents} where id = 'ours'",
        f"update accounts set cents = cents + {cents} where id = 'theirs'",
    )


def move(app: Callable[[], Outlast], cents: int) -> Callable[..., Any]:
    """A step that writes three rows, starts a run and sends a signal: on SQLite on a thread, else awaited."""
    execute = _execute_in_cursor if _is_mysql else _execute

    def blocking(db: Any, s: StepContext) -> int:
        first, *rest = statements(s.run_id, s.attempt, cents)
        db.execute(first)
        _inside(s)
        for statement in rest:
            db.execute(statement)
        app().blocking.start(receipt, cents, tx=db)
        app().blocking.signal(moved, cents, key=s.run_id, tx=db)
        return cents

    async def awaiting(db: Any, s: StepContext) -> int:
        first, *rest = statements(s.run_id, s.attempt, cents)
        await execute(db, first)
        await asyncio.to_thread(_inside, s)
        for statement in rest:
            await execute(db, statement)
        await app().start(receipt, cents, tx=db)
        await app().signal(moved, cents, key=s.run_id, tx=db)
        return cents

    return blocking if _is_sqlite else awaiting


async def _execute(db: Any, statement: str) -> None:
    await db.execute(statement)


async def _execute_in_cursor(db: Any, statement: str) -> None:
    async with db.cursor() as cursor:
        await cursor.execute(statement)


def _number(number: int) -> Callable[[StepContext], Awaitable[int]]:
    async def give(_: StepContext) -> int:
        return number

    return give


_app: Outlast | None = None


def _the_app() -> Outlast:
    assert _app is not None
    return _app


@workflow("receipt")
async def receipt(ctx: Context, cents: int) -> int:
    return cents


@workflow("transfer")
async def transfer(ctx: Context, cents: int) -> int:
    told = ctx.signal(moved, key=ctx.run_id)
    checked, taken = await asyncio.gather(
        ctx.step("check", _number(cents)), ctx.transaction("move", move(_the_app, cents))
    )
    heard = await ctx.wait_for("told", told)
    return await ctx.step("note", _number(checked + taken + (heard or 0)))


async def begin(database: str, run: str, *, before: int | None = None) -> None:
    """Make a transfer, unless this process dies before its n-th statement."""
    if before is not None:
        die_before_statement(before)
    await finish(database, [run])


async def finish(database: str, runs: list[str]) -> None:
    """Take these transfers to their end, as a process does that is started after others have died."""
    async with _opened(database, WorkerOptions(lease="5m", poll="30s")) as app:
        for run in runs:
            handle = await app.start(transfer, 5, id=run)
            print(run, await handle.result())
        await app.drain()


async def work(database: str, name: str, gate: str, *, lease: str) -> None:
    """Work until somebody ends this process. A first attempt stands still in the middle of its step until a file is
    there."""
    global _inside  # noqa: PLW0603  of this process alone

    def wait(s: StepContext) -> None:
        print(f"{name} is inside, attempt {s.attempt}", flush=True)
        while s.attempt == 1 and not Path(gate).exists():
            time.sleep(0.01)
        print(f"{name} goes on, attempt {s.attempt}", flush=True)

    _inside = wait
    async with _opened(database, WorkerOptions(lease=lease, poll="50ms")):
        print(f"{name} is ready", flush=True)
        await asyncio.Event().wait()


def _opened(database: str, options: WorkerOptions) -> Outlast:
    global _app, _is_sqlite, _is_mysql  # noqa: PLW0603  of this process alone
    _is_sqlite, _is_mysql = database.startswith("sqlite"), database.startswith(("mysql", "mariadb"))
    _app = Outlast(database, workflows=[transfer, receipt], worker=options)
    return _app
