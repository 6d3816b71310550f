"""What a journal's entries mean to callers: values instead of stored text, and why something failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final
from uuid import UUID

import msgspec

from outlast.engine.stops import decode_stop
from outlast.model.failures import decode_failure
from outlast.model.journal import Entry, Kind, Phase, Record, entries
from outlast.model.times import to_datetime


class _Won(msgspec.Struct):
    """What a wait's end tells callers: the payload of the signal that won, if it was one."""

    payload: str | None = None


_won: Final = msgspec.json.Decoder(_Won)

Read = Callable[[str, str], object]
"""Read a stored value, given its text and its place."""


def entry_views(records: Iterable[Record], read: Read, unreadable: dict[str, str]) -> tuple[Entry, ...]:
    """Fold records into entries with their results and failures. One that cannot be read hides nothing but itself."""
    return tuple(_view(entry, read, unreadable) for entry in entries(records))


def _view(entry: Entry, read: Read, unreadable: dict[str, str]) -> Entry:
    place = f"journal[{entry.name!r}]"
    try:
        if entry.kind is Kind.STOP:
            return replace(entry, failure=decode_stop(entry.payload or "", 0).failure)
        if entry.phase in (Phase.RETRY, Phase.FAILED):
            return replace(entry, failure=decode_failure(entry.payload or ""))
        return replace(entry, result=_result(entry, lambda text: read(text, place)))
    except (ValueError, OverflowError, msgspec.MsgspecError) as error:
        unreadable[place] = str(error)
        return entry


def _result(entry: Entry, read: Callable[[str], object]) -> object:
    """Return what an entry recorded; None for what records nothing, and while it is open."""
    if entry.phase is not Phase.DONE or entry.payload is None:
        return None
    match entry.kind:
        case Kind.STEP | Kind.COMPENSATION:
            return read(entry.payload)
        case Kind.WAIT | Kind.FIRST:
            payload = _won.decode(entry.payload).payload
            return None if payload is None else read(payload)
        case Kind.NOW:
            return to_datetime(int(entry.payload))
        case Kind.RANDOM:
            return msgspec.json.decode(entry.payload, type=float)
        case Kind.UUID:
            return msgspec.json.decode(entry.payload, type=UUID)
        case _:
            return None
