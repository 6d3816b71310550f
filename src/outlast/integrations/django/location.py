"""From an entry of Django's DATABASES to the URL of connections of ours, for the worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from sqlalchemy import URL

from outlast.integrations.django.mysql_location import place_of, tls_of

SUPPORTED: Final = ("sqlite", "postgresql", "mysql")
"""Vendors, in Django's words, on which outlast has a store."""

# What libpq and asyncpg both know. The rest of OPTIONS is about Django's own connections.
_LIBPQ: Final = (
    "passfile", "service", "servicefile", "sslcert", "sslcrl", "sslkey", "sslmode", "sslrootcert", "target_session_attrs",
)  # fmt: skip


def url_of(alias: str) -> URL:
    """Return where the database is. Raises ImproperlyConfigured for one that a worker cannot reach.

    Read when it is needed and not before: Django's test runner gives its databases other names.
    """
    connection: Any = connections[alias]
    locate = _LOCATORS.get(connection.vendor)
    if locate is None:
        raise ImproperlyConfigured(
            f"DATABASES[{alias!r}] is {connection.vendor}, on which outlast has no store. Name another one in "
            f"OUTLAST['DATABASE']; outlast works on {', '.join(SUPPORTED)}."
        )
    return locate(alias, connection)


def _sqlite(alias: str, connection: Any) -> URL:  # noqa: ANN401 - a DatabaseWrapper of SQLite's
    if connection.is_in_memory_db():
        raise ImproperlyConfigured(
            f"DATABASES[{alias!r}] is in memory, where only this process finds it. A worker needs a file; in tests, "
            "outlast.integrations.django.testing runs what is due without one."
        )
    return URL.create("sqlite", database=str(connection.settings_dict["NAME"]))


def _postgresql(alias: str, connection: Any) -> URL:  # noqa: ARG001, ANN401 - a DatabaseWrapper of PostgreSQL's
    given: Mapping[str, Any] = connection.settings_dict
    options: Mapping[str, Any] = given["OPTIONS"]
    query = {name: str(options[name]) for name in _LIBPQ if name in options}
    startup = str(options.get("options", ""))
    if options.get("assume_role"):
        startup = f"{startup} -c role={options['assume_role']}".strip()
    if startup:
        query["options"] = startup
    place = _server(given)
    if str(given["HOST"]).startswith("/"):
        query["host"] = place.pop("host")
    return URL.create("postgresql", **place, query=query)


def _mysql(alias: str, connection: Any) -> URL:  # noqa: ARG001, ANN401 - a DatabaseWrapper of MySQL's
    options: Mapping[str, Any] = connection.settings_dict["OPTIONS"]
    place = place_of(_server(connection.settings_dict), options)
    query = tls_of(options)
    if "unix_socket" in place:
        query["unix_socket"] = place.pop("unix_socket")
    return URL.create("mysql", **place, query=query)


def _server(given: Mapping[str, Any]) -> dict[str, Any]:
    place = {
        "username": given["USER"],
        "password": given["PASSWORD"],
        "host": str(given["HOST"]),
        "port": int(given["PORT"]) if given["PORT"] else None,
        "database": given["NAME"],
    }
    return {name: value for name, value in place.items() if value not in ("", None)}


_LOCATORS: Final[Mapping[str, Callable[[str, Any], URL]]] = {
    "sqlite": _sqlite,
    "postgresql": _postgresql,
    "mysql": _mysql,
}
