"""Where the shop answers."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from examples.django_shop.orders import views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("health", views.health),
    path("orders", views.place),
    path("orders/<order_id>", views.show),
    path("orders/<order_id>/cancel", views.cancel),
    path("webhooks/carrier", views.hear_from_carrier),
]
