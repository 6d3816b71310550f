"""What INSTALLED_APPS installs."""

from __future__ import annotations

from django.apps import AppConfig
from django.core import checks
from django.core.signals import setting_changed

from outlast.integrations.django.application import app
from outlast.integrations.django.checks import check_databases, check_settings


class OutlastConfig(AppConfig):
    """The app "outlast": its models read the tables, and its migrations make them."""

    name = "outlast.integrations.django"
    label = "outlast"

    def ready(self) -> None:
        checks.register(check_settings, "outlast")
        checks.register(check_databases, checks.Tags.database, "outlast")
        setting_changed.connect(_forget, dispatch_uid="outlast")


def _forget(*, setting: str, **_: object) -> None:
    # Tests override settings.
    if setting in ("OUTLAST", "DATABASES"):
        app.forget()
