"""Starlette: an app that is open while the application serves, beside a lifespan that is there already.

    api = Starlette(routes=routes, lifespan=lifespan(app, within=resources))

Held by tests/integration/test_starlette.py.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Final, TypeAlias

from outlast.app import Outlast
from outlast.errors import DefinitionError
from outlast.integrations import extras

try:
    from starlette.requests import HTTPConnection
except ModuleNotFoundError as _error:
    raise extras.missing("starlette", _error) from _error


Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]]
Lived: TypeAlias = Callable[[Any], AbstractAsyncContextManager[dict[str, Any]]]

NAME: Final = "outlast"
"""Under this name requests find the app in their state, unless it was given another one."""


def lifespan(app: Outlast, *, within: Lifespan | None = None, name: str = NAME) -> Lived:
    """Return the lifespan of an application in which `app` is open, with its worker, and which its requests find it by.

    within: a lifespan that exists. It is entered first and left last, so what it opens (engines, clients) is there for as
        long as steps run. Its state is kept.
    name: under which `outlast_of` finds the app, where there is more than one: nest a second `lifespan` in the first.
        Serving begins with DefinitionError when the state of `within` has that name already.

    Starlette runs the lifespan of the outermost application alone, not those of mounted ones. Their requests find the app
    all the same.

    Versionadded: 0.1
    """

    @asynccontextmanager
    async def both(api: Any) -> AsyncGenerator[dict[str, Any]]:  # noqa: ANN401 -- whatever kind of application it is
        async with nullcontext[None]() if within is None else within(api) as state:
            if name in (state or {}):
                raise DefinitionError(
                    f"The state of this application has {name!r} already, which would be out of reach. Give each app a "
                    'name: lifespan(app, within=..., name="billing").'
                )
            async with app.lifespan(api):
                yield {**(state or {}), name: app}

    return both


def outlast_of(connection: HTTPConnection, name: str = NAME) -> Outlast:
    """Return the app that `lifespan` opened, for a request or a websocket, also in a mounted application.

    Raises DefinitionError when none was opened.

    Versionadded: 0.1
    """
    found = connection.scope.get("state", {}).get(name)
    if isinstance(found, Outlast):
        return found
    raise DefinitionError(
        f"No Outlast was opened under the name {name!r} for this application. Give the outermost application its lifespan: "
        "FastAPI(lifespan=lifespan(app)), or Starlette(...), with `lifespan` from outlast.integrations.fastapi or "
        ".starlette. `FastAPI(lifespan=app.lifespan)` opens the app too, but does not tell requests of it. In a test use "
        "the client as a context manager, so that the lifespan runs."
    )
