"""What of `Outlast` is about events. A base class of it, so that each of the two reads on its own."""

from __future__ import annotations

from typing import Any, TypeVar

from outlast.client.client import Client
from outlast.client.handle import Handle
from outlast.client.publishing import Published, Publishing
from outlast.events.handlers import HandlerDecorator

E = TypeVar("E")


class Publisher:
    """The verbs that are about events."""

    _client: Client
    _publishing: Publishing

    async def publish(self, *events: object, id: str | None = None, tx: object = None) -> Published[Handle[Any]]:
        """Start and signal the workflows that map these events, then tell the handlers of them.

        Everything the events mean is made first: when that fails nothing is written. Then all runs are started, and after
        them all signals sent, in one transaction: a run that one of the events starts sees the signals of all of them.
        Handlers are called last, one after the other in the order of the events; the first error ends that and is raised.

        id: names this publication, such as the id of the message that brought the event. A signal whose mapping makes no id
            gets this one, so that it is stored once however often the message comes. Default: a new id for each; inside a
            step one that every attempt of the step makes again.
        tx: as with `start`. Handlers are called before your transaction commits, and their errors are yours to roll back
            for. Without it they are called after outlast has committed: an error of theirs undoes nothing, and publishing
            again starts nothing twice.

        An event that nothing maps is warned of, once for each type. Raises what `start` and `signal` raise.

        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Greeted:
        ...     name: str
        >>> @starts_on(Greeted, id=lambda event: f"hello-{event.name}", input=lambda event: event.name)
        ... @workflow("answer")
        ... async def answer(ctx: Context, name: str) -> str:
        ...     return f"Hello, {name}!"
        >>> async with Outlast("sqlite://", workflows=[answer]) as app:
        ...     published = await app.publish(Greeted("Ada"))
        ...     await published.runs[0].result(timeout="10s")
        'Hello, Ada!'
        """
        return await self._client.publish(*events, id=id, tx=tx)

    def on(self, event: type[E]) -> HandlerDecorator[E]:
        """Have a function called with each event of this type, or of a subclass, that this app publishes.

        In this process and memory only, after what the event does to workflows was written: what must not be lost belongs in
        a workflow. A handler may be an `async def`, but not where `app.blocking.publish` calls it.

        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Greeted:
        ...     name: str
        >>> @app.on(Greeted)
        ... def told(event: Greeted) -> None:
        ...     print("greeted", event.name)
        >>> published = await app.publish(Greeted("Ada"))
        greeted Ada
        """
        return self._publishing.handlers.on(event)

    def maps(self, event: type[Any]) -> bool:
        """Tell whether publishing an event of this type would do anything here: start, signal, or call a handler."""
        return self._publishing.maps(event)

    @property
    def mapped_events(self) -> frozenset[type]:
        """The types of events that the workflows of this app map: what a consumer has to subscribe to."""
        return self._publishing.routes.events
