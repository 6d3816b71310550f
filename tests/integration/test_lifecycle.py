"""An app from its making to its closing: before, between and after, on one loop and on several."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from outlast import (
    AppClosed,
    Context,
    DefinitionError,
    InvalidArgument,
    InvalidName,
    Outlast,
    Retry,
    SchemaBehind,
    Signal,
    Status,
    StepFailed,
    WorkerOptions,
    step,
    workflow,
)
from outlast.testing import ManualClock
from support.callers import awaiting_engine, blocking_engine
from support.colours import parked

pytestmark = pytest.mark.every_database
poked = Signal("poked", None)


@step
async def greeting(name: str) -> str:
    return f"Hello, {name}"


@workflow("greet")
async def greet(ctx: Context, name: str) -> str:
    return await greeting(name)


@workflow("wait")
async def wait(ctx: Context) -> str:
    await ctx.wait_for("poke", ctx.signal(poked))
    return "poked"


@workflow("served")
class Served:
    """A workflow with a service that the application gives it."""

    def __init__(self, greeting: str) -> None:
        self.greeting = greeting

    async def run(self, ctx: Context, name: str) -> str:
        return f"{self.greeting}, {name}"


@workflow("alone")
class Alone:
    async def run(self, ctx: Context) -> str:
        return "alone"


@workflow("lost")
async def lost(ctx: Context, value: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable]


def app_of(url: object, **options: Any) -> Outlast:
    return Outlast(url, workflows=[greet, wait], **options)


# Making one.


def test_an_app_says_how_many_workflows_it_has() -> None:
    assert repr(Outlast("sqlite://", workflows=[greet])) == "<Outlast with 1 workflow>"
    assert repr(Outlast("sqlite://")) == "<Outlast with 0 workflows>"


def test_an_app_tells_which_database_and_which_workflows_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    many = [workflow("greet", version=number)(greet.function) for number in range(1, 13)]

    assert Outlast("sqlite:///shop.db").place == f"sqlite:///{tmp_path}/shop.db"
    assert Outlast("sqlite:////tmp/shop.db").place == "sqlite:////tmp/shop.db"
    assert Outlast("sqlite://").place == "sqlite:///"
    assert Outlast("postgresql://ada:secret@db/shop?sslmode=require").place == "postgresql://ada:***@db/shop"
    assert Outlast("sqlite://").registered == "none"
    listed = ", ".join(f"greet version {number}" for number in range(1, 11))
    assert Outlast("sqlite://", workflows=many[:10]).registered == listed
    assert Outlast("sqlite://", workflows=many).registered == f"{listed} and 2 more"


def test_making_an_app_touches_nothing_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    Outlast(workflows=[greet])
    Outlast("postgresql://nobody@host.invalid/nothing")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options, error",
    [
        ({"workflows": [greet, greet]}, DefinitionError),
        ({"workflows": [len]}, DefinitionError),
        ({"workflows": [Served]}, DefinitionError),
        ({"database": "mongodb://x"}, InvalidArgument),
        ({"database": 7}, InvalidArgument),
        ({"worker": "yes"}, InvalidArgument),
        ({"retry": 3}, InvalidArgument),
        ({"schema": "Robert'); drop table"}, InvalidName),
    ],
)
def test_wrong_arguments_are_refused_when_it_is_made(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        Outlast(**options)


async def test_a_type_that_cannot_be_found_is_told_at_the_start_and_not_in_the_first_run() -> None:
    with pytest.raises(DefinitionError, match="Nowhere"):
        async with Outlast("sqlite://", workflows=[lost]):
            pass


class Basket:
    """A plain class, which nobody can store."""


@workflow("plain-input")
async def plain_input(ctx: Context, value: Basket) -> None: ...


@workflow("plain-output")
async def plain_output(ctx: Context) -> list[Basket]:
    return []


@pytest.mark.parametrize("one, place", [(plain_input, "input"), (plain_output, "output")])
def test_a_type_that_can_never_be_stored_is_told_when_the_app_is_made(one: object, place: str) -> None:
    with pytest.raises(DefinitionError, match=f"The {place} of workflow 'plain-{place}' is annotated with Basket"):
        Outlast("sqlite://", workflows=[one])


async def test_instances_bring_their_services_and_classes_that_need_none_may_be_passed(database_url: str) -> None:
    async with Outlast(database_url, workflows=[Served("Moin"), Alone]) as app:
        assert await app.start_and_wait(Served, "Ada", wait="20s") == "Moin, Ada"
        assert await app.start_and_wait(Alone, wait="20s") == "alone"


async def test_two_apps_live_in_one_process_and_one_database(shared_database_url: str) -> None:
    one = Outlast(shared_database_url, workflows=[Served("Moin")], schema="one")
    two = Outlast(shared_database_url, workflows=[Served("Servus")], schema="two")
    async with one, two:
        assert await one.start_and_wait(Served, "Ada", id="a", wait="20s") == "Moin, Ada"
        assert await two.start_and_wait(Served, "Ada", id="a", wait="20s") == "Servus, Ada"


# Opening and closing.


async def test_it_opens_again_after_it_was_closed(database_url: str) -> None:
    app = app_of(database_url)

    for turn in range(2):
        async with app:
            assert await app.start_and_wait(greet, "Ada", id=f"run-{turn}", wait="20s") == "Hello, Ada"

    assert len(asyncio.all_tasks()) == 1


async def test_opening_it_twice_is_a_mistake_that_is_told(database_url: str) -> None:
    app = app_of(database_url)
    async with app:
        with pytest.raises(DefinitionError, match="open already"):
            async with app:
                pass

        assert await app.start_and_wait(greet, "Ada", wait="20s") == "Hello, Ada"


def test_one_app_serves_consecutive_loops(shared_database_url: str) -> None:
    app = app_of(shared_database_url)

    async def main(run_id: str) -> str:
        async with app:
            return await app.start_and_wait(greet, "Ada", id=run_id, wait="20s")

    assert [asyncio.run(main(run_id)) for run_id in ("a", "b", "c")] == ["Hello, Ada"] * 3


def test_an_app_that_nobody_opened_connects_when_it_is_needed(shared_database_url: str) -> None:
    app = app_of(shared_database_url)

    async def main(run_id: str) -> bool:
        try:
            return (await app.start(greet, "Ada", id=run_id)).created
        finally:
            await app.close()

    assert [asyncio.run(main(run_id)) for run_id in ("a", "a")] == [True, False]


def test_loops_of_several_threads_use_one_app_at_once(shared_database_url: str) -> None:
    app = app_of(shared_database_url)
    created: list[bool] = []

    async def main(number: int) -> None:
        handles = [await app.start(greet, "Ada", id=f"run-{number}-{turn}") for turn in range(5)]
        created.extend(handle.created for handle in handles)
        await app.close()

    app.blocking.migrate()
    threads = [threading.Thread(target=lambda number=number: asyncio.run(main(number))) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    app.blocking.close()

    assert created == [True] * 20


def test_scripts_use_it_without_a_loop_and_migrate_by_themselves(shared_database_url: str) -> None:
    app = app_of(shared_database_url)

    handle = app.blocking.start(greet, "Ada")

    assert app.blocking.get(handle.id) is not None
    app.blocking.close()
    assert app.blocking.list().runs[0].id == handle.id
    app.blocking.close()


def test_the_blocking_side_is_opened_and_closed_as_the_app_is(shared_database_url: str) -> None:
    with app_of(shared_database_url).blocking as client:
        run = client.start(greet, "Ada", id="hello")

        assert run.created

    app = app_of(shared_database_url, migrate=False)
    app.blocking.open()
    assert not app.blocking.start(greet, "Ada", id="hello").created
    app.blocking.close()


def test_opening_the_blocking_side_tells_of_old_tables_and_how_to_mend_them(shared_database_url: str) -> None:
    app = app_of(shared_database_url, migrate=False)

    with pytest.raises(SchemaBehind, match=r"`app\.blocking\.migrate\(\)` in code that does not await"):
        app.blocking.open()

    app.blocking.migrate()
    app.blocking.open()
    app.blocking.close()


def test_an_app_that_was_closed_is_opened_again_by_its_blocking_side(tmp_path: Path) -> None:
    async def use(app: Outlast) -> None:
        async with app:
            await app.start(greet, "Ada", id="hello")

    app = app_of(f"sqlite:///{tmp_path}/app.db")
    asyncio.run(use(app))
    with pytest.raises(AppClosed, match=r"with app\.blocking"):
        app.blocking.get("hello")

    with app.blocking as client:
        assert client.get("hello")


async def test_an_engine_that_the_application_has_already_serves_as_its_database(shared_database_url: str) -> None:
    awaiting, blocking = awaiting_engine(shared_database_url), blocking_engine(shared_database_url)

    async with app_of(awaiting) as app:
        assert await app.start_and_wait(greet, "Ada", id="a", wait="20s") == "Hello, Ada"
    async with app_of(blocking) as app:
        assert await app.result("a", timeout="20s") == "Hello, Ada"

    await awaiting.dispose()
    blocking.dispose()


async def test_who_waits_when_it_is_closed_is_told(database_url: str) -> None:
    app = app_of(database_url)
    async with app:
        handle = await app.start(wait)
        waiting = asyncio.ensure_future(handle.result())
        await parked(app, handle.id)

    with pytest.raises(AppClosed, match="goes on"):
        await waiting


async def test_an_error_inside_closes_it_and_comes_through(database_url: str) -> None:
    app = app_of(database_url)

    with pytest.raises(ZeroDivisionError):
        async with app:
            _ = 1 / 0

    async with app:
        assert await app.start_and_wait(greet, "Ada", wait="20s") == "Hello, Ada"


async def test_nothing_warns_when_it_is_collected(shared_database_url: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()  # what other tests left is their affair
    app = app_of(shared_database_url)
    async with app:
        await app.start_and_wait(greet, "Ada", wait="20s")
        await asyncio.to_thread(app.blocking.list)
        await asyncio.to_thread(app.blocking.close)

    del app
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()


@asynccontextmanager
async def browser(api: FastAPI) -> AsyncGenerator[httpx.AsyncClient, None]:
    """Serve as an ASGI server does: the application's lifespan around all requests."""
    transport = httpx.ASGITransport(api)
    async with (
        api.router.lifespan_context(api),
        httpx.AsyncClient(transport=transport, base_url="http://api") as client,
    ):
        yield client


