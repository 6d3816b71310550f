"""FastAPI: the app as a dependency of routes that await and of those that do not."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI

from outlast import Outlast
from outlast.integrations.fastapi import CurrentOutlast, current_outlast, lifespan, named_outlast
from support.greetings import Greeting
from support.served import served


def router(greeting: Greeting) -> APIRouter:
    routes = APIRouter()

    @routes.post("/greetings")
    async def greet(name: str, outlast: CurrentOutlast) -> str:
        return await outlast.start_and_wait(greeting.hello, name, wait="20s")

    @routes.post("/blocking-greetings")
    def greet_blocking(name: str, outlast: CurrentOutlast) -> str:
        return outlast.blocking.start_and_wait(greeting.hello, name, wait="20s")

    return routes


def application(greeting: Greeting) -> FastAPI:
    api = FastAPI(lifespan=lifespan(greeting.app, within=greeting.resources))
    api.include_router(router(greeting))
    return api


async def test_a_route_of_either_colour_is_given_the_app() -> None:
    async with served(application(Greeting())) as client:
        assert (await client.post("/greetings", params={"name": "Ada"})).json() == "Hello, Ada!"
        assert (await client.post("/blocking-greetings", params={"name": "Bob"})).json() == "Hello, Bob!"


async def test_the_app_is_no_parameter_of_the_request() -> None:
    schema = application(Greeting()).openapi()

    assert [one["name"] for one in schema["paths"]["/greetings"]["post"]["parameters"]] == ["name"]


async def test_a_mounted_application_is_given_the_app_of_the_outermost_one() -> None:
    greeting = Greeting()
    admin = FastAPI()
    admin.include_router(router(greeting))
    api = FastAPI(lifespan=lifespan(greeting.app, within=greeting.resources))
    api.mount("/admin", admin)

    async with served(api) as client:
        assert (await client.post("/admin/greetings", params={"name": "Ada"})).json() == "Hello, Ada!"


async def test_a_test_may_put_another_app_in_its_place() -> None:
    real, other = Greeting(), Greeting()
    api = application(real)
    api.dependency_overrides[current_outlast] = lambda: other.app

    async with served(api) as client, other.resources(api), other.app:
        await client.post("/greetings", params={"name": "Ada"})
        assert len((await other.app.list()).runs) == 1
        assert (await real.app.list()).runs == ()


async def test_one_of_several_apps_is_asked_for_by_its_name() -> None:
    greeting, billing = Greeting(), Greeting()
    api = FastAPI(lifespan=lifespan(billing.app, within=lifespan(greeting.app), name="billing"))

    @api.get("/")
    async def look(outlast: CurrentOutlast, other: Annotated[Outlast, Depends(named_outlast("billing"))]) -> list[bool]:
        return [outlast is greeting.app, other is billing.app]

    async with served(api) as client:
        assert (await client.get("/")).json() == [True, True]
