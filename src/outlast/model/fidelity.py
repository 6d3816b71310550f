"""Whether a value fits its annotation, and whether what comes back from its text is that value.

Both walk a value beside the tree in which msgspec describes an annotation. They run where the quick comparison of
`values` does not settle it, so they may take their time and are exact: `1`, `1.0` and `True` differ, and so do a list
and a tuple.
"""

from __future__ import annotations

import marshal
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any, Final, cast, get_origin
from uuid import UUID

from msgspec import inspect

from outlast.model.classes import Kind, field_names, kind_of
from outlast.model.places import Place, Step, shown
from outlast.model.tagging import not_finite

Node = inspect.Type
"""What an annotation says of one place: a node of msgspec's description."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A place in a value and what is wrong there."""

    place: Place
    reason: str


@dataclass(frozen=True, slots=True)
class Survey:
    """What an annotation's description holds anywhere in it."""

    needs_walk: bool
    """A place where `==` shows too little: one that takes anything, since an enum that is a str equals the str it came
    back as, or a time, which may equal one without its zone."""
    is_beyond_json: bool
    """A class of which nobody knows how it is stored, or floats as keys, among which NaN would pass for a text."""
    is_hidden_in_json: bool
    """An attrs class that cannot do without a private field, which msgspec reads and does not write."""


def survey(root: Node) -> Survey:
    """Look through an annotation's description."""
    nodes = list(_nodes(root))
    return Survey(
        needs_walk=any(is_open(node) or isinstance(node, inspect.TimeType) for node in nodes),
        is_beyond_json=any(_is_stranger(node) or _has_float_keys(node) for node in nodes),
        is_hidden_in_json=any(_needs_private(node) for node in nodes),
    )


def is_open(node: Node | None) -> bool:
    """Whether a place takes anything at all."""
    match node:
        case inspect.AnyType():
            return True
        case inspect.CustomType():
            return node.cls is object
        case inspect.UnionType(types=types):
            return any(is_open(each) for each in types)
        case _:
            return False


def describe(node: Node) -> str:
    """Name what an annotation says of a place, as one would write it."""
    match node:
        case inspect.UnionType(types=types):
            return " | ".join(describe(each) for each in types)
        case inspect.NoneType():
            return "None"
        case inspect.LiteralType(values=values):
            return f"one of {', '.join(map(repr, values))}"
        case _:
            pass
    cls = _class_of(node)
    if cls is not None:
        return cls.__qualname__
    accepted = _ACCEPTED.get(type(node))
    return accepted[0].__name__ if accepted else type(node).__name__.removesuffix("Type").lower()


def _nodes(root: Node) -> Iterator[Node]:
    seen: set[int] = set()
    waiting: list[object] = [root]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple):
            waiting.extend(cast("tuple[object, ...]", part))
        elif isinstance(part, inspect.Type | inspect.Field) and id(part) not in seen:
            seen.add(id(part))
            waiting.extend(getattr(part, name) for name in part.__struct_fields__)
            if isinstance(part, inspect.Type):
                yield part


def _class_of(node: Node) -> type | None:
    """The class that an annotation names for a place, without its type arguments."""
    cls: Any = getattr(node, "cls", None)
    origin = get_origin(cls) or cls  # typing has objects that stand for classes and are none
    return origin if isinstance(origin, type) else None


def _is_stranger(node: Node) -> bool:
    if isinstance(node, inspect.ExtType | inspect.RawType | inspect.MemoryViewType):
        return True
    if not isinstance(node, inspect.CustomType) or node.cls is object:
        return False
    cls = _class_of(node)
    return cls is None or (kind_of(cls) not in _BY_THE_HOOKS and not issubclass(cls, PurePath))


def _has_float_keys(node: Node) -> bool:
    return isinstance(node, inspect.DictType) and any(
        isinstance(part, inspect.FloatType) for part in _nodes(node.key_type)
    )


