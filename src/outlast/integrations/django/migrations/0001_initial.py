"""Version 1 of the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from django.db import migrations, models
from django.db.migrations.operations.base import Operation

from outlast.integrations.django.models import STATUSES
from outlast.integrations.django.operations import BringTables
from outlast.integrations.django.tables import InstantField, table_name


class Migration(migrations.Migration):
    initial: ClassVar[bool | None] = True
    dependencies: ClassVar[Sequence[tuple[str, str]]] = ()
    operations: ClassVar[Sequence[Operation]] = (
        BringTables(version=1),
        # The table is made above; this tells Django's state of the model.
        migrations.CreateModel(
            name="Run",
            fields=[
                ("id", models.TextField(primary_key=True, serialize=False)),
                ("workflow", models.TextField()),
                ("version", models.IntegerField()),
                ("status", models.TextField(choices=STATUSES)),
                ("priority", models.IntegerField()),
                ("due_at", InstantField(null=True)),
                ("deadline_at", InstantField(null=True)),
                ("turns", models.IntegerField()),
                ("lapses", models.IntegerField()),
                ("created_at", InstantField()),
                ("started_at", InstantField(null=True)),
                ("updated_at", InstantField()),
                ("finished_at", InstantField(null=True)),
            ],
            options={
                "managed": False,
                "db_table": table_name("runs"),
                "default_permissions": ("view",),
                "ordering": ("-created_at", "-id"),
            },
        ),
    )
