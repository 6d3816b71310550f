"""Connections of drivers that are set up in ways of their own: ours are the same statements on them."""

from __future__ import annotations

from typing import Any

import psycopg

from outlast import Context, Outlast, Signal, workflow

poked = Signal("poked", str)


@workflow("greet")
async def greet(ctx: Context, name: str) -> str:
    return f"Hello, {name}"


async def use_all_verbs(app: Outlast, tx: Any) -> None:
    """Start one run, the same again and some together; signal, and cancel."""
    assert (await app.start(greet, "Ada", id="o-1", tx=tx)).created
    assert not (await app.start(greet, "Ada", id="o-1", tx=tx)).created
    started = await app.start_many(greet, ["Ada", "Bob"], tx=tx)
    assert [run.created for run in started] == [True, True]
    await app.signal(poked, "x", key="k", id="s-1", tx=tx)
    assert (await app.cancel("o-1", tx=tx)).accepted


async def test_a_pipeline_of_psycopg_is_waited_for(postgres_url: str) -> None:
    """Its statements are sent together, and none is answered before that."""
    async with Outlast(postgres_url, workflows=[greet], worker=False) as app:
        with psycopg.connect(postgres_url) as connection, connection.pipeline():
            connection.execute("select 1")
            await use_all_verbs(app, connection)
            connection.rollback()
        assert (await app.list()).runs == ()

        async with await psycopg.AsyncConnection.connect(postgres_url) as awaiting, awaiting.pipeline():
            await use_all_verbs(app, awaiting)
        assert len((await app.list()).runs) == 3
