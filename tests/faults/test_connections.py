"""Connections that are ended by the server, given up by a caller, or in each other's way."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pymysql
import pytest

from outlast import (
    CompensationContext,
    Context,
    IsolationRefused,
    Outlast,
    Signal,
    Status,
    StepContext,
    WorkerOptions,
    step,
    workflow,
)
from support.probing import Tables, until_awaited, until_seen
from support.tcp_proxy import TcpProxy

calls: Counter[str] = Counter()
word = Signal("word", int)
LISTENS = "select pid from pg_stat_activity where datname = current_database() and query ilike 'listen %%'"
END_ALL = (
    "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'outlast' "
    "and datname = current_database()"
)
OPEN_RUNS = "select count(*) from {runs} where finished_at is null"
IDLE = "select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%%'"
IDLE_LONG = f"{IDLE} and state_change < clock_timestamp() - interval '1 second'"
OF_MYSQL = {
    IDLE: "select count(*) from information_schema.innodb_trx t join information_schema.processlist p "
    "on p.id = t.trx_mysql_thread_id where p.db = database() and p.command = 'Sleep'",
}
# InnoDB shows its transactions as they were when last nobody had asked for a tenth of a second.
BETWEEN_LOOKS = 0.15
OF_MYSQL[IDLE_LONG] = f"{OF_MYSQL[IDLE]} and p.time > 1"


@step
async def first(s: StepContext, number: int) -> int:
    calls[s.idempotency_key] += 1
    return number


@step
def second(s: StepContext, number: int) -> int:
    calls[s.idempotency_key] += 1
    return number


@first.compensate
async def undo_first(s: CompensationContext, number: int) -> None: ...


@second.compensate
def undo_second(s: CompensationContext, number: int) -> None: ...


@workflow("adding")
async def adding(ctx: Context, number: int) -> int:
    return await first(number) + await second(number)


@workflow("listening")
async def listening(ctx: Context, number: int) -> int | None:
    await first(number)
    return await ctx.wait_for("word", ctx.signal(word, key=ctx.run_id))


@pytest.fixture(autouse=True)
def _fresh_calls() -> None:
    calls.clear()


async def ask(url: str, statement: str) -> list[tuple[Any, ...]]:
    if not url.startswith("postgresql"):
        statement = OF_MYSQL.get(statement, statement)
    return await asyncio.to_thread(Tables(url), statement)


async def end_all(url: str) -> None:
    """Have the server end every connection of outlast's."""
    if url.startswith("postgresql"):
        await ask(url, END_ALL)
        return
    for (number,) in await ask(url, "select id from information_schema.processlist where db = database()"):
        # One that asks is among them, and others may have gone already.
        with contextlib.suppress(pymysql.Error):
            await ask(url, f"kill {number}")


async def test_a_wake_up_that_was_lost_with_its_connection_is_made_up_for(
    postgres_url: str, postgres_proxy: TcpProxy
) -> None:
    """The poll is an hour away: what wakes the run is that listening again looks again."""
    worker = Outlast(postgres_proxy.url(postgres_url), workflows=[listening], worker=WorkerOptions(poll="1h"))
    sender = Outlast(postgres_url, workflows=[listening], worker=False)
    async with worker, sender:
        run = await worker.start(listening, 1)
        await until_awaited(lambda: _waits(sender, run.id), "the run to wait")
        (former,) = await ask(postgres_url, LISTENS)
        postgres_proxy.refuse()
        await until_awaited(lambda: _listens(postgres_url, False), "the connection to be gone")
        await sender.signal(word, 7, key=run.id)
        postgres_proxy.let_through()

        assert await run.result(timeout="30s") == 7
        assert await ask(postgres_url, LISTENS) not in ([], [former])
        later = await worker.start(listening, 2)
        await until_awaited(lambda: _waits(sender, later.id), "the run to wait")
        await sender.signal(word, 8, key=later.id)
        assert await later.result(timeout="10s") == 8


async def test_connections_ended_by_the_server_cost_no_step(server_url: str) -> None:
    """As an administrator does it, or a proxy that closes what is old: everything at once, again and again."""
    async with Outlast(server_url, workflows=[adding], worker=WorkerOptions(poll="50ms", lease="5m")) as app:
        starting = [asyncio.create_task(app.start_and_wait(adding, number)) for number in range(200)]
        for progress in range(20, 400, 40):
            await until_seen(lambda least=progress: len(calls) >= least, f"{progress} steps")
            await end_all(server_url)
        assert await asyncio.gather(*starting) == [2 * number for number in range(200)]

    assert set(calls.values()) == {1}
    assert len(calls) == 400


