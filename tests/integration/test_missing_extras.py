"""An integration whose framework is not installed says what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = """
import sys
for name in sys.argv[2:]:
    sys.modules[name] = None
try:
    __import__(f"outlast.integrations.{sys.argv[1]}")
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize(
    "extra, modules",
    [
        ("alembic", ["alembic"]),
        ("fastapi", ["fastapi"]),
        ("fastapi", ["fastapi", "starlette"]),
        ("flask", ["flask", "click"]),
        ("flask", ["flask"]),
        ("litestar", ["litestar"]),
        ("starlette", ["starlette"]),
    ],
)
def test_a_missing_framework_is_named_with_its_extra(extra: str, modules: list[str]) -> None:
    command = [sys.executable, "-c", WITHOUT, extra, *modules, *(f"{module}.requests" for module in modules)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout.strip().endswith(f'pip install "outlast[{extra}]"'), done.stdout


def test_outlast_itself_imports_none_of_them() -> None:
    program = "import sys, outlast; print([name for name in sys.argv[1:] if name in sys.modules])"
    names = [
        "alembic",
        "fastapi",
        "starlette",
        "flask",
        "click",
        "litestar",
        "django",
        "pydantic",
        "sqlmodel",
        "pytest",
    ]
    done = subprocess.run([sys.executable, "-c", program, *names], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
