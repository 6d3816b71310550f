"""The migrations as text, for a person's own tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Dialect as SqlDialect
from sqlalchemy.schema import CreateSchema, ExecutableDDLElement

from outlast.stores.basis import Basis, make_basis
from outlast.stores.dialects.base import Dialect
from outlast.stores.dialects.mysql import MySQL
from outlast.stores.dialects.postgresql import PostgreSQL
from outlast.stores.dialects.sqlite import SQLite
from outlast.stores.migrations.runner import MIGRATIONS, Migration, bookkeeping


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of database: ours, and SQLAlchemy's, which words it."""

    dialect: type[Dialect]
    words: SqlDialect


KINDS: Final[Mapping[str, Kind]] = {
    "sqlite": Kind(SQLite, sqlite.dialect()),
    "postgresql": Kind(PostgreSQL, postgresql.dialect()),  # type: ignore[no-untyped-call]  # untyped in SQLAlchemy
    "mysql": Kind(MySQL, mysql.dialect()),
    "mariadb": Kind(MySQL, mysql.dialect()),
}


def script(kind: str, name: str, *, since: int = 0) -> tuple[str, ...]:
    """Return the statements that take the installation `name` from version `since` to the latest, each without its end.

    `kind` is a key of `KINDS`. They are those that `migrate` executes; what it locks meanwhile is not among them.
    """
    chosen = KINDS[kind]
    basis = make_basis(name, chosen.dialect, None)
    made: list[str] = []
    if since == 0:
        if basis.dialect.has_schemas:
            made.append(_worded(CreateSchema(name, if_not_exists=True), chosen))
        made.append(_worded(bookkeeping(basis), chosen))
    for migration in MIGRATIONS:
        if migration.version > since:
            made += [_worded(statement, chosen) for statement in migration.made_on(basis)]
            made.append(note_of(migration, basis, chosen.words))
    return tuple(made)


def note_of(migration: Migration, basis: Basis, words: SqlDialect) -> str:
    """Return the statement that notes a version as applied."""
    now = basis.now.compile(dialect=words, compile_kwargs={"literal_binds": True})
    return (
        f"INSERT INTO {basis.tables.migrations.fullname} (version, name, applied_at) "  # noqa: S608  ours alone
        f"VALUES ({migration.version}, '{migration.name}', {now})"
    )


def _worded(statement: ExecutableDDLElement, kind: Kind) -> str:
    return str(statement.compile(dialect=kind.words)).strip()
