"""What the demo prints: a line for each thing that happens, tables, and the checks with their verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


def heading(text: str) -> None:
    """Begin a chapter."""
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


def say(text: str) -> None:
    """Tell what happens."""
    print(f"  {text}", flush=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Lay rows out under their columns, each as wide as its longest cell."""
    cells = [list(columns), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, ["-" * width for width in widths])
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join("    " + line.rstrip() for line in lines)


@dataclass(slots=True)
class Checks:
    """What the demo promises, and whether it held."""

    verdicts: dict[str, bool] = field(default_factory=dict[str, bool])

    def expect(self, promise: str, holds: bool) -> None:
        """Note whether a promise holds; one that is not kept does not end the demo."""
        self.verdicts[promise] = holds
        say(f"{'ok  ' if holds else 'FAIL'} {promise}")

    @property
    def all_hold(self) -> bool:
        """True when there was something to check and all of it held."""
        return bool(self.verdicts) and all(self.verdicts.values())

    def summary(self) -> str:
        """List every promise with its verdict."""
        lines = [f"  {'ok  ' if holds else 'FAIL'} {promise}" for promise, holds in self.verdicts.items()]
        return "\n".join([*lines, f"  {sum(self.verdicts.values())} of {len(self.verdicts)} hold."])
