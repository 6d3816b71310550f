"""Annotations that promise what can never be stored, found before a step's effect and not after it.

A class is refused when no value of it has a stored form: it declares no fields, and no subclass of it does. What says less
(`Any`, `object`, a Protocol, an abstract class) or cannot be looked up yet may turn out well, so it is left to the values.
"""

from __future__ import annotations

import types
from abc import ABCMeta
from functools import lru_cache
from pathlib import PurePath
from typing import Any, Final, Union, get_args, get_origin

from msgspec import inspect

from outlast.errors import DefinitionError
from outlast.model.classes import kind_of
from outlast.model.values import Shape

_UNIONS: Final = (Union, types.UnionType)
_BUILTIN: Final = (dict, list, tuple, set, frozenset, bytes, bytearray, str, int, float, PurePath)
"""What a value may be of which an annotation names a subclass."""


def check_storable(what: str, annotation: object, *, is_declared: bool = True) -> None:
    """Raise DefinitionError when no value of this annotation can be stored; `what` names it in the message.

    Where it is not yet `is_declared`, because the code around it is still being executed, a class without a constructor of
    its own passes: what is stored may be subclasses that stand further down.
    """
    found = _never(annotation, is_declared)
    if found is None:
        return
    raise DefinitionError(
        f"{what[0].upper()}{what[1:]} is annotated with {found.__qualname__}, whose instances cannot be stored. Make it a "
        "dataclass, an msgspec struct, an attrs class, a pydantic model or a TypedDict of what it holds, or use what "
        "identifies it, such as an id."
    )


@lru_cache(maxsize=4096)
def check_storable_once(what: str, shape: Shape[Any]) -> None:
    """The same, remembered for what is asked again and again."""
    check_storable(what, shape.annotation)


def _never(annotation: object, is_declared: bool) -> type | None:
    """Find a class that keeps every value of an annotation from being stored."""
    try:
        node = inspect.type_info(annotation)
    except Exception:  # noqa: BLE001  msgspec has no one error for what it does not support, and names may not resolve
        if get_origin(annotation) not in _UNIONS:
            return None
        found = [_never(part, is_declared) for part in get_args(annotation) if part is not type(None)]
        return None if None in found else found[0]
    return _never_in(node, is_declared, ())


def _never_in(node: inspect.Type, is_declared: bool, above: tuple[inspect.Type, ...]) -> type | None:
    if node in above:
        return None
    above = (*above, node)
    match node:
        case inspect.CustomType():
            return _never_of(node.cls, is_declared)
        case inspect.UnionType():
            found = [
                _never_in(part, is_declared, above) for part in node.types if not isinstance(part, inspect.NoneType)
            ]
            return None if None in found else found[0]
        case inspect.StructType() | inspect.DataclassType() | inspect.NamedTupleType() | inspect.TypedDictType():
            parts = [field.type for field in node.fields if field.required]
        case inspect.TupleType():
            parts = list(node.item_types)
        case inspect.DictType():
            parts = [node.key_type, node.value_type]
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            parts = [node.item_type]
        case _:
            return None
    every = (_never_in(part, is_declared, above) for part in parts)
    return next((found for found in every if found is not None), None)


def _never_of(annotated: object, is_declared: bool) -> type | None:
    named = get_origin(annotated) or annotated
    if not isinstance(named, type):
        return None
    cls: type[Any] = named
    if cls is object or issubclass(cls, _BUILTIN) or kind_of(cls) is not None:
        return None
    if isinstance(cls, ABCMeta) or getattr(cls, "_is_protocol", False) or _has_storable_subclass(cls):
        return None
    return cls if is_declared or _has_constructor(cls) else None


def _has_constructor(cls: Any) -> bool:  # noqa: ANN401  any class
    return cls.__init__ is not object.__init__ or cls.__new__ is not object.__new__


def _has_storable_subclass(cls: type) -> bool:
    below: list[type] = type.__subclasses__(cls)
    return any(kind_of(each) is not None or _has_storable_subclass(each) for each in below)
