"""Which workflows an event starts and which signals it sends: worked out once for each type, planned for each event."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from outlast.engine import signatures
from outlast.engine.definition import Workflow
from outlast.errors import DefinitionError
from outlast.events.fitting import fits
from outlast.events.mappings import Mapping, SignalsOn, StartsOn
from outlast.model import ids
from outlast.model.classes import type_name
from outlast.model.options import priority as checked_priority
from outlast.model.signal import Signal

M = TypeVar("M", StartsOn, SignalsOn)


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """A run to start. `given` holds its input; it is empty for a workflow without one. `by` is what planned it."""

    workflow: Workflow[Any, Any]
    id: str
    given: tuple[object, ...]
    priority: int
    by: object


@dataclass(frozen=True, slots=True)
class PlannedSignal:
    """A signal to send. `given` holds its payload; it is empty for a signal without one. `by` as of a start."""

    signal: Signal[Any]
    key: str | None
    id: str | None
    given: tuple[object, ...]
    by: object


@dataclass(frozen=True, slots=True)
class _Mapped(Generic[M]):
    """A mapping, and the workflow that declares it."""

    workflow: Workflow[Any, Any]
    mapping: M

    def made(
        self, option: str, given: object, event: object, check: Callable[[Any], object] = lambda made: made
    ) -> object:
        """Return what the application's function makes of an event, or the value that it gave instead of one.

        What the function raises, and what is wrong with what it made, says where it came from.
        """
        if not callable(given):
            return given  # checked where it was declared
        try:
            made = given(event)
            check(made)
        except Exception as error:
            error.add_note(f"It came from {option}= of {self}, when one was published; nothing was written.")
            raise
        return made

    def __str__(self) -> str:
        workflow = self.workflow
        return f"{self.mapping} of workflow {workflow.name!r} version {workflow.version}"


@dataclass(frozen=True, slots=True)
class Route:
    """What an event of one type does. `former` names workflows of which only older versions are started by it."""

    starts: tuple[_Mapped[StartsOn], ...]
    signals: tuple[_Mapped[SignalsOn], ...]
    former: tuple[str, ...] = ()

    def planned_starts(self, event: object) -> list[PlannedStart]:
        """Make the starts that an event means. Raises what the application's functions raise."""
        return [_planned_start(mapped, event) for mapped in self.starts]

    def planned_signals(self, event: object) -> list[PlannedSignal]:
        """Make the signals that an event means, each once. Raises DefinitionError where versions disagree about one."""
        planned: list[tuple[_Mapped[SignalsOn], PlannedSignal]] = []
        for mapped in self.signals:
            made = _planned_signal(mapped, event)
            if not any(_is_repeated(mapped, made, *earlier) for earlier in planned):
                planned.append((mapped, made))
        return [made for _, made in planned]


class Routes:
    """The mappings of the workflows that an application registered. Built once; safe from any thread."""

    def __init__(self, workflows: Iterable[tuple[Workflow[Any, Any], Sequence[Mapping]]]) -> None:
        """Raises DefinitionError for an event that one workflow maps twice, and for an input of another type."""
        self._starts: dict[str, dict[int, dict[type, _Mapped[StartsOn]]]] = {}
        self._signals: list[dict[type, _Mapped[SignalsOn]]] = []
        for workflow, mappings in workflows:
            starts = _by_event(workflow, [one for one in mappings if isinstance(one, StartsOn)])
            self._starts.setdefault(workflow.name, {})[workflow.version] = starts
            self._signals.append(_by_event(workflow, [one for one in mappings if isinstance(one, SignalsOn)]))
        self._routes: dict[type, Route] = {}
        self.check_types(must_be_found=False)

    def route(self, event: type) -> Route:
        """Return what an event of this very type does."""
        known = self._routes.get(event)
        if known is None:
            known = self._routes[event] = self._found(event)
        return known

    @property
    def events(self) -> frozenset[type]:
        """The types of events that some workflow maps."""
        starts = (event for versions in self._starts.values() for event in versions[max(versions)])
        return frozenset(starts) | frozenset(event for by_event in self._signals for event in by_event)

    def check_types(self, *, must_be_found: bool = True) -> None:
        """Raise DefinitionError for an event that starts a workflow with an input of another type.

        must_be_found: and for a type that cannot be looked up. While modules are imported one may stand further down.
        """
        for versions in self._starts.values():
            for starts in versions.values():
                for mapped in starts.values():
                    _check_input(mapped, must_be_found=must_be_found)

    def _found(self, event: type) -> Route:
        starts: list[_Mapped[StartsOn]] = []
        former: list[str] = []
        for name, versions in self._starts.items():
            highest = _nearest(event, versions[max(versions)])
            if highest is not None:
                starts.append(highest)
            elif any(_nearest(event, older) is not None for older in versions.values()):
                former.append(name)
        signals = [found for by_event in self._signals if (found := _nearest(event, by_event)) is not None]
        return Route(tuple(starts), tuple(signals), tuple(former))


