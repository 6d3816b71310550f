"""A process that starts, signals and cancels runs in a transaction of its own, and may die before or after its commit."""

from __future__ import annotations

from outlast import Context, Outlast, Signal, WorkerOptions, workflow
from support.callers import Place
from support.programs.dying import die_at, point

POINTS = ("before the commit", "after the commit")

poked = Signal("poked", str)


@workflow("greet")
async def greet(ctx: Context, name: str) -> str:
    return f"Hello, {name}"


@workflow("listen")
async def listen(ctx: Context) -> str | None:
    return await ctx.wait_for("poke", ctx.signal(poked))


@workflow("rest")
async def rest(ctx: Context) -> None:
    await ctx.sleep("long", "1d")


def make_app(url: str, *, worker: bool | WorkerOptions) -> Outlast:
    return Outlast(url, workflows=[greet, listen, rest], worker=worker)


async def order(url: str, road: str, die: str) -> None:
    """Write a row, start `ordered`, poke `listening` and cancel `resting`, all of it in one transaction."""
    die_at(die)
    app = make_app(url, worker=False)
    async with app, Place(url, road).caller() as caller:
        async with caller.transaction() as tx:
            await caller.insert(tx, "o-1")
            async with caller.savepoint(tx):
                await app.start(greet, "Ada", id="ordered", tx=tx)
            await app.signal(poked, "from a transaction", tx=tx)
            await app.cancel("resting", tx=tx)
            point("before the commit")
        point("after the commit")
