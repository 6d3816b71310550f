"""Ids, names and keys: what they are made of and how long they may be.

The bounds are those of the database with the tightest index; they hold on all of them, so that an application can move.
"""

from __future__ import annotations

import re
from typing import Final, NewType

from outlast.errors import InvalidName

RunId = NewType("RunId", str)
WorkerId = NewType("WorkerId", str)

MAX_ID: Final = 255
MAX_ENTRY_NAME: Final = 512
"""More than of an id: a step of a loop is often named after what it is about, and no index holds its name."""
RESERVED: Final = "$"
_WORKFLOW_NAME = re.compile(r"[A-Za-z0-9._:-]+\Z")


def run_id(value: str) -> RunId:
    """Check a run's id: 1 to 255 characters, no control characters. Compared exactly, case and blanks included."""
    return RunId(_checked(value, "A run id", MAX_ID))


def workflow_name(value: str) -> str:
    """Check a workflow's name: letters, digits and `. _ : -`."""
    _checked(value, "A workflow name", MAX_ID)
    if not _WORKFLOW_NAME.match(value):
        raise InvalidName(f"A workflow name is made of letters, digits and . _ : - ; {value!r} is not.")
    return value


def entry_name(value: str) -> str:
    """Check the name an author gives to a step, sleep, wait or commit. Names with `$` in front are the engine's own."""
    return _not_reserved(_checked(value, "The name of a step, sleep or wait", MAX_ENTRY_NAME), "an entry's name")


def signal_name(value: str) -> str:
    """Check a signal's name."""
    return _not_reserved(_checked(value, "A signal name", MAX_ID), "a signal's name")


def signal_key(value: str | None) -> str | None:
    """Check a signal's key. None, the empty string and every other string are different keys."""
    return value if not value else _checked(value, "A signal key", MAX_ID)


def dedupe_id(value: str) -> str:
    """Check the id that makes sending a signal twice the same as sending it once."""
    return _checked(value, "A signal id", MAX_ID)


def topic(name: str, key: str | None) -> str:
    """Name the line in which signals of one name and key queue. A name has no newline, so no two pairs share a topic."""
    return name if key is None else f"{name}\n{key}"


def _checked(value: object, what: str, longest: int) -> str:
    if not isinstance(value, str):
        raise InvalidName(f"{what} must be a str, not {type(value).__name__}.")
    if not value:
        raise InvalidName(f"{what} must not be empty.")
    if len(value) > longest:
        raise InvalidName(f"{what} has at most {longest} characters; this one has {len(value)}: {value[:40]!r}...")
    if any(ord(character) < 32 or 0xD800 <= ord(character) <= 0xDFFF for character in value):
        raise InvalidName(f"{what} must not hold control characters or lone surrogates: {value!r}.")
    return value


def _not_reserved(value: str, what: str) -> str:
    if value.startswith(RESERVED):
        raise InvalidName(f"{value!r} cannot be {what}: names with $ in front are the engine's own.")
    return value
