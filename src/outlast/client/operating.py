"""What commands say to operators, whichever framework they are commands of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

BEHIND: Final = 3
"""The exit code for tables that are missing or older than this code. An error is 1, a wrong call 2."""


def migrated(versions: Sequence[int]) -> str:
    """Say what bringing the tables up to date did."""
    if versions:
        return f"Applied {', '.join(map(str, versions))}; the tables are up to date."
    return "The tables were up to date already."


def in_words(error: BaseException) -> str:
    """Say what is wrong in one line, with what was noted about it."""
    notes: list[str] = getattr(error, "__notes__", [])
    return " ".join([f"{type(error).__name__}: {error}", *notes])
