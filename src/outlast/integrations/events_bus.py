"""An event bus of the application's own, whose events start and signal workflows before its subscribers hear of them.

A bus is here whatever is called with an event first: `bus.publish`, `dispatcher.dispatch`, a function.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Concatenate, ParamSpec, TypeVar

from outlast.app import Outlast

E = TypeVar("E")
P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger("outlast.events")


def wrap_publisher(
    app: Outlast,
    publish: Callable[Concatenate[E, P], Awaitable[R]],
    *,
    events: Callable[Concatenate[E, P], Iterable[object]] | None = None,
    tx: Callable[Concatenate[E, P], object] | None = None,
) -> Callable[Concatenate[E, P], Coroutine[Any, Any, R]]:
    """Return a publisher that starts and signals the workflows an event maps to, and then calls `publish` with it.

    Events that nothing maps go to `publish` as they are. When a start or a signal fails, `publish` is not called.

    events: finds the events in what the publisher was called with, for one that takes several; they are written together.
        Default: its first argument is the event.
    tx: finds the transaction to write in, given what the publisher was called with. Without it the writes commit by
        themselves before `publish` is called, and nothing undoes them when that fails.

    >>> from outlast.integrations.events_bus import wrap_publisher
    >>> async def to_subscribers(event: object) -> None:
    ...     print("published", event)
    >>> publish = wrap_publisher(app, to_subscribers)
    >>> await publish("order 7 placed")
    published order 7 placed
    """
    _warn_of_nothing(app)

    @functools.wraps(publish)
    async def wrapped(event: E, /, *args: P.args, **kwargs: P.kwargs) -> R:
        mapped = _mapped(app, [event] if events is None else events(event, *args, **kwargs))
        if mapped:
            await app.publish(*mapped, tx=None if tx is None else tx(event, *args, **kwargs))
        return await publish(event, *args, **kwargs)

    return wrapped


def wrap_blocking_publisher(
    app: Outlast,
    publish: Callable[Concatenate[E, P], R],
    *,
    events: Callable[Concatenate[E, P], Iterable[object]] | None = None,
    tx: Callable[Concatenate[E, P], object] | None = None,
) -> Callable[Concatenate[E, P], R]:
    """Do what `wrap_publisher` does, for a publisher that is not awaited."""
    _warn_of_nothing(app)

    @functools.wraps(publish)
    def wrapped(event: E, /, *args: P.args, **kwargs: P.kwargs) -> R:
        mapped = _mapped(app, [event] if events is None else events(event, *args, **kwargs))
        if mapped:
            app.blocking.publish(*mapped, tx=None if tx is None else tx(event, *args, **kwargs))
        return publish(event, *args, **kwargs)

    return wrapped


def _mapped(app: Outlast, events: Iterable[object]) -> list[object]:
    return [event for event in events if app.maps(type(event))]


def _warn_of_nothing(app: Outlast) -> None:
    if not app.mapped_events:
        _log.warning(
            "A publisher was wrapped for %r, but no workflow of it maps an event, so nothing is started or signalled. List "
            "the workflows that do in Outlast(workflows=[...]), in every process that publishes.",
            app,
        )
