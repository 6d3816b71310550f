"""The shop's tables in the admin. Runs are there by themselves."""

from __future__ import annotations

from django.contrib import admin

from examples.django_shop.orders.models import Order, Payment

admin.site.register(Order)
admin.site.register(Payment)
