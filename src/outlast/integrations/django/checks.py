"""What `manage.py check` says of the settings."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Final

import django
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning  # noqa: A004 - Django's name
from django.db import connections

from outlast.client.catalog import Catalog
from outlast.engine.definition import workflow_of
from outlast.errors import DefinitionError, OutlastError
from outlast.integrations.django.application import discovered
from outlast.integrations.django.conf import examine
from outlast.integrations.django.database import DjangoDatabase, basis_of
from outlast.integrations.django.location import SUPPORTED

_IMMEDIATE: Final = (5, 1)
"""The first Django whose SQLite transactions may begin IMMEDIATE."""
_FOUR_BYTES: Final = (5, 2)
"""The first Django that speaks utf8mb4 to MySQL by itself."""


def check_settings(app_configs: object, **_: object) -> list[CheckMessage]:  # noqa: ARG001 - as Django calls it
    """Check OUTLAST, the database it names, and the workflows."""
    config, problems = examine(getattr(settings, "OUTLAST", {}))
    found: list[CheckMessage] = [
        Error(problem.text, hint=problem.hint, id=f"outlast.{problem.id}") for problem in problems
    ]
    if not problems:
        found += _of_database(config.database)
        try:
            Catalog(workflow_of(declared) for declared in discovered(config))
        except (DefinitionError, ImportError) as error:
            found.append(Error(f"The workflows cannot be registered: {error}", hint=_WORKFLOWS_HINT, id="outlast.E005"))
    return found


_WORKFLOWS_HINT: Final = (
    "They are found in the workflows.py of each installed app and in the modules of OUTLAST['WORKFLOWS']."
)


def _of_database(alias: str) -> Sequence[CheckMessage]:
    connection: Any = connections[alias]
    vendor: str = connection.vendor
    if vendor not in SUPPORTED:
        hint = f"Name another one in OUTLAST['DATABASE']; outlast works on {', '.join(SUPPORTED)}."
        return [
            Error(f"outlast has no store on {vendor}, which DATABASES[{alias!r}] is.", hint=hint, id="outlast.E004")
        ]
    options: dict[str, Any] = connection.settings_dict["OPTIONS"]
    found: list[CheckMessage] = []
    if (
        vendor == "sqlite"
        and django.VERSION >= _IMMEDIATE
        and str(options.get("transaction_mode")).upper() != "IMMEDIATE"
    ):
        found.append(
            Warning(
                f"DATABASES[{alias!r}] is SQLite whose transactions begin without a lock: one that reads and then writes "
                "fails with 'database is locked' when the worker wrote in between.",
                hint='Set "OPTIONS": {"transaction_mode": "IMMEDIATE"}.',
                id="outlast.W001",
            )
        )
    if vendor == "postgresql" and not (find_spec("asyncpg") or find_spec("psycopg")):
        found.append(_lacking("asyncpg, or psycopg 3, which are", "postgres"))
    if vendor == "mysql" and not find_spec("asyncmy"):
        found.append(_lacking("asyncmy, which is", "mysql"))
    if vendor == "mysql" and options.get("charset", _charset()) != "utf8mb4":
        found.append(
            Error(
                f"DATABASES[{alias!r}] speaks to its server in a character set that has no place for every character, and "
                "outlast refuses such connections.",
                hint='Set "OPTIONS": {"charset": "utf8mb4"}.',
                id="outlast.E007",
            )
        )
    if vendor == "postgresql" and _isolation(options) not in (None, 2):
        found.append(
            Warning(
                f"DATABASES[{alias!r}] has a stricter isolation than READ COMMITTED: app.signal() is refused inside of "
                "transaction.atomic(), because it could miss a run that is about to wait.",
                hint="Leave isolation_level out of OPTIONS, or send signals outside of atomic blocks.",
                id="outlast.W003",
            )
        )
    return found


def _lacking(drivers: str, extra: str) -> CheckMessage:
    return Warning(
        f"outlast_worker needs {drivers} not installed.", hint=f'pip install "outlast[{extra}]"', id="outlast.W002"
    )


def _charset() -> str:
    """Return what Django chooses when OPTIONS do not."""
    return "utf8mb4" if django.VERSION >= _FOUR_BYTES else "utf8"


def _isolation(options: dict[str, Any]) -> int | None:
    level = options.get("isolation_level")
    return None if level is None else int(level)


def check_databases(
    app_configs: object,  # noqa: ARG001 - as Django calls it
    databases: Sequence[str] | None = None,
    **_: object,
) -> list[CheckMessage]:
    """Ask the server whether it is one that outlast works on. For `manage.py check --database`, which may connect."""
    config, problems = examine(getattr(settings, "OUTLAST", {}))
    if problems or config.database not in (databases or ()) or connections[config.database].vendor not in SUPPORTED:
        return []
    dialect = basis_of(config.database, config.schema).dialect
    try:
        DjangoDatabase(config.database, config.schema, None).run_blocking(dialect.check_server)
    except OutlastError as error:
        return [Error(f"outlast does not work on DATABASES[{config.database!r}].", hint=str(error), id="outlast.E006")]
    return []
