"""Finding the application that a command is about."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

from outlast.app import Outlast


class NotFound(Exception):
    """No application is there under that name. The message says what was looked for, and where."""


def load_app(target: str) -> Outlast:
    """Import `module:attribute`, with the current folder on the path, and return the Outlast it names.

    Raises NotFound. What the module itself raises comes through: it is the application's own error.
    """
    name, colon, attribute = target.partition(":")
    if not (name and colon and attribute) or name.startswith("."):
        raise NotFound(f"{target!r} names no application; write it as module:attribute, such as shop.main:app.")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = _module(name)
    found: object = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise NotFound(f"Module {name!r} has no {attribute!r}.{_instead(module)}") from None
    if not isinstance(found, Outlast):
        raise NotFound(f"{target} is no Outlast(...), but a {type(found).__name__}.{_instead(module)}")
    return found


def _instead(module: ModuleType) -> str:
    """Say which applications the module has."""
    there = [f"{module.__name__}:{name}" for name, value in vars(module).items() if isinstance(value, Outlast)]
    return f" There is {' and '.join(there)}." if there else ""


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # The module is there; something that it imports is not.
        raise NotFound(f"There is no module {error.name!r} in {Path.cwd()} or on Python's path.") from None
