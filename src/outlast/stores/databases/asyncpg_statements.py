"""Statements on raw connections of asyncpg: compiled once, prepared once by the driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import TextClause
from sqlalchemy.sql.selectable import SelectBase

from outlast.ports.operation import Result, Statement
from outlast.stores.databases.compiling import FOR_POSTGRESQL

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]


async def execute(connection: Connection, statement: Statement) -> Result:
    """Execute one statement on a raw connection, ours or a caller's."""
    compiled = FOR_POSTGRESQL.compiled(statement.sql)
    params = statement.params
    if not isinstance(params, Mapping):
        await connection.executemany(compiled.text, compiled.rows_of_arguments(params))
        return Result()
    arguments = compiled.arguments(params)
    if isinstance(statement.sql, SelectBase | TextClause):
        rows: list[Any] = await connection.fetch(compiled.text, *arguments)
        return Result(rows)
    return Result(affected=_affected(await connection.execute(compiled.text, *arguments)))


def _affected(status: str) -> int:
    """Read the count from a command's tag, such as `INSERT 0 1` or `UPDATE 3`."""
    count = status.rpartition(" ")[2]
    return int(count) if count.isdigit() else -1
