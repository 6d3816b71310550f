"""How far apart a worker's own looks may be in a test, so that they hide nothing that it should have been told."""

from __future__ import annotations

from outlast import WorkerOptions
from support.callers import kind_of


def tells(url: str) -> bool:
    """Whether processes hear of what others commit. On MySQL and MariaDB nobody tells them: their looks find it."""
    return kind_of(url) in ("sqlite", "postgresql")


def poll_for(url: str) -> str:
    """An hour where processes are told; there a look of the worker's own would hide that they were not."""
    return "1h" if tells(url) else "100ms"


def worker_for(url: str) -> WorkerOptions:
    """A worker that no look of its own wakes where it is told, nor the one for workers that are gone."""
    return WorkerOptions(poll=poll_for(url), lease="3h")
