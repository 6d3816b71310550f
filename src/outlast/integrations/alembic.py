"""Alembic: have its autogenerate make the tables of outlast, or keep its hands off them.

In `env.py`, one of the two in the place of `target_metadata=...`:

    context.configure(connection=connection, **with_tables(Base.metadata, connection))
    context.configure(connection=connection, **without_tables(Base.metadata))

Held by tests/integration/test_alembic.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from sqlalchemy import Connection, MetaData, inspect, select

from outlast.errors import InvalidArgument
from outlast.integrations import extras
from outlast.stores.basis import Basis, make_basis
from outlast.stores.databases.urls import installation_name
from outlast.stores.migrations.described import described_tables, first_rows
from outlast.stores.migrations.runner import MIGRATIONS, Migration
from outlast.stores.migrations.script import KINDS, note_of

try:
    import alembic.util
    from alembic.autogenerate import comparators
    from alembic.autogenerate.api import AutogenContext
    from alembic.operations.ops import ExecuteSQLOp, UpgradeOps
except ModuleNotFoundError as _error:
    raise extras.missing("alembic", _error) from _error


IncludeName: TypeAlias = Callable[[str | None, Any, Any], bool]
"""Alembic's `include_name`: the name, what it names, and in what."""

_BASIS: Final = "outlast"
"""Where a MetaData of ours says which installation it describes."""
_AFTER_THE_TABLES: Final[Mapping[str, Any]] = (
    {"priority": alembic.util.DispatchPriority.LAST} if hasattr(alembic.util, "DispatchPriority") else {}
)
"""Before Alembic 1.18 comparisons are made in the order in which they were registered, and its own is the first."""


def with_tables(
    metadata: MetaData | Sequence[MetaData],
    connection: Connection,
    *,
    schema: str = "outlast",
    include_name: IncludeName | None = None,
) -> dict[str, Any]:
    """Return the arguments for `context.configure` under which autogenerate makes the tables of outlast with yours.

    A revision that it writes holds the tables, their schema where the database has schemas, and the note of their version,
    which outlast looks for at its start. Once they are there, from a revision or from `outlast migrate`, it finds nothing to
    do; it has something again when a new release of outlast has new tables.

    metadata: your own `target_metadata`.
    schema: as for `Outlast(schema=...)`.
    include_name: your own filter, if you have one. Schemas other than ours stay as they are: without a filter, the default
        one alone is looked at.

    Raises InvalidArgument for a database that outlast has no store for.

    Versionadded: 0.1
    """
    basis = _basis(schema, connection.dialect.name)
    ours = described_tables(basis)
    ours.info[_BASIS] = basis
    arguments: dict[str, Any] = {"target_metadata": [*_listed(metadata), ours]}
    if include_name is not None:
        arguments["include_name"] = include_name
    if basis.dialect.has_schemas:
        arguments |= {"include_schemas": True, "include_name": _with_schema(schema, include_name)}
    return arguments


def without_tables(
    metadata: MetaData | Sequence[MetaData], *, schema: str = "outlast", include_name: IncludeName | None = None
) -> dict[str, Any]:
    """Return the arguments for `context.configure` under which autogenerate does not see the tables of outlast.

    They are made by `outlast migrate`, or at start; without this, autogenerate would drop what it does not know. `schema`
    and `include_name` as in `with_tables`.

    Versionadded: 0.1
    """
    ours = {table.name for kind in KINDS for table in described_tables(_basis(schema, kind)).tables.values()}
    prefixed = {name for name in ours if name.startswith(f"{schema}_")}

    def is_included(name: str | None, kind: str, parents: Any) -> bool:  # noqa: ANN401 -- Alembic's own
        if kind == "schema" and name == schema:
            return False
        if kind == "table" and (name in prefixed or parents.get("schema_name") == schema):
            return False
        return include_name is None or include_name(name, kind, parents)

    return {"target_metadata": metadata, "include_name": is_included}


def _with_schema(schema: str, include_name: IncludeName | None) -> IncludeName:
    def is_included(name: str | None, kind: str, parents: Any) -> bool:  # noqa: ANN401 -- Alembic's own
        if kind == "schema":
            return name == schema or (name is None if include_name is None else include_name(name, kind, parents))
        if parents.get("schema_name") == schema:
            return True
        return include_name is None or include_name(name, kind, parents)

    return is_included


class _Done(ExecuteSQLOp):
    """A statement, and the one that takes it back in the downgrade."""

    def __init__(self, statement: str, undone: str) -> None:
        super().__init__(statement)
        self._undone = undone

    def reverse(self) -> _Done:
        return _Done(self._undone, str(self.sqltext))


@comparators.dispatch_for("schema", **_AFTER_THE_TABLES)
def _compare_versions(context: AutogenContext, upgrade: UpgradeOps, _: object) -> None:
    """Add what a description of tables does not hold: the schema before them, and their first rows and the note of their
    version after them.
    """
    connection = context.connection
    if connection is None:
        return
    for basis in _installations(context):
        name, migrations = basis.tables.name, basis.tables.migrations
        inspector = inspect(connection)
        if basis.dialect.has_schemas and name not in inspector.get_schema_names():
            upgrade.ops.insert(0, _Done(f"CREATE SCHEMA IF NOT EXISTS {name}", f"DROP SCHEMA IF EXISTS {name}"))
        noted: set[int] = set()
        if inspector.has_table(migrations.name, schema=migrations.schema):
            noted = set(connection.scalars(select(migrations.c.version)))
        for migration in MIGRATIONS:
            if migration.version not in noted:
                upgrade.ops += [_Done(rows, _emptied(rows)) for rows in first_rows(basis, migration)]
                upgrade.ops.append(_noted(basis, connection, migration))


def _emptied(rows: str) -> str:
    return f"DELETE FROM {rows.split()[2]}"  # noqa: S608 -- ours alone


def _noted(basis: Basis, connection: Connection, migration: Migration) -> _Done:
    table = basis.tables.migrations.fullname
    return _Done(
        note_of(migration, basis, connection.dialect),
        f"DELETE FROM {table} WHERE version = {migration.version}",  # noqa: S608 -- ours alone
    )


def _installations(context: AutogenContext) -> Iterator[Basis]:
    for metadata in _listed(context.metadata or ()):
        basis: object = metadata.info.get(_BASIS)
        if isinstance(basis, Basis):
            yield basis


def _listed(metadata: MetaData | Sequence[MetaData]) -> Sequence[MetaData]:
    return [metadata] if isinstance(metadata, MetaData) else metadata


def _basis(schema: str, kind: str) -> Basis:
    if kind not in KINDS:
        raise InvalidArgument(f"outlast has no tables for {kind} databases in Alembic; it has for {', '.join(KINDS)}.")
    return make_basis(installation_name(schema), KINDS[kind].dialect, None)
