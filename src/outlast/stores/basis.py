"""What every group of statements is built from: the tables, the dialect and the expression for the present."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import BigInteger, BindParameter, ColumnElement, Text, TextClause, bindparam, literal_column, text

from outlast.ports.clock import Clock
from outlast.stores.dialects.base import Dialect
from outlast.stores.tables import Tables, make_tables


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """One installation in one dialect. `now` is the database's clock, or the test clock that replaces it."""

    tables: Tables
    dialect: Dialect
    now: ColumnElement[int]

    def worded(self, template: str, **words: str) -> TextClause:
        """Turn a template into a statement: `{runs}` and the like become tables' names, `{now}` the present.

        For statements that Core cannot say. Names come from us alone, never from a caller; values are parameters.
        """
        filled = template
        for word, meaning in {**words, **self._names()}.items():
            filled = filled.replace(f"{{{word}}}", meaning)
        clause = text(filled)
        return clause.bindparams(self.now) if isinstance(self.now, BindParameter) else clause

    def notice(self, what: str) -> str:
        """Return `Dialect.notice` of a fixed text, as a word for `worded`."""
        expression = self.dialect.notice(self.tables, literal_column(f"'{what}'", Text))
        return str(expression.compile(compile_kwargs={"literal_binds": True}))

    def _names(self) -> Mapping[str, str]:
        tables = self.tables
        named: dict[str, Any] = {
            "runs": tables.runs,
            "journal": tables.journal,
            "waits": tables.waits,
            "signals": tables.signals,
            "workers": tables.workers,
        }
        names = {word: table.fullname for word, table in named.items()}
        names["now"] = ":now" if isinstance(self.now, BindParameter) else str(self.now)
        return names


def make_basis(name: str, dialect: type[Dialect], clock: Clock | None) -> Basis:
    """Return the basis of the installation `name`; the same one for the same installation and clock."""
    unique: Any = clock
    return _make_basis(name, dialect, unique)


@lru_cache(maxsize=16)
def _make_basis(name: str, dialect: type[Dialect], clock: Any) -> Basis:  # noqa: ANN401 - a clock, by identity
    made = dialect()
    now = made.now() if clock is None else bindparam("now", callable_=clock.now, type_=BigInteger)
    return Basis(make_tables(name, schemas=made.has_schemas), made, now)
