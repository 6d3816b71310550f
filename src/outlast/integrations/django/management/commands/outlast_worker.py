"""`manage.py outlast_worker`"""

from __future__ import annotations

import asyncio
from typing import Any

from django.core.management.base import BaseCommand

from outlast.integrations.django.application import app
from outlast.integrations.django.management.told import errors_told
from outlast.serving import work


class Command(BaseCommand):
    """Execute runs in this process until it is told to end."""

    help = "Execute runs of outlast in this process until SIGTERM or Ctrl-C. Start as many as you like."
    requires_migrations_checks = True

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ANN401, ARG002 - as Django calls it
        with errors_told():
            code = asyncio.run(work(app, self._say))
        if code:
            raise SystemExit(code)

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()
