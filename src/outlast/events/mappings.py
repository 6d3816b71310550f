"""What an event does to a workflow, as its author declares it: `@starts_on` and `@signals_on`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast, is_typeddict, overload

from outlast.engine import signatures
from outlast.engine.definition import Workflow, workflow_of
from outlast.errors import DefinitionError, InvalidName, ValueNotStorable
from outlast.events.fitting import fits
from outlast.model import ids
from outlast.model.classes import type_name
from outlast.model.options import priority as checked_priority
from outlast.model.signal import Signal

C = TypeVar("C")
E = TypeVar("E")
I = TypeVar("I")  # noqa: E741  input
O = TypeVar("O")  # noqa: E741  output
P = TypeVar("P")
R = TypeVar("R")

_MAPPINGS: Final = "__outlast_events__"


@dataclass(frozen=True, slots=True, eq=False)
class StartsOn:
    """An event of this type starts the workflow. Without `input` the event is the input, if the workflow takes one."""

    event: type
    id: Callable[[Any], object] | str
    input: Callable[[Any], object] | None
    priority: Callable[[Any], int] | int

    def __str__(self) -> str:
        return f"@starts_on({type_name(self.event)})"


@dataclass(frozen=True, slots=True, eq=False)
class SignalsOn:
    """An event of this type sends a signal. Without `payload` the event is the payload, if the signal has one."""

    event: type
    signal: Signal[Any]
    key: Callable[[Any], object] | str | None
    id: Callable[[Any], object] | str | None
    payload: object

    def __str__(self) -> str:
        return f"@signals_on({type_name(self.event)})"


Mapping: TypeAlias = StartsOn | SignalsOn


class _HasRun(Protocol):
    """An instance of a class declared as a workflow."""

    @property
    def run(self) -> Callable[..., Any]: ...


K = TypeVar("K", bound=type[_HasRun])


class StartsDecorator(Protocol[I]):
    """What `starts_on(...)` returns: for workflows that take such an input, or a wider one."""

    @overload
    def __call__(self, code: K, /) -> K: ...
    @overload
    def __call__(self, code: Workflow[I, O], /) -> Workflow[I, O]: ...
    @overload
    def __call__(self, code: Callable[[C, I], R], /) -> Callable[[C, I], R]: ...


class StartsWithEventDecorator(Protocol[E]):
    """What `starts_on(...)` without `input` returns: for workflows that take the event, or nothing."""

    @overload
    def __call__(self, code: K, /) -> K: ...
    @overload
    def __call__(self, code: Workflow[None, O], /) -> Workflow[None, O]: ...
    @overload
    def __call__(self, code: Workflow[E, O], /) -> Workflow[E, O]: ...
    @overload
    def __call__(self, code: Callable[[C, E], R], /) -> Callable[[C, E], R]: ...
    @overload
    def __call__(self, code: Callable[[C], R], /) -> Callable[[C], R]: ...


class SignalsDecorator(Protocol):
    """What `signals_on(...)` returns: for any workflow."""

    @overload
    def __call__(self, code: K, /) -> K: ...
    @overload
    def __call__(self, code: Workflow[I, O], /) -> Workflow[I, O]: ...
    @overload
    def __call__(self, code: Callable[[C, I], R], /) -> Callable[[C, I], R]: ...
    @overload
    def __call__(self, code: Callable[[C], R], /) -> Callable[[C], R]: ...


@overload
def starts_on(
    event: type[E], *, id: Callable[[E], str] | str, priority: Callable[[E], int] | int = 0
) -> StartsWithEventDecorator[E]: ...
@overload
def starts_on(
    event: type[E], *, id: Callable[[E], str] | str, input: Callable[[E], I], priority: Callable[[E], int] | int = 0
) -> StartsDecorator[I]: ...
def starts_on(
    event: type[Any],
    *,
    id: Callable[[Any], object] | str,
    input: Callable[[Any], object] | None = None,
    priority: Callable[[Any], int] | int = 0,
) -> object:
    """Start the workflow on which this stands whenever `app.publish` is given an event of this type.

    id: makes the run's id of the event, so that an event published twice finds the run that its first time started. Or the
        id itself: then all events of this type mean one run, which the first of them starts.
    input: makes the run's input; default the event itself, or nothing for a workflow without an input.
    priority: as with `Outlast.start`, or a function of the event. Default 0.

    An event of a subclass counts as one of the nearest class that the workflow maps. Of several versions the highest one
    decides. Stands above or below `@workflow`; raises DefinitionError for what can never work.

    >>> from dataclasses import dataclass
    >>> from outlast import Context, starts_on, workflow
    >>> @dataclass
    ... class OrderPlaced:
    ...     order: str
    >>> @starts_on(OrderPlaced, id=lambda event: f"order-{event.order}", input=lambda event: event.order)
    ... @workflow("fulfil")
    ... async def fulfil(ctx: Context, order: str) -> str:
    ...     return f"sent {order}"

    Versionadded: 0.1
    """
    mapping = StartsOn(event, id, input, priority)
    _check_event(mapping, event)
    _check_text(mapping, "id", id, ids.run_id)
    if input is not None:
        _check_function(mapping, "input", input)
    if callable(priority):
        _check_function(mapping, "priority", priority)
    else:
        checked_priority(priority)
    return functools.partial(_declared, mapping)


@overload
def signals_on(
    event: type[E],
    *,
    signal: Signal[P],
    payload: Callable[[E], P] | P,
    key: Callable[[E], str | None] | str | None = None,
    id: Callable[[E], str | None] | str | None = None,
) -> SignalsDecorator: ...
@overload
def signals_on(
    event: type[E],
    *,
    signal: Signal[None],
    key: Callable[[E], str | None] | str | None = None,
    id: Callable[[E], str | None] | str | None = None,
) -> SignalsDecorator: ...
@overload
def signals_on(
    event: type[E],
    *,
    signal: Signal[E],
    key: Callable[[E], str | None] | str | None = None,
    id: Callable[[E], str | None] | str | None = None,
) -> SignalsDecorator: ...
def signals_on(
    event: type[Any],
    *,
    signal: Signal[Any],
    payload: object = None,
    key: Callable[[Any], object] | str | None = None,
    id: Callable[[Any], object] | str | None = None,
) -> object:
    """Send a signal, for the workflow on which this stands, whenever `app.publish` is given an event of this type.

    payload: the signal's payload, or a function of the event that makes it; default the event itself, or nothing for a
        signal without a payload.
    key: the signal's key, or a function that makes it; default none.
    id: makes the signal's id, under which it is stored once however often the event is published. Or the id itself: then
        only the first event of this type sends it. Default: the id given to `publish`, else a new one; inside a step one
        that every attempt of the step makes again.

    The signal reaches whichever runs wait for its name and key. Several versions of a workflow send it once, and must agree
    on its payload, key and id. Otherwise as `starts_on`.

    >>> from dataclasses import dataclass
    >>> from outlast import Context, Signal, signals_on, workflow
    >>> @dataclass
    ... class OrderDelivered:
    ...     order: str
    ...     parcel: str
    >>> delivered = Signal("delivered", str)
    >>> @signals_on(OrderDelivered, signal=delivered, key=lambda event: event.order, payload=lambda event: event.parcel)
    ... @workflow("track")
    ... async def track(ctx: Context, order: str) -> str | None:
    ...     return await ctx.wait_for("delivery", ctx.signal(delivered, key=order), timeout="3d")

    Versionadded: 0.1
    """
    mapping = SignalsOn(event, signal, key, id, payload)
    _check_event(mapping, event)
    if key is not None:
        _check_text(mapping, "key", key, ids.signal_key)
    if id is not None:
        _check_text(mapping, "id", id, ids.dedupe_id)
    if callable(payload):
        _check_function(mapping, "payload", payload)
    _check_signal(mapping, signal)
    _check_payload(mapping)
    return functools.partial(_declared, mapping)


def mappings_of(declared: object, workflow: Workflow[Any, Any]) -> tuple[Mapping, ...]:
    """Return what was declared on a workflow: `declared` is what the application registered, `workflow` what that is.

    A class that inherits a declared workflow inherits its mappings; one that is declared anew begins without.
    """
    found = list(_own(workflow)) + list(_own(workflow.function))
    if not isinstance(declared, Workflow):
        kind = declared if isinstance(declared, type) else type(declared)
        declaration = workflow_of(kind)
        for base in kind.__mro__:
            if _is_of(base, declaration):
                found += _own(base)
    return tuple(found)


def _own(code: object) -> tuple[Mapping, ...]:
    mappings: tuple[Mapping, ...] = vars(code).get(_MAPPINGS, ())
    return mappings


def _is_of(base: type, declaration: Workflow[Any, Any]) -> bool:
    try:
        return workflow_of(base) is declaration
    except DefinitionError:
        return False


def _declared(mapping: Mapping, code: object) -> object:
    if not isinstance(code, Workflow | type) and not inspect.isfunction(code):
        raise DefinitionError(f"{mapping} stands on a workflow, next to @workflow(...); {code!r} is none.")
    carrier = cast("object", code)
    # The decorator that is written first is called last.
    setattr(carrier, _MAPPINGS, (mapping, *_own(carrier)))
    return carrier


def _check_event(mapping: Mapping, event: object) -> None:
    if not isinstance(event, type) or is_typeddict(event):
        raise DefinitionError(f"{mapping}: an event's type is a class of which events are instances; {event!r} is not.")


def _check_function(mapping: Mapping, option: str, function: object) -> None:
    if not callable(function):
        raise DefinitionError(
            f"{mapping}: {option}= is a function of the event; {function!r} is not. For what is the same with every event "
            f"write {option}=lambda event: ... and that."
        )
    if signatures.is_awaited(function):
        raise DefinitionError(
            f"{mapping}: {option}= must be a plain function of the event; {signatures.name_of(function)} is awaited. "
            "Look up what is needed before the event is published, or in a step."
        )


def _check_text(mapping: Mapping, option: str, given: object, check: Callable[[str], object]) -> None:
    """Refuse what is neither a text that may be used, nor a function that makes one."""
    if not isinstance(given, str):
        return _check_function(mapping, option, given)
    try:
        check(given)
    except InvalidName as error:
        raise DefinitionError(f"{mapping}: {option}= cannot be used. {error}") from error


def _check_signal(mapping: Mapping, signal: object) -> None:
    if not isinstance(signal, Signal):
        raise DefinitionError(f"{mapping}: signal= is a Signal(...); {signal!r} is not.")


def _check_payload(mapping: SignalsOn) -> None:
    """Refuse what is never a payload of the signal. Of a lambda only its result can tell, when an event is published."""
    wanted = mapping.signal.payload
    if wanted is None and mapping.payload is not None:
        raise DefinitionError(f"{mapping}: {mapping.signal!r} has no payload, but payload= is given.")
    if wanted is None:
        return
    if mapping.payload is not None and not callable(mapping.payload):
        try:
            mapping.signal.shape.encode(mapping.payload, f"payload of signal {mapping.signal.name!r}")
        except ValueNotStorable as error:
            raise DefinitionError(f"{mapping}: payload= cannot be used. {error}") from error
        return
    given = mapping.event if mapping.payload is None else signatures.result_type(mapping.payload)
    if not fits(given, wanted):
        made = "the event itself" if mapping.payload is None else f"what {signatures.name_of(mapping.payload)} returns"
        raise DefinitionError(
            f"{mapping}: the payload of signal {mapping.signal.name!r} is {type_name(wanted)}; {made} is "
            f"{type_name(given)}. Pass payload=, a function of the event that makes it, or the payload itself."
        )
