"""Signals: durable, typed messages to whichever runs wait for their name and key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

import msgspec

from outlast.model import ids
from outlast.model.classes import type_name
from outlast.model.storable import check_storable
from outlast.model.values import Shape, shape_of

P = TypeVar("P")


class Signal(Generic[P]):
    """Declare a signal once and share the object between senders and workflows.

    `payload` is the type that senders must pass and waits return; `None` declares a signal without one.

    >>> from outlast import Signal
    >>> approved = Signal("order.approved", str)
    """

    __slots__ = ("name", "payload", "shape")

    @overload
    def __init__(self: Signal[None], name: str, payload: None = None) -> None: ...
    @overload
    def __init__(self, name: str, payload: type[P]) -> None: ...
    @overload
    def __init__(self: Signal[Any], name: str, payload: object) -> None: ...
    def __init__(self, name: str, payload: Any = None) -> None:
        self.name: str = ids.signal_name(name)
        self.payload: Any = payload
        check_storable(f"the payload of signal {name!r}", payload, is_declared=False)
        self.shape: Shape[Any] = shape_of(payload if payload is not None else type(None))

    def __repr__(self) -> str:
        return f"Signal({self.name!r}, {type_name(self.payload)})"


class StoredSignal(msgspec.Struct, frozen=True, gc=False):
    """A signal as the store keeps it. `id` orders the signals of one topic; `created_at` is microseconds."""

    id: int
    topic: str
    payload: str
    created_at: int


@dataclass(frozen=True, slots=True)
class SignalReceipt:
    """The answer to a sent signal. `created` is False when the same id was sent before: then nothing was stored.
    `woken` counts the runs that were parked on it at that moment; runs that wait later see the signal too."""

    id: str
    created: bool
    woken: int
