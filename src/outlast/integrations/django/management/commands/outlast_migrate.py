"""`manage.py outlast_migrate`"""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from outlast.client.operating import migrated
from outlast.integrations.django.application import app
from outlast.integrations.django.management.told import errors_told


class Command(BaseCommand):
    """Bring the tables up to date without Django's own record of migrations."""

    help = (
        "Bring the tables of outlast up to date, once, however many run it at the same time. `migrate` does the same and "
        "writes it down as Django's migrations; either finds what the other has done."
    )

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ANN401, ARG002 - as Django calls it
        with errors_told():
            self.stdout.write(migrated(app.blocking.migrate()))
