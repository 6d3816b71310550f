"""One test over every database: ask for `database_url` and it runs once on each kind, empty each time."""

from __future__ import annotations

from pathlib import Path

import pytest

KINDS = ("sqlite-file", "sqlite-memory", "postgresql")


@pytest.fixture(params=KINDS)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What `Outlast(database=...)` takes. Every reader of `sqlite://` has a database of its own."""
    match request.param:
        case "sqlite-file":
            return f"sqlite:///{tmp_path}/outlast.db"
        case "sqlite-memory":
            return "sqlite://"
        case _:
            url: str = request.getfixturevalue("postgres_url")
            return url


@pytest.fixture(params=["sqlite-file", "postgresql"])
def shared_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The kinds that several processes can open at once."""
    if request.param == "sqlite-file":
        return f"sqlite:///{tmp_path}/outlast.db"
    url: str = request.getfixturevalue("postgres_url")
    return url
