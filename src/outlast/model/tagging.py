"""Writing the self-describing form of values (see `tagged`), and finding what no form can store.

Each writer turns one kind of value into what JSON has. All of them refuse with `ValueNotStorable`, naming the place.
"""

from __future__ import annotations

import inspect
import math
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from pathlib import Path, PosixPath, PurePath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any, Final, NoReturn, cast
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from outlast.errors import ValueNotStorable
from outlast.model.classes import ClassUnusable, Kind, class_name, fields_of, kind_of, plain_scalar
from outlast.model.places import Place, Step, place_text, shown
from outlast.model.pydantic_models import dump_model, fault, load_model

_DEEPEST: Final = 100
"""Levels of containers in a value. Fixed, so that what was stored can be read whatever else is on the stack."""

_MICROSECOND: Final = timedelta(microseconds=1)
_encoder: Final = msgspec.json.Encoder()


def tag(value: object, where: str) -> object:
    """Turn a value into JSON's own types and tags. Raises `ValueNotStorable` with the place of what has none."""
    return _Pass(exact=True).write(value, where)


def refuse_unstorable(value: object, where: str) -> None:
    """Raise `ValueNotStorable` for the first thing in a value that no form can store; return when there is none."""
    _Pass(exact=False).write(value, where)


def refuse(place: Place, reason: str) -> NoReturn:
    """Raise `ValueNotStorable` for a place."""
    raise ValueNotStorable(place_text(place), reason)


@dataclass(slots=True)
class _Pass:
    """One pass over one value.

    When not `exact` it only looks for what cannot be stored at all: classes need no name that others can find, and
    subclasses of containers pass, since the typed form takes both.
    """

    exact: bool
    above: set[int] = field(default_factory=set[int])

    def write(self, value: object, place: Place) -> object:
        writer = _WRITERS.get(type(value)) or self._writer_of(value, place)
        return writer(self, value, place)

    def enter(self, value: object, place: Place) -> None:
        if id(value) in self.above:
            refuse(place, "it contains itself")
        if len(self.above) == _DEEPEST:
            refuse(place, f"it is nested more than {_DEEPEST} levels deep")
        self.above.add(id(value))

    def leave(self, value: object) -> None:
        self.above.discard(id(value))

    def _writer_of(self, value: object, place: Place) -> _Writer:
        if kind_of(type(value)) is not None:
            return _write_instance
        for base, writer in (_WITH_SUBCLASSES if self.exact else _WITH_SUBCLASSES | _INEXACT).items():
            if isinstance(value, base):
                return writer
        refuse(place, _why_not(value))


_Writer = Callable[[_Pass, Any, Place], object]


def _write_plain(_at: _Pass, value: object, _place: Place) -> object:
    return value


def _write_text(_at: _Pass, value: str, place: Place) -> object:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            refuse(place, f"the text {shown(value)} has a lone surrogate, which is no character")
    return value


def _write_integer(_at: _Pass, value: int, place: Place) -> object:
    if value.bit_length() > 2048:
        try:
            str(value)
        except ValueError:
            refuse(place, "the integer has more digits than Python reads back (see sys.set_int_max_str_digits)")
    return value


def _write_float(_at: _Pass, value: float, place: Place) -> object:
    if not math.isfinite(value):
        refuse(place, not_finite(value))
    return value


def not_finite(value: float) -> str:
    """Say why NaN and the infinities are refused."""
    return f"JSON has no {value}; use None, or Decimal('{value}'), which is kept as it is"


def _write_list(at: _Pass, value: list[object] | tuple[object, ...], place: Place) -> list[object]:
    at.enter(value, place)
    items = [at.write(item, Step(place, "item", index)) for index, item in enumerate(value)]
    at.leave(value)
    return items


def _write_tuple(at: _Pass, value: tuple[object, ...], place: Place) -> object:
    return {"$": "tuple", "v": _write_list(at, value, place)}


def _write_set(at: _Pass, value: set[object] | frozenset[object], place: Place) -> object:
    """Members are sorted by their text: the same set gives the same text in every process."""
    at.enter(value, place)
    members = sorted((at.write(member, Step(place, "member", member)) for member in value), key=_encoder.encode)
    at.leave(value)
    return {"$": "frozenset" if isinstance(value, frozenset) else "set", "v": members}


def _write_dict(at: _Pass, value: dict[object, object], place: Place) -> object:
    at.enter(value, place)
    keys = [at.write(key, Step(place, "key", key)) for key in value]
    items = [at.write(item, Step(place, "item", key)) for key, item in value.items()]
    at.leave(value)
    if all(type(key) is str and key != "$" for key in value):
        return dict(zip(keys, items, strict=True))
    return {"$": "dict", "v": [list(pair) for pair in zip(keys, items, strict=True)]}


def _write_bytes(_at: _Pass, value: bytes, _place: Place) -> object:
    return {"$": "bytes", "v": b64encode(value).decode()}


