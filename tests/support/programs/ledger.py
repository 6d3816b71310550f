"""The outside world of the programs here: a file to which each effect is appended, with the key it was done under."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

LINE: Final = 512
"""Bytes of a line. No line lies on two pages of the file: such a line can be read, or left by a kill, half written."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One call of a step or a compensation, by the process `pid`. `done` is False when it raised."""

    run: str
    step: str
    key: str
    attempt: int
    done: bool = True
    pid: int = 0


class Ledger:
    """Effects in the order in which they happened, whichever process did them. A killed process loses none of its own."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def add(self, effect: Effect) -> None:
        line = json.dumps(asdict(effect) | {"pid": os.getpid()}).encode().ljust(LINE - 1) + b"\n"
        if len(line) != LINE:
            raise ValueError(f"an effect of {len(line)} bytes does not fit in a line of {LINE}: {effect}")
        # One write, at the end of the file as it is at that moment: lines of several processes do not mix.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def effects(self, run: str | None = None) -> list[Effect]:
        if not self._path.exists():
            return []
        found = [Effect(**json.loads(line)) for line in self._path.read_text().splitlines()]
        return [effect for effect in found if run is None or effect.run == run]


def add_many(path: str, count: int) -> None:
    """Add effects, one after the other."""
    for number in range(count):
        Ledger(path).add(Effect(f"run-{number}", "step", f"run-{number}:step", 1))