def _needs_private(node: Node) -> bool:
    return (
        isinstance(node, inspect.DataclassType)
        and kind_of(_class_of(node) or object) is Kind.ATTRS
        and any(field.required and field.name.startswith("_") for field in node.fields)
    )


def misfit(value: object, node: Node | None, place: Place) -> Fault | None:
    """Find the first place where a value is of another type than its annotation says."""
    if node is None or is_open(node):
        return None
    branch = _branch(node, value)
    if branch is None:
        return Fault(place, f"its type is {_name(value)}, and the annotation says {describe(node)}")
    for part, part_node, part_place in _parts(value, branch, place):
        fault = misfit(part, part_node, part_place)
        if fault is not None:
            return fault
    return None


def are_same_builtins(value: object, copy: object) -> bool:
    """Whether two values are equal and made of the very same builtin types; False when they hold anything else.

    marshal refuses everything but exact builtin types (only what acts as bytes passes for bytes), so its bytes tell `1`,
    `1.0` and `True` apart, and a str from an enum that is one. It answers for a whole tree in less time than a walk needs
    for its first node. Version 2 of its format is the last whose bytes depend on nothing but the value.
    """
    try:
        return _builtin_bytes(value, 2) == _builtin_bytes(copy, 2)
    except ValueError:
        return False


def difference(value: object, copy: object, node: Node | None, place: Place) -> Fault | None:
    """Find the first place where what came back is not what was stored.

    Where the annotation names the type of a place, its way of holding a value counts as the same: an int as a float of
    that very number, a tuple as a list, a str enum as a str. Elsewhere (`node` None or open) only the same type does.
    """
    if are_same_builtins(value, copy):
        return None
    if not _keeps_type(value, copy, node):
        return Fault(place, _changed(value, copy))
    if not _has_parts(copy):
        return None if _is_equal(value, copy) else Fault(place, _changed(value, copy))
    branch = None if node is None else node if is_open(node) else _branch(node, value)
    stored, restored = list(_parts(value, branch, place)), list(_parts(copy, branch, place))
    if len(stored) != len(restored):
        return Fault(place, _changed(value, copy))
    for (part, part_node, part_place), (part_copy, _, _) in zip(stored, restored, strict=True):
        fault = difference(part, part_copy, part_node, part_place)
        if fault is not None:
            return fault
    return None


def _keeps_type(value: object, copy: object, node: Node | None) -> bool:
    if type(value) is type(copy):
        return True
    if is_open(node):
        return False
    if type(copy) is float and isinstance(value, int) and not isinstance(value, bool):
        return value == copy
    if kind_of(type(copy)) is not None or kind_of(type(value)) not in _PLAIN_AT_HEART:
        return False
    if isinstance(value, type(copy)):
        return True
    return node is not None and any(isinstance(value, family) and isinstance(copy, family) for family in _FAMILIES)


def _is_equal(value: object, copy: object) -> bool:
    if isinstance(value, Decimal):  # NaN is not itself, and 1.10 is 1.1
        return str(value) == str(copy)
    if isinstance(value, datetime | time) and isinstance(copy, datetime | time):
        # Two datetimes of different zones are never equal inside a clock change.
        return value.isoformat() == copy.isoformat() and (value.tzinfo is None) == (copy.tzinfo is None)
    try:
        return bool(value == copy)
    except Exception:  # noqa: BLE001  the application's own comparison; what cannot be compared is not known to be kept
        return False


def _has_parts(value: object) -> bool:
    return isinstance(value, dict | list | tuple) or bool(field_names(type(value)))


def _parts(value: object, node: Node | None, place: Place) -> Iterator[tuple[object, Node | None, Place]]:
    """What a value is made of, each part with what the annotation says of it and its place."""
    names = field_names(type(value))
    if names:
        for name in names:
            yield getattr(value, name, None), _field_node(node, name), Step(place, "field", name)
    elif isinstance(value, dict):
        for key, item in cast("dict[object, object]", value).items():
            yield key, _key_node(node), Step(place, "key", key)
            yield item, _value_node(node, key), Step(place, "item", key)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(cast("list[object]", value)):
            yield item, _item_node(node, index), Step(place, "item", index)
    elif isinstance(value, set | frozenset):
        for member in cast("set[object]", value):
            yield member, _item_node(node, 0), Step(place, "member", member)


