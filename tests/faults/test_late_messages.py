"""A message reaches the server after its sender has given the link up: what it does must not be forgotten by anybody.

The sender sees its link break and asks what became of its work. The answer can be "nothing" and turn out wrong a moment
later: a server that was frozen, or slow to commit, acts on what lay in its buffers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from outlast import CompensationContext, Context, Outlast, RunCancelled, WorkerOptions, step, workflow
from outlast.ports.store import Batch
from outlast.worker.flusher import Flusher, _Group
from support.probing import Tables, until_awaited
from support.tcp_proxy import COMMIT_MESSAGE, TcpProxy
from support.worker_fakes import until


@step
async def echo(text: str) -> str:
    return text


@workflow("echoing")
async def echoing(ctx: Context, text: str) -> str:
    return await echo(text)


@asynccontextmanager
async def worker_behind(proxy: TcpProxy, url: str, *, poll: str = "50ms") -> AsyncIterator[Outlast]:
    options = WorkerOptions(poll=poll, lease="5m")
    async with Outlast(proxy.url(url), workflows=[echoing], worker=options) as app:
        yield app


async def test_runs_of_a_claim_that_is_committed_late_are_found(postgres_url: str, postgres_proxy: TcpProxy) -> None:
    """The worker asked which runs it owned without knowing, was told none, and was given one right after. Its lease goes
    on being renewed, so nobody else would ever have taken that run."""
    tables = Tables(postgres_url)
    waits_for_lock = "select pid from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    client = Outlast(postgres_url, workflows=[echoing], worker=False)
    # The next claim is the one that takes the run: nothing else makes this worker look.
    async with worker_behind(postgres_proxy, postgres_url, poll="1h") as app, client:
        tenure: Any = app._worker._shift and app._worker._shift.tenure

        async def has_asked() -> bool:
            return not tenure.owns_strays or bool(await asyncio.to_thread(tables, waits_for_lock))

        looking: Any = app._worker._shift and app._worker._shift._looking
        await until(lambda: looking._woken is not None)
        postgres_proxy.hold_at(COMMIT_MESSAGE, after=b"echoing@1")
        await client.start(echoing, "hello", id="claimed-late")
        await asyncio.to_thread(postgres_proxy.wait_for_cut)
        await until(lambda: tenure.owns_strays)
        await until_awaited(has_asked, "the worker to ask what it owns")
        postgres_proxy.release()

        assert await client.result("claimed-late", timeout="20s") == "hello"


async def test_a_run_whose_start_is_committed_late_is_begun(
    postgres_url: str, postgres_proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its start arrived between the question whether it had and the second try, which then found the id taken. So the
    worker took it for somebody else's, though it was its own."""
    tables = Tables(postgres_url)
    ask = Flusher._was_written

    async def ask_too_early(self: Flusher, group: _Group, batch: Batch) -> bool:
        answer = await ask(self, group, batch)
        await asyncio.to_thread(postgres_proxy.release)
        assert await asyncio.to_thread(tables.owner, "started-late") is not None
        return answer

    async with worker_behind(postgres_proxy, postgres_url) as app:
        monkeypatch.setattr(Flusher, "_was_written", ask_too_early)
        postgres_proxy.hold_at(b"started-late")

        run = await app.start(echoing, "hello", id="started-late")

        assert await run.result(timeout="20s") == "hello"


async def test_a_parking_that_arrives_late_does_not_park_a_later_turn(
    postgres_url: str, postgres_proxy: TcpProxy
) -> None:
    """The run was parked by the second try, cancelled, and is being undone by the same worker, under the same lease. When it
    was parked again behind its worker's back, with its stop taken note of, it stood still for thirty days."""
    undoing, gate = asyncio.Event(), asyncio.Event()

    async def undo(s: CompensationContext, text: str) -> None:
        undoing.set()
        await gate.wait()

    @workflow("resting")
    async def resting(ctx: Context) -> None:
        await ctx.step("do", lambda s: "done late", compensate=undo)
        await ctx.sleep("long", "30d")

    options = WorkerOptions(poll="50ms", lease="5m")
    app = Outlast(postgres_proxy.url(postgres_url), workflows=[resting], worker=options)
    client = Outlast(postgres_url, workflows=[resting], worker=False)
    async with app, client:
        postgres_proxy.hold_at(b"done late")
        run = await app.start(resting)
        await asyncio.to_thread(postgres_proxy.wait_for_cut)
        await until_awaited(lambda: _status(client, run.id, "suspended"), "the second try")
        await client.cancel(run.id)
        await undoing.wait()

        await asyncio.to_thread(postgres_proxy.release)
        gate.set()

        with pytest.raises(RunCancelled):
            await run.result(timeout="20s")


async def _status(app: Outlast, run_id: str, status: str) -> bool:
    run = await app.get(run_id)
    return run is not None and run.status == status
