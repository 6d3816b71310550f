"""A transaction that stays open elsewhere keeps every row that was there: vacuum may not take a dead one away, and no index
scan may mark it. Claims wade through what has passed since, but page by page, and are as before once it has ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from outlast.ports.store import ClaimRequest
from outlast.stores.databases.compiling import FOR_POSTGRESQL
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database
from outlast.testing.contract.desk import new_run
from support.history import MANY, A

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

PASSED = 20_000

_PASS = f"""
insert into outlast.runs
  (id, workflow, version, status, priority, input, ready, due_at, stop_unseen, signal_cursor, turns, lapses,
   created_at, updated_at)
select 'passed-' || g, 'work', 1, 'pending', 0, '1', 1, g, 0, 0, 0, 0, g, g from generate_series(1, {PASSED}) g;
update outlast.runs set ready = 0, due_at = null, owner = 'b', status = 'running', turns = 1 where id like 'passed-%';
update outlast.runs set owner = null, due_at = created_at, status = 'suspended' where id like 'passed-%';
update outlast.runs set ready = 0, due_at = null, owner = 'b', status = 'running', turns = 2 where id like 'passed-%';
update outlast.runs set owner = null, status = 'completed', output = '1', finished_at = 1 where id like 'passed-%'
"""
"""Runs that were claimed, slept, were claimed again and ended: four dead versions of each, two of them in an index."""

_PAGES = """
select sum(pg_relation_size(oid)) / current_setting('block_size')::bigint from pg_class
where oid in ('outlast.runs'::regclass, 'outlast.runs_ready'::regclass, 'outlast.runs_sleeping'::regclass)
"""


@pytest.fixture
def database(postgres_url: str) -> Iterator[SqlDatabase]:
    database = open_database(postgres_url)
    database.migrate_blocking()
    database.run_blocking(lambda: database.store.register(A.worker, lease_us=600_000_000, host=""))
    database.run_blocking(lambda: database.store.start([new_run(f"ready-{n}") for n in range(MANY)]))
    yield database
    database.close_blocking()


async def test_a_claim_under_a_snapshot_that_stays_open_reads_no_more_pages_than_there_are(
    postgres_url: str, database: SqlDatabase
) -> None:
    reporting: Connection = await asyncpg.connect(postgres_url)
    working: Connection = await asyncpg.connect(postgres_url)
    # By hand alone, when the test says so.
    await working.execute("alter table outlast.runs set (autovacuum_enabled = off)")
    usual = await _pages_read_to_find_runs(database)
    await reporting.execute("begin isolation level repeatable read; select from outlast.runs")

    await working.execute(_PASS)
    await working.execute("vacuum outlast.runs")

    # So the history does what it should: there is something to wade through.
    assert 10 * usual < await _pages_read_to_find_runs(database) <= await working.fetchval(_PAGES)

    await reporting.execute("commit")
    await working.execute("vacuum outlast.runs")

    assert await _pages_read_to_find_runs(database) < 10 * usual
    await working.close()
    await reporting.close()


async def _pages_read_to_find_runs(database: SqlDatabase) -> int:
    """Explain a claim on a connection of ours, undo it, and return how many pages its two scans touched."""
    statement = next(database.store.claim(ClaimRequest(A, MANY, (("work", 1),), {})))
    params: Any = statement.params
    compiled = FOR_POSTGRESQL.compiled(statement.sql)
    road: Any = database._road
    connection: Connection = await road._pools._connect()
    await connection.execute("begin")
    explain = f"explain (analyze, buffers, format json) {compiled.text}"
    plan = json.loads(await connection.fetchval(explain, *compiled.arguments(params)))[0]["Plan"]
    await connection.execute("rollback")
    await connection.close()
    assert plan["Actual Rows"] == MANY
    return sum(_pages(plan))


def _pages(plan: Mapping[str, Any]) -> Iterator[int]:
    if plan.get("Index Name") in {"runs_ready", "runs_sleeping"}:
        yield plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    for part in plan.get("Plans", ()):
        yield from _pages(part)
