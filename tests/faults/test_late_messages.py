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
from support.fix_servers import Link
from support.probing import Tables, until_awaited
from support.worker_fakes import until


@step
async def echo(text: str) -> str:
    return text


@workflow("echoing")
async def echoing(ctx: Context, text: str) -> str:
    return await echo(text)


@asynccontextmanager
async def worker_behind(link: Link, *, poll: str = "50ms") -> AsyncIterator[Outlast]:
    options = WorkerOptions(poll=poll, lease="5m")
    async with Outlast(link.url, workflows=[echoing], worker=options) as app:
        yield app


async def test_runs_of_a_claim_that_is_committed_late_are_found(link: Link) -> None:
    """The worker asked which runs it owned without knowing, was told none, and was given one right after. Its lease goes
    on being renewed, so nobody else would ever have taken that run."""
    client = Outlast(link.server_url, workflows=[echoing], worker=False)
    # The next claim is the one that takes the run: nothing else makes this worker look.
    async with worker_behind(link, poll="1h") as app, client:
        tenure: Any = app._worker._shift and app._worker._shift.tenure

        async def has_asked() -> bool:
            return not tenure.owns_strays or await _waits_for_a_lock(link)

        looking: Any = app._worker._shift and app._worker._shift._looking
        await until(lambda: looking._woken is not None)
        link.proxy.hold_at(link.commit, after=b"echoing@1")
        await client.start(echoing, "hello", id="claimed-late")
        if link.is_mysql:
            looking.kick()  # Nobody tells it there.
        await asyncio.to_thread(link.proxy.wait_for_cut)
        await until(lambda: tenure.owns_strays)
        await until_awaited(has_asked, "the worker to ask what it owns")
        await asyncio.to_thread(link.proxy.release)

        assert await client.result("claimed-late", timeout="20s") == "hello"


@pytest.mark.two_databases  # where a flush is several statements, the question waits for them: see below
async def test_a_run_whose_start_is_committed_late_is_begun(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its start arrived between the question whether it had and the second try, which then found the id taken. So the
    worker took it for somebody else's, though it was its own."""
    tables = Tables(link.server_url)
    ask = Flusher._was_written

    async def ask_too_early(self: Flusher, group: _Group, batch: Batch) -> bool:
        answer = await ask(self, group, batch)
        await asyncio.to_thread(link.proxy.release)
        assert await asyncio.to_thread(tables.owner, "started-late") is not None
        return answer

    async with worker_behind(link) as app:
        monkeypatch.setattr(Flusher, "_was_written", ask_too_early)
        link.proxy.hold_at(b"started-late")

        run = await app.start(echoing, "hello", id="started-late")

        assert await run.result(timeout="20s") == "hello"


@pytest.mark.parametrize("link", ["mysql", "mariadb"], indirect=True)
async def test_a_worker_that_asks_for_a_start_is_told_when_it_is_committed(link: Link) -> None:
    """What was sent holds the worker's row until it is committed or taken back, and so does the question."""
    async with worker_behind(link) as app:
        link.proxy.hold_at(link.commit, after=b"started-late")
        starting = asyncio.create_task(app.start(echoing, "hello", id="started-late"))
        await asyncio.to_thread(link.proxy.wait_for_cut)
        await until_awaited(lambda: _waits_for_a_lock(link), "the worker to ask")
        assert not starting.done()

        await asyncio.to_thread(link.proxy.release)

        assert await (await starting).result(timeout="20s") == "hello"
    assert await asyncio.to_thread(Tables(link.server_url), "select id, lapses from {runs}") == [("started-late", 0)]


@pytest.mark.two_databases  # the same
async def test_a_parking_that_arrives_late_does_not_park_a_later_turn(link: Link) -> None:
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
    app = Outlast(link.url, workflows=[resting], worker=options)
    client = Outlast(link.server_url, workflows=[resting], worker=False)
    async with app, client:
        link.proxy.hold_at(b"done late")
        run = await app.start(resting)
        await asyncio.to_thread(link.proxy.wait_for_cut)
        await until_awaited(lambda: _status(client, run.id, "suspended"), "the second try")
        await client.cancel(run.id)
        await undoing.wait()

        await asyncio.to_thread(link.proxy.release)
        gate.set()

        with pytest.raises(RunCancelled):
            await run.result(timeout="20s")


async def _waits_for_a_lock(link: Link) -> bool:
    return await asyncio.to_thread(Tables(link.server_url).waits_for_a_lock)


async def _status(app: Outlast, run_id: str, status: str) -> bool:
    run = await app.get(run_id)
    return run is not None and run.status == status
