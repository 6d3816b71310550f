"""Transactional steps when something goes wrong between the function's return and the answer to its COMMIT.

Whatever it is: the rows are there exactly when the entry is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from outlast import Context, Outlast, RunFailed, StepContext, WorkerOptions, workflow
from support.callers import awaiting_engine, kind_of
from support.fix_servers import Link
from support.payment_places import PLACES, Place, in_places
from support.payments import SOURCES, SQLALCHEMY, Source, make_table, payments, source_on
from support.probing import Tables, until_awaited


def lose_the_answer() -> None:
    raise ConnectionResetError("the answer to COMMIT did not arrive")


# What became of the COMMIT.


@in_places(*PLACES)
async def test_a_commit_whose_answer_is_lost_is_found_in_the_journal_and_not_made_again(place: Place) -> None:
    place.breaking.after = lose_the_answer
    shop = place.shop()
    async with place.app(shop) as app:
        assert await app.start_and_wait(shop, id="o-1", wait="20s") == "paid"

    assert place.attempts == [1]
    assert payments(place.url) == [("o-1", "attempt 1")]
    assert place.recorded() == [("o-1", "pay", "done", 1)]


@in_places(*PLACES)
async def test_a_commit_that_never_happened_is_another_attempt(place: Place) -> None:
    place.breaking.before = lose_the_answer
    shop = place.shop()
    async with place.app(shop) as app:
        assert await app.start_and_wait(shop, id="o-1", wait="20s") == "paid"

    assert place.attempts == [1, 2]
    assert payments(place.url) == [("o-1", "attempt 2")]
    assert place.recorded() == [("o-1", "pay", "retry", 1), ("o-1", "pay", "done", 2)]


@in_places(*PLACES)
async def test_a_transaction_that_ends_without_a_commit_and_without_a_word_is_noticed(place: Place) -> None:
    place.breaking.before = lambda: None
    shop = place.shop()
    async with place.app(shop) as app:
        with pytest.raises(RunFailed, match="yet it was not committed"):
            await app.start_and_wait(shop, id="o-1", wait="20s")

    assert payments(place.url) == []
    assert place.recorded()[0] == ("o-1", "pay", "failed", 1)


@pytest.mark.parametrize("delivered", [True, False])
@pytest.mark.parametrize(
    "link, name",
    [
        ("postgresql", "asyncpg of ours"),
        ("postgresql", "psycopg of ours"),
        ("postgresql", "async_sessionmaker"),
        ("mysql", "asyncmy of ours"),
        ("mysql", "async_sessionmaker"),
        ("mariadb", "PyMySQL of ours"),
        ("mariadb", "aiomysql"),
    ],
    indirect=["link"],
)
async def test_a_link_that_breaks_at_the_commit_costs_nothing_but_time(name: str, delivered: bool, link: Link) -> None:
    """The server got the COMMIT and its answer went nowhere, or it never got it."""
    make_table(link.server_url)
    async with SOURCES[kind_of(link.server_url)][name](link.url) as source:
        place = Place(link.server_url, source)
        shop = place.shop()
        app = Outlast(link.url, workflows=[shop], transactions=source.option, worker=WorkerOptions(poll="50ms"))
        async with app:
            for number in range(5):
                place.attempts.clear()
                link.proxy.cut_at(b"COMMIT", delivered=delivered, after=b"insert into payments")
                run = await app.start(shop, id=f"o-{number}")
                await asyncio.to_thread(link.proxy.wait_for_cut)

                assert await run.result(timeout="30s") == "paid"

                assert place.attempts == ([1] if delivered else [1, 2])
    assert [payment for payment, _ in payments(link.server_url)] == [f"o-{number}" for number in range(5)]
    assert [row[0] for row in place.recorded() if row[2] == "done"] == [f"o-{number}" for number in range(5)]


# What the application gave is no good.


@in_places(*PLACES)
async def test_an_error_that_the_applications_own_code_swallows_is_no_success(place: Place) -> None:
    option = place.breaking.option

    @contextmanager
    def swallowing() -> Generator[Any]:
        try:
            with option() as tx:
                yield tx
        except ValueError:
            pass

    @asynccontextmanager
    async def swallowing_awaiting() -> AsyncGenerator[Any]:
        try:
            async with option() as tx:
                yield tx
        except ValueError:
            pass

    def fail(_: Any, __: Any) -> None:
        raise ValueError

    shop = place.shop(fail)
    async with place.app(shop, option=swallowing if place.source.is_blocking else swallowing_awaiting) as app:
        with pytest.raises(RunFailed, match="swallowed the error"):
            await app.start_and_wait(shop, id="o-1", wait="20s")

    assert payments(place.url) == []


@in_places("sqlite, sessionmaker", "sqlite, async_sessionmaker")
async def test_a_session_on_another_database_records_nothing_anywhere(place: Place) -> None:
    """Once without outlast's tables, and once with tables of another application of the same name."""
    path = place.url.removeprefix("sqlite:///")
    mine = f"sqlite:///{path}.mine"
    shop = place.shop(retry=False)
    app = Outlast(mine, workflows=[shop], transactions=place.breaking.option)
    async with app:
        with pytest.raises(RunFailed, match="on the database in which they are"):
            await app.start_and_wait(shop, id="o-1", wait="20s")

        async with Outlast(place.url) as other:
            await other.migrate()
        with pytest.raises(RunFailed, match="does not see this worker's lease"):
            await app.start_and_wait(shop, id="o-2", wait="20s")

        assert place.attempts == [1]
        assert payments(place.url) == []
        assert place.recorded() == []


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_a_stricter_isolation_serves_as_well(isolation: str, postgres_url: str) -> None:
    """The lease is renewed while the step is inside its snapshot: that changes the row that the step locks at its end. A
    change of the run's own row cannot be seen from there, so the attempt begins again."""
    make_table(postgres_url)
    engine = awaiting_engine(postgres_url).execution_options(isolation_level=isolation)
    place = Place(postgres_url, Source(engine, None, False, **SQLALCHEMY))

    def renew(_: Any, s: StepContext) -> None:
        Tables(postgres_url)("update {workers} set lease_until = lease_until + 1")
        if len(place.attempts) == 2:
            Tables(postgres_url)("update {runs} set updated_at = updated_at + 1")

    shop = place.shop(renew)
    async with Outlast(engine, workflows=[shop]) as app:
        assert await app.start_and_wait(shop, id="o-1", wait="20s") == "paid"
        assert await app.start_and_wait(shop, id="o-2", wait="20s") == "paid"
    await engine.dispose()

    assert place.attempts == [1, 1, 1]
    assert payments(postgres_url) == [("o-1", "attempt 1"), ("o-2", "attempt 1")]


