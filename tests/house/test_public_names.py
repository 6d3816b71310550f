"""What `from outlast import ...` offers is written down, complete and documented."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import types
from typing import Any

import pytest

import outlast
import outlast.errors
import outlast.testing
from support.project import ROOT


def test_every_name_is_listed_once_and_in_order() -> None:
    names = {
        name
        for name, value in vars(outlast).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }

    assert sorted(outlast.__all__) == sorted(names)
    assert len(set(outlast.__all__)) == len(outlast.__all__)


def test_the_reference_page_names_all_and_nothing_else() -> None:
    page = (ROOT / "docs" / "reference" / "api.md").read_text()
    named = set(re.findall(r"`([A-Za-z_]+)", page))

    assert set(outlast.__all__) - named == set()
    assert {name for name in named if name[0].isupper()} - set(outlast.__all__) == set()


@pytest.mark.parametrize("kind", [outlast.Run, outlast.Entry, outlast.SignalReceipt, outlast.StopReceipt, outlast.Page])
def test_the_reference_page_names_every_field(kind: type[Any]) -> None:
    page = (ROOT / "docs" / "reference" / "api.md").read_text()

    assert [field.name for field in dataclasses.fields(kind) if f"`{field.name}`" not in page] == []


def test_every_error_can_be_caught_by_its_public_name() -> None:
    errors = {
        name
        for name, value in vars(outlast.errors).items()
        if inspect.isclass(value) and issubclass(value, outlast.OutlastError)
    }

    assert errors - set(outlast.__all__) == set()


def test_every_error_stands_in_the_drawn_tree() -> None:
    drawn = outlast.errors.__doc__ or ""

    assert [name for name in outlast.__all__ if _is_error(name) and name not in drawn] == []


def test_every_public_class_and_function_says_what_it_is() -> None:
    silent = [
        name
        for module in (outlast, outlast.testing)
        for name in module.__all__
        if callable(value := getattr(module, name)) and not inspect.getdoc(value)
    ]

    assert silent == []


def test_every_public_method_says_what_it_is() -> None:
    silent = [
        f"{name}.{method}"
        for name in outlast.__all__
        if inspect.isclass(kind := getattr(outlast, name)) and not _is_error(name)
        for method, value in vars(kind).items()
        if not method.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
        if not inspect.getdoc(value)
    ]

    assert silent == []


def test_the_root_exports_and_does_nothing_else() -> None:
    body = ast.parse((ROOT / "src" / "outlast" / "__init__.py").read_text()).body

    assert {type(statement).__name__ for statement in body[1:]} <= {"ImportFrom", "Assign"}


def _is_error(name: str) -> bool:
    value = getattr(outlast, name)
    return inspect.isclass(value) and issubclass(value, outlast.OutlastError)
