"""What the run before this one could not try, told in the summary of this one: `.ci/run` names it in OUTLAST_UNTRIED."""

from __future__ import annotations

import os

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    untried = os.environ.get("OUTLAST_UNTRIED")
    if untried:
        terminalreporter.section("not tried", yellow=True)
        terminalreporter.line(untried)