async def test_a_run_whose_step_has_no_transaction_of_its_colour_is_held_until_there_is_one(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/app.db"
    make_table(url)

    @workflow("shop")
    async def shop(ctx: Context) -> str:
        async def pay(tx: Any) -> str:
            return "paid"

        return await ctx.transaction("pay", pay)

    async def why() -> str | None:
        run = await app.get("o-1")
        assert run is not None
        return None if run.held is None else run.held.message

    async with Outlast(url, workflows=[shop]) as app:
        await app.start(shop, id="o-1")
        assert "Make it a plain function" in (await until_awaited(why, "the run to be held") or "")

    await asyncio.to_thread(Tables(url), "update {runs} set due_at = 0")
    async with source_on(url, "AsyncEngine") as source, Outlast(source.database, workflows=[shop]) as app:
        assert await app.result("o-1", timeout="20s") == "paid"


async def test_a_lambda_may_hand_on_an_async_function_whatever_transactions_there_are(postgres_url: str) -> None:
    """A plain function is tried with a transaction that blocks; what it gives to await then gets one that is awaited."""
    make_table(postgres_url)

    async def pay(tx: Any) -> str:
        await tx.execute("insert into payments values ('o-1', 'asyncpg')")
        return "paid"

    @workflow("shop")
    async def shop(ctx: Context) -> str:
        return await ctx.transaction("pay", lambda tx: pay(tx), retry=False)  # noqa: PLW0108  the lambda is the case

    async with Outlast(postgres_url, workflows=[shop]) as app:
        assert await app.start_and_wait(shop, wait="20s") == "paid"

    assert payments(postgres_url) == [("o-1", "asyncpg")]