async def test_it_lives_as_long_as_a_web_application(database_url: str) -> None:
    app = app_of(database_url)
    api = FastAPI(lifespan=app.lifespan)

    @api.get("/{name}")
    async def serve(name: str) -> str:
        return await app.start_and_wait(greet, name, wait="20s")

    async with browser(api) as client:
        assert (await client.get("/Ada")).json() == "Hello, Ada"
    async with browser(api) as client:
        assert (await client.get("/Grace")).json() == "Hello, Grace"


async def test_it_composes_with_a_lifespan_of_the_application(database_url: str) -> None:
    app = app_of(database_url)
    seen: list[str] = []

    @asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncGenerator[None, None]:
        seen.append("resources open")
        async with app.lifespan(api):
            yield
        seen.append("resources close")

    api = FastAPI(lifespan=lifespan)

    @api.get("/{name}")
    async def serve(name: str) -> str:
        return await app.start_and_wait(greet, name, wait="20s")

    async with browser(api) as client:
        seen.append((await client.get("/Ada")).json())

    assert seen == ["resources open", "Hello, Ada", "resources close"]


# With and without a worker.


async def test_without_a_worker_nothing_runs_until_it_is_drained(database_url: str) -> None:
    async with app_of(database_url, worker=False) as app:
        handle = await app.start(greet, "Ada")
        run = await app.get(handle.id)
        assert run is not None
        assert run.status is Status.PENDING

        assert await app.drain() == 1

        assert await handle.result(timeout="0s") == "Hello, Ada"
        assert await app.drain() == 0


