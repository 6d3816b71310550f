"""One test for every database and every kind of handle on it: ask for `place`."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.callers import ROADS, Place, roads_on

DATABASES = ("sqlite", "postgresql", "mysql", "mariadb")
_URLS = {"postgresql": "postgres_url", "mysql": "mysql_url", "mariadb": "mariadb_url"}
"""The fixture that makes a database of each kind of server."""

PLACES = [f"{database} {road}" for database in DATABASES for road in roads_on(database)]
BLOCKING_PLACES = [place for place in PLACES if ROADS[place.split()[1]].is_blocking]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A fresh database, and a kind of handle to pass as `tx=`."""
    return _place(request, tmp_path)


@pytest.fixture(params=BLOCKING_PLACES)
def blocking_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """The same, of the kinds that are not awaited."""
    return _place(request, tmp_path)


def _place(request: pytest.FixtureRequest, folder: Path) -> Place:
    database, road = request.param.split()
    if database == "sqlite":
        return Place(f"sqlite:///{folder}/outlast.db", road)
    url: str = request.getfixturevalue(_URLS[database])
    return Place(url, road)