def _field_node(node: Node | None, name: str) -> Node | None:
    if isinstance(node, inspect.StructType | inspect.DataclassType | inspect.NamedTupleType):
        return next((field.type for field in node.fields if field.name == name), None)
    return node if is_open(node) else None


def _key_node(node: Node | None) -> Node | None:
    if isinstance(node, inspect.DictType):
        return node.key_type
    return node if is_open(node) else None


def _value_node(node: Node | None, key: object) -> Node | None:
    if isinstance(node, inspect.DictType):
        return node.value_type
    if isinstance(node, inspect.TypedDictType):
        return next((field.type for field in node.fields if field.name == key), None)
    return node if is_open(node) else None


def _item_node(node: Node | None, index: int) -> Node | None:
    if isinstance(node, inspect.ListType | inspect.VarTupleType | inspect.SetType | inspect.FrozenSetType):
        return node.item_type
    if isinstance(node, inspect.TupleType):
        return node.item_types[index] if index < len(node.item_types) else None
    return node if is_open(node) else None


def _branch(node: Node, value: object) -> Node | None:
    """The branch of an annotation that a value takes; None when it fits none."""
    if isinstance(node, inspect.UnionType):
        return next((each for each in node.types if _accepts(each, value)), None)
    return node if _accepts(node, value) else None


def _accepts(node: Node, value: object) -> bool:
    if isinstance(node, inspect.LiteralType):
        return any(value == each and type(value) is type(each) for each in node.values)
    if isinstance(node, inspect.TypedDictType):
        return isinstance(value, dict)
    cls = _class_of(node)
    if cls is not None:
        return isinstance(value, cls)
    if isinstance(value, bool):
        return isinstance(node, inspect.BoolType)
    if isinstance(value, datetime):
        return isinstance(node, inspect.DateTimeType)
    return isinstance(value, _ACCEPTED.get(type(node), object))


def _name(value: object) -> str:
    return type(value).__qualname__


def _changed(value: object, copy: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return not_finite(value)
    if type(value) is not type(copy):
        return f"its type is {_name(value)}, and it would come back as {_name(copy)}"
    return f"{shown(value)} would come back as {shown(copy)}"


_builtin_bytes: Final = cast("Callable[[object, int], bytes]", marshal.dumps)

_PLAIN_AT_HEART: Final = (None, Kind.SCALAR, Kind.ENUM)
"""Kinds of which an annotation may name the plain type underneath: a place for a str may hold a str enum."""

_BY_THE_HOOKS: Final = (Kind.MODEL, Kind.SCALAR)
"""Kinds of classes that msgspec does not know and `values` teaches it."""

_FAMILIES: Final = ((list, tuple), (set, frozenset), (bytes, bytearray, memoryview))
"""Types that an annotation may hold as one another: what it names comes back."""

_ACCEPTED: Final[dict[type[Node], tuple[type, ...]]] = {
    inspect.IntType: (int,),
    inspect.FloatType: (float, int),
    inspect.StrType: (str,),
    inspect.BoolType: (bool,),
    inspect.NoneType: (type(None),),
    inspect.BytesType: (bytes, bytearray, memoryview),
    inspect.ByteArrayType: (bytearray, bytes, memoryview),
    inspect.DateTimeType: (datetime,),
    inspect.DateType: (date,),
    inspect.TimeType: (time,),
    inspect.TimeDeltaType: (timedelta,),
    inspect.UUIDType: (UUID,),
    inspect.DecimalType: (Decimal,),
    inspect.ListType: (list, tuple),
    inspect.TupleType: (tuple, list),
    inspect.VarTupleType: (tuple, list),
    inspect.SetType: (set, frozenset),
    inspect.FrozenSetType: (frozenset, set),
    inspect.DictType: (dict,),
}
