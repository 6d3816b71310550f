"""How a command says what went wrong."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from django.core.management.base import CommandError

from outlast.client.operating import in_words
from outlast.errors import OutlastError


@contextmanager
def errors_told() -> Generator[None, None, None]:
    """Have an error of outlast end the command with its message, and exit code 1, where a traceback would tell no more."""
    try:
        yield
    except OutlastError as error:
        raise CommandError(in_words(error)) from error
