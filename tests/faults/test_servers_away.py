"""The database server goes away and comes back: at the start, in the middle of work, frozen, and with orphans waiting."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import make_url

from outlast import Context, DatabaseUnavailable, Outlast, Signal, StepContext, WorkerOptions, step, workflow
from outlast.stores.databases import database
from outlast.worker import claiming, flusher
from support.fix_servers import Breakable, Link
from support.nursery import Nursery
from support.probing import Tables, until_seen
from support.programs import fleet
from support.programs.ledger import Ledger
from tools.mysql import PrivateMySQL

calls: Counter[str] = Counter()
go_on = Signal("go on", int)
OPTIONS = WorkerOptions(poll="50ms", lease="5m")


@step
async def first(s: StepContext, number: int) -> int:
    calls[s.idempotency_key] += 1
    await asyncio.sleep(0)
    return number


@step
def second(s: StepContext, number: int) -> int:
    calls[s.idempotency_key] += 1
    return number


@workflow("counting")
async def counting(ctx: Context, number: int) -> int:
    total = await first(number)
    await ctx.sleep("a moment", "5ms")
    total += await second(number)
    return total + await first.named("third")(number)


@workflow("waiting")
async def waiting(ctx: Context, number: int) -> int | None:
    return await ctx.wait_for("word", ctx.signal(go_on, key=ctx.run_id))


@pytest.fixture(autouse=True)
def _fresh_calls() -> None:
    calls.clear()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up on an answer after a moment, as otherwise after seconds."""
    monkeypatch.setattr(flusher, "_PATIENCE", 0.3)
    monkeypatch.setattr(claiming, "_PATIENCE", 0.3)


