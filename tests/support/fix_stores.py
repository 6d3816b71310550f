"""One test over every database: ask for `database_url` and it runs once on each kind, empty each time."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

SHARED: Final = ("sqlite-file", "postgresql")
"""Kinds that several processes can open at once, on which every test runs that asks for a database."""

KINDS: Final = (*SHARED, "sqlite-memory")
FURTHER: Final = ("mysql", "mariadb")
WIDE: Final = frozenset({"race"})
"""Folders whose tests run on the further kinds too: what a store does is tried on every database, what is above the stores
on two that differ most."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for fixture, kinds in (("database_url", KINDS), ("shared_database_url", SHARED)):
        if fixture in metafunc.fixturenames:
            further = FURTHER if _is_wide(metafunc.definition) else ()
            metafunc.parametrize(fixture, (*kinds, *further), indirect=True)


def _is_wide(test: pytest.Item) -> bool:
    chosen = test.get_closest_marker("every_database")
    return chosen is not None if test.path.parent.name not in WIDE else test.get_closest_marker("two_databases") is None


@pytest.fixture
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What `Outlast(database=...)` takes. Every reader of `sqlite://` has a database of its own."""
    return _url(request, tmp_path)


@pytest.fixture
def shared_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The kinds that several processes can open at once."""
    return _url(request, tmp_path)


def _url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "sqlite-file":
            return f"sqlite:///{tmp_path}/outlast.db"
        case "sqlite-memory":
            return "sqlite://"
        case "postgresql":
            fixture = "postgres_url"
        case kind:
            fixture = f"{kind}_url"
    url: str = request.getfixturevalue(fixture)
    return url
