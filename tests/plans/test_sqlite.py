"""The hot statements go by an index on SQLite too, with and without statistics."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.stores.databases import sqlite_connection
from outlast.stores.databases.compiling import FOR_SQLITE
from outlast.stores.databases.opening import open_database
from support.history import VERBS, Verb, aged_database, history

# Read in their order, up to a limit or to the first row.
IN_ORDER = ("outlast_runs_ready", "outlast_runs_sleeping", "outlast_runs_created", "outlast_runs_status")
# The index of runs that have a worker holds nothing else.
SMALL = ("outlast_runs_owned", "outlast_workers")


@pytest.fixture(scope="module", params=["no statistics", "fresh statistics"])
def aged_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    file = tmp_path_factory.mktemp("aged") / "outlast.db"
    database = open_database(f"sqlite:///{file}")
    database.migrate_blocking()
    database.close_blocking()
    with sqlite3.connect(file) as connection:
        numbers = "(with recursive n(g) as (select 1 union all select g + 1 from n where g < {n}) select g from n)"
        for statement in history("outlast_", series=numbers):
            connection.execute(statement)
        if request.param == "fresh statistics":
            connection.execute("analyze")
    connection.close()
    yield file
    file.unlink()


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())
async def test_no_statement_reads_a_whole_table(aged_file: Path, verb: Verb) -> None:
    async with aged_database(f"sqlite:///{aged_file}") as database:
        scans: list[str] = []
        with sqlite3.connect(aged_file, isolation_level=None) as connection:
            connection.execute("begin immediate")
            op = verb(database.store)
            try:
                statement = next(op)
                while True:
                    scans += _scans(connection, FOR_SQLITE.compiled(statement.sql).text)
                    statement = op.send(sqlite_connection.execute(connection, statement))
            except StopIteration:
                pass
            finally:
                connection.execute("rollback")
                connection.execute("delete from outlast_runs where created_at > 1000000")
                connection.execute("delete from outlast_workers")
                connection.execute("delete from outlast_waits where topic like 'topic-old-%' or topic = 'topic'")
        connection.close()

        assert scans == []


def _scans(connection: sqlite3.Connection, text: str) -> list[str]:
    """Return the steps of a plan that read a table, or an index of all runs, from end to end."""
    plan = connection.execute(f"explain query plan {text}", [None] * text.count("?")).fetchall()
    steps = [str(row[3]) for row in plan]
    reads = [step for step in steps if step.startswith("SCAN ") and "outlast_" in step]
    return [step for step in reads if not any(name in step for name in (*IN_ORDER, *SMALL))]
