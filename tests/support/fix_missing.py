"""Servers that this machine may lack: who needs one is skipped, and the last lines say so. In CI (`CI=true`) it fails.

With pytest-xdist tests run in workers, whose own last lines nobody sees: what they missed goes with their output.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from typing import Final, Protocol, TypeVar

import pytest

from tools.private_server import PrivateServer, ServerMissing

S = TypeVar("S", bound=PrivateServer)
_MISSING = pytest.StashKey[dict[str, str]]()
_OUTPUT: Final = "outlast_missing_servers"


def server_of(kind: type[S], config: pytest.Config, make: Callable[[], S] | None = None) -> S:
    """Return a server of this kind, which does not run yet; `make` makes one that needs more than that."""
    try:
        return (make or kind)()
    except ServerMissing as missing:
        config.stash.setdefault(_MISSING, {})[kind.name] = str(missing)
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(f"{kind.name} is not installed")


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, object] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_OUTPUT] = session.config.stash.get(_MISSING, dict[str, str]())


class _Node(Protocol):
    """A worker, to the process that started it. One that died has no output."""

    config: pytest.Config
    workeroutput: dict[str, dict[str, str]]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: _Node) -> None:
    missing = getattr(node, "workeroutput", dict[str, dict[str, str]]()).get(_OUTPUT, {})
    node.config.stash.setdefault(_MISSING, {}).update(missing)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Generator[None, object, object]:
    answer = yield
    # Below the list of failures: whoever reads only the end must not take what was skipped for what holds.
    for name, how in sorted(config.stash.get(_MISSING, dict[str, str]()).items()):
        terminalreporter.section(f"{name} is missing", yellow=True)
        terminalreporter.line(f"Every test that needs it was skipped. {how}")
    return answer
