"""The link breaks at a COMMIT: the server has it, or it never arrived, and the client cannot see which.

The outcome is looked up before anything is repeated; so there is one row of each, no step is done twice, and the caller
sees success. Each case is tried several times over one app, whose statements are then all prepared.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from outlast import CompensationContext, Context, Outlast, Signal, StepContext, WorkerOptions, step, workflow
from support.fix_servers import Link
from support.probing import Tables, until_awaited
from support.tcp_proxy import TcpProxy

TIMES = 10
answered = Signal("answered", str)
calls: Counter[str] = Counter()


@step
async def ask(s: StepContext, question: str) -> str:
    calls[s.idempotency_key] += 1
    return f"{question}?"


@ask.compensate
async def unask(s: CompensationContext, asked: str) -> None:
    calls[s.idempotency_key] += 1


@step
async def note(s: StepContext, answer: str) -> str:
    calls[s.idempotency_key] += 1
    return f"{answer}!"


@workflow("talk")
async def talk(ctx: Context, question: str) -> str:
    await ask(question)
    answer = await ctx.wait_for("answer", ctx.signal(answered, key=ctx.run_id))
    return await note(answer or "")


@dataclass(frozen=True)
class Place:
    """An app whose links to the database may be cut, one beside it whose links hold, and the tables."""

    app: Outlast
    other: Outlast
    proxy: TcpProxy
    tables: Tables

    async def rows(self, statement: str, *arguments: object) -> list[tuple[object, ...]]:
        return await asyncio.to_thread(self.tables, statement, *arguments)

    async def cut(self) -> None:
        """Return when the link is cut."""
        await asyncio.to_thread(self.proxy.wait_for_cut)

    async def waits(self, run_id: str) -> bool:
        run = await self.other.get(run_id)
        return run is not None and run.waiting_for != ()


@pytest.fixture(autouse=True)
def _fresh_calls() -> None:
    calls.clear()


@asynccontextmanager
async def place_for(link: Link, *, worker: bool) -> AsyncIterator[Place]:
    options = WorkerOptions(poll="50ms", lease="5m")
    app = Outlast(link.url, workflows=[talk], worker=options if worker else False)
    other = Outlast(link.server_url, workflows=[talk], worker=False)
    async with app, other:
        yield Place(app, other, link.proxy, Tables(link.server_url))


def ids(what: str, count: int = TIMES) -> list[str]:
    return [f"{what}-{number}" for number in range(count)]


delivered_or_not = pytest.mark.parametrize("delivered", [True, False], ids=["it has arrived", "it never arrives"])


@delivered_or_not
async def test_a_start_whose_answer_is_lost_makes_one_run(link: Link, delivered: bool) -> None:
    async with place_for(link, worker=False) as place:
        for run_id in ids("alone"):
            link.proxy.cut_at(run_id.encode(), delivered=delivered)
            run = await place.app.start(talk, "who", id=run_id)
            await place.cut()
            assert run.id == run_id
            assert (await place.app.start(talk, "who", id=run_id)).created is False

        assert await place.rows("select count(*), count(distinct id) from {runs}") == [(TIMES, TIMES)]


@delivered_or_not
async def test_a_start_without_an_id_is_this_callers_whatever_was_lost(link: Link, delivered: bool) -> None:
    async with place_for(link, worker=False) as place:
        for number in range(TIMES):
            link.proxy.cut_at(b"question %d" % number, delivered=delivered)
            assert (await place.app.start(talk, f"question {number}")).created
            await place.cut()

        assert await place.rows("select count(*) from {runs}") == [(TIMES,)]


@delivered_or_not
async def test_many_starts_whose_commit_is_lost_are_all_made_once(link: Link, delivered: bool) -> None:
    async with place_for(link, worker=False) as place:
        for number in range(TIMES):
            link.proxy.cut_at(link.commit, delivered=delivered)
            names = ids(f"together-{number}", 20)
            assert [run.id for run in await place.app.start_many(talk, ["who"] * 20, ids=names)] == names
            await place.cut()

        assert await place.rows("select count(*) from {runs}") == [(20 * TIMES,)]


@delivered_or_not
async def test_a_signal_whose_commit_is_lost_is_stored_once(link: Link, delivered: bool) -> None:
    async with place_for(link, worker=False) as place:
        for number in range(TIMES):
            link.proxy.cut_at(link.commit, delivered=delivered)
            assert (await place.app.signal(answered, "me", key=f"k-{number}")).created
            await place.cut()

        assert await place.rows("select count(*), count(distinct topic) from {signals}") == [(TIMES, TIMES)]


@delivered_or_not
@pytest.mark.parametrize("kind", ["cancel", "terminate"])
async def test_a_stop_whose_commit_is_lost_is_asked_for_once(link: Link, delivered: bool, kind: str) -> None:
    async with place_for(link, worker=False) as place:
        for run_id in ids("stopped"):
            await place.other.start(talk, "who", id=run_id)
            link.proxy.cut_at(link.commit, delivered=delivered)
            verb = place.app.cancel if kind == "cancel" else place.app.terminate
            await verb(run_id, f"reason of {run_id}")
            await place.cut()

        found = await place.rows("select stop_kind, count(distinct stop_reason) from {runs} group by 1")
        assert found == [(kind, TIMES)]


@delivered_or_not
async def test_a_step_whose_record_is_lost_is_not_done_again(link: Link, delivered: bool) -> None:
    async with place_for(link, worker=True) as place:
        for run_id in ids("recorded"):
            # The question's result goes along with the first write of the run; the answer's with its last.
            link.proxy.cut_at(f"{run_id}?".encode(), delivered=delivered)
            run = await place.app.start(talk, run_id, id=run_id)
            await place.cut()
            await until_awaited(lambda name=run_id: place.waits(name), "the run to wait")
            link.proxy.cut_at(f"{run_id}!".encode(), delivered=delivered)
            await place.other.signal(answered, run_id, key=run_id)
            assert await run.result(timeout="30s") == f"{run_id}!"
            await place.cut()

        assert set(calls.values()) == {1}
        assert len(calls) == 2 * TIMES
        assert await place.rows("select distinct status, owner, lapses from {runs}") == [("completed", None, 0)]


@delivered_or_not
async def test_a_run_whose_parking_is_lost_is_woken_by_its_signal(link: Link, delivered: bool) -> None:
    """Parking on a signal takes locks, so it has a COMMIT of its own."""
    async with place_for(link, worker=True) as place:
        for run_id in ids("parked"):
            link.proxy.cut_at(link.commit, delivered=delivered, after=link.said(f"answered\n{run_id}"))
            run = await place.app.start(talk, "who", id=run_id)
            await place.cut()
            await place.other.signal(answered, "me", key=run_id)
            assert await run.result(timeout="30s") == "me!"

        assert set(calls.values()) == {1}
        assert len(calls) == 2 * TIMES


@delivered_or_not
async def test_a_claim_whose_commit_is_lost_leaves_no_run_behind(link: Link, delivered: bool) -> None:
    async with place_for(link, worker=True) as place:
        for run_id in ids("claimed"):
            link.proxy.cut_at(link.commit, delivered=delivered, after=run_id.encode())
            await place.other.start(talk, "who", id=run_id)
            await place.cut()
            await until_awaited(lambda name=run_id: place.waits(name), "the run to wait")

        assert set(calls.values()) == {1}
        assert len(calls) == TIMES


@delivered_or_not
async def test_a_compensation_whose_record_is_lost_is_not_done_again(link: Link, delivered: bool) -> None:
    async with place_for(link, worker=True) as place:
        for run_id in ids("undone"):
            run = await place.app.start(talk, "who", id=run_id)
            await until_awaited(lambda name=run_id: place.waits(name), "the run to wait")
            # What ends the run carries the reason of its stop.
            link.proxy.cut_at(f"enough of {run_id}".encode(), delivered=delivered)
            await place.other.cancel(run_id, f"enough of {run_id}")
            await place.cut()
            await until_awaited(lambda r=run: _has_ended(place.other, r.id), "the run to end")

        assert set(calls.values()) == {1}
        assert sorted(calls) == sorted(
            f"{run_id}:{name}" for run_id, name in itertools.product(ids("undone"), ["ask", "$compensate:ask"])
        )


async def _has_ended(app: Outlast, run_id: str) -> bool:
    run = await app.get(run_id)
    return run is not None and run.status.is_terminal


@delivered_or_not
async def test_a_start_by_the_worker_of_this_process_is_this_callers_too(link: Link, delivered: bool) -> None:
    """It travels in the worker's own flush, and is leased to it from the first moment."""
    async with place_for(link, worker=True) as place:
        for number in range(TIMES):
            link.proxy.cut_at(b"question %d" % number, delivered=delivered)
            run = await place.app.start(talk, f"question {number}")
            await place.cut()
            assert run.created
            await until_awaited(lambda r=run: place.waits(r.id), "the run to wait")

        assert set(calls.values()) == {1}
        assert len(calls) == TIMES
