"""FastAPI: Starlette's lifespan, and the app as a typed dependency.

    api = FastAPI(lifespan=lifespan(app, within=resources))

    @api.post("/orders")
    async def place(order: Order, outlast: CurrentOutlast) -> str:
        return (await outlast.start(fulfil, order)).id

Held by tests/integration/test_fastapi.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeAlias

from outlast.app import Outlast
from outlast.integrations import extras

try:
    from fastapi import Depends
    from starlette.requests import HTTPConnection

    from outlast.integrations.starlette import lifespan, outlast_of
except ModuleNotFoundError as _error:
    raise extras.missing("fastapi", _error) from _error


__all__ = ["CurrentOutlast", "current_outlast", "lifespan", "named_outlast"]


def current_outlast(connection: HTTPConnection) -> Outlast:
    """Return the app that `lifespan` opened. A test may put another one in its place: `api.dependency_overrides`.

    Versionadded: 0.1
    """
    return outlast_of(connection)


def named_outlast(name: str) -> Callable[[HTTPConnection], Outlast]:
    """Return the dependency on one of several apps, by the name that its `lifespan` was given.

    Versionadded: 0.1
    """

    def dependency(connection: HTTPConnection) -> Outlast:
        return outlast_of(connection, name)

    return dependency


CurrentOutlast: TypeAlias = Annotated[Outlast, Depends(current_outlast)]
"""The type of a parameter that is given the app: `outlast: CurrentOutlast`."""
