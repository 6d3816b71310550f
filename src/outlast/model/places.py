"""Places inside a value, for messages: `result.items[2].price`, `input['file']`.

A place is made at every step into a value and read only in a refusal, so it is a bare chain that costs next to nothing.
"""

from __future__ import annotations

import reprlib
from typing import Final, Literal, TypeAlias

import msgspec

StepKind = Literal["field", "item", "key", "member"]


class Step(msgspec.Struct, frozen=True, gc=False):
    """One step further into a value than `above`."""

    above: Place
    kind: StepKind
    key: object


Place: TypeAlias = str | Step
"""The name of the whole value, or a step into it."""

_AROUND: Final[dict[StepKind, tuple[str, str]]] = {
    "field": (".", ""),
    "item": ("[", "]"),
    "key": ("[key ", "]"),
    "member": ("{", "}"),
}
_short: Final = reprlib.Repr()
_short.maxstring = _short.maxother = 80


def place_text(place: Place) -> str:
    """Write a place the way one would write it in code. A set's member has no such way: it is shown in braces."""
    steps: list[str] = []
    while isinstance(place, Step):
        before, after = _AROUND[place.kind]
        steps.append(f"{before}{place.key if place.kind == 'field' else shown(place.key)}{after}")
        place = place.above
    return place + "".join(reversed(steps))


def shown(value: object) -> str:
    """Show a value in a message: its repr, cut where it is long, and never an error of its own."""
    return _short.repr(value)
