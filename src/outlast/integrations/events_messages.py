"""Messages of a broker or a webhook as events: whatever is delivered more than once does what it does once."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from outlast.app import Outlast
from outlast.client.handle import BlockingHandle, Handle
from outlast.client.publishing import Published

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)


class Consume(Protocol[M_contra]):
    """Publishes the event that a message brings."""

    def __call__(self, message: M_contra, /, *, tx: object = None) -> Coroutine[Any, Any, Published[Handle[Any]]]: ...


class ConsumeBlocking(Protocol[M_contra]):
    """The same, not awaited."""

    def __call__(self, message: M_contra, /, *, tx: object = None) -> Published[BlockingHandle[Any]]: ...


def consumer(app: Outlast, *, event: Callable[[M], object], id: Callable[[M], str]) -> Consume[M]:
    """Return a function to call with each message. Acknowledge the message when it has returned, or `tx` has committed.

    event: makes the event of a message. What it raises is raised, and nothing was written.
    id: the message's own id, the same each time it is delivered. It becomes the id of the signals whose mapping makes none,
        so each is stored once; runs are started once by the ids that their mappings make.

    >>> from outlast.integrations.events_messages import consumer
    >>> consume = consumer(app, event=lambda message: message["body"], id=lambda message: message["id"])
    >>> (await consume({"id": "m-1", "body": "parcel 7 arrived"})).runs
    ()
    """

    async def consume(message: M, /, *, tx: object = None) -> Published[Handle[Any]]:
        return await app.publish(event(message), id=id(message), tx=tx)

    return consume


def blocking_consumer(app: Outlast, *, event: Callable[[M], object], id: Callable[[M], str]) -> ConsumeBlocking[M]:
    """Do what `consumer` does, for code that does not await."""

    def consume(message: M, /, *, tx: object = None) -> Published[BlockingHandle[Any]]:
        return app.blocking.publish(event(message), id=id(message), tx=tx)

    return consume
