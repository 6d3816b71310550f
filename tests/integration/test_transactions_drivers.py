"""Connections of drivers that are set up in ways of their own: ours are the same statements on them."""

from __future__ import annotations

import sqlite3
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pytest
from psycopg.types.numeric import IntLoader
from sqlalchemy import make_url

from outlast import Context, NotATransaction, Outlast, Signal, workflow

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


@pytest.mark.parametrize("factory", [bytes, bytearray])
async def test_a_text_factory_of_sqlite_is_the_callers(factory: Any, tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/app.db"
    async with Outlast(url, workflows=[greet], worker=False) as app:
        connection = sqlite3.connect(make_url(url).database or "")
        connection.text_factory = factory
        await use_all_verbs(app, connection)
        assert connection.execute("select 'x'").fetchone() == (factory(b"x"),)
        connection.rollback()
        connection.close()
        assert (await app.list()).runs == ()

        async with aiosqlite.connect(make_url(url).database or "") as awaiting:
            awaiting.text_factory = factory
            await use_all_verbs(app, awaiting)
            await awaiting.commit()
        assert len((await app.list()).runs) == 3


async def test_a_codec_of_asyncpg_that_changes_our_values_is_named(postgres_url: str) -> None:
    """It was said that the connection is on another database, and that has the very same name."""
    async with Outlast(postgres_url, workflows=[greet], worker=False) as app:
        for kind in ("int8", "text"):
            connection = await asyncpg.connect(postgres_url)
            await connection.set_type_codec(
                kind, encoder=str, decoder=lambda value: f"~{value}", schema="pg_catalog", format="text"
            )
            transaction = connection.transaction()
            await transaction.start()
            with pytest.raises(NotATransaction, match="without codecs, loaders or converters") as refused:
                await app.start(greet, "Ada", id="o-1", tx=connection)
            assert "'~" in str(refused.value)
            await transaction.rollback()
            await connection.close()
        assert (await app.list()).runs == ()


async def test_a_loader_of_psycopg_that_changes_our_values_is_named(postgres_url: str) -> None:
    class Loader(IntLoader):
        def load(self, data: Any) -> Any:
            return f"~{bytes(data).decode()}"

    async with Outlast(postgres_url, workflows=[greet], worker=False) as app:
        with psycopg.connect(postgres_url) as connection:
            connection.adapters.register_loader("int8", Loader)
            with pytest.raises(NotATransaction, match=r"outlast reads '~\d+'"):
                await app.start(greet, "Ada", id="o-1", tx=connection)
        assert (await app.list()).runs == ()
