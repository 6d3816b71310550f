"""The hot statements read what they need and no more, whatever the planner knows of the tables.

With 200,000 finished and 20,000 sleeping runs behind them; once with the statistics of empty tables, once with fresh ones.
Each statement is planned as a connection of ours plans it and run, and no step of its plan may touch more rows than the
operation is about.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine

from outlast.ports.operation import Statement
from outlast.stores.databases import asyncpg_statements
from outlast.stores.databases.compiling import FOR_POSTGRESQL
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database
from support.history import MANY, VERBS, Verb, aged_database, history
from tools.postgres import PrivatePostgres

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

BOUND = 4 * MANY
"""The most rows that any step of a plan may touch."""


@pytest.fixture(scope="module", params=["stale statistics", "fresh statistics"])
def aged_url(request: pytest.FixtureRequest, postgres: PrivatePostgres) -> Iterator[str]:
    url = postgres.create_database()
    database = open_database(url)
    database.migrate_blocking()
    database.close_blocking()
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for table in ("runs", "journal", "waits", "signals", "workers"):
            connection.exec_driver_sql(f"alter table outlast.{table} set (autovacuum_enabled = off)")
            connection.exec_driver_sql(f"analyze outlast.{table}")
        for statement in history("outlast.", series="generate_series(1, {n}) g"):
            connection.exec_driver_sql(statement.replace("%", "%%"))
        if request.param == "fresh statistics":
            connection.exec_driver_sql("vacuum analyze")
    engine.dispose()
    yield url
    postgres.drop_database(url)


@pytest.mark.time_limit(240)
@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())
async def test_no_step_of_a_plan_touches_more_than_the_operation_is_about(aged_url: str, verb: Verb) -> None:
    async with aged_database(aged_url) as database:
        road: Any = database._road
        connection: Connection = await road._pools._connect()
        touched: list[tuple[int, str]] = []
        try:
            await connection.execute("begin")
            op = verb(database.store)
            statement = next(op)
            while True:
                touched += await _touched(connection, statement)
                statement = op.send(await asyncpg_statements.execute(connection, statement))
        except StopIteration:
            pass
        finally:
            await connection.execute("rollback")
            await connection.close()
            await _forget(database)

        most, step_of_plan = max(touched)
        assert most <= BOUND, step_of_plan


async def _touched(connection: Connection, statement: Statement) -> list[tuple[int, str]]:
    """Run a statement as it is planned without knowing its arguments, undo it, and tell what each step touched."""
    compiled = FOR_POSTGRESQL.compiled(statement.sql)
    arguments = ", ".join(_literal(value) for value in compiled.arguments(_mapping(statement)))
    await connection.execute(f"savepoint looked; prepare looked as {compiled.text}")
    call = f"looked({arguments})" if arguments else "looked"
    shown = await connection.fetchval(f"explain (analyze, format json) execute {call}")
    await connection.execute("rollback to looked; deallocate looked")
    return list(_steps(json.loads(shown)[0]["Plan"]))


def _mapping(statement: Statement) -> Mapping[str, object]:
    assert isinstance(statement.params, Mapping)
    return statement.params


def _steps(plan: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    kept = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Join Filter", 0)
    named = {name: plan[name] for name in _TOLD if name in plan}
    yield int(kept * plan["Actual Loops"]), f"{kept * plan['Actual Loops']:,.0f} rows: {named}"
    for part in plan.get("Plans", ()):
        yield from _steps(part)


_TOLD = ("Node Type", "Index Name", "Relation Name", "Filter", "Index Cond")


def _literal(value: object) -> str:
    """Write a value without a type, as a parameter has none: the statement says what it is."""
    if value is None:
        return "null"
    text = "{" + ", ".join(map(_element, value)) + "}" if isinstance(value, list) else str(value)
    return "'" + text.replace("'", "''") + "'"


def _element(value: object) -> str:
    return "null" if value is None else json.dumps(str(value))


async def _forget(database: SqlDatabase) -> None:
    """Take away what this test put there, and leave the history."""
    road: Any = database._road
    connection: Connection = await road._pools._connect()
    await connection.execute("delete from outlast.runs where created_at > 1000000; delete from outlast.workers")
    await connection.execute("delete from outlast.waits where topic like 'topic-old-%' or topic = 'topic'")
    await connection.close()
