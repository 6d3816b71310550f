"""The shop's own tables. Those of outlast are its own affair."""

from __future__ import annotations

from typing import Any

from django.db import models


class Status(models.TextChoices):
    """Where an order stands for the customer. How its fulfilment goes is the run's to tell."""

    PLACED = "placed"
    DELIVERED = "delivered"
    RETURNED = "returned"
    CANCELLED = "cancelled"


class Order(models.Model):
    """An order as it was placed. `total` is in cents."""

    id: models.CharField[str, str] = models.CharField(max_length=20, primary_key=True)
    customer: models.EmailField[str, str] = models.EmailField()
    items: models.JSONField[Any, Any] = models.JSONField()
    total: models.PositiveIntegerField[int, int] = models.PositiveIntegerField()
    status: models.CharField[str, str] = models.CharField(max_length=20, choices=Status.choices, default=Status.PLACED)

    def __str__(self) -> str:
        return self.id

    @property
    def run_id(self) -> str:
        """The one run that fulfils this order. The same id never starts twice."""
        return f"order-{self.id}"


class Payment(models.Model):
    """Money taken for an order; the accountants read this table."""

    order: models.OneToOneField[Order, Order] = models.OneToOneField(Order, models.CASCADE, primary_key=True)
    charge: models.CharField[str, str] = models.CharField(max_length=40)
    amount: models.PositiveIntegerField[int, int] = models.PositiveIntegerField()

    def __str__(self) -> str:
        return self.charge
