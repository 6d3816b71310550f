"""Small enough to hold in the head: 500 lines a file, 60 a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from support.project import ROOT, python_files

FILE_LIMIT = 500
FUNCTION_LIMIT = 60


def test_no_file_is_longer_than_500_lines() -> None:
    sizes = {path: len(path.read_text().splitlines()) for path in python_files("src", "tests", "tools", "examples")}

    too_long = [f"{path.relative_to(ROOT)}: {size} lines" for path, size in sizes.items() if size > FILE_LIMIT]

    assert not too_long, "find the second noun in each and give it a file:\n" + "\n".join(too_long)


def test_no_function_is_longer_than_60_lines() -> None:
    too_long = [
        f"{path.relative_to(ROOT)}:{function.lineno} {function.name}: {size} lines"
        for path in python_files("src", "tools", "examples")
        for function, size in _functions(path)
        if size > FUNCTION_LIMIT
    ]

    assert not too_long, "each does more than one thing:\n" + "\n".join(too_long)


def _functions(path: Path) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, int]]:
    """Every function with its lines, its docstring apart: an example for readers is no code to follow."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            docstring = ast.get_docstring(node, clean=False) or ""
            yield node, node.end_lineno - node.lineno + 1 - len(docstring.splitlines())
