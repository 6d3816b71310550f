"""Statements on raw connections to MySQL and MariaDB: asyncmy's, aiomysql's, PyMySQL's, ours or a caller's."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy.dialects.mysql import pymysql

from outlast.errors import ValueNotStorable
from outlast.ports.operation import Result, Statement
from outlast.stores.databases.compiling import Compiler

FOR_MYSQL: Final = Compiler(pymysql.dialect())
"""With `%s`, as all drivers for MySQL take it."""


async def execute_awaiting(connection: Any, statement: Statement, cursors: Any) -> Result:  # noqa: ANN401 - either driver's
    """Execute one statement. `cursors` is the driver's plain class of cursors: the caller's connection may have another."""
    compiled = FOR_MYSQL.compiled(statement.sql)
    params = statement.params
    async with connection.cursor(cursors) as cursor:
        if not isinstance(params, Mapping):
            await cursor.executemany(compiled.text, compiled.rows_of_arguments(params))
            return Result(affected=cursor.rowcount)
        await cursor.execute(compiled.text, compiled.arguments(params))
        if cursor.description is None:
            return Result(affected=cursor.rowcount)
        rows: Sequence[Any] = await cursor.fetchall()
        return Result(rows, cursor.rowcount)


def execute(connection: Any, statement: Statement, cursors: Any) -> Result:  # noqa: ANN401 - the driver may be missing
    """The same on a blocking connection."""
    compiled = FOR_MYSQL.compiled(statement.sql)
    params = statement.params
    with contextlib.closing(connection.cursor(cursors)) as cursor:
        if not isinstance(params, Mapping):
            cursor.executemany(compiled.text, compiled.rows_of_arguments(params))
            return Result(affected=cursor.rowcount)
        cursor.execute(compiled.text, compiled.arguments(params))
        if cursor.description is None:
            return Result(affected=cursor.rowcount)
        rows: Sequence[Any] = cursor.fetchall()
        return Result(rows, cursor.rowcount)


def refuse_oversized(statement: Statement, most: int) -> None:
    """Raise ValueNotStorable for a statement that the server would cut the connection for. `most` is max_allowed_packet."""
    params = statement.params
    for row in (params,) if isinstance(params, Mapping) else params:
        # Written as a literal a character takes two bytes, or up to four as UTF-8: most are settled without a closer look.
        length = sum(len(value) for value in row.values() if isinstance(value, str))
        if length * 4 < most - _ROOM:
            continue
        size = sum(_written(value) for value in row.values() if isinstance(value, str))
        if size > most - _ROOM:
            raise ValueNotStorable(
                f"A value of {size:,} bytes",
                f"the server takes at most max_allowed_packet = {most:,} bytes in one statement. Store less (a reference to "
                "where the data lies), or raise max_allowed_packet.",
            )


_ROOM: Final = 16_384
"""Bytes for the statement's own text and the numbers in it."""


def _written(value: str) -> int:
    return len(value.encode(errors="surrogatepass")) + sum(value.count(character) for character in "\\'\"\n\r\0\x1a")
