"""Statements on psycopg's connections, ours or a caller's, of either colour."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from outlast.ports.operation import Result, Statement
from outlast.stores.databases.compiling import FOR_POSTGRESQL

if TYPE_CHECKING:
    import psycopg


def execute(connection: psycopg.Connection[Any], statement: Statement) -> Result:
    """Execute one statement on a blocking connection."""
    driver: Any = _driver()
    text, arguments = _sent(statement)
    # A cursor of our own making: the caller's connection may make something else of its rows, or quote on this side.
    with driver.RawCursor(connection, row_factory=driver.rows.tuple_row) as cursor:
        if isinstance(statement.params, Mapping):
            cursor.execute(text, arguments)
            if connection.pgconn.pipeline_status:
                _answered(connection)
            return Result(cursor.fetchall() if cursor.description is not None else (), cursor.rowcount)
        cursor.executemany(text, arguments)
        if connection.pgconn.pipeline_status:
            _answered(connection)
        return Result(affected=cursor.rowcount)


async def execute_awaiting(connection: psycopg.AsyncConnection[Any], statement: Statement) -> Result:
    """Execute one statement on an awaiting connection."""
    driver: Any = _driver()
    text, arguments = _sent(statement)
    async with driver.AsyncRawCursor(connection, row_factory=driver.rows.tuple_row) as cursor:
        if isinstance(statement.params, Mapping):
            await cursor.execute(text, arguments)
            if connection.pgconn.pipeline_status:
                await _answered_awaiting(connection)
            return Result(await cursor.fetchall() if cursor.description is not None else (), cursor.rowcount)
        await cursor.executemany(text, arguments)
        if connection.pgconn.pipeline_status:
            await _answered_awaiting(connection)
        return Result(affected=cursor.rowcount)


def _answered(connection: psycopg.Connection[Any]) -> None:
    """Wait for the answers in a caller's pipeline, where a statement may not even have been sent yet."""
    with connection.pipeline() as pipeline:
        pipeline.sync()


async def _answered_awaiting(connection: psycopg.AsyncConnection[Any]) -> None:
    async with connection.pipeline() as pipeline:
        await pipeline.sync()


def _sent(statement: Statement) -> tuple[str, Sequence[Any]]:
    compiled = FOR_POSTGRESQL.compiled(statement.sql)
    params = statement.params
    if isinstance(params, Mapping):
        return compiled.text, compiled.arguments(params)
    return compiled.text, compiled.rows_of_arguments(params)


@cache
def _driver() -> Any:  # noqa: ANN401 - a module that may not be installed
    return importlib.import_module("psycopg")
