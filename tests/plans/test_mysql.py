"""The hot statements read what they need and no more on MySQL and MariaDB too, whatever the statistics say.

With 200,000 finished and 20,000 sleeping runs behind them; once with statistics that nobody renewed, once with fresh ones.
The servers count the rows and index entries that a statement reads, so no plan has to be understood.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import text

from outlast.ports.operation import Statement
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.mysql_link import MySQLLink
from outlast.stores.databases.opening import open_database
from support.history import MANY, VERBS, Verb, aged_database, history
from support.probing import connect_mysql
from tools.mysql import PrivateMySQL

BOUND = 12 * MANY
"""The most reads of one statement. Temporary tables and sorting count too: each row is read more than once."""

_NUMBERS = "(with recursive n(g) as (select 1 union all select g + 1 from n where g < {n}) select g from n) numbers"
_READS = Statement(
    text(
        "show session status where variable_name like 'Handler_read%' "
        "and variable_name not in ('Handler_read_key', 'Handler_read_rnd_deleted')"
    )
)


@pytest.fixture(scope="module", params=["stale statistics", "fresh statistics"])
def aged_url(request: pytest.FixtureRequest, mysqlish: PrivateMySQL) -> Iterator[str]:
    url = mysqlish.create_database()
    database = open_database(url)
    database.migrate_blocking()
    database.close_blocking()
    with connect_mysql(url) as connection, connection.cursor() as cursor:
        cursor.execute("set session " + _DEPTH[mysqlish.name])
        for table in ("runs", "journal", "waits", "signals", "workers"):
            cursor.execute(f"alter table outlast_{table} stats_auto_recalc = 0")
        for statement in history("outlast_", series=_NUMBERS):
            # MySQL writes text with concat.
            cursor.execute(_with_concat(statement))
        if request.param == "fresh statistics":
            cursor.execute("analyze table outlast_runs, outlast_journal, outlast_waits, outlast_signals")
    yield url
    mysqlish.drop_database(url)


_DEPTH = {"MySQL": "cte_max_recursion_depth = 1000000", "MariaDB": "max_recursive_iterations = 1000000"}


def _with_concat(statement: str) -> str:
    for prefix in ("ended-", "sleeping-", "topic-", "d", "s"):
        for name in ("g", "k"):
            statement = statement.replace(f"'{prefix}' || {name}", f"concat('{prefix}', {name})")
    return statement.replace("'topic-old-' || (g % 100)", "concat('topic-old-', g % 100)")


@pytest.mark.time_limit(240)
@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())
async def test_no_statement_reads_more_than_the_operation_is_about(aged_url: str, verb: Verb) -> None:
    async with aged_database(aged_url) as database:
        road: Any = database._road
        link: MySQLLink = await road._pools._connect()
        read: list[tuple[int, str]] = []
        try:
            await link.say("start transaction")
            op = verb(database.store)
            statement = next(op)
            while True:
                before = await _reads(link)
                result = await link.perform(statement)
                read.append((await _reads(link) - before, str(statement.sql)))
                statement = op.send(result)
        except StopIteration:
            pass
        finally:
            await link.say("rollback")
            await link.close()
            await _forget(database)

        most, sql = max(read)
        assert most <= BOUND, sql


async def _reads(link: MySQLLink) -> int:
    found = await link.perform(_READS)
    return sum(int(row[1]) for row in found.rows)


async def _forget(database: SqlDatabase) -> None:
    """Take away what this test put there, and leave the history."""
    road: Any = database._road
    link: MySQLLink = await road._pools._connect()
    await link.say(
        "delete from outlast_runs where created_at > 1000000",
        "delete from outlast_workers",
        "delete from outlast_waits where topic like 'topic-old-%' or topic = 'topic'",
    )
    await link.close()
