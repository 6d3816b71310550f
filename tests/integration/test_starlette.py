"""Starlette: the app is open while the application serves, inside of what the application opens itself."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket

from outlast import DefinitionError, Outlast, SchemaBehind
from outlast.integrations.starlette import lifespan, outlast_of
from support.greetings import Greeting
from support.served import served


def routes(greeting: Greeting) -> list[Route | WebSocketRoute]:
    async def greet(request: Request) -> JSONResponse:
        app = outlast_of(request)
        return JSONResponse(await app.start_and_wait(greeting.hello, request.path_params["name"], wait="20s"))

    async def greet_again(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_json(await outlast_of(socket).start_and_wait(greeting.hello, "Ada", wait="20s"))
        await socket.close()

    return [Route("/greetings/{name}", greet), WebSocketRoute("/socket", greet_again)]


async def test_a_request_starts_a_run_which_the_worker_beside_it_executes() -> None:
    greeting = Greeting()
    greeting.letters.is_open = True

    async with served(Starlette(routes=routes(greeting), lifespan=lifespan(greeting.app))) as client:
        assert (await client.get("/greetings/Ada")).json() == "Hello, Ada!"


async def test_what_the_application_opens_is_there_before_the_worker_and_after_it() -> None:
    greeting = Greeting()
    api = Starlette(routes=routes(greeting), lifespan=lifespan(greeting.app, within=greeting.resources))

    async with served(api) as client:
        assert (await client.get("/greetings/Ada")).json() == "Hello, Ada!"

    assert greeting.letters.events == ["letters opened, app not open yet", "letters closed, app closed"]


async def test_the_state_of_the_lifespan_that_was_there_is_kept() -> None:
    greeting = Greeting()

    async def look(request: Request) -> JSONResponse:
        return JSONResponse(request.state.letters is greeting.letters and request.state.outlast is greeting.app)

    api = Starlette(routes=[Route("/", look)], lifespan=lifespan(greeting.app, within=greeting.resources))

    async with served(api) as client:
        assert (await client.get("/")).json() is True


async def test_a_lifespan_without_a_state_is_as_good() -> None:
    greeting = Greeting()

    @asynccontextmanager
    async def stateless(api: Starlette) -> AsyncGenerator[None]:
        async with greeting.letters.opened(greeting.app):
            yield

    async with served(Starlette(routes=routes(greeting), lifespan=lifespan(greeting.app, within=stateless))) as client:
        assert (await client.get("/greetings/Ada")).json() == "Hello, Ada!"


async def test_a_mounted_application_has_the_app_of_the_outermost_one() -> None:
    greeting = Greeting()
    inner = Starlette(routes=routes(greeting))
    middle = Starlette(routes=[Mount("/inner", inner)])
    outer = Starlette(routes=[Mount("/middle", middle)], lifespan=lifespan(greeting.app, within=greeting.resources))

    async with served(outer) as client:
        assert (await client.get("/middle/inner/greetings/Ada")).json() == "Hello, Ada!"


async def test_a_websocket_finds_it_too() -> None:
    greeting = Greeting()
    api = Starlette(routes=routes(greeting))
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async with lifespan(greeting.app, within=greeting.resources)(api) as state:
        scope = {"type": "websocket", "path": "/socket", "headers": [], "query_string": b"", "state": state}
        await api(scope, receive, send)

    assert [message.get("text") for message in sent] == [None, '"Hello, Ada!"', None]


async def test_a_lifespan_alone_ends_as_it_began() -> None:
    greeting = Greeting()

    async with lifespan(greeting.app)(None) as state:
        assert state == {"outlast": greeting.app}
        assert greeting.app._access.is_open

    assert not greeting.app._access.is_open


async def test_two_apps_have_two_names() -> None:
    one, other = Greeting(), Greeting()

    async def look(request: Request) -> JSONResponse:
        return JSONResponse([outlast_of(request) is one.app, outlast_of(request, "other") is other.app])

    both = lifespan(other.app, within=lifespan(one.app), name="other")

    async with served(Starlette(routes=[Route("/", look)], lifespan=both)) as client:
        assert (await client.get("/")).json() == [True, True]


async def test_two_apps_of_one_name_are_refused_before_either_is_out_of_reach() -> None:
    one, other = Greeting(), Greeting()

    with pytest.raises(DefinitionError, match=r"'outlast' already.*name=\"billing\""):
        async with lifespan(other.app, within=lifespan(one.app))(None):
            raise AssertionError("it is open")

    assert not one.app._access.is_open
    assert not other.app._access.is_open


@pytest.mark.parametrize("scope", [{"type": "http"}, {"type": "http", "state": {"outlast": "a text"}}])
def test_an_application_without_the_lifespan_is_told_how_to_get_it(scope: dict[str, Any]) -> None:
    told = r"FastAPI\(lifespan=lifespan\(app\)\).*`FastAPI\(lifespan=app\.lifespan\)` opens the app too, but"
    with pytest.raises(DefinitionError, match=told):
        outlast_of(HTTPConnection(scope))


async def test_an_app_that_cannot_be_opened_leaves_nothing_of_the_application_open() -> None:
    greeting = Greeting()
    behind = Outlast("sqlite://", workflows=[greeting.hello], migrate=False)
    started = lifespan(behind, within=greeting.resources)(None)

    with pytest.raises(SchemaBehind):
        await started.__aenter__()

    assert not greeting.letters.is_open
