"""A package's `__init__` is its door plate: what it owns, what it may import, where to start. Code there ties knots."""

from __future__ import annotations

import ast
from pathlib import Path

from support.project import ROOT, python_files

SOURCE = ROOT / "src" / "outlast"
PUBLIC = {SOURCE, SOURCE / "testing", SOURCE / "integrations" / "django"}
"""What applications import from: these export their names."""


def test_a_package_says_what_it_is_and_holds_no_code() -> None:
    plates = [path for path in python_files("src") if path.name == "__init__.py" and path.parent not in PUBLIC]

    assert plates
    assert [str(path.relative_to(ROOT)) for path in plates if not _is_docstring_only(path)] == []


def test_every_package_has_an_init() -> None:
    folders = {path.parent for path in python_files("src/outlast")}

    assert [str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_test_folders_hold_no_init() -> None:
    """Two test files may share a name; each is imported by its path."""
    assert [str(path.relative_to(ROOT)) for path in python_files("tests") if path.name == "__init__.py"] == []


def test_the_package_is_typed() -> None:
    assert (SOURCE / "py.typed").exists()


def _is_docstring_only(path: Path) -> bool:
    tree = ast.parse(path.read_text())
    return len(tree.body) == 1 and ast.get_docstring(tree) is not None
