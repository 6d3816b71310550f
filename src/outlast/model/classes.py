"""The users' classes that values may be made of: which they are, how an instance is taken apart and built again.

Only classes whose instances are their fields (or one plain value) can be stored: dataclasses, attrs classes, msgspec
structs, named tuples, pydantic models, enums, and subclasses of int, float and str. A stored value that names its class
is rebuilt only when that class is one of these, so stored text never makes outlast call anything else.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NewType, TypeVar, cast

import msgspec

from outlast.model.pydantic_models import is_model

SCALARS: Final = (str, int, float)
R = TypeVar("R")


class Kind(enum.Enum):
    """The kinds of classes that can be stored."""

    DATACLASS = enum.auto()
    ATTRS = enum.auto()
    STRUCT = enum.auto()
    NAMED_TUPLE = enum.auto()
    MODEL = enum.auto()
    ENUM = enum.auto()
    SCALAR = enum.auto()


class ClassUnusable(Exception):
    """A class cannot be named in stored text, or a name leads to none that can be used. The text says why."""


def _once_a_class(answer: Callable[[type], R]) -> Callable[[type], R]:
    """Keep what was found out about a class: every value asks again."""
    return lru_cache(maxsize=4096)(answer)


@_once_a_class
def kind_of(cls: type) -> Kind | None:
    """Say how instances of a class are stored; None when they cannot be, or are no instances of a user's class."""
    is_dataclass = hasattr(cls, "__dataclass_fields__")
    has_fields = is_dataclass or hasattr(cls, "__attrs_attrs__")
    is_named_tuple = hasattr(cls, "_fields") and hasattr(cls, "_field_defaults")
    if is_model(cls):
        return Kind.MODEL
    if issubclass(cls, enum.Enum):
        return Kind.ENUM
    if issubclass(cls, msgspec.Struct):
        return Kind.STRUCT
    if issubclass(cls, tuple):
        return Kind.NAMED_TUPLE if is_named_tuple else None
    if issubclass(cls, list | dict | set | frozenset | bytes | bytearray | type):
        return None  # with fields or without: they hold more than their fields
    if issubclass(cls, SCALARS):
        return None if has_fields or cls in SCALARS or cls is bool else Kind.SCALAR
    if has_fields:
        return Kind.DATACLASS if is_dataclass else Kind.ATTRS
    return None


@_once_a_class
def field_names(cls: type) -> tuple[str, ...]:
    """Name the fields that make up an instance, in the order they were declared. Enums and scalars have none."""
    anything = cast("Any", cls)
    match kind_of(cls):
        case Kind.DATACLASS:
            return tuple(field.name for field in dataclasses.fields(anything))
        case Kind.ATTRS:
            return tuple(attribute.name for attribute in anything.__attrs_attrs__)
        case Kind.STRUCT:
            return tuple(anything.__struct_fields__)
        case Kind.NAMED_TUPLE:
            return tuple(anything._fields)
        case Kind.MODEL:
            return tuple(anything.model_fields)
        case Kind.ENUM | Kind.SCALAR | None:
            return ()


def fields_of(value: object) -> dict[str, object]:
    """Take an instance apart. A field that was never set, or is msgspec's UNSET, is left out."""
    fields = {name: getattr(value, name, msgspec.UNSET) for name in field_names(type(value))}
    return {name: field for name, field in fields.items() if field is not msgspec.UNSET}


def build(cls: type, fields: Mapping[str, object]) -> object:
    """Build an instance by its constructor, so that its own checks run; raises whatever that raises.

    Stored fields that the class no longer has are left out, and new ones get their defaults.
    """
    parameters = _parameters(cls)
    value: object = cls(**{parameters[name]: field for name, field in fields.items() if name in parameters})
    for name in field_names(cls):
        if name in fields and name not in parameters:
            object.__setattr__(value, name, fields[name])
    return value


@_once_a_class
def _parameters(cls: type) -> dict[str, str]:
    """The constructor's parameter for each field that it takes."""
    anything = cast("Any", cls)
    match kind_of(cls):
        case Kind.DATACLASS:
            return {field.name: field.name for field in dataclasses.fields(anything) if field.init}
        case Kind.ATTRS:
            taken = [attribute for attribute in anything.__attrs_attrs__ if attribute.init]
            return {each.name: each.alias or each.name.lstrip("_") for each in taken}
        case _:
            return {name: name for name in field_names(cls)}


def plain_scalar(value: str | float) -> str | int | float:
    """Return the plain str, int or float in an instance of a subclass, whatever that subclass overrides."""
    if isinstance(value, str):
        return str.__str__(value)
    return int.__int__(value) if isinstance(value, int) else float.__float__(value)


def type_name(annotation: object) -> str:
    """Return the name of a type for a message, as its author knows it. Of what is made of several types it is all of it: the
    name that a union has since Python 3.14, and a list of something always had, says nothing of them."""
    if isinstance(annotation, NewType):
        return annotation.__name__
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)


@_once_a_class
def class_name(cls: type) -> str:
    """Name a class so that any process can find it: `module:Qualname`. Raises `ClassUnusable`."""
    name = f"{cls.__module__}:{cls.__qualname__}"
    if "<locals>" in name:
        raise ClassUnusable(f"the class {cls.__qualname__} is local to a function, where no other process can find it")
    if find_class(name) is not cls:
        raise ClassUnusable(f"the class {name} is not the one that other processes find under that name")
    return name


@lru_cache(maxsize=4096)
def find_class(name: str) -> type:
    """Find the class that `class_name` named. Raises `ClassUnusable` when it is gone or is none that can be stored."""
    module, _, path = name.partition(":")
    try:
        found: object = importlib.import_module(module)
    except Exception as error:  # importing a module of the application runs its code
        raise ClassUnusable(f"the module of the class {name} cannot be imported: {error}") from error
    for part in path.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise ClassUnusable(f"there is no class {name}; was it renamed or moved?")
    if not isinstance(found, type) or kind_of(found) is None:
        raise ClassUnusable(f"{name} is no class whose values can be stored")
    return found