async def test_no_transaction_is_left_open_while_steps_run(server_url: str) -> None:
    gate = asyncio.Event()

    @workflow("standing")
    async def standing(ctx: Context, number: int) -> None:
        await ctx.step("stand", lambda s: gate.wait())

    async with Outlast(server_url, workflows=[standing], worker=WorkerOptions(poll="20ms", lease="300ms")) as app:
        runs = await app.start_many(standing, range(20))
        renewals: set[int] = set()

        async def renewed() -> bool:
            renewals.update(row[0] for row in await ask(server_url, "select lease_until from {workers}"))
            assert await ask(server_url, IDLE_LONG) == [(0,)]
            return len(renewals) > 12

        await until_awaited(renewed, "a second of renewals and polls", every=BETWEEN_LOOKS)
        gate.set()
        for run in runs:
            await run.result(timeout="20s")


async def test_a_caller_that_goes_away_leaves_no_transaction_open(server_url: str) -> None:
    """Cancelled between any two statements of a verb: 80 passes of the loop are more than the longest takes."""
    async with Outlast(server_url, workflows=[adding], worker=False) as app:
        verbs = [
            lambda number: app.signal(word, 1, key=f"k-{number}"),
            lambda number: app.start_many(adding, [1, 2], ids=[f"a-{number}", f"b-{number}"]),
            lambda number: app.get(f"a-{number}", journal=True),
        ]
        for verb in verbs:
            for passes in range(80):
                task = asyncio.ensure_future(verb(passes))
                for _ in range(passes):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])

        # Left alone, the server would end such a transaction only after ten seconds.
        await until_awaited(
            lambda: _none(server_url, IDLE), "no transaction to be open", timeout=3, every=BETWEEN_LOOKS
        )
        # The pool has room for everybody still.
        await asyncio.gather(*(app.signal(word, 1, key=f"later-{number}") for number in range(50)))


@pytest.mark.time_limit(120)
async def test_runs_that_end_while_they_are_stopped_never_deadlock(postgres_url: str) -> None:
    """One end locked run then task, the other task then run. Two workers, two that cancel and terminate in opposite
    orders, one that sends: a thousand runs, each with one coherent end."""
    before = await ask(postgres_url, "select deadlocks from pg_stat_database where datname = current_database()")
    options = WorkerOptions(poll="20ms", lease="5m")
    worker = Outlast(postgres_url, workflows=[adding, listening], worker=options)
    another = Outlast(postgres_url, workflows=[adding, listening], worker=options)
    client = Outlast(postgres_url, workflows=[adding, listening], worker=False)
    async with worker, another, client:
        quick = [run.id for run in await client.start_many(adding, range(500))]
        patient = [run.id for run in await client.start_many(listening, range(500))]
        mixed = [name for pair in zip(quick, patient, strict=True) for name in pair]

        await asyncio.gather(
            _ten_by_ten(mixed, lambda name: client.cancel(name, "first")),
            _ten_by_ten(mixed[::-1], lambda name: client.terminate(name, "second")),
            _ten_by_ten(patient, lambda name: client.signal(word, 1, key=name)),
        )

        await until_awaited(lambda: _none(postgres_url, OPEN_RUNS), "all to end", timeout=60)
        await _assert_coherent(client, mixed)
    after = await ask(postgres_url, "select deadlocks from pg_stat_database where datname = current_database()")
    assert before == after


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_a_stricter_default_isolation_is_refused_at_the_start(postgres_url: str, level: str) -> None:
    database = postgres_url.rpartition("/")[2]
    await ask(postgres_url, f"alter database {database} set default_transaction_isolation = '{level}'")
    app = Outlast(postgres_url, workflows=[adding])

    with pytest.raises(IsolationRefused, match=level):
        await app.__aenter__()

    await ask(postgres_url, f"alter database {database} reset default_transaction_isolation")
    async with app:
        assert await app.start_and_wait(adding, 2) == 4


async def _ten_by_ten(names: Sequence[str], verb: Callable[[str], Awaitable[object]]) -> None:
    for start in range(0, len(names), 10):
        await asyncio.gather(*(verb(name) for name in names[start : start + 10]))


async def _assert_coherent(app: Outlast, names: Sequence[str]) -> None:
    for name in names:
        run = await app.get(name, journal=True)
        assert run is not None
        assert (run.worker, run.waiting_for) == (None, ())
        assert [entry.position for entry in run.journal] == list(range(len(run.journal)))
        stopped = run.status is Status.CANCELLED
        assert stopped == (run.failure is not None), run
        assert run.status in {Status.COMPLETED, Status.CANCELLED}, run


async def _none(url: str, count: str) -> bool:
    return await ask(url, count) == [(0,)]


async def _waits(app: Outlast, run_id: str) -> bool:
    run = await app.get(run_id)
    return run is not None and run.waiting_for != ()


async def _listens(url: str, expected: bool) -> bool:
    return (await ask(url, LISTENS) != []) is expected