async def test_without_a_server_opening_fails_in_time_and_can_be_tried_again(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Outlast(link.url, workflows=[counting], worker=OPTIONS)
    link.proxy.refuse()

    with monkeypatch.context() as brief:
        brief.setattr(database, "_PATIENCE", 0.3)
        with pytest.raises(DatabaseUnavailable, match="could not be reached"):
            await app.__aenter__()

    link.proxy.let_through()
    async with app:
        assert await app.start_and_wait(counting, 1) == 3


async def test_opening_waits_for_a_server_that_is_starting(breakable: Breakable) -> None:
    breakable.server.stop()
    app = Outlast(breakable.url, workflows=[counting], worker=OPTIONS)
    opening = asyncio.create_task(app.__aenter__())

    await asyncio.to_thread(breakable.server.start)

    await opening
    assert await app.start_and_wait(counting, 1) == 3
    await app.close()


async def test_work_goes_on_through_crashes_of_the_server(breakable: Breakable) -> None:
    """Three crashes while eighty runs are started, work and are signalled. The process lives and keeps its lease, so no
    step is done twice, and what it was told was started is there."""
    async with Outlast(breakable.url, workflows=[counting, waiting], worker=OPTIONS) as app:
        patient = await app.start_many(waiting, range(20))

        async def start(number: int) -> int:
            run = await app.start(counting, number, id=f"counting-{number}")
            await app.signal(go_on, number, key=patient[number % 20].id, id=f"word-{number}")
            return await run.result(timeout="50s")

        async def crash() -> None:
            for progress in (20, 90, 160):
                await until_seen(lambda least=progress: len(calls) >= least, f"{progress} steps")
                await asyncio.to_thread(breakable.restart)

        crashing = asyncio.create_task(crash())
        results = await asyncio.gather(*(start(number) for number in range(60)))
        await crashing

        assert results == [3 * number for number in range(60)]
        # Each was sent three words and took one.
        words = [await run.result(timeout="50s") for run in patient]
        assert [word % 20 for word in words if word is not None] == list(range(20))
    assert set(calls.values()) == {1}
    assert len(calls) == 180
    rows = await asyncio.to_thread(
        Tables(breakable.url), "select status, owner, lapses, count(*) from {runs} group by 1, 2, 3"
    )
    assert rows == [("completed", None, 0, 80)]


async def test_orphans_are_found_though_the_server_crashes_in_the_sweep(
    breakable: Breakable, nursery: Nursery, tmp_path: Path
) -> None:
    """An error in the sweep was logged, and the runs it was about were forgotten for good."""
    ledger = str(tmp_path / "ledger")
    dead = nursery.start(fleet.hold, database=breakable.url, ledger=ledger, count=50)
    dead.wait_for("holds 50")
    dead.kill()
    tables = Tables(breakable.url)
    tables.end_leases()

    async with fleet.app_for(breakable.url, ledger) as app:
        await asyncio.to_thread(breakable.restart)
        for number in range(50):
            assert await app.result(fleet.run_id(number), timeout="30s") == number

    assert max(Counter(effect.key for effect in Ledger(ledger).effects()).values()) == 2
    assert tables("select distinct status, owner from {runs}") == [("completed", None)]


@pytest.mark.usefixtures("impatient")
async def test_a_frozen_server_costs_no_step_when_it_thaws(
    breakable: Breakable, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing answers and nothing breaks. What lay in the server's buffers is done when it goes on, beside what was sent
    once more meanwhile."""
    async with Outlast(breakable.url, workflows=[counting], worker=OPTIONS) as app:
        for _ in range(3):
            calls.clear()
            caplog.clear()
            starting = [asyncio.create_task(app.start_and_wait(counting, number)) for number in range(30)]
            await until_seen(lambda: len(calls) >= 10, "some steps")
            breakable.server.pause()
            await until_seen(lambda: "does not answer" in caplog.text, "the worker to notice")
            breakable.server.resume()

            assert await asyncio.gather(*starting) == [3 * number for number in range(30)]
            assert set(calls.values()) == {1}
            assert len(calls) == 90


@pytest.mark.usefixtures("impatient")
async def test_a_stalled_link_costs_no_step_when_it_moves_again(link: Link, caplog: pytest.LogCaptureFixture) -> None:
    """As packets that are lost on the way and arrive in the end, on links that were given up."""
    async with Outlast(link.url, workflows=[counting], worker=OPTIONS) as app:
        for _ in range(3):
            calls.clear()
            caplog.clear()
            starting = [asyncio.create_task(app.start_and_wait(counting, number)) for number in range(30)]
            await until_seen(lambda: len(calls) >= 10, "some steps")
            link.proxy.stall()
            await until_seen(lambda: "does not answer" in caplog.text, "the worker to notice")
            link.proxy.let_through()

            assert await asyncio.gather(*starting) == [3 * number for number in range(30)]
            assert set(calls.values()) == {1}
            assert len(calls) == 90


@pytest.mark.usefixtures("impatient")
async def test_a_database_that_is_read_only_for_a_while_holds_no_run(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A failover: connections lead to a server that is not the primary yet. The runs of that moment were held, for a minute
    and then for ten, as if their own records could not be written."""
    admin = await asyncpg.connect(postgres_url)
    name = make_url(postgres_url).database

    async def set_read_only(state: str) -> None:
        await admin.execute("set default_transaction_read_only = off")
        await admin.execute(f'alter database "{name}" set default_transaction_read_only = {state}')
        await admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1 and pid <> pg_backend_pid()",
            name,
        )

    async with Outlast(postgres_url, workflows=[counting], worker=OPTIONS) as app:
        starting = [asyncio.create_task(app.start_and_wait(counting, number)) for number in range(60)]
        await until_seen(lambda: len(calls) >= 20, "some steps")
        await set_read_only("on")
        await until_seen(lambda: "does not answer" in caplog.text, "the worker to notice")
        await set_read_only("off")

        assert await asyncio.gather(*starting) == [3 * number for number in range(60)]
    await admin.close()
    assert "is held" not in caplog.text
    assert set(calls.values()) == {1}


@pytest.mark.parametrize("breakable", ["mysql", "mariadb"], indirect=True)
async def test_a_primary_that_is_a_replica_for_a_while_holds_no_run(
    breakable: Breakable, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same there: the server itself is told to be read-only, and holds to that for whoever is no administrator."""
    monkeypatch.setattr(flusher, "_PATIENCE", 0.3)
    monkeypatch.setattr(claiming, "_PATIENCE", 0.3)
    server = breakable.server
    assert isinstance(server, PrivateMySQL)
    url = make_url(breakable.url)
    server.execute("create user if not exists plain@'%' identified by 'plain'")
    server.execute(f"grant all on {url.database}.* to plain@'%'")
    mine = url.set(username="plain", password="plain").render_as_string(hide_password=False)

    async with Outlast(mine, workflows=[counting], worker=OPTIONS) as app:
        starting = [asyncio.create_task(app.start_and_wait(counting, number)) for number in range(60)]
        await until_seen(lambda: len(calls) >= 20, "some steps")
        await asyncio.to_thread(server.execute, "set global read_only = 1")
        await until_seen(lambda: "does not answer" in caplog.text, "the worker to notice")
        await asyncio.to_thread(server.execute, "set global read_only = 0")

        assert await asyncio.gather(*starting) == [3 * number for number in range(60)]
    assert "is held" not in caplog.text
    assert set(calls.values()) == {1}
