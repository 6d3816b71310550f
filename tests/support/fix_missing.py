"""Servers that this machine may lack: who needs one is skipped, and the summary says so. In CI (`CI=true`) it fails."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import pytest

from tools.private_server import PrivateServer, ServerMissing

S = TypeVar("S", bound=PrivateServer)
_MISSING = pytest.StashKey[dict[str, str]]()


def server_of(kind: type[S], config: pytest.Config, make: Callable[[], S] | None = None) -> S:
    """Return a server of this kind, which does not run yet; `make` makes one that needs more than that."""
    try:
        return (make or kind)()
    except ServerMissing as missing:
        config.stash.setdefault(_MISSING, {})[kind.name] = str(missing)
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(f"{kind.name} is not installed")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for name, how in config.stash.get(_MISSING, dict[str, str]()).items():
        terminalreporter.section(f"{name} is missing", yellow=True)
        terminalreporter.line(f"Every test that needs it was skipped. {how}")
