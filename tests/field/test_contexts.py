"""Context variables: each run, and each of its steps on whatever thread, has its own."""

from __future__ import annotations

import asyncio
import contextvars
import random

from outlast import Context, Outlast, RunCancelled, Signal, WorkerOptions, step, workflow

tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")
go_on = Signal("go on", None)
MANY = 60


@step
async def awaited(name: str) -> str:
    before = tenant.get()
    tenant.set(f"step of {name}")
    await asyncio.sleep(0)
    assert tenant.get() == f"step of {name}"
    return before


@step
def on_a_thread(name: str) -> str:
    before = tenant.get()
    tenant.set(f"thread of {name}")
    return before


@workflow("tenants")
async def tenants(ctx: Context, name: str) -> list[str]:
    seen = [tenant.get()]
    tenant.set(name)
    seen.append(await awaited(name))
    seen.append(tenant.get())
    await ctx.wait_for("go on", ctx.signal(go_on, key=name), timeout="1h")
    seen.append(await on_a_thread(name))
    seen.append(tenant.get())
    return seen


async def test_what_a_run_sets_is_seen_by_no_other(shared_database_url: str) -> None:
    """Half of them are cancelled meanwhile, in any order. Seen in the field: a run had the tenant of another one."""
    chance = random.Random(3)
    names = [f"t{number}" for number in range(MANY)]
    options = WorkerOptions(poll="50ms", threads=4, concurrency=20)
    async with Outlast(shared_database_url, workflows=[tenants], worker=options) as app:
        handles = dict(zip(names, await app.start_many(tenants, names, ids=names), strict=True))
        cancelled = chance.sample(names, MANY // 2)
        kept = [name for name in names if name not in cancelled]

        await asyncio.gather(
            *(app.cancel(name, "no") for name in cancelled), *(app.signal(go_on, None, key=name) for name in kept)
        )
        ends = await asyncio.gather(*(handles[name].result(timeout="40s") for name in names), return_exceptions=True)

    for name, end in zip(names, ends, strict=True):
        if name in cancelled:
            assert isinstance(end, RunCancelled)
        else:
            assert end == seen_by(name), name
    assert tenant.get() == "nobody"


def seen_by(name: str) -> list[str]:
    """A step gets what was set when the worker began, since another worker may perform it; code has what it set itself."""
    return ["nobody", "nobody", name, "nobody", name]
