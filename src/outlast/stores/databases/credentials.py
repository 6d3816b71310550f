"""Asking the application for the credentials of a new connection."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable

from outlast.errors import InvalidArgument
from outlast.model.connections import Credentials, ProvideCredentials


async def fresh(provide: ProvideCredentials) -> Credentials:
    """Ask for credentials. A plain function is called on a thread: it may ask somebody else for them."""
    is_async = inspect.iscoroutinefunction(provide)
    given: object = provide() if is_async else await asyncio.to_thread(_called, provide)
    return _checked(await given if inspect.isawaitable(given) else given)


def fresh_blocking(provide: ProvideCredentials) -> Credentials:
    """The same, blocking. An async function gets an event loop for the moment."""
    given = _called(provide)
    return _checked(asyncio.run(_awaited(given)) if inspect.isawaitable(given) else given)


def _called(provide: ProvideCredentials) -> object:
    return provide()


async def _awaited(given: Awaitable[object]) -> object:
    return await given


def _checked(given: object) -> Credentials:
    if not isinstance(given, Credentials):
        raise InvalidArgument(
            f"ConnectionOptions(credentials=...) returned {type(given).__name__}, but has to return Credentials(...)."
        )
    return given
