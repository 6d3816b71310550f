"""Litestar: the app is open inside of all that the application opens at its start."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from litestar import Litestar, get, post
from litestar.params import FromQuery

from outlast import DefinitionError, Outlast, SchemaBehind
from outlast.integrations.litestar import CurrentOutlast, OutlastPlugin
from support.greetings import Greeting
from support.served import served


def handlers(greeting: Greeting) -> list[Any]:
    @post("/greetings")
    async def greet(name: FromQuery[str], outlast: CurrentOutlast) -> str:
        return await outlast.start_and_wait(greeting.hello, name, wait="20s")

    @post("/blocking-greetings", sync_to_thread=True)
    def greet_blocking(name: FromQuery[str], outlast: CurrentOutlast) -> str:
        return outlast.blocking.start_and_wait(greeting.hello, name, wait="20s")

    return [greet, greet_blocking]


async def test_a_handler_of_either_colour_is_given_the_app() -> None:
    greeting = Greeting()
    api = Litestar(handlers(greeting), plugins=[OutlastPlugin(greeting.app)], lifespan=[greeting.resources])

    async with served(api) as client:
        assert (await client.post("/greetings", params={"name": "Ada"})).text == "Hello, Ada!"
        assert (await client.post("/blocking-greetings", params={"name": "Bob"})).text == "Hello, Bob!"


async def test_what_a_lifespan_opens_is_there_before_the_worker_and_after_it() -> None:
    greeting = Greeting()
    api = Litestar(handlers(greeting), plugins=[OutlastPlugin(greeting.app)], lifespan=[greeting.resources])

    async with served(api) as client:
        await client.post("/greetings", params={"name": "Ada"})

    assert greeting.letters.events == ["letters opened, app not open yet", "letters closed, app closed"]


async def test_what_hooks_open_is_there_before_the_worker_and_after_it() -> None:
    greeting = Greeting()
    opened = greeting.letters.opened(greeting.app)

    async def begin() -> None:
        await opened.__aenter__()

    async def end() -> None:
        await opened.__aexit__(None, None, None)

    api = Litestar(handlers(greeting), plugins=[OutlastPlugin(greeting.app)], on_startup=[begin], on_shutdown=[end])

    async with served(api) as client:
        await client.post("/greetings", params={"name": "Ada"})

    assert greeting.letters.events == ["letters opened, app not open yet", "letters closed, app closed"]


async def test_an_application_can_be_started_again() -> None:
    greeting = Greeting()
    opened: list[bool] = []

    @asynccontextmanager
    async def looked_at(api: Litestar) -> AsyncGenerator[None]:
        yield
        opened.append(greeting.app._access.is_open)

    api = Litestar(handlers(greeting), plugins=[OutlastPlugin(greeting.app)], lifespan=[looked_at])
    greeting.letters.is_open = True

    for _ in range(2):
        async with served(api) as client:
            assert (await client.post("/greetings", params={"name": "Ada"})).text == "Hello, Ada!"

    assert opened == [False, False]


async def test_several_apps_have_names_of_their_own() -> None:
    greeting, billing = Greeting(), Greeting()

    @get("/")
    async def look(outlast: CurrentOutlast, billing_app: CurrentOutlast) -> list[bool]:
        return [outlast is greeting.app, billing_app is billing.app]

    api = Litestar([look], plugins=[OutlastPlugin(greeting.app), OutlastPlugin(billing.app, name="billing_app")])

    async with served(api) as client:
        assert (await client.get("/")).json() == [True, True]


def test_two_apps_of_one_name_are_refused_before_either_is_out_of_reach() -> None:
    one, other = Greeting(), Greeting()

    with pytest.raises(DefinitionError, match=r"'outlast' already.*name=\"billing\""):
        Litestar([], plugins=[OutlastPlugin(one.app), OutlastPlugin(other.app)])


async def test_an_app_that_cannot_be_opened_leaves_nothing_of_the_application_open() -> None:
    greeting = Greeting()
    behind = Outlast("sqlite://", workflows=[greeting.hello], migrate=False)
    api = Litestar([], plugins=[OutlastPlugin(behind)], lifespan=[greeting.resources])

    with pytest.RaisesGroup(SchemaBehind, allow_unwrapped=True, flatten_subgroups=True):
        await api.lifespan().__aenter__()

    assert not greeting.letters.is_open