def _by_event(workflow: Workflow[Any, Any], mappings: Iterable[M]) -> dict[type, _Mapped[M]]:
    by_event: dict[type, _Mapped[M]] = {}
    for mapping in mappings:
        mapped = _Mapped(workflow, mapping)
        if mapping.event in by_event:
            raise DefinitionError(
                f"{mapped} stands there twice. One workflow maps an event once: make one mapping of the two, or publish two "
                "types of events."
            )
        by_event[mapping.event] = mapped
    return by_event


def _nearest(event: type, by_event: dict[type, _Mapped[M]]) -> _Mapped[M] | None:
    return next((by_event[base] for base in event.__mro__ if base in by_event), None)


def _planned_start(mapped: _Mapped[StartsOn], event: object) -> PlannedStart:
    mapping, workflow = mapped.mapping, mapped.workflow
    run_id = mapped.made("id", mapping.id, event, ids.run_id)
    priority = mapped.made("priority", mapping.priority, event, checked_priority)
    if mapping.input is not None:
        given: tuple[object, ...] = (mapped.made("input", mapping.input, event),)
    else:
        given = (event,) if workflow.has_input else ()
    return PlannedStart(workflow, cast("str", run_id), given, cast("int", priority), mapped)


def _planned_signal(mapped: _Mapped[SignalsOn], event: object) -> PlannedSignal:
    mapping = mapped.mapping
    key = mapped.made("key", mapping.key, event, ids.signal_key)
    signal_id = mapped.made("id", mapping.id, event, lambda made: None if made is None else ids.dedupe_id(made))
    if mapping.payload is not None:
        given: tuple[object, ...] = (mapped.made("payload", mapping.payload, event),)
    else:
        given = () if mapping.signal.payload is None else (event,)
    return PlannedSignal(mapping.signal, cast("str | None", key), cast("str | None", signal_id), given, mapped)


def _is_repeated(
    mapped: _Mapped[SignalsOn], made: PlannedSignal, earlier: _Mapped[SignalsOn], sent: PlannedSignal
) -> bool:
    """Tell whether `made` is `sent`, which was planned already. Raises DefinitionError when it should be and is not."""
    if made.signal.name != sent.signal.name:
        return False
    if made.key != sent.key:
        if mapped.workflow.name != earlier.workflow.name:
            return False  # Two workflows may wait for one signal under keys of their own.
        differs = "key"
    elif made.id != sent.id:
        differs = "id"
    elif not _same_payload(made, sent):
        differs = "payload"
    else:
        return True
    raise DefinitionError(
        f"{mapped} and {earlier} disagree about the {differs} of signal {made.signal.name!r}, which is sent once for "
        "all who wait for it. Make their mappings alike; nothing was written."
    )


def _same_payload(made: PlannedSignal, sent: PlannedSignal) -> bool:
    where = f"payload of signal {made.signal.name!r}"
    first, second = (one.signal.shape.encode(next(iter(one.given), None), where) for one in (made, sent))
    return sent.signal.shape.same(first, second)


def _check_input(mapped: _Mapped[StartsOn], *, must_be_found: bool) -> None:
    mapping, workflow = mapped.mapping, mapped.workflow
    if not workflow.has_input:
        if mapping.input is not None:
            raise DefinitionError(f"{mapped} makes an input, but the workflow takes none.")
        return
    try:
        wanted = workflow.input_shape.annotation
    except DefinitionError:
        if must_be_found:
            raise
        return
    given = mapping.event if mapping.input is None else signatures.result_type(mapping.input)
    if not fits(given, wanted):
        made = "the event itself" if mapping.input is None else "what input= returns"
        raise DefinitionError(
            f"{mapped}: the workflow's input is {type_name(wanted)}; {made} is {type_name(given)}. "
            "Pass input=, a function of the event that makes it."
        )
