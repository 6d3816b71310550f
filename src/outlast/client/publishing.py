"""Publishing events: all that they do to workflows is planned first, then written all or nothing, then handlers are told.

Does no I/O itself. The two clients run what `Publishing` makes, awaiting or blocking, and call the handlers.
"""

from __future__ import annotations

import inspect
import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from outlast.client.calls import MISSING, Call, Calls, Message, Start
from outlast.client.identity import derived
from outlast.errors import DefinitionError, InvalidArgument, OutlastError
from outlast.events.handlers import Handler, Handlers
from outlast.events.routes import PlannedSignal, PlannedStart, Route, Routes
from outlast.model import ids
from outlast.model.classes import type_name
from outlast.model.signal import SignalReceipt
from outlast.ports.operation import Op
from outlast.ports.store import StartOutcome

H = TypeVar("H")
T = TypeVar("T")
Written = tuple[tuple[StartOutcome, ...], tuple[SignalReceipt, ...]]

_log = logging.getLogger("outlast.events")


@dataclass(frozen=True, slots=True)
class Published(Generic[H]):
    """What publishing did. `runs` are the handles of the runs that the events started, or found as they had started them
    before; `signals` the receipts of the signals that they sent. Both are in the order of the events.

    Versionadded: 0.1
    """

    runs: tuple[H, ...] = ()
    signals: tuple[SignalReceipt, ...] = ()


@dataclass(frozen=True, slots=True)
class Publication:
    """Events, and all that is to be written for them."""

    events: tuple[object, ...]
    starts: tuple[Start, ...]
    messages: tuple[Message, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self.starts and not self.messages

    @property
    def lone_start(self) -> Start | None:
        """Its start, when that is all there is to write."""
        return self.starts[0] if len(self.starts) == 1 and not self.messages else None


class Publishing:
    """The mappings and handlers of one application, and what an event means by them."""

    def __init__(self, calls: Calls, routes: Routes) -> None:
        self.routes = routes
        self.handlers: Handlers = Handlers()
        self._calls = calls
        self._warned: set[type] = set()

    def maps(self, event: type) -> bool:
        """Tell whether anything happens when such an event is published."""
        route = self.routes.route(event)
        return bool(route.starts or route.signals or self.handlers.of(event))

    def plan(self, events: Sequence[object], *, id: str | None) -> Publication:
        """Make every start and every signal that the events mean; writes nothing.

        Raises what the application's functions raise, DefinitionError where versions of a workflow disagree, and all that
        a start or a signal raises for what it is given.
        """
        if id is not None:
            ids.dedupe_id(id)
        starts: list[PlannedStart] = []
        signals: list[PlannedSignal] = []
        for event in events:
            if isinstance(event, type):
                raise InvalidArgument(f"publish is given events; {event!r} is a type. Pass an instance of it.")
            if inspect.isawaitable(event):
                if inspect.iscoroutine(event):
                    event.close()
                raise InvalidArgument(
                    f"publish is given events; {event!r} has to be awaited first. Nothing was written. Have what makes the "
                    "event be a plain function, or await it and pass what it returns."
                )
            route = self.routes.route(type(event))
            self._warn_of_nothing(type(event), route)
            starts += route.planned_starts(event)
            signals += route.planned_signals(event)
        return Publication(
            tuple(events), tuple(self._start(start) for start in starts), tuple(self._messages(signals, id))
        )

    def calls(self, publication: Publication, *, awaiting: bool) -> list[Callable[[], object]]:
        """Return the calls of handlers that are due once the publication is written, in their order."""
        of: Callable[[type], list[Handler]] = self.handlers.of if awaiting else self.handlers.of_blocking
        return [_call_of(handler, event) for event in publication.events for handler in of(type(event))]

    def write(self, publication: Publication) -> Call[Written, Written]:
        """Write a publication: its starts, then its signals, in one transaction."""

        def make() -> Op[Written]:
            # A conflict is raised before any signal is sent.
            outcomes = yield from self._calls.start_together(publication.starts)
            receipts: tuple[SignalReceipt, ...] = ()
            if publication.messages:
                sent = yield from self._calls.send(publication.messages)
                receipts = tuple(
                    message.settle(outcome) for message, outcome in zip(publication.messages, sent, strict=True)
                )
            return outcomes, receipts

        return Call(lambda: _in_one_transaction(make()), _as_it_is, read_committed=bool(publication.messages))

    def _start(self, planned: PlannedStart) -> Start:
        value = planned.given[0] if planned.given else MISSING
        with _told(planned.by):
            return self._calls.start(
                planned.workflow.name, value, id=planned.id, timeout=None, priority=planned.priority, version=None
            )

    def _messages(self, planned: Sequence[PlannedSignal], id: str | None) -> Iterator[Message]:
        unnamed: Counter[str] = Counter()
        for one in planned:
            signal_id = one.id
            if signal_id is None and id is not None:
                # Ids are told apart by the signal's name, so the publication's own is enough for the first of a name.
                name = one.signal.name
                unnamed[name] += 1
                signal_id = id if unnamed[name] == 1 else derived(id, f"signal {name}", unnamed[name])
            with _told(one.by):
                message = self._calls.message(
                    one.signal, one.given[0] if one.given else MISSING, key=one.key, id=signal_id
                )
            yield message

    def _warn_of_nothing(self, event: type, route: Route) -> None:
        if route.starts or route.signals or event in self._warned or self.handlers.of(event):
            return
        self._warned.add(event)
        former = f" Only older versions of {', '.join(route.former)} map it." if route.former else ""
        _log.warning(
            "%s is published, but no workflow of this app is started or signalled by it and no handler takes it.%s List the "
            "workflow that maps it in Outlast(workflows=[...]), in every process that publishes. Said once for this type.",
            type_name(event),
            former,
        )


def refuse_awaitable(given: object) -> None:
    """Raise when a handler that a blocking caller called gave something to await."""
    if not inspect.isawaitable(given):
        return
    if inspect.iscoroutine(given):
        given.close()
    raise DefinitionError(
        "A handler of app.on gave something to await, which a blocking publish cannot do. What the event does to "
        "workflows is written. Make the handler a plain function, or use `await app.publish(...)`."
    )


@contextmanager
def _told(by: object) -> Generator[None]:
    """Have what is wrong with a start or a signal say which mapping made it."""
    try:
        yield
    except OutlastError as error:
        error.add_note(f"It is what {by} made of an event that was published; nothing was written.")
        raise


def _call_of(handler: Handler, event: object) -> Callable[[], object]:
    return lambda: handler(event)


def _as_it_is(written: Written) -> Written:
    return written


def _in_one_transaction(op: Op[T]) -> Op[T]:
    """Return an op that keeps all its statements in one transaction, also where its first one could be on its own."""
    try:
        statement = replace(next(op), span="write")
        while True:
            statement = op.send((yield statement))
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        op.close()
