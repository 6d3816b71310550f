"""Bring the tables from one version to the next, once, however many processes start together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import BigInteger, Column, Integer, MetaData, Table, Text, bindparam, func, select
from sqlalchemy.schema import CreateSchema, CreateTable, ExecutableDDLElement

from outlast.errors import DatabaseBusy, DatabaseUnavailable, SchemaBehind, SchemaConflict
from outlast.ports.operation import Op, Span, Statement
from outlast.stores.basis import Basis
from outlast.stores.migrations import v0001_initial, v0001_initial_mysql


@dataclass(frozen=True, slots=True)
class Migration:
    """One version. `statements(name, schemas=...)` takes an installation from the version before to this one; `repeatable`
    does it where each statement commits by itself, and may be tried again from its beginning wherever it was cut short."""

    version: int
    name: str
    statements: Callable[..., Sequence[ExecutableDDLElement]]
    repeatable: Callable[[str], Sequence[ExecutableDDLElement]]

    def made_on(self, basis: Basis) -> Sequence[ExecutableDDLElement]:
        """Return the statements that this kind of database needs."""
        if basis.dialect.has_transactional_ddl:
            return self.statements(basis.tables.name, schemas=basis.dialect.has_schemas)
        return self.repeatable(basis.tables.name)


MIGRATIONS: Final = (Migration(1, "initial", v0001_initial.statements, v0001_initial_mysql.statements),)
LATEST: Final = MIGRATIONS[-1].version


def check_schema(basis: Basis) -> Op[None]:
    """Raise SchemaBehind when the tables are older than this code. Newer ones are served: versions only add.

    The server is looked at too, a blocking caller has no other moment for it, and what this role may do with the tables.
    """
    yield from basis.dialect.check_server()
    found = yield from found_version(basis, span="read")
    if found < LATEST:
        raise SchemaBehind(basis.tables.name, found, LATEST)
    yield from basis.dialect.check_rights(basis.tables)


def migrate(basis: Basis) -> Op[tuple[int, ...]]:
    """Apply what is missing and return its versions.

    Looks first without the lock, which needs no right but to read: a role that may not change tables can start once they
    are up to date. Then takes the lock and looks again, since another process may have been faster.
    """
    span: Span = "write" if basis.dialect.has_transactional_ddl else "session"
    if (yield from found_version(basis, span=span)) >= LATEST:
        return ()
    # Nobody may have looked yet: tables on a server that outlast refuses would be there for nothing.
    yield from basis.dialect.check_server()
    lock = basis.dialect.migration_lock(basis.tables.name)
    if lock is not None:
        granted = yield lock
        if not basis.dialect.has_migration_lock(granted.rows[0][0]):
            raise DatabaseBusy("Another process is migrating this database; try again when it is done.")
    found = yield from found_version(basis, span="write")
    pending = [migration for migration in MIGRATIONS if migration.version > found]
    if pending:
        yield from _prepare_schema(basis, found)
        if found == 0:
            yield Statement(bookkeeping(basis))
        for migration in pending:
            yield from _apply(basis, migration)
    unlock = basis.dialect.migration_unlock(basis.tables.name)
    if unlock is not None:
        yield unlock
    return tuple(migration.version for migration in pending)


def _apply(basis: Basis, migration: Migration) -> Op[None]:
    for ddl in migration.made_on(basis):
        yield Statement(ddl)
    migrations = basis.tables.migrations
    recorded = (
        migrations.insert()
        .inline()
        .values(version=bindparam("version", type_=Integer), name=bindparam("name", type_=Text), applied_at=basis.now)
    )
    yield Statement(recorded, {"version": migration.version, "name": migration.name})


def found_version(basis: Basis, *, span: Span) -> Op[int]:
    """Read which version the tables have; 0 when there are none. Raises SchemaConflict for tables that are not ours, and
    DatabaseUnavailable on a connection that would misread them."""
    present = basis.dialect.tables_present(basis.tables)
    found = yield Statement(present.sql, present.params, span=span)
    garbled = basis.dialect.garbles(found)
    if garbled is not None:
        raise DatabaseUnavailable(f"The connection is one {garbled}")
    names = {row[0] for row in found.rows}
    migrations = basis.tables.migrations
    if migrations.name not in names:
        ours = sorted(table.name for table in basis.tables.all if table.name in names)
        if ours:
            raise SchemaConflict(basis.tables.name, tuple(ours))
        return 0
    newest = yield Statement(select(func.coalesce(func.max(migrations.c.version), 0)))
    version: int = newest.rows[0][0]
    return version


def _prepare_schema(basis: Basis, version: int) -> Op[None]:
    look = basis.dialect.schema_present(basis.tables.name)
    if look is None:
        return
    found = yield look
    is_present, may_create, role = found.rows[0]
    if not may_create:
        behind = SchemaBehind(basis.tables.name, version, LATEST)
        behind.add_note(f"The role {role!r} may not create tables there; migrate as the role that owns them.")
        raise behind
    if not is_present:
        yield Statement(CreateSchema(basis.tables.name))


def bookkeeping(basis: Basis) -> ExecutableDDLElement:
    """Return what makes the table in which the versions are noted."""
    if not basis.dialect.has_transactional_ddl:
        return v0001_initial_mysql.bookkeeping(basis.tables.name)
    migrations = basis.tables.migrations
    table = Table(
        migrations.name,
        MetaData(schema=migrations.schema),
        Column("version", Integer, primary_key=True, autoincrement=False),
        Column("name", Text, nullable=False),
        Column("applied_at", BigInteger, nullable=False),
    )
    return CreateTable(table)
