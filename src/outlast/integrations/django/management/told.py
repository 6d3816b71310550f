"""How a command says what went wrong."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from django.core.management.base import CommandError

from outlast.errors import OutlastError


@contextmanager
def errors_told() -> Generator[None, None, None]:
    """Have an error of outlast end the command with its message, and exit code 1, where a traceback would tell no more."""
    try:
        yield
    except OutlastError as error:
        notes: list[str] = getattr(error, "__notes__", [])
        raise CommandError(" ".join([f"{type(error).__name__}: {error}", *notes])) from error
