"""Old and new code on one database: work goes to who has its code, and waits where nobody has."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from outlast import Context, Outlast, Status, WorkerOptions, step, workflow

WORKER = WorkerOptions(poll="50ms", concurrency=20)


@step
async def greet(name: str) -> str:
    return f"Hello, {name}"


@workflow("greeting")
async def greeting(ctx: Context, name: str) -> str:
    return await greet(name)


@workflow("greeting", version=2)
async def greeting_twice(ctx: Context, name: str) -> str:
    return f"{await greet(name)}. {await greet.named('again')(name)}"


@step
async def part(name: str) -> str:
    return f"Bye, {name}"


@workflow("parting")
async def parting(ctx: Context, name: str) -> str:
    return await part(name)


OLD = [greeting]
NEW = [greeting, greeting_twice, parting]


@asynccontextmanager
async def deployed(url: str, workflows: Sequence[object]) -> AsyncGenerator[Outlast, None]:
    async with Outlast(url, workflows=workflows, worker=WORKER) as app:
        yield app


async def test_an_old_worker_leaves_new_work_alone(shared_database_url: str) -> None:
    """Seen in the field: it took runs whose code it had not, and failed them or used up their attempts."""
    async with (
        deployed(shared_database_url, OLD) as old,
        deployed(shared_database_url, NEW) as new,
        Outlast(shared_database_url, workflows=NEW, worker=False) as client,
    ):
        started = [
            *await client.start_many(parting, [f"{n}" for n in range(30)], ids=[f"p{n}" for n in range(30)]),
            *await client.start_many(greeting_twice, [f"{n}" for n in range(30)], ids=[f"g{n}" for n in range(30)]),
        ]
        mixed = await client.start_many(
            greeting, [f"{n}" for n in range(30)], ids=[f"o{n}" for n in range(30)], version=1
        )

        ends = [await handle.result(timeout="30s") for handle in (*started, *mixed)]

        assert ends == [
            *(f"Bye, {n}" for n in range(30)),
            *(f"Hello, {n}. Hello, {n}" for n in range(30)),
            *(f"Hello, {n}" for n in range(30)),
        ]
        found = [await client.get(handle.id) for handle in started]
        assert {(run.turns, run.lapses) for run in found if run is not None} == {(1, 0)}, "nobody else took them"
        assert old is not new


async def test_new_work_waits_where_only_old_workers_are_left(shared_database_url: str) -> None:
    async with Outlast(shared_database_url, workflows=NEW, worker=False) as client:
        async with deployed(shared_database_url, OLD) as old:
            handle = await client.start(parting, "Ada", id="waits")
            assert await old.start_and_wait(greeting, "Ada", version=1) == "Hello, Ada"

            waiting = await client.get("waits")
            assert waiting is not None
            assert (waiting.status, waiting.turns, waiting.worker) == (Status.PENDING, 0, None)

        async with deployed(shared_database_url, NEW):
            assert await handle.result(timeout="30s") == "Bye, Ada"
