"""Statements on a connection of Django's, whatever driver is below it.

They go through Django's own cursor: it quotes as its driver wants, shows them to query logs, and refuses them in a
transaction that Django holds for broken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy.dialects.postgresql import psycopg
from sqlalchemy.dialects.sqlite import pysqlite

from outlast.ports.operation import Result, Statement
from outlast.stores.databases.compiling import Compiler
from outlast.stores.databases.mysql_statements import FOR_MYSQL, MOST, expanded, is_long, refuse_oversized

# Django's cursors take `%s` on every database. psycopg's casts (`%s::VARCHAR`) suit psycopg2 too.
_COMPILERS: Final[Mapping[str, Compiler]] = {
    "postgresql": Compiler(
        psycopg.dialect(paramstyle="format")  # type: ignore[no-untyped-call]  # untyped in SQLAlchemy
    ),
    "sqlite": Compiler(pysqlite.dialect(paramstyle="format")),
    "mysql": FOR_MYSQL,
}


def execute(connection: Any, statement: Statement) -> Result:  # noqa: ANN401 - a DatabaseWrapper of Django's
    """Execute one statement in whatever transaction the connection is in."""
    compiled = _COMPILERS[connection.vendor].compiled(statement.sql)
    params = statement.params
    with connection.cursor() as cursor:
        if connection.vendor == "mysql" and is_long(statement):
            cursor.execute(MOST)
            refuse_oversized(statement, cursor.fetchone()[0])
        if not isinstance(params, Mapping):
            cursor.executemany(compiled.text, compiled.rows_of_arguments(params))
            return Result(affected=cursor.rowcount)
        if connection.vendor == "mysql":
            text, arguments = expanded(compiled, params)
        else:
            text, arguments = compiled.text, compiled.arguments(params)
        cursor.execute(text, arguments or None)
        rows: list[Any] = cursor.fetchall() if cursor.description is not None else []
        return Result(rows, cursor.rowcount)
