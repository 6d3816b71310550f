"""The verbs in both colours: what they take and what they give back."""

from __future__ import annotations

from contextlib import asynccontextmanager
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import assert_type

from fastapi import FastAPI

from outlast import (
    BlockingHandle,
    BlockingKnownRun,
    Context,
    Handle,
    KnownRun,
    Outlast,
    Page,
    Run,
    Signal,
    SignalReceipt,
    Status,
    StopReceipt,
    WorkerOptions,
    workflow,
)
from outlast.testing import ManualClock

poked = Signal("poked")
paid = Signal("paid", int)


@workflow("greet")
async def greet(ctx: Context, name: str) -> str:
    return name


@workflow("tidy")
async def tidy(ctx: Context) -> None: ...


@workflow("maybe")
async def maybe(ctx: Context, name: str | None) -> int:
    return 1


@workflow("served")
class Served:
    def __init__(self, greeting: str) -> None:
        self.greeting = greeting

    async def run(self, ctx: Context, name: str) -> bytes:
        return name.encode()


@workflow("alone")
class Alone:
    async def run(self, ctx: Context) -> float:
        return 1.0


app = Outlast(
    "sqlite://",
    workflows=[greet, tidy, maybe, Served("Moin"), Alone],
    worker=WorkerOptions(lease="5s"),
    clock=ManualClock(),
)
api = FastAPI(lifespan=app.lifespan)


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncGenerator[None, None]:
    async with app.lifespan(api):
        yield


async def awaited(session: object) -> None:
    assert_type(await app.start(greet, "Ada", id="a", tx=session, timeout="1h", priority=1, version=1), Handle[str])
    assert_type(await app.start(tidy, id="t"), Handle[None])
    assert_type(await app.start(maybe, None), Handle[int])
    assert_type(await app.start(Served, "Ada"), Handle[bytes])
    assert_type(await app.start(Served("Servus"), "Ada"), Handle[bytes])
    assert_type(await app.start(Alone), Handle[float])
    assert_type(await (await app.start(greet, "Ada")).result(timeout="1s"), str)
    assert_type(await app.start_many(greet, ["Ada", "Grace"], ids=["a", "g"]), list[Handle[str]])
    assert_type(await app.start_and_wait(greet, "Ada", wait="1s"), str)
    assert_type(await app.start_and_wait(Alone), float)
    assert_type(app.handle(greet, "a"), KnownRun[str])
    assert_type(app.handle(tidy, "a"), KnownRun[None])
    assert_type(app.handle(Served, "a"), KnownRun[bytes])
    assert_type(app.handle(Served("Moin"), "a"), KnownRun[bytes])
    assert_type(app.handle(Alone, "a"), KnownRun[float])
    assert_type(await app.handle(greet, "a").result(timeout="1s"), str)
    assert_type(await app.signal(poked), SignalReceipt)
    assert_type(await app.signal(paid, 3, key="k", id="i", tx=session), SignalReceipt)
    assert_type(await app.cancel("a", "no", tx=session), StopReceipt)
    assert_type(await app.terminate("a"), StopReceipt)
    assert_type(await app.get("a", journal=True), Run | None)
    page = await app.list(status=[Status.RUNNING, "failed"], workflow=greet, created_after=datetime.now(UTC), limit=10)
    assert_type(page, Page)
    assert_type((await app.list(workflow=Served, cursor=page.cursor)).runs, tuple[Run, ...])
    assert_type(await app.drain(), int)
    assert_type(await app.migrate(), tuple[int, ...])


def blocking(session: object) -> None:
    assert_type(app.blocking.start(greet, "Ada", id="a", tx=session), BlockingHandle[str])
    assert_type(app.blocking.start(tidy), BlockingHandle[None])
    assert_type(app.blocking.start(Served, "Ada"), BlockingHandle[bytes])
    assert_type(app.blocking.start(Alone), BlockingHandle[float])
    assert_type(app.blocking.start(greet, "Ada").result(timeout="1s"), str)
    assert_type(app.blocking.start_many(greet, ["Ada"]), list[BlockingHandle[str]])
    assert_type(app.blocking.start_and_wait(greet, "Ada"), str)
    assert_type(app.blocking.handle(greet, "a"), BlockingKnownRun[str])
    assert_type(app.blocking.handle(Alone, "a").result(timeout="1s"), float)
    assert_type(app.blocking.signal(poked), SignalReceipt)
    assert_type(app.blocking.signal(paid, 3), SignalReceipt)
    assert_type(app.blocking.cancel("a"), StopReceipt)
    assert_type(app.blocking.get("a"), Run | None)
    assert_type(app.blocking.list(), Page)
