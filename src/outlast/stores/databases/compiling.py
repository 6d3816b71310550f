"""Statements as the text and arguments that a raw driver takes, compiled once each."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ClauseElement
from sqlalchemy.dialects.postgresql import asyncpg as asyncpg_dialect
from sqlalchemy.dialects.sqlite import pysqlite
from sqlalchemy.engine.interfaces import Dialect

from outlast.ports.operation import Params


class Compiled:
    """A statement's text and the order of its arguments."""

    __slots__ = ("_names", "_own", "text")

    def __init__(self, sql: ClauseElement, dialect: Dialect) -> None:
        compiled: Any = sql.compile(dialect=dialect)
        self.text: str = str(compiled)
        # The definition of a table has no arguments.
        self._names: tuple[str, ...] = tuple(getattr(compiled, "positiontup", None) or ())
        # What the statement brings along itself, such as the present; everything else the caller must give.
        self._own: dict[str, Any] = {
            name: bind for name, bind in getattr(compiled, "binds", {}).items() if not bind.required
        }

    def arguments(self, params: Params) -> list[object]:
        """Return the arguments in order."""
        return [params[name] if name in params else self._own[name].effective_value for name in self._names]

    def rows_of_arguments(self, many: Sequence[Params]) -> list[list[object]]:
        """Return the arguments of each row; values of the statement itself are the same for all."""
        given = many[0].keys()
        own = {name: self._own[name].effective_value for name in self._names if name not in given}
        return [[row[name] if name in row else own[name] for name in self._names] for row in many]


class Compiler:
    """Compile for one driver, keeping what was compiled: statements are made once, with the store."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        # By identity, and only as long as its store is in use.
        self._compiled: weakref.WeakKeyDictionary[Any, Compiled] = weakref.WeakKeyDictionary()

    def compiled(self, sql: ClauseElement) -> Compiled:
        found = self._compiled.get(sql)
        if found is None:
            found = self._compiled[sql] = Compiled(sql, self._dialect)
        return found


FOR_POSTGRESQL: Final = Compiler(asyncpg_dialect.dialect())  # type: ignore[no-untyped-call]  # untyped in SQLAlchemy
"""With PostgreSQL's own `$1`, which asyncpg takes and the raw cursors of psycopg."""

FOR_SQLITE: Final = Compiler(pysqlite.dialect())
