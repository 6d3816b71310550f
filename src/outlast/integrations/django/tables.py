"""The tables of outlast, as Django's models and migrations need to know them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import connections, models

from outlast.integrations.django.conf import examine
from outlast.integrations.django.database import basis_of
from outlast.integrations.django.location import SUPPORTED
from outlast.model.times import to_datetime, to_instant

if TYPE_CHECKING:
    _Field = models.Field[datetime | int | None, datetime | None]
else:
    _Field = models.Field


def table_name(name: str) -> str:
    """Return what a model's `db_table` is: the table in its schema, where the database has schemas.

    Wrong settings do not stop a model from being made: they are told by the checks, which need the models first.
    """
    config, _ = examine(getattr(settings, "OUTLAST", {}))
    if config.database not in settings.DATABASES or connections[config.database].vendor not in SUPPORTED:
        return f"{config.schema}_{name}"
    tables = basis_of(config.database, config.schema).tables
    found = next(table for table in tables.all if table.name.endswith(name))
    # Django leaves a name alone that begins and ends with a quote.
    return f'"{found.schema}"."{found.name}"' if found.schema else found.name


class InstantField(_Field):
    """A moment that is stored as microseconds since the epoch."""

    def get_internal_type(self) -> str:
        return "BigIntegerField"

    def from_db_value(self, value: int | None, *_: object) -> datetime | None:
        return None if value is None else to_datetime(value)

    def get_prep_value(self, value: Any) -> Any:  # noqa: ANN401 - as Django calls it
        return to_instant(value, what="a moment") if isinstance(value, datetime) else value
