"""`manage.py outlast_status`"""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db.models import Count

from outlast.client.operating import BEHIND
from outlast.integrations.django.application import app
from outlast.integrations.django.conf import read_config
from outlast.integrations.django.management.told import errors_told
from outlast.integrations.django.models import Run


class Command(BaseCommand):
    """Say whether the tables are up to date and how many runs are in which status; exit with 3 when they are not."""

    help = "Say whether the tables of outlast are up to date (exit code 3 when not), and how many runs are in which status."

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ANN401, ARG002 - as Django calls it
        config = read_config()
        with errors_told():
            found, needed = app.blocking.schema_version()
        place = f"outlast in {config.schema!r} of DATABASES[{config.database!r}]"
        if found < needed:
            raise CommandError(
                f"{place}: the tables are {f'at version {found}' if found else 'missing'}, and this code needs version "
                f"{needed}. Bring them up to date with `manage.py migrate`, or `manage.py outlast_migrate`.",
                returncode=BEHIND,
            )
        self.stdout.write(f"{place}: version {found}, {'up to date' if found == needed else 'newer than this code'}.")
        counted = Run.objects.using(config.database).order_by().values_list("status").annotate(Count("id"))
        for status, count in sorted(counted):
            self.stdout.write(f"  {status:<20}{count:>10,}")
