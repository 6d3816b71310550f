"""A workflow for the tests of frameworks: its step needs something that the application opens for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from outlast import AppClosed, Context, Outlast, step, workflow


class Letters:
    """What an application opens at its start and closes at its end, and in which order that was."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.is_open = False

    def write(self, name: str) -> str:
        assert self.is_open, "a step ran before the application had opened this, or after it had closed it"
        return f"Hello, {name}!"

    @asynccontextmanager
    async def opened(self, app: Outlast) -> AsyncGenerator[None]:
        """Be open, and see that the app is not open around it."""
        self.events.append(f"letters opened, app {await _state(app)}")
        self.is_open = True
        try:
            yield
        finally:
            self.events.append(f"letters closed, app {await _state(app)}")
            self.is_open = False


class Greeting:
    """An app over a database in memory with one workflow, `hello`."""

    def __init__(self, *, worker: bool = True) -> None:
        self.letters = Letters()

        @step
        async def write(name: str) -> str:
            return self.letters.write(name)

        @workflow("hello")
        async def hello(ctx: Context, name: str) -> str:
            return await write(name)

        self.hello = hello
        self.app = Outlast("sqlite://", workflows=[hello], worker=worker)

    @asynccontextmanager
    async def resources(self, api: Any) -> AsyncGenerator[dict[str, Any]]:
        """A lifespan that an application may have had before."""
        async with self.letters.opened(self.app):
            yield {"letters": self.letters}


async def _state(app: Outlast) -> str:
    access = app._access  # pyright: ignore[reportPrivateUsage] -- nothing public tells whether an app is open
    try:
        if access.is_open:
            await app.list()
    except AppClosed:
        return "closed"
    return "open" if access.is_open else "closed" if access.is_closed else "not open yet"
