"""What the page on production deletes is over, and what it leaves goes on."""

from __future__ import annotations

import re
import types
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from outlast import Context, Outlast, Signal, workflow
from support.callers import blocking_engine
from support.project import ROOT

pytestmark = pytest.mark.every_database
PAGE = ROOT / "docs" / "how-to" / "production.md"
poked = Signal("poked", str)


@workflow("one-word")
async def one_word(ctx: Context) -> str:
    return await ctx.wait_for("word", ctx.signal(poked)) or ""


@pytest.fixture
def page() -> types.ModuleType:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (program,) = (block for block in blocks if "def delete_ended" in block)
    module = types.ModuleType("production_page")
    exec(compile(program, str(PAGE), "exec", dont_inherit=True), module.__dict__)  # the project's own page
    return module


async def test_what_has_ended_is_deleted_and_what_has_not_goes_on(
    page: types.ModuleType, shared_database_url: str
) -> None:
    tables = "outlast." if shared_database_url.startswith("postgresql") else "outlast_"
    engine = blocking_engine(shared_database_url)
    soon = datetime.now(UTC) + timedelta(days=1)
    async with Outlast(shared_database_url, workflows=[one_word], worker=False) as app:
        await app.signal(poked, "too early for all")
        await app.start(one_word, id="first")
        await app.signal(poked, "for both")
        await app.drain()
        await app.start(one_word, id="second")
        await app.drain()

        assert page.delete_old_signals(engine, soon - timedelta(days=2), tables) == 0
        assert page.delete_ended(engine, soon - timedelta(days=2), tables) == 0
        assert page.delete_old_signals(engine, soon, tables) == 2
        assert page.delete_ended(engine, soon, tables) == 1
        assert page.delete_ended(engine, soon, tables) == 0

        assert [run.id for run in (await app.list()).runs] == ["second"]
        with engine.connect() as connection:
            owners = connection.scalars(text(f"select distinct run_id from {tables}journal")).all()
        assert owners == ["second"]
        await app.signal(poked, "for the second")
        await app.drain()
        assert await app.result("second") == "for the second"
    engine.dispose()


async def test_a_signal_that_a_run_may_still_take_is_left(page: types.ModuleType, shared_database_url: str) -> None:
    tables = "outlast." if shared_database_url.startswith("postgresql") else "outlast_"
    engine = blocking_engine(shared_database_url)
    async with Outlast(shared_database_url, workflows=[one_word], worker=False) as app:
        await app.start(one_word, id="first")
        await app.signal(poked, "kept")

        assert page.delete_old_signals(engine, datetime.now(UTC) + timedelta(days=1), tables) == 0

        await app.drain()
        assert await app.result("first") == "kept"
    engine.dispose()
