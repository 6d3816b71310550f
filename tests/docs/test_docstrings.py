"""Every example in a docstring of a public name runs and prints what it says.

An example may await, as at the prompt of `python -m asyncio`. It finds what `from outlast import *` brings, a workflow
`hello` that greets by name, and `app`, which runs it.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import doctest
import importlib
import inspect
import io
import pkgutil
import sys
from types import CodeType
from typing import Any

import pytest

import outlast
from outlast import Context, Outlast, step, workflow

_ASYNC = inspect.CO_COROUTINE


@step
async def greet(name: str) -> str:
    return f"Hello, {name}!"


@workflow("hello")
async def hello(ctx: Context, name: str) -> str:
    return await greet(name)


def examples() -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    names = [
        module.name for module in pkgutil.walk_packages(outlast.__path__, "outlast.") if not of_django(module.name)
    ]
    found = [test for name in names for test in finder.find(importlib.import_module(name))]
    return [test for test in found if test.examples]


def of_django(name: str) -> bool:
    """Models and what imports them need a Django project around them."""
    return name.startswith("outlast.integrations.django.")


def has_example(name: str) -> bool:
    return ">>>" in (inspect.getdoc(getattr(outlast, name)) or "")


@pytest.mark.parametrize("test", examples(), ids=lambda test: test.name)
def test_an_example_runs(test: doctest.DocTest) -> None:
    app = Outlast("sqlite://", workflows=[hello])
    names: dict[str, Any] = {**vars(outlast), **test.globs, "hello": hello, "app": app}
    with asyncio.Runner() as runner:
        runner.run(app.__aenter__())
        try:
            for example in test.examples:
                _check(example, names, runner)
        finally:
            runner.run(app.close())


def _check(example: doctest.Example, names: dict[str, Any], runner: asyncio.Runner) -> None:
    code = compile(example.source, "<example>", "single", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    said = io.StringIO()
    expected = example.exc_msg
    with contextlib.redirect_stdout(said):
        try:
            _run(code, names, runner)
        except Exception as error:
            if expected is None:
                raise
            said_error = f"{type(error).__module__}.{type(error).__qualname__}: {error}\n"
            assert doctest.OutputChecker().check_output(expected, said_error, doctest.ELLIPSIS), said_error
            return
    assert expected is None, f"{example.source} raised nothing"
    assert doctest.OutputChecker().check_output(example.want, said.getvalue(), doctest.ELLIPSIS), (
        f"{example.source}said {said.getvalue()!r}, not {example.want!r}"
    )


def _run(code: CodeType, names: dict[str, Any], runner: asyncio.Runner) -> None:
    former, sys.displayhook = sys.displayhook, lambda value: print(repr(value)) if value is not None else None
    try:
        result = eval(code, names)
        if code.co_flags & _ASYNC:

            async def awaited() -> None:
                await result

            runner.run(awaited())
    finally:
        sys.displayhook = former
