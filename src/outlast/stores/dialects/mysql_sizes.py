"""How much MySQL and MariaDB take at once. They cut the connection for a longer statement than max_allowed_packet."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

LEAST: Final = 2**20
"""Bytes that every server takes: drivers send many short rows together up to this."""

_ROOM: Final = 16_384
"""Bytes for the statement's own text and the numbers in it."""


def is_too_long(texts: Collection[str], most: int) -> bool:
    """Tell whether a server whose max_allowed_packet is `most` does not take these texts in one statement."""
    # Written as a literal a character takes two bytes, or up to four as UTF-8: most are settled without a closer look.
    return sum(map(len, texts)) * 4 >= most - _ROOM and sum(map(_written, texts)) > most - _ROOM


def remedy(most: int) -> str:
    """Say why a text is not stored, and what to do."""
    return (
        f"the server takes at most max_allowed_packet = {most:,} bytes in one statement. Store less (a reference to where "
        "the data lies), or raise max_allowed_packet"
    )


def _written(text: str) -> int:
    return len(text.encode(errors="surrogatepass")) + sum(text.count(character) for character in "\\'\"\n\r\0\x1a")
