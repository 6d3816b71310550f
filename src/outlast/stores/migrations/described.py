"""The tables at the latest version, as a tool that compares a database with a description wants them.

Made from the very statements that the migrations execute, so that there is no second description to keep true. Held by
tests/integration/test_alembic.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import MetaData
from sqlalchemy.schema import CreateTable, ExecutableDDLElement

from outlast.stores.basis import Basis
from outlast.stores.migrations.runner import MIGRATIONS, bookkeeping


def described_tables(basis: Basis) -> MetaData:
    """Return the tables of an installation with their keys, indexes and exact types."""
    name, schemas = basis.tables.name, basis.dialect.has_schemas
    made: list[ExecutableDDLElement] = [bookkeeping(basis)]
    for migration in MIGRATIONS:
        made += migration.statements(name, schemas=schemas)
    return _collected(made, MetaData(schema=name if schemas else None), has_identities=basis.dialect.name != "sqlite")


def _collected(made: Iterable[ExecutableDDLElement], into: MetaData, *, has_identities: bool) -> MetaData:
    for statement in made:
        if isinstance(statement, CreateTable):
            table = statement.element.to_metadata(into)
            if not has_identities:
                for column in table.columns:
                    # Such a database leaves it out of the statement, and a comparison would miss it ever after.
                    column.identity = column.server_default = None
    return into