def _write_timedelta(_at: _Pass, value: timedelta, _place: Place) -> object:
    return {"$": "timedelta", "v": value // _MICROSECOND}


def _write_date(_at: _Pass, value: date, _place: Place) -> object:
    return {"$": "date", "v": value.isoformat()}


def _write_moment(_at: _Pass, value: datetime | time, _place: Place) -> object:
    """A zone's name is kept beside the offset, since an offset alone does not know the next clock change."""
    tagged: dict[str, object] = {"$": "datetime" if isinstance(value, datetime) else "time", "v": value.isoformat()}
    if value.fold:
        tagged["fold"] = value.fold
    if isinstance(value.tzinfo, ZoneInfo):
        tagged["zone"] = value.tzinfo.key
    return tagged


def _write_decimal(_at: _Pass, value: Decimal, _place: Place) -> object:
    return {"$": "decimal", "v": str(value)}


def _write_uuid(_at: _Pass, value: UUID, _place: Place) -> object:
    return {"$": "uuid", "v": str(value)}


def _write_path(at: _Pass, value: PurePath, place: Place) -> object:
    tag_name = "path" if isinstance(value, Path) else type(value).__name__.lower()
    return {"$": tag_name, "v": _write_text(at, str(value), place)}


def _write_instance(at: _Pass, value: object, place: Place) -> object:
    """What is inside is looked at first: its refusal says more than that of a class that cannot be named."""
    at.enter(value, place)
    parts = _parts(at, value, place)
    at.leave(value)
    if not at.exact:
        return None
    try:
        return {"$": class_name(type(value)), "v": parts}
    except ClassUnusable as error:
        refuse(place, str(error))


def _parts(at: _Pass, value: object, place: Place) -> object:
    match kind_of(type(value)):
        case Kind.ENUM:
            member = cast("Enum", value)
            return member.value if isinstance(member, Flag) else member.name
        case Kind.SCALAR:
            if getattr(value, "__dict__", None):
                refuse(place, f"the {type(value).__qualname__} carries attributes besides its value")
            return at.write(plain_scalar(cast("str | float", value)), place)
        case Kind.MODEL:
            return msgspec.Raw(_model_text(at, value, place))
        case _:
            return {name: at.write(part, Step(place, "field", name)) for name, part in fields_of(value).items()}


def _model_text(at: _Pass, value: object, place: Place) -> bytes:
    """Write a model as text. pydantic turns NaN into null and hides secrets, so the text is read again."""
    try:
        text = dump_model(value)
    except Exception as error:  # noqa: BLE001  serializers are the application's code
        refuse(place, f"the model cannot write itself: {error}")
    try:
        load_model(type(value), text)
    except Exception as error:  # noqa: BLE001  so are validators
        part, part_place, complaint = fault(value, error, place)
        if isinstance(part, float):
            _write_float(at, part, part_place)
        refuse(part_place, f"the model does not take back what it wrote: {complaint}")
    return text


def _why_not(value: object) -> str:
    """Say what a value is and what to do instead."""
    name = type(value).__qualname__
    if inspect.iscoroutine(value) or inspect.isawaitable(value):
        return f"it is a {name}; was an await left out?"
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        return f"it is a {name}, which can be read only once; make it a list"
    if isinstance(value, type):
        return f"it is a class, {value.__qualname__}; store what identifies it"
    if callable(value):
        return f"it is a {name}, which is code; store what identifies it"
    for base in (dict, list, tuple, set, frozenset, bytes):
        if isinstance(value, base):
            return f"it is a {name}, which would come back as a {base.__name__}; make it {base.__name__}(...)"
    return f"a {name} has no stored form; store what identifies it (an id, a path), or a dataclass of what it holds"


_WITH_SUBCLASSES: Final[dict[type, _Writer]] = {
    datetime: _write_moment,
    date: _write_date,
    time: _write_moment,
    timedelta: _write_timedelta,
    Decimal: _write_decimal,
    UUID: _write_uuid,
}
_INEXACT: Final[dict[type, _Writer]] = {
    dict: _write_dict,
    list: _write_list,
    tuple: _write_tuple,
    set: _write_set,
    frozenset: _write_set,
    bytes: _write_bytes,
    bytearray: _write_plain,
    memoryview: _write_plain,
}
_WRITERS: Final[dict[type, _Writer]] = {
    str: _write_text,
    int: _write_integer,
    bool: _write_plain,
    type(None): _write_plain,
    float: _write_float,
    dict: _write_dict,
    list: _write_list,
    tuple: _write_tuple,
    set: _write_set,
    frozenset: _write_set,
    bytes: _write_bytes,
    PosixPath: _write_path,
    WindowsPath: _write_path,
    PurePosixPath: _write_path,
    PureWindowsPath: _write_path,
    **_WITH_SUBCLASSES,
}
