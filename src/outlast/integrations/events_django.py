"""Django's signals as events: `post_save`, `request_finished`, or a signal of the project's own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from django.db import connections
from django.dispatch import Signal

from outlast.app import Outlast

_log = logging.getLogger("outlast.events")


MakeEvent: TypeAlias = Callable[..., object | None]
"""Makes an event of what a signal is sent with, by keywords and `sender` first; None when it means none."""


class Receiver(Protocol):
    """What is connected to the signal."""

    def __call__(self, *, sender: Any, **sent: Any) -> None: ...  # noqa: ANN401  as the project sends it


def publish_on_signal(
    app: Outlast,
    signal: Signal,
    event: MakeEvent,
    *,
    sender: object = None,
    using: str = "default",
    uid: Any = None,  # noqa: ANN401  anything hashable; Django's stubs ask for a text
) -> Receiver:
    """Publish an event whenever a signal of Django's is sent, in the atomic block that it is sent in.

    event: makes the event; called with `sender` and whatever the signal is sent with. None publishes nothing.
    sender: only signals of this sender. Default: of any.
    using: the alias whose transaction is joined; it is the database in which outlast's tables are.
    uid: connects once, however often this is called with it: `dispatch_uid`.

    Outside of an atomic block the event is published after what it tells of was committed: a crash between the two loses it.
    That is warned of, once. Returns the receiver, for `signal.disconnect`. Call it where the project connects its signals:
    in `AppConfig.ready`.
    """
    is_warned = False

    def receive(*, sender: Any, **sent: Any) -> None:  # noqa: ANN401  as the project sends it
        nonlocal is_warned
        sent.pop("signal", None)
        made = event(sender=sender, **sent)
        if made is None:
            return
        connection = connections[using]
        is_open = connection.in_atomic_block or not connection.get_autocommit()
        if not is_open and not is_warned:
            is_warned = True
            _log.warning(
                "%s is published on a signal of Django's that was sent outside of transaction.atomic(): what it tells of is "
                "committed already, and a crash in between loses the event. Said once for this receiver.",
                type(made).__qualname__,
            )
        app.blocking.publish(made, tx=connection if is_open else None)

    signal.connect(receive, sender=sender, weak=False, dispatch_uid=uid)
    return receive
