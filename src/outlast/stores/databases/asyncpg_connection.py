"""asyncpg's connections as our pool holds them."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from outlast.stores.databases.postgres_reset import RESET


@cache
def held_class() -> Any:  # noqa: ANN401 - a class over one that may not be installed
    """Return the class of our connections: asyncpg's, of which nothing of the application's is left after `reset`."""
    driver: Any = importlib.import_module("asyncpg")

    class HeldConnection(driver.Connection):  # type: ignore[misc]  # its base is known at run time
        _is_taught = False

        async def set_type_codec(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - the same
            self._is_taught = True
            await driver.Connection.set_type_codec(self, *args, **options)

        async def set_builtin_type_codec(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - the same
            self._is_taught = True
            await driver.Connection.set_builtin_type_codec(self, *args, **options)

        def get_reset_query(self) -> str:
            return RESET

        async def reset(self, *, timeout: float | None = None) -> None:
            """Leave nothing of the application's behind. What it made of types can only be forgotten with the connection."""
            if self._is_taught:
                self.terminate()
            else:
                await driver.Connection.reset(self, timeout=timeout)

    return HeldConnection
