"""Recognise objects of libraries that may not be installed. An object of a class exists only where its module is loaded."""

from __future__ import annotations

import sys
from typing import Any


def is_a(value: object, module: str, name: str) -> bool:
    """Tell whether a value is of the class `name` of `module`, without importing the module."""
    found = loaded_class(module, name)
    return found is not None and isinstance(value, found)


def loaded_class(module: str, name: str) -> type[Any] | None:
    """Return the class, or None while its module is not loaded."""
    found: type[Any] | None = getattr(sys.modules.get(module), name, None)
    return found
