"""`async def test_...` just works: each runs in an event loop of its own and is stopped at its time limit."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from support.time_limit import limit_of


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Put a plain function that runs the loop in the place of an `async def`; pytest then calls it as any other."""
    limit = limit_of(pyfuncitem)
    generated = getattr(pyfuncitem.obj, "hypothesis", None)
    if generated is not None and inspect.iscoroutinefunction(generated.inner_test):
        generated.inner_test = _in_loop(generated.inner_test, limit)
    elif inspect.iscoroutinefunction(pyfuncitem.obj):
        pyfuncitem.obj = _in_loop(pyfuncitem.obj, limit)


def _in_loop(test: Callable[..., Coroutine[Any, Any, None]], limit: float) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: object, **kwargs: object) -> None:
        asyncio.run(_bounded(test(*args, **kwargs), limit), debug=False)

    return run


async def _bounded(test: Coroutine[Any, Any, None], limit: float) -> None:
    async with asyncio.timeout(limit):
        await test
