"""The tables of orders and payments."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = ()

    operations = (
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.CharField(max_length=20, primary_key=True, serialize=False)),
                ("customer", models.EmailField(max_length=254)),
                ("items", models.JSONField()),
                ("total", models.PositiveIntegerField()),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("placed", "Placed"),
                            ("delivered", "Delivered"),
                            ("returned", "Returned"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="placed",
                        max_length=20,
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Payment",
            fields=[
                (
                    "order",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        serialize=False,
                        to="orders.order",
                    ),
                ),
                ("charge", models.CharField(max_length=40)),
                ("amount", models.PositiveIntegerField()),
            ],
        ),
    )
