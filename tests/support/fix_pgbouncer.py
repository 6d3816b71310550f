"""PgBouncer in transaction mode before the session's PostgreSQL: `pooled_url` and `direct_url` lead to one fresh database.

Without the program these tests are skipped, and the summary says so; in CI (`CI=true`) they fail.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tools.pgbouncer import HOW_TO_INSTALL, PrivatePgBouncer
from tools.postgres import PrivatePostgres
from tools.private_server import ServerMissing

_MISSING = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def pgbouncer(postgres: PrivatePostgres, pytestconfig: pytest.Config) -> Iterator[PrivatePgBouncer]:
    try:
        pooler = PrivatePgBouncer(postgres)
    except ServerMissing as missing:
        pytestconfig.stash[_MISSING] = True
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip("PgBouncer is not installed")
    with pooler:
        yield pooler


@pytest.fixture
def direct_url(postgres_url: str) -> str:
    return postgres_url


@pytest.fixture
def pooled_url(pgbouncer: PrivatePgBouncer, direct_url: str) -> str:
    return pgbouncer.url(direct_url)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.stash.get(_MISSING, False):
        terminalreporter.section("PgBouncer is missing", yellow=True)
        terminalreporter.line(f"Every test that needs it was skipped. {HOW_TO_INSTALL}")
