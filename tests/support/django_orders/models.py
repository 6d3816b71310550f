"""The application's own table."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    id: models.CharField[str, str] = models.CharField(max_length=40, primary_key=True)

    class Meta:
        app_label = "django_orders"

    def __str__(self) -> str:
        return self.id
