"""Ids that a client makes when the caller gives none."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from typing import Final

from outlast.model.ids import RunId

_VERSION_AND_VARIANT: Final = 0x7 << 76 | 0b10 << 62


class Ids:
    """Make ids for new runs and signals: UUIDs of version 7, as 32 hexadecimal digits.

    They begin with the time and always grow within this process, so an index takes new ones at its end, and a list by
    creation time keeps the order in which one process started its runs. Safe from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def new(self) -> str:
        """Return an id that nobody has."""
        nanoseconds = time.time_ns()
        milliseconds, rest = divmod(nanoseconds, 1_000_000)
        # 48 bits of milliseconds, then 12 bits for the part of one: a tick of 244 ns.
        tick = milliseconds << 12 | (rest << 12) // 1_000_000
        with self._lock:
            self._last = tick = max(tick, self._last + 1)
        random = int.from_bytes(os.urandom(8)) >> 2
        return f"{(tick >> 12) << 80 | (tick & 0xFFF) << 64 | _VERSION_AND_VARIANT | random:032x}"

    def run(self) -> RunId:
        """Return an id for a new run."""
        return RunId(self.new())


def derived(idempotency_key: str, verb: str, ordinal: int) -> str:
    """Return the id of what a step starts or sends as its `ordinal`-th call: the same in every attempt of that step.

    A digest, because a step's key may already be as long as an id may be.
    """
    text = f"{idempotency_key}\n{verb}\n{ordinal}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
