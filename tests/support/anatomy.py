"""What a value is made of, down to every type: two values are the same when their anatomies are equal.

`==` does not show it: `1 == 1.0 == True`, a named tuple equals a tuple, and NaN equals nothing.
"""

from __future__ import annotations

from datetime import datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, cast

import msgspec


def anatomy(value: object) -> object:
    kind: type = type(value)
    if isinstance(value, Enum | float | Decimal):
        return (kind, repr(value))
    if isinstance(value, datetime | time):
        return (kind, value.isoformat(), value.fold, getattr(value.tzinfo, "key", None))
    if isinstance(value, dict):
        return (kind, [(anatomy(key), anatomy(item)) for key, item in cast("dict[object, object]", value).items()])
    if isinstance(value, set | frozenset):
        return (kind, sorted((anatomy(member) for member in cast("set[object]", value)), key=repr))
    if isinstance(value, list | tuple):
        return (kind, [anatomy(item) for item in cast("list[object]", value)])
    fields: Any = (
        getattr(kind, "__struct_fields__", ())
        or getattr(kind, "__attrs_attrs__", ())
        or getattr(kind, "__dataclass_fields__", ())
        or getattr(kind, "model_fields", ())
    )
    names = [getattr(field, "name", field) for field in fields]
    if names:
        return (kind, [(name, anatomy(getattr(value, name, msgspec.UNSET))) for name in names])
    return (kind, value)
