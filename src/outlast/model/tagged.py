"""The self-describing form of values, for where no annotation says what a text holds.

JSON scalars, lists and dicts with plain text keys stand as they are. Everything else is an object with a tag:

    {"$": "tuple", "v": [1, 2]}      {"$": "shop.orders:Order", "v": {"id": "o-1", "lines": []}}

A short word is a type that outlast knows, `module:Qualname` a class of the application (see `classes`). A dict that
holds the key "$" itself is written as pairs, as is one with other keys than plain texts: nothing a user stores looks
like a tag.

Every value comes back as exactly its type. Only subclasses of datetime, date, time, timedelta, Decimal and UUID, which
drivers and test tools like to make, come back as the plain type.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Flag
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final, NoReturn, cast
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from outlast.errors import ValueUnreadable
from outlast.model.classes import ClassUnusable, Kind, build, find_class, kind_of
from outlast.model.places import Place, Step, place_text, shown
from outlast.model.pydantic_models import load_model
from outlast.model.tagging import tag

_TAG: Final = '{"$":'
"""How every tagged object begins. Inside a JSON string its quotes would be escaped, so no text's content looks like it."""

_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder[object]()


def encode_tagged(value: object, where: str) -> str:
    """Write a value in the self-describing form. Raises `ValueNotStorable` with the place of what cannot be stored."""
    return _encoder.encode(tag(value, where)).decode()


def encode_described(value: object, where: str) -> str:
    """Write a value as `encode_tagged` does, in a tag of its own if it needs none: the text then `is_described`."""
    text = encode_tagged(value, where)
    return text if is_described(text) else f'{_TAG}"open","v":{text}}}'


def is_described(text: str) -> bool:
    """Whether a text has a tag anywhere."""
    return _TAG in text


def decode_tagged(text: str, where: str) -> object:
    """Read what `encode_tagged` wrote. Raises `ValueUnreadable` with the place of what is damaged."""
    try:
        raw = _decoder.decode(text)
    except (ValueError, msgspec.MsgspecError) as error:
        raise ValueUnreadable(where, f"the stored text is damaged: {error}") from error
    return _restored(raw, where) if is_described(text) else raw


def _restored(raw: object, place: Place) -> object:
    if type(raw) is list:
        items = cast("list[object]", raw)
        return [_restored(item, Step(place, "item", index)) for index, item in enumerate(items)]
    if type(raw) is not dict:
        return raw
    found = cast("dict[str, Any]", raw)
    if "$" not in found:
        return {key: _restored(item, Step(place, "item", key)) for key, item in found.items()}
    name = found["$"]
    try:
        return _READERS.get(name, _read_instance)(found, place)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        _unreadable(place, f"the stored {name} is damaged: {error}", error)


def _unreadable(place: Place, reason: str, error: Exception | None = None) -> NoReturn:
    raise ValueUnreadable(place_text(place), reason) from error


_Reader = Callable[[dict[str, Any], Place], object]


def _read_items(found: dict[str, Any], place: Place) -> list[object]:
    return [_restored(item, Step(place, "item", index)) for index, item in enumerate(found["v"])]


def _read_dict(found: dict[str, Any], place: Place) -> dict[object, object]:
    restored: dict[object, object] = {}
    for raw_key, raw in found["v"]:
        key = _restored(raw_key, Step(place, "key", raw_key))
        restored[key] = _restored(raw, Step(place, "item", key))
    return restored


def _read_datetime(found: dict[str, Any], _place: Place) -> datetime:
    value = datetime.fromisoformat(found["v"]).replace(fold=found.get("fold", 0))
    if "zone" not in found:
        return value
    local = value.replace(tzinfo=ZoneInfo(found["zone"]))
    # Where the zone's rules have changed since, the instant counts, not what the clock showed.
    return local if local.utcoffset() == value.utcoffset() else value.astimezone(local.tzinfo)


def _read_time(found: dict[str, Any], _place: Place) -> time:
    value = time.fromisoformat(found["v"]).replace(fold=found.get("fold", 0))
    return value.replace(tzinfo=ZoneInfo(found["zone"])) if "zone" in found else value


def _read_instance(found: dict[str, Any], place: Place) -> object:
    name, parts = found["$"], found["v"]
    if not isinstance(name, str) or ":" not in name:
        _unreadable(place, f"this version of outlast knows no {shown(name)}")
    try:
        cls = find_class(name)
    except ClassUnusable as error:
        _unreadable(place, str(error), error)
    kind = kind_of(cls)
    if kind not in {Kind.ENUM, Kind.SCALAR, Kind.MODEL}:
        parts = {field: _restored(raw, Step(place, "field", field)) for field, raw in parts.items()}
    try:
        return _built(cls, kind, parts)
    except Exception as error:  # noqa: BLE001  constructors are the application's code
        _unreadable(place, f"{name} does not take what was stored: {type(error).__name__}: {error}", error)


def _built(cls: type, kind: Kind | None, parts: object) -> object:
    match kind:
        case Kind.ENUM:
            return cast("object", cls(parts) if issubclass(cls, Flag) else cast("Any", cls)[parts])
        case Kind.SCALAR:
            if not issubclass(cls, type(parts)):
                raise TypeError(f"{shown(parts)} is stored")
            return cast("Callable[[object], object]", cls)(parts)
        case Kind.MODEL:
            return load_model(cls, _encoder.encode(parts))
        case _:
            return build(cls, cast("dict[str, object]", parts))


_READERS: Final[dict[str, _Reader]] = {
    "open": lambda found, place: _restored(found["v"], place),
    "dict": _read_dict,
    "tuple": lambda found, place: tuple(_read_items(found, place)),
    "set": lambda found, place: set(_read_items(found, place)),
    "frozenset": lambda found, place: frozenset(_read_items(found, place)),
    "bytes": lambda found, _: b64decode(found["v"], validate=True),
    "datetime": _read_datetime,
    "date": lambda found, _: date.fromisoformat(found["v"]),
    "time": _read_time,
    "timedelta": lambda found, _: timedelta(microseconds=found["v"]),
    "decimal": lambda found, _: Decimal(found["v"]),
    "uuid": lambda found, _: UUID(found["v"]),
    "path": lambda found, _: Path(found["v"]),
    "pureposixpath": lambda found, _: PurePosixPath(found["v"]),
    "purewindowspath": lambda found, _: PureWindowsPath(found["v"]),
}
