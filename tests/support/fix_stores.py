"""One test over every database: ask for `database_url` and it runs once on each kind, empty each time."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

SHARED: Final = ("sqlite-file", "postgresql")
"""Kinds that several processes can open at once, on which every test runs that asks for a database."""

KINDS: Final = (*SHARED, "sqlite-memory")
FURTHER: Final = ("mysql", "mariadb")
WIDE: Final = frozenset({"crash", "faults", "field", "race"})
"""Folders whose tests run on the further kinds too, but for those marked `two_databases`. Elsewhere those do that are
marked `every_database`, or `every_database("mysql")` where one of them says enough for what the test costs."""


_KINDS_OF: Final = {
    "database_url": KINDS,
    "shared_database_url": SHARED,
    **dict.fromkeys(("server_url", "link", "breakable"), ("postgresql",)),  # see `fix_servers`
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for fixture, kinds in _KINDS_OF.items():
        if fixture in metafunc.fixturenames and not _is_chosen(metafunc.definition, fixture):
            metafunc.parametrize(fixture, (*kinds, *further_kinds(metafunc.definition)), indirect=True)


def further_kinds(test: pytest.Item) -> tuple[str, ...]:
    """The kinds beside the usual ones that a test runs on."""
    chosen = test.get_closest_marker("every_database")
    if test.get_closest_marker("two_databases") is not None:
        return ()
    if chosen is not None:
        return chosen.args or FURTHER
    return FURTHER if test.path.parent.name in WIDE else ()


def _is_chosen(test: pytest.Item, fixture: str) -> bool:
    """Whether the test says itself what the fixture is."""
    return any(fixture in mark.args[0].split(", ") for mark in test.iter_markers("parametrize"))


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
