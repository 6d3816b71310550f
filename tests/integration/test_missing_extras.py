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


WITHOUT_DRIVER = """
import asyncio, sys
from outlast import DriverMissing, Outlast
_, url, colour, *missing = sys.argv
for name in missing:
    sys.modules[name] = None
app = Outlast(url, worker=False)
try:
    asyncio.run(app.list()) if colour == "awaiting" else app.blocking.list()
except DriverMissing as error:
    print(error)
"""


@pytest.mark.parametrize(
    "url, colour, missing, extra",
    [
        ("postgresql://nowhere.invalid/x", "awaiting", ["asyncpg", "psycopg"], "postgres"),
        ("postgresql+asyncpg://nowhere.invalid/x", "awaiting", ["asyncpg"], "postgres"),
        ("postgresql+psycopg://nowhere.invalid/x", "awaiting", ["psycopg"], "postgres"),
        ("postgresql://nowhere.invalid/x", "blocking", ["psycopg"], "postgres"),
        ("mysql://nowhere.invalid/x", "awaiting", ["asyncmy"], "mysql"),
        ("mariadb+aiomysql://nowhere.invalid/x", "awaiting", ["asyncmy"], "mysql"),
        ("mysql://nowhere.invalid/x", "blocking", ["pymysql"], "mysql"),
    ],
)
def test_a_missing_driver_is_named_with_its_extra(url: str, colour: str, missing: list[str], extra: str) -> None:
    command = [sys.executable, "-c", WITHOUT_DRIVER, url, colour, *missing]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout.strip().endswith(f"pip install 'outlast[{extra}]'"), done.stdout
    named = {"asyncpg": "asyncpg", "psycopg": "psycopg", "asyncmy": "asyncmy", "pymysql": "PyMySQL"}[missing[0]]
    assert named in done.stdout


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
