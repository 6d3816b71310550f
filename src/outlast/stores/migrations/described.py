"""The tables at the latest version, as a tool that compares a database with a description wants them.

Made from the very statements that the migrations execute, so that there is no second description to keep true. Held by
tests/integration/test_alembic.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, PrimaryKeyConstraint, SmallInteger, Table, text
from sqlalchemy.dialects.mysql import LONGTEXT, TINYINT, VARCHAR
from sqlalchemy.schema import DDL, CreateIndex, CreateTable, ExecutableDDLElement
from sqlalchemy.types import TypeEngine

from outlast.stores.basis import Basis
from outlast.stores.migrations.runner import MIGRATIONS, Migration, bookkeeping


def described_tables(basis: Basis) -> MetaData:
    """Return the tables of an installation with their keys, indexes and exact types."""
    name, schemas = basis.tables.name, basis.dialect.has_schemas
    described = MetaData(schema=name if schemas else None)
    made: list[ExecutableDDLElement] = [bookkeeping(basis)]
    for migration in MIGRATIONS:
        made += migration.made_on(basis)
    for statement in made:
        _describe(statement, described, has_identities=basis.dialect.name != "sqlite")
    return described


def _describe(statement: ExecutableDDLElement, described: MetaData, *, has_identities: bool) -> None:
    match statement:
        case CreateTable():
            _copy(statement.element, described, has_identities=has_identities)
        case CreateIndex():
            # It came with its table.
            table = statement.element.table
            assert table is not None
            assert statement.element.name in {index.name for index in described.tables[table.fullname].indexes}
        case DDL() if written := _WRITTEN.fullmatch(statement.statement):
            _read(written, described)
        case _:
            is_rows = isinstance(statement, DDL) and statement.statement.startswith(_INSERT)
            assert is_rows, f"a migration does what is not described here: {statement}"


def first_rows(basis: Basis, migration: Migration) -> Sequence[str]:
    """Return what a migration writes into the tables that it makes."""
    statements = [made.statement for made in migration.made_on(basis) if isinstance(made, DDL)]
    return [statement for statement in statements if statement.startswith(_INSERT)]


def _copy(table: Table, into: MetaData, *, has_identities: bool) -> None:
    copy = table.to_metadata(into)
    if not has_identities:
        for column in copy.columns:
            # Such a database leaves it out of the statement, and a comparison would miss it ever after.
            column.identity = column.server_default = None


_INSERT: Final = "insert into "
# The migrations of MySQL and MariaDB are text. It is ours, in these few forms.
_WRITTEN: Final = re.compile(
    r"create table if not exists (?P<name>\w+) \(\n(?P<lines>.*)\n\) (?P<options>.*)", re.DOTALL
)
_OPTION: Final = re.compile(r"engine=(?P<engine>\w+) default charset=(?P<default_charset>\w+) collate=(?P<collate>.*)")
_KEY: Final = re.compile(r"primary key \((?P<columns>.*)\)")
_INDEX: Final = re.compile(r"(?P<unique>unique )?index (?P<name>\w+) \((?P<columns>.*)\)")
_COLUMN: Final = re.compile(
    r"(?P<name>\w+) (?P<type>\w+)(\((?P<length>\d+)\))?"
    r"(?P<required> not null)?(?P<counted> auto_increment)?( default (?P<default>\d+))?"
)
_TYPES: Final[Mapping[str, Callable[[int | None], TypeEngine[Any]]]] = {
    "varchar": VARCHAR,
    "longtext": lambda _: LONGTEXT(),
    "int": lambda _: Integer(),
    "bigint": lambda _: BigInteger(),
    "smallint": lambda _: SmallInteger(),
    "tinyint": lambda _: TINYINT(),
}


def _read(written: re.Match[str], into: MetaData) -> None:
    options: dict[str, Any] = _found(_OPTION, written["options"]).groupdict()
    # The two dialects of SQLAlchemy read options of their own names alone.
    named: dict[str, Any] = {
        f"{dialect}_{option}": value for dialect in ("mysql", "mariadb") for option, value in options.items()
    }
    table = Table(written["name"], into, **named)
    for line in (line.strip().removesuffix(",") for line in written["lines"].splitlines()):
        if key := _KEY.fullmatch(line):
            table.append_constraint(PrimaryKeyConstraint(*_columns(table, key["columns"])))
        elif index := _INDEX.fullmatch(line):
            Index(index["name"], *_columns(table, index["columns"]), unique=bool(index["unique"]))
        else:
            table.append_column(_column(_found(_COLUMN, line)))


def _column(found: re.Match[str]) -> Column[Any]:
    default = None if found["default"] is None else text(found["default"])
    length = None if found["length"] is None else int(found["length"])
    return Column(
        found["name"],
        _TYPES[found["type"]](length),
        nullable=not found["required"],
        autoincrement=bool(found["counted"]),
        server_default=default,
    )


def _columns(table: Table, names: str) -> Iterable[Column[Any]]:
    return [table.c[name] for name in names.split(", ")]


def _found(pattern: re.Pattern[str], part: str) -> re.Match[str]:
    found = pattern.fullmatch(part)
    assert found is not None, f"a migration of MySQL says what is not understood here: {part}"
    return found
