"""Arguments at their edges: what is empty, left out, or of another kind than a verb takes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from outlast import Context, Outlast, workflow
from outlast.client.access import Access
from outlast.client.blocking import BlockingClient
from outlast.client.calls import Calls
from outlast.client.catalog import Catalog
from outlast.client.publishing import Publishing
from outlast.client.standing import waits_for
from outlast.errors import InvalidArgument
from outlast.events.routes import Routes
from outlast.model.ids import RunId
from outlast.testing import ManualClock
from support.fake_database import FakeDatabase


@workflow("counting")
async def counting(ctx: Context, up_to: int | None = 3) -> int | None:
    return up_to


@workflow("mailing")
class Mailing:
    async def run(self, ctx: Context, to: str | None = None) -> str | None:
        return to


@workflow("demanding")
async def demanding(ctx: Context, up_to: int) -> int:
    return up_to


@pytest.fixture
def database() -> FakeDatabase:
    return FakeDatabase()


@pytest.fixture
def client(database: FakeDatabase) -> BlockingClient:
    calls = Calls(cast("Any", database.store), Catalog(Outlast(workflows=[counting, Mailing(), demanding])._catalog))
    return BlockingClient(Access(cast("Any", database), migrates=False), calls, Publishing(calls, Routes(())))


def test_a_run_that_is_given_no_input_has_the_default_of_its_code(
    client: BlockingClient, database: FakeDatabase
) -> None:
    client.start(counting, id="a")
    client.start(counting, 5, id="b")
    client.start(Mailing(), id="c")

    inputs = {run_id: database.store.runs[RunId(run_id)].input for run_id in "abc"}
    assert inputs == {"a": "3", "b": "5", "c": "null"}


def test_an_input_without_a_default_must_be_given(client: BlockingClient) -> None:
    wanting: Any = demanding
    with pytest.raises(InvalidArgument, match="'demanding' takes an input, but none was given"):
        client.start(wanting)


def test_a_list_of_no_status_is_empty_and_asks_nobody(client: BlockingClient, database: FakeDatabase) -> None:
    client.start(counting, 5)
    page = client.list(status=[])
    assert (page.runs, page.cursor) == ((), None)
    assert database.store.filters == []


@pytest.mark.parametrize(
    "values, ids",
    [(5, None), ("ab", None), ({"a": 1}, None), (None, None), ([1, 2], "ab"), ([1], 5)],
)
def test_many_runs_are_started_from_lists_alone(
    client: BlockingClient, database: FakeDatabase, values: Any, ids: Any
) -> None:
    with pytest.raises(InvalidArgument, match="must be a list, one item for each run"):
        client.start_many(counting, values, ids=ids)
    assert database.store.runs == {}


@pytest.mark.parametrize("version", [True, "1", 1.0])
def test_a_version_is_a_whole_number(client: BlockingClient, version: Any) -> None:
    with pytest.raises(InvalidArgument, match="version is a whole number"):
        client.start(counting, version=version)


@pytest.mark.parametrize(
    "options, told",
    [
        ({"clock": 5}, "clock is a clock such as outlast.testing.ManualClock"),
        ({"migrate": "no"}, "migrate is True, False or, for what OUTLAST_ENV says, None; 'no' is not"),
        ({"migrate": 0}, "migrate is True, False"),
    ],
)
def test_an_app_says_which_option_is_of_another_kind(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        Outlast("sqlite://", **options)


def test_a_clock_is_set_to_a_datetime() -> None:
    wrong: Any = "2027-01-01"
    with pytest.raises(InvalidArgument, match=r"must be an aware datetime, .* not str"):
        ManualClock().set(wrong)


async def test_a_run_that_has_long_been_due_waits_for_a_worker() -> None:
    @workflow("napping", version=2)
    async def napping(ctx: Context) -> None:
        await ctx.sleep("nap", "1h")

    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    async with Outlast("sqlite://", workflows=[napping], worker=False, clock=clock) as app:
        handle = await app.start(napping)
        await app.drain()
        run = await app.get(handle.id, journal=True)
    assert run is not None
    assert run.due_at is not None
    assert waits_for(run, run.due_at + timedelta(seconds=10)) == "the end of sleep 'nap' at 2026-01-01 01:00:00 UTC"
    assert waits_for(run, run.due_at + timedelta(seconds=11)) == (
        "a worker that registers workflow 'napping' version 2 and has a free slot: it has been due since "
        "2026-01-01 01:00:00 UTC"
    )