async def test_draining_moves_with_the_tests_clock(database_url: str) -> None:
    clock = ManualClock()

    @workflow("nap")
    async def nap(ctx: Context) -> str:
        await ctx.sleep("a-week", "7d")
        return str(ctx.now())

    async with Outlast(database_url, workflows=[nap], worker=False, clock=clock) as app:
        handle = await app.start(nap)
        await app.drain()
        clock.advance("6d")
        assert await app.drain() == 0
        clock.advance("1d")
        assert await app.drain() == 1

        assert await handle.result(timeout="0s") == "2026-01-08 00:00:00+00:00"


async def test_working_runs_a_worker_for_an_app_that_was_made_without_one(database_url: str) -> None:
    app = app_of(database_url, worker=False)

    async with app.working():
        assert await app.start_and_wait(greet, "Ada", wait="20s") == "Hello, Ada"


async def test_the_options_reach_the_worker_and_the_steps(database_url: str) -> None:
    attempts: list[int] = []

    @step
    async def fails() -> None:
        attempts.append(1)
        raise ValueError("no")

    @workflow("stubborn")
    async def stubborn(ctx: Context) -> str:
        try:
            await fails()
        except StepFailed as error:
            return str(error)
        return "never"

    options = WorkerOptions(concurrency=1, shutdown_timeout="1s")
    retry = Retry(attempts=4, delay="1ms")
    async with Outlast(database_url, workflows=[stubborn], worker=options, retry=retry) as app:
        assert "4 attempts" in await app.start_and_wait(stubborn, wait="20s")

    assert len(attempts) == 4


# The tables.


async def test_migrating_says_what_was_applied_and_then_nothing(shared_database_url: str) -> None:
    app = app_of(shared_database_url, migrate=False)

    assert [await app.migrate(), await app.migrate()] == [(1,), ()]

    async with app:
        assert await app.migrate() == ()
        assert await app.start_and_wait(greet, "Ada", wait="20s") == "Hello, Ada"


async def test_production_does_not_migrate_by_itself_and_goes_on_once_somebody_has(
    shared_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_ENV", "production")
    serving = app_of(shared_database_url)
    with pytest.raises(SchemaBehind, match="outlast migrate"):
        async with serving:
            pass
    with pytest.raises(SchemaBehind):
        await serving.start(greet, "Ada")
    with pytest.raises(SchemaBehind):
        await asyncio.to_thread(serving.blocking.start, greet, "Ada")

    assert await app_of(shared_database_url).migrate() == (1,)
    assert await app_of(shared_database_url).migrate() == ()

    assert (await serving.start(greet, "Ada", id="a")).created
    assert not (await asyncio.to_thread(serving.blocking.start, greet, "Ada", id="a")).created
    await asyncio.to_thread(serving.blocking.close)
    await serving.close()


async def test_many_processes_may_open_an_empty_database_at_once(shared_database_url: str) -> None:
    apps = [app_of(shared_database_url, worker=False) for _ in range(8)]

    handles = await asyncio.gather(*(app.start(greet, "Ada", id="a") for app in apps))

    assert sorted(handle.created for handle in handles) == [False] * 7 + [True]
    for app in apps:
        await app.close()
