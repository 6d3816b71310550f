"""Reading functions: also those whose annotations cannot be evaluated."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from outlast import Context, DefinitionError, step, workflow
from outlast.engine import signatures

WITHOUT_FUTURE = """
from outlast import Context, StepContext

async def work(s: StepContext, word: Nothing, number: int) -> int:
    return number

async def code(ctx: Context, given: Nothing) -> int: ...

def plain(s: StepContext) -> Nothing: ...
"""


@pytest.fixture
def module() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(WITHOUT_FUTURE, "without_future.py", "exec", dont_inherit=True), names)
    return names


@pytest.mark.skipif(sys.version_info < (3, 14), reason="annotations are evaluated later since 3.14")
def test_types_that_are_only_there_for_checkers_do_not_get_in_the_way(module: dict[str, Any]) -> None:
    assert asyncio.run(step(module["work"])("a", 5)) == 5
    assert signatures.result_type(module["work"]) is int
    assert signatures.result_type(module["plain"]) is Any
    with pytest.raises(DefinitionError, match="'Nothing' cannot be found"):
        _ = workflow("code")(module["code"]).input_shape


def test_a_function_without_a_signature_takes_nothing_known() -> None:
    assert signatures.positional(getattr) == []
    assert signatures.takes_too_much(getattr) is None
    assert signatures.result_type(getattr) is Any


def test_the_text_of_an_annotation_is_shown_as_it_was_written() -> None:
    def quoted(a: Missing, b: int, c): ...  # noqa: F821  # pyright: ignore[reportUndefinedVariable]

    assert [signatures.annotation_text(quoted, name) for name in "abc"] == ["Missing", "int", ""]


def test_a_module_has_no_names_around_it() -> None:
    @workflow("inner")
    async def inner(ctx: Context) -> None: ...

    namespace: dict[str, Any] = {"workflow": workflow, "Context": Context}
    exec("@workflow('outer')\nasync def outer(ctx: Context) -> Later: ...\nclass Later: ...", namespace)

    assert "output_shape" in vars(inner)
    assert "output_shape" not in vars(namespace["outer"])
