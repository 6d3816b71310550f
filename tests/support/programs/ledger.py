"""The outside world of the programs here: a file to which each effect is appended, with the key it was done under."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


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
        line = json.dumps(asdict(effect) | {"pid": os.getpid()}) + "\n"
        # One write, at the end of the file as it is at that moment: lines of several processes do not mix.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def effects(self, run: str | None = None) -> list[Effect]:
        if not self._path.exists():
            return []
        found = [Effect(**json.loads(line)) for line in self._path.read_text().splitlines()]
        return [effect for effect in found if run is None or effect.run == run]
