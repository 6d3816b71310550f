"""Steps that write through a transaction of the application's: its rows, their entry and what they start are one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from outlast import Context, Outlast, Retry, RunFailed, Signal, Status, StepContext, StepFailed, workflow
from support.payments import SOURCES, Source, payments, source_on
from support.probing import Tables

PLACES = [f"{database}, {name}" for database, names in SOURCES.items() for name in names]
BROKEN = Retry(attempts=2, delay="1ms")
paid = Signal("paid", str)


class Place(NamedTuple):
    url: str
    source: Source


def in_every_place(test: Callable[[Place], Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Run the test with every way to give transactions, on every database."""

    @pytest.mark.parametrize("where", PLACES)
    async def run(where: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
        database, name = where.split(", ")
        url = _url_of(database, request, tmp_path)
        async with source_on(url, name) as source:
            await test(Place(url, source))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def _url_of(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if database == "sqlite":
        return f"sqlite:///{tmp_path}/app.db"
    url: str = request.getfixturevalue("postgres_url" if database == "postgresql" else f"{database}_url")
    return url


@workflow("child")
async def child(ctx: Context, name: str) -> str:
    return f"{name} is here"


@workflow("waiting")
async def waiting(ctx: Context) -> str | None:
    return await ctx.wait_for("payment", ctx.signal(paid))


@asynccontextmanager
async def app_on(place: Place, *workflows: object) -> AsyncGenerator[Outlast]:
    async with app_with(place.source, *workflows) as app:
        yield app
    app.blocking.close()


def app_with(source: Source, *workflows: object) -> Outlast:
    return Outlast(source.database, workflows=[*workflows, child, waiting], transactions=source.option)


def telling(app: Outlast, source: Source) -> Any:
    """Start a run and send a signal in the transaction."""

    def blocking(tx: Any, s: StepContext) -> None:
        app.blocking.start(child, s.run_id, tx=tx)
        app.blocking.signal(paid, s.step, tx=tx)

    async def awaiting(tx: Any, s: StepContext) -> None:
        await app.start(child, s.run_id, tx=tx)
        await app.signal(paid, s.step, tx=tx)

    return blocking if source.is_blocking else awaiting


def failing_at_first(_: object, s: StepContext) -> None:
    if s.attempt == 1:
        raise ConnectionError("the first attempt ends here")


@in_every_place
async def test_rows_entry_starts_and_signals_commit_together(place: Place) -> None:
    source = place.source

    @workflow("shop")
    async def shop(ctx: Context) -> str:
        pay = source.step(lambda tx, s: source.pay(tx, s.run_id, s.idempotency_key), telling(app, source))
        return await ctx.transaction("pay", pay)

    async with app_on(place, shop) as app:
        waits = await app.start(waiting)
        run = await app.start(shop, id="o-1")

        assert await run.result(timeout="20s") == "paid"

        assert await waits.result(timeout="20s") == "pay"
        assert payments(place.url) == [("o-1", "o-1:pay")]
        (started,) = (await app.list(workflow=child)).runs
        assert await app.result(started.id, timeout="20s") == "o-1 is here"
        details = await app.get("o-1", journal=True)
        assert details is not None
        assert [(entry.name, entry.kind, entry.payload) for entry in details.journal] == [("pay", "step", '"paid"')]


@in_every_place
async def test_a_failed_attempt_leaves_nothing_and_the_next_one_does_it_all(place: Place) -> None:
    source = place.source

    @workflow("shop")
    async def shop(ctx: Context) -> str:
        pay = source.step(lambda tx, s: source.pay(tx, f"attempt {s.attempt}"), telling(app, source), failing_at_first)
        return await ctx.transaction("pay", pay, retry=BROKEN)

    async with app_on(place, shop) as app:
        assert await app.start_and_wait(shop, id="o-1", wait="20s") == "paid"

        assert payments(place.url) == [("attempt 2", "")]
        assert len((await app.list(workflow=child)).runs) == 1
        assert len(Tables(place.url)("select id from {signals}")) == 1
        assert [
            row[0] for row in Tables(place.url)("select phase from {journal} where run_id = 'o-1' order by seq")
        ] == [
            "retry",
            "done",
        ]


@in_every_place
async def test_a_function_that_commits_by_itself_fails_for_good_and_has_no_entry(place: Place) -> None:
    source = place.source
    calls: list[int] = []

    @workflow("shop")
    async def shop(ctx: Context) -> str:
        pay = source.step(
            lambda tx, s: calls.append(s.attempt),
            lambda tx, s: source.pay(tx, "committed"),
            lambda tx, s: source.commit(tx),
        )
        return await ctx.transaction("pay", pay, retry=Retry(attempts=3, delay="1ms"))

    async with app_on(place, shop) as app:
        with pytest.raises(RunFailed, match="committed or rolled back its transaction itself"):
            await app.start_and_wait(shop, id="o-1", wait="20s")

        assert calls == [1]
        assert payments(place.url) == [("committed", "")]
        details = await app.get("o-1", journal=True)
        assert details is not None
        assert [(entry.name, str(entry.phase)) for entry in details.journal] == [("pay", "failed"), ("$stop", "done")]


@pytest.mark.parametrize(
    "where",
    [
        "sqlite, sqlite3 of ours",
        "postgresql, asyncpg of ours",
        "postgresql, psycopg",
        "mysql, asyncmy of ours",
        "mariadb, PyMySQL of ours",
    ],
)
async def test_a_transaction_that_was_begun_anew_is_not_the_steps_any_more(
    where: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The function ends its transaction and begins another one: there is one open, but it is not the one that was given."""
    database, name = where.split(", ")
    url = _url_of(database, request, tmp_path)
    async with source_on(url, name) as source:
        begin = "select 1" if name == "psycopg" else "begin"

        @workflow("shop")
        async def shop(ctx: Context) -> str:
            pay = source.step(
                lambda tx, s: source.pay(tx, "committed"),
                lambda tx, s: source.commit(tx),
                lambda tx, s: source.execute(tx, begin),
                lambda tx, s: source.pay(tx, "afterwards"),
            )
            return await ctx.transaction("pay", pay)

        async with app_on(Place(url, source), shop) as app:
            with pytest.raises(RunFailed, match="committed or rolled back its transaction itself"):
                await app.start_and_wait(shop, id="o-1", wait="20s")

        assert payments(url) == [("committed", "")]
        assert Tables(url)("select name, phase from {journal} order by seq") == [("pay", "failed"), ("$stop", "done")]


@in_every_place
async def test_an_error_of_the_database_that_is_swallowed_does_not_commit_half(place: Place) -> None:
    """On PostgreSQL the transaction takes nothing more. Elsewhere the statement that failed is taken back alone, and the
    rest is what the function wanted."""
    source = place.source

    def swallow(tx: Any, s: StepContext) -> Any:
        if source.is_blocking:
            with pytest.raises(Exception):  # noqa: B017, PT011  every driver has its own
                source.execute(tx, "insert into nowhere values (1)")
            return None
        return _swallowed(source, tx)

    @workflow("shop")
    async def shop(ctx: Context) -> str:
        pay = source.step(lambda tx, s: source.pay(tx, f"attempt {s.attempt}"), swallow)
        return await ctx.transaction("pay", pay, retry=BROKEN)

    async with app_on(place, shop) as app:
        run = await app.start(shop, id="o-1")
        if not place.url.startswith("postgresql"):
            assert await run.result(timeout="20s") == "paid"
            assert payments(place.url) == [("attempt 1", "")]
        else:
            with pytest.raises(RunFailed, match="An error of the database was caught"):
                await run.result(timeout="20s")
            assert payments(place.url) == []


async def _swallowed(source: Source, tx: Any) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011  every driver has its own
        await source.execute(tx, "insert into nowhere values (1)")


@in_every_place
async def test_a_result_that_cannot_be_stored_takes_its_rows_with_it(place: Place) -> None:
    source = place.source

    @workflow("shop")
    async def shop(ctx: Context) -> None:
        with pytest.raises(StepFailed, match="ValueNotStorable"):
            await ctx.transaction(
                "pay", source.step(lambda tx, s: source.pay(tx, "o-1"), result=object()), retry=BROKEN
            )

    async with app_on(place, shop) as app:
        await app.start_and_wait(shop, wait="20s")

        assert payments(place.url) == []


@in_every_place
async def test_many_runs_pay_at_once_and_each_once(place: Place) -> None:
    source = place.source

    @workflow("shop")
    async def shop(ctx: Context, number: int) -> int:
        def pay(name: str) -> Any:
            return source.step(lambda tx, s: source.pay(tx, f"{number} {name}"), result=number)

        first, note, second = await asyncio.gather(
            ctx.transaction("first", pay("first")),
            ctx.step("note", _double(number)),
            ctx.transaction("second", pay("second")),
        )
        third = await ctx.transaction("third", pay("third"))
        return int(first) + int(note) + int(second) + int(third)

    async with app_on(place, shop) as app:
        runs = await app.start_many(shop, range(12), ids=[f"o-{number}" for number in range(12)])

        assert [await run.result(timeout="40s") for run in runs] == [number * 5 for number in range(12)]

        assert len(payments(place.url)) == 36
        for run in runs:
            details = await app.get(run.id, journal=True)
            assert details is not None
            assert sorted(entry.name for entry in details.journal) == ["first", "note", "second", "third"]
            assert sorted(entry.position for entry in details.journal) == [0, 1, 2, 3]


def _double(number: int) -> Any:
    async def double(_: StepContext) -> int:
        return number * 2

    return double


@in_every_place
async def test_what_undoes_a_step_is_given_a_transaction_too(place: Place) -> None:
    source = place.source

    def unpay(tx: Any, c: Any, result: str) -> Any:
        assert result == "paid"
        return source.execute(tx, f"update payments set paid_by = '{c.idempotency_key}' where id = 'o-1'")

    @workflow("shop")
    async def shop(ctx: Context) -> None:
        pay = source.step(lambda tx, s: source.pay(tx, "o-1"))
        undo = unpay if source.is_blocking else _awaited(unpay)
        await ctx.transaction("pay", pay, compensate=undo, retry=BROKEN)
        ctx.fail("sold out")

    async with app_on(place, shop) as app:
        run = await app.start(shop, id="r")
        with pytest.raises(RunFailed, match="sold out"):
            await run.result(timeout="20s")

        assert payments(place.url) == [("o-1", "r:$compensate:pay")]
        details = await app.get("r", journal=True)
        assert details is not None
        assert details.status is Status.FAILED
        assert [entry.name for entry in details.journal] == ["pay", "$stop", "$compensate:pay"]


def _awaited(undo: Any) -> Any:
    async def awaited(tx: Any, c: Any, result: str) -> None:
        await undo(tx, c, result)

    return awaited
