"""The application's own functions that are told of events, in this process, after what the events do to workflows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, TypeVar

from outlast.engine import signatures
from outlast.errors import DefinitionError
from outlast.model.classes import type_name

E = TypeVar("E")
R = TypeVar("R")

Handler: TypeAlias = Callable[[Any], object]


class HandlerDecorator(Protocol[E]):
    """What `app.on(...)` returns."""

    def __call__(self, handler: Callable[[E], R], /) -> Callable[[E], R]: ...


class Handlers:
    """Handlers by the type of event, in the order in which they were added. Safe from any thread."""

    def __init__(self) -> None:
        self._added: list[tuple[type, Handler]] = []

    def on(self, event: type[E]) -> HandlerDecorator[E]:
        """Return the decorator that adds a handler for events of this type and its subclasses."""
        if not isinstance(event, type):  # pyright: ignore[reportUnnecessaryIsInstance]  not every caller checks types
            raise DefinitionError(f"app.on(...) is given an event's type, a class; {event!r} is none.")

        def add(handler: Callable[[E], R], /) -> Callable[[E], R]:
            if not callable(handler):  # pyright: ignore[reportUnnecessaryComparison]  the same
                raise DefinitionError(f"A handler of {type_name(event)} is a function; {handler!r} is not.")
            self._added.append((event, handler))
            return handler

        return add

    def of(self, event: type) -> list[Handler]:
        """Return the handlers for events of this type."""
        return [handler for kind, handler in self._added if issubclass(event, kind)]

    def of_blocking(self, event: type) -> list[Handler]:
        """The same, for a caller that cannot await. Raises DefinitionError when one of them is awaited."""
        found = self.of(event)
        for handler in found:
            if signatures.is_awaited(handler):
                raise DefinitionError(
                    f"Handler {signatures.name_of(handler)} of {type_name(event)} is awaited, which a blocking publish "
                    "cannot do. Nothing was written. Make it a plain function, or use `await app.publish(...)`."
                )
        return found
