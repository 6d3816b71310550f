"""The operation of our migrations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.db import router
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from sqlalchemy.schema import DropTable

from outlast.integrations.django.conf import examine
from outlast.integrations.django.database import basis_of
from outlast.ports.operation import Result, Statement, pump
from outlast.stores.basis import Basis
from outlast.stores.databases import django_statements
from outlast.stores.migrations.runner import migrate
from outlast.stores.migrations.script import script


class BringTables(Operation):
    """Bring the tables of outlast up to date, on the alias of OUTLAST["DATABASE"].

    They are made by the statements of `outlast migrate`, so whichever of the two comes first, the other finds them made.
    """

    reduces_to_sql = True
    reversible = True

    def __init__(self, version: int) -> None:
        self.version = version

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Change no model."""

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,  # noqa: ARG002 - as Django calls it
        to_state: ProjectState,  # noqa: ARG002 - the same
    ) -> None:
        basis = _basis_here(app_label, schema_editor.connection)
        if basis is None:
            return
        if schema_editor.collect_sql:
            _collect(schema_editor, script(schema_editor.connection.vendor, basis.tables.name, since=self.version - 1))
        else:
            pump(migrate(basis), lambda statement: _execute(schema_editor.connection, statement))

    def database_backwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,  # noqa: ARG002 - as Django calls it
        to_state: ProjectState,  # noqa: ARG002 - the same
    ) -> None:
        """Drop the tables, with every run in them."""
        basis = _basis_here(app_label, schema_editor.connection)
        for table in basis.tables.all if basis is not None else ():
            drop = DropTable(table, if_exists=True)
            if schema_editor.collect_sql:
                _collect(schema_editor, [str(drop).strip()])
            else:
                _execute(schema_editor.connection, Statement(drop))

    def describe(self) -> str:
        return f"Bring the tables of outlast to version {self.version}"


def _basis_here(app_label: str, connection: Any) -> Basis | None:  # noqa: ANN401 - a DatabaseWrapper of Django's
    """Return what is to be made on this connection; None on those of other aliases."""
    config, _ = examine(getattr(settings, "OUTLAST", {}))
    is_here = connection.alias == config.database and router.allow_migrate(connection.alias, app_label)
    return basis_of(config.database, config.schema) if is_here else None


def _collect(editor: BaseDatabaseSchemaEditor, statements: Iterable[str]) -> None:
    """Give `manage.py sqlmigrate` the statements that would be executed."""
    editor.collected_sql.extend(f"{statement};" for statement in statements)


def _execute(connection: Any, statement: Statement) -> Result:  # noqa: ANN401 - a DatabaseWrapper of Django's
    return django_statements.execute(connection, statement)
