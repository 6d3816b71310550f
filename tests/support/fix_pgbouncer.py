"""PgBouncer in transaction mode before the session's PostgreSQL: `pooled_url` and `direct_url` lead to one fresh database.

Without the program these tests are skipped, and the summary says so; in CI (`CI=true`) they fail.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.fix_missing import server_of
from tools.pgbouncer import PrivatePgBouncer
from tools.postgres import PrivatePostgres


@pytest.fixture(scope="session")
def pgbouncer(postgres: PrivatePostgres, pytestconfig: pytest.Config) -> Iterator[PrivatePgBouncer]:
    with server_of(PrivatePgBouncer, pytestconfig, lambda: PrivatePgBouncer(postgres)) as pooler:
        yield pooler


@pytest.fixture
def direct_url(postgres_url: str) -> str:
    return postgres_url


@pytest.fixture
def pooled_url(pgbouncer: PrivatePgBouncer, direct_url: str) -> str:
    return pgbouncer.url(direct_url)
