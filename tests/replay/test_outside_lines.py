"""The line of the application that is told of I/O in workflow code, where a library is between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from outlast import Context, Failure, workflow
from outlast.engine.decision import Finished
from outlast.model.origins import note, origin
from support.replaying import Rehearsal


def line_of(ending: str) -> int:
    """Return the number of the first line of this file that ends so."""
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(ending))


def failed(code: Callable[[], Awaitable[object]]) -> Failure:
    @workflow("reaching-out")
    async def reaching_out(ctx: Context) -> None:
        await code()

    end = Rehearsal(reaching_out).end()
    assert isinstance(end, Finished)
    assert end.failure is not None
    return end.failure


async def connects_in_a_task_of_a_library() -> None:
    await anyio.connect_tcp("127.0.0.1", 9)


async def connects_itself() -> None:
    await asyncio.open_connection("127.0.0.1", 9)


async def waits_in_a_library() -> None:
    async with contextlib.AsyncExitStack() as stack, asyncio.Lock() as lock:
        await stack.enter_async_context(waited(lock))


@contextlib.asynccontextmanager
async def waited(_: object) -> AsyncIterator[None]:
    await asyncio.Event().wait()
    yield


@pytest.mark.parametrize(
    "code, line, kind",
    [
        (connects_in_a_task_of_a_library, 'await anyio.connect_tcp("127.0.0.1", 9)', "WorkflowIOError"),
        (connects_itself, 'await asyncio.open_connection("127.0.0.1", 9)', "WorkflowIOError"),
        (waits_in_a_library, "await stack.enter_async_context(waited(lock))", "DefinitionError"),
    ],
)
def test_the_line_of_the_application_is_told(code: Callable[[], Awaitable[object]], line: str, kind: str) -> None:
    """It was a line of the library, in whose task the call was made, or none."""
    failure = failed(code)

    assert failure.type == f"outlast.errors.{kind}"
    assert str(origin(failure)) == f"{__file__}:{line_of(line)}"
    assert (note(failure) or "").startswith(f'Where it came from, in the application\'s code:\n  File "{__file__}"')


def test_code_that_waits_in_a_library_is_told_by_its_own_function_and_line() -> None:
    """It was told as `_AsyncGeneratorContextManager.__aenter__ (line 210 of contextlib)`."""
    line = line_of("await stack.enter_async_context(waited(lock))")

    assert f"its code waits in waits_in_a_library (line {line} of {__name__}). " in failed(waits_in_a_library).message
