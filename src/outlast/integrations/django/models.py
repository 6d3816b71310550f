"""Runs, to be read by the admin and by queries of yours. Only outlast writes them: by its verbs and its worker."""

from __future__ import annotations

from typing import Final

from django.db import models

from outlast.integrations.django.tables import InstantField, table_name
from outlast.model.run import Status

STATUSES: Final = [(str(status), str(status).replace("_", " ").capitalize()) for status in Status]


class Run(models.Model):
    """A run as it stands in its table: the columns that say something without its workflow.

    Values and the journal are in `app.blocking.get(id, journal=True)`, as their types.
    """

    id: models.TextField[str, str] = models.TextField(primary_key=True)
    workflow: models.TextField[str, str] = models.TextField()
    version: models.IntegerField[int, int] = models.IntegerField()
    status: models.TextField[str, str] = models.TextField(choices=STATUSES)
    priority: models.IntegerField[int, int] = models.IntegerField()
    due_at: InstantField = InstantField(null=True)
    deadline_at: InstantField = InstantField(null=True)
    turns: models.IntegerField[int, int] = models.IntegerField()
    lapses: models.IntegerField[int, int] = models.IntegerField()
    created_at: InstantField = InstantField()
    started_at: InstantField = InstantField(null=True)
    updated_at: InstantField = InstantField()
    finished_at: InstantField = InstantField(null=True)

    class Meta:
        managed = False
        app_label = "outlast"
        db_table: str = table_name("runs")
        default_permissions: tuple[str, ...] = ("view",)
        ordering: tuple[str, ...] = ("-created_at", "-id")

    def __str__(self) -> str:
        return self.id
