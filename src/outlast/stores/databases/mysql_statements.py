"""Statements on raw connections to MySQL and MariaDB: asyncmy's, aiomysql's, PyMySQL's, ours or a caller's."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from sqlalchemy.dialects.mysql import pymysql

from outlast.errors import ValueNotStorable
from outlast.ports.operation import Params, Result, Statement
from outlast.stores.databases.compiling import Compiled, Compiler
from outlast.stores.dialects.mysql_sizes import LEAST, is_too_long, remedy

FOR_MYSQL: Final = Compiler(pymysql.dialect())
"""With `%s`, as all drivers for MySQL take it."""


async def execute_awaiting(
    connection: Any,  # noqa: ANN401 - either driver's
    statement: Statement,
    cursors: Any,  # noqa: ANN401 - the same
    *,
    after: str | None = None,
) -> Result:
    """Execute one statement. `cursors` is the driver's plain class of cursors: the caller's connection may have another.

    after: text without arguments and rows that comes before it, in the same round trip where that can be.
    """
    compiled = FOR_MYSQL.compiled(statement.sql)
    params = statement.params
    async with connection.cursor(cursors) as cursor:
        if is_long(statement):
            await cursor.execute(MOST)
            refuse_oversized(statement, (await cursor.fetchone())[0])
        if not isinstance(params, Mapping):
            if after is not None:
                await cursor.execute(after)
            await cursor.executemany(compiled.text, compiled.rows_of_arguments(params))
            return Result(affected=cursor.rowcount)
        text, arguments = expanded(compiled, params)
        await cursor.execute(text if after is None else f"{after}; {text}", arguments)
        for _ in () if after is None else after.split("; "):
            await cursor.nextset()
        if cursor.description is None:
            return Result(affected=cursor.rowcount)
        rows: Sequence[Any] = await cursor.fetchall()
        return Result(rows, cursor.rowcount)


def execute(connection: Any, statement: Statement, cursors: Any) -> Result:  # noqa: ANN401 - the driver may be missing
    """The same on a blocking connection."""
    compiled = FOR_MYSQL.compiled(statement.sql)
    params = statement.params
    with contextlib.closing(connection.cursor(cursors)) as cursor:
        if is_long(statement):
            cursor.execute(MOST)
            refuse_oversized(statement, cursor.fetchone()[0])
        if not isinstance(params, Mapping):
            cursor.executemany(compiled.text, compiled.rows_of_arguments(params))
            return Result(affected=cursor.rowcount)
        cursor.execute(*expanded(compiled, params))
        if cursor.description is None:
            return Result(affected=cursor.rowcount)
        rows: Sequence[Any] = cursor.fetchall()
        return Result(rows, cursor.rowcount)


_LIST: Final = re.compile(r"__\[POSTCOMPILE_\w+\]")
"""How SQLAlchemy writes a parameter that is a list, until its length is known."""


def expanded(compiled: Compiled, params: Params) -> tuple[str, list[object]]:
    """Return a statement's text with a place for each member of its lists, and all arguments in order."""
    given = compiled.arguments(params)
    lengths = iter([len(value) for value in map(_members, given) if value is not None])
    text = _LIST.sub(lambda _: ", ".join(["%s"] * next(lengths)), compiled.text)
    flat: list[object] = []
    for value in given:
        members = _members(value)
        flat += (value,) if members is None else members
    return text, flat


def _members(value: object) -> tuple[object, ...] | None:
    return cast("tuple[object, ...]", value) if isinstance(value, tuple) else None


def refuse_oversized(statement: Statement, most: int) -> None:
    """Raise ValueNotStorable for a statement that the server would cut the connection for. `most` is max_allowed_packet."""
    params = statement.params
    for row in (params,) if isinstance(params, Mapping) else params:
        texts = {name: value for name, value in row.items() if isinstance(value, str)}
        if is_too_long(texts.values(), most):
            longest = max(texts, key=lambda name: len(texts[name]))
            size = len(texts[longest].encode(errors="surrogatepass"))
            raise ValueNotStorable(f"The {longest.partition('_of_')[0]} of {size:,} bytes", remedy(most))


def is_long(statement: Statement) -> bool:
    """Tell whether it is worth asking the server how much it takes."""
    params = statement.params
    return any(
        is_too_long([value for value in row.values() if isinstance(value, str)], LEAST)
        for row in ((params,) if isinstance(params, Mapping) else params)
    )


MOST: Final = "select @@max_allowed_packet"
