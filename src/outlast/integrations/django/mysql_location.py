"""What an entry of DATABASES says of a MySQL or MariaDB, in the words of mysqlclient, or of PyMySQL in its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from configparser import RawConfigParser
from typing import Any, Final, cast

_NAMES: Final = {
    "user": "username", "password": "password", "passwd": "password", "host": "host", "port": "port",
    "database": "database", "db": "database", "unix_socket": "unix_socket", "socket": "unix_socket",
}  # fmt: skip
"""How OPTIONS and option files call what a URL has."""

_FILES: Final = ("ca", "cert", "key")
_MODES: Final[Mapping[str, Mapping[str, str]]] = {
    "REQUIRED": {"ssl": "true", "ssl_check_hostname": "false"},
    "VERIFY_CA": {"ssl": "true", "ssl_verify_cert": "true", "ssl_check_hostname": "false"},
    "VERIFY_IDENTITY": {"ssl": "true", "ssl_verify_cert": "true", "ssl_check_hostname": "true"},
}


def place_of(settings: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return where the server is and who asks, as parts of a URL. `settings` are those parts that Django has settings for.

    OPTIONS come before the settings, and these before an option file, as they do for Django.
    """
    place = {**_of_option_file(options), **settings, **_renamed(options.items())}
    if str(place.get("host", "")).startswith("/"):
        place["unix_socket"] = place["host"]
    if "unix_socket" in place:
        place.pop("host", None)
        place.pop("port", None)
    return place


def tls_of(options: Mapping[str, Any]) -> dict[str, str]:
    """Return what the URL says of TLS."""
    mode = str(options.get("ssl_mode", "")).upper()
    if mode == "DISABLED" or options.get("ssl_disabled"):
        return {}
    given: object = options.get("ssl")
    files: Mapping[str, Any] = cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else {}
    query = {
        f"ssl_{name}": str(file)
        for name in _FILES
        if (file := options.get(f"ssl_{name}") or files.get(name)) is not None
    }
    if given and not files:
        query["ssl"] = "true"
    if "check_hostname" in files:
        query["ssl_check_hostname"] = _switch(files["check_hostname"])
    # PyMySQL's words, and then mysqlclient's. Either checks the server's name only when it is told to.
    if any(name.startswith("ssl_") for name in options.keys() - {"ssl_mode"}):
        query["ssl_check_hostname"] = _switch(options.get("ssl_verify_identity"))
    if "ssl_verify_cert" in options:
        query["ssl_verify_cert"] = _switch(options["ssl_verify_cert"])
    return query | dict(_MODES.get(mode, {}))


def _switch(value: object) -> str:
    return "true" if value else "false"


def _of_option_file(options: Mapping[str, Any]) -> dict[str, Any]:
    """Read the file in which Django's documentation keeps the password."""
    if "read_default_file" not in options:
        return {}
    # Such files have options without a value, and may set one twice.
    parser = RawConfigParser(allow_no_value=True, strict=False)
    parser.read(options["read_default_file"])
    found: dict[str, Any] = {}
    for group in ("client", options.get("read_default_group", "client")):
        given = parser.items(group) if parser.has_section(group) else ()
        # RawConfigParser's types leave out that a value may be missing.
        values = cast("Iterable[tuple[str, str | None]]", given)
        found |= _renamed((name, value.strip("\"'")) for name, value in values if value is not None)
    return found


def _renamed(given: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found = {_NAMES[name]: value for name, value in given if name in _NAMES}
    return {**found, "port": int(found["port"])} if "port" in found else found
