"""Litestar: a plugin that keeps the app open while the application serves, and gives it to handlers.

    @post("/orders")
    async def place(data: Order, outlast: CurrentOutlast) -> str:
        return (await outlast.start(fulfil, data)).id

    api = Litestar([place], plugins=[OutlastPlugin(app)])

Held by tests/integration/test_litestar.py.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, TypeAlias, cast

from outlast.app import Outlast
from outlast.errors import DefinitionError
from outlast.integrations import extras

try:
    from litestar import Litestar
    from litestar.config.app import AppConfig
    from litestar.di import NamedDependency, Provide
    from litestar.plugins import InitPluginProtocol
except ModuleNotFoundError as _error:
    raise extras.missing("litestar", _error) from _error


NAME: Final = "outlast"

CurrentOutlast: TypeAlias = NamedDependency[Outlast]
"""The type of a handler's parameter that is given the app. Its name is that of the plugin: `outlast: CurrentOutlast`."""


class OutlastPlugin(InitPluginProtocol):
    """Open `app` after all that the application opens at its start, by a lifespan or by `on_startup`, and close it first.

    Handlers get it as a dependency: `async def place(data: Order, outlast: CurrentOutlast)`.

    name: that of the parameter. Default "outlast"; an application that has several apps gives each another one.

    Versionadded: 0.1
    """

    def __init__(self, app: Outlast, *, name: str = NAME) -> None:
        self.app = app
        self.name = name

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """Add to the configuration of an application; called by Litestar.

        Raises DefinitionError when the application has a dependency of this name.
        """
        if self.name in app_config.dependencies:
            raise DefinitionError(
                f"This application has a dependency {self.name!r} already, which would be out of reach. Give each app a "
                'name: OutlastPlugin(app, name="billing").'
            )
        opened = AsyncExitStack()

        # Litestar calls `on_startup` when every lifespan has been entered, and leaves the lifespans, the last one first,
        # before it calls `on_shutdown`: opening as the one and closing as the other is inside of all of them.
        async def open_app(api: Litestar) -> None:
            await opened.enter_async_context(self.app.lifespan(api))

        @asynccontextmanager
        async def closing(_: Litestar) -> AsyncGenerator[None]:
            async with opened:
                yield

        app_config.on_startup.append(open_app)
        cast("list[Any]", app_config.lifespan).append(closing)  # pyright: ignore[reportUnknownMemberType] -- so it is
        app_config.dependencies[self.name] = Provide(self._provide, sync_to_thread=False)
        return app_config

    def _provide(self) -> Outlast:
        return self.app
