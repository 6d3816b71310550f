"""`manage.py outlast_status`"""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand
from django.db.models import Count

from outlast.integrations.django.application import app
from outlast.integrations.django.conf import read_config
from outlast.integrations.django.management.told import errors_told
from outlast.integrations.django.models import Run
from outlast.stores.migrations.runner import LATEST


class Command(BaseCommand):
    """Say whether the tables are up to date and how many runs are in which status; exit with 1 when they are not."""

    help = "Say whether the tables of outlast are up to date (exit code 1 when not), and how many runs are in which status."

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ANN401, ARG002 - as Django calls it
        config = read_config()
        with errors_told():
            app.blocking.list(limit=1)
        place = f"outlast in {config.schema!r} of DATABASES[{config.database!r}]"
        self.stdout.write(f"{place}: version {LATEST}, up to date.")
        counted = Run.objects.using(config.database).order_by().values_list("status").annotate(Count("id"))
        for status, count in sorted(counted):
            self.stdout.write(f"  {status:<20}{count:>10,}")
