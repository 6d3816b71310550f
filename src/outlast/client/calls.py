"""Each verb once: what it accepts, the operation it becomes, and what the operation's outcome means to the caller.

Nothing here does I/O. The two clients run what these methods return, awaiting or blocking.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, Final, Generic, TypeVar, cast

from msgspec.structs import replace

from outlast.client.catalog import Catalog
from outlast.client.identity import Ids, derived
from outlast.client.paging import cursor_after, position_after
from outlast.client.results import result_of
from outlast.client.views import run_view
from outlast.engine.definition import Workflow, is_declared, no_workflow, workflow_of
from outlast.engine.frames import current_step
from outlast.errors import (
    Failure,
    InvalidArgument,
    RunCancelled,
    RunIdConflict,
    RunNotFound,
    RunTerminated,
    SignalIdConflict,
)
from outlast.model import ids
from outlast.model.durations import Duration, parse_duration, to_us
from outlast.model.failures import encode_failure, type_name
from outlast.model.ids import RunId
from outlast.model.options import priority as checked_priority
from outlast.model.run import Page, Run, Status, StopKind, StopReceipt
from outlast.model.signal import Signal, SignalReceipt
from outlast.model.times import to_instant
from outlast.model.values import Shape
from outlast.ports.database import MakeOp
from outlast.ports.operation import Op
from outlast.ports.store import (
    NewRun,
    NewSignal,
    Outcome,
    RunDetails,
    RunFilter,
    SignalOutcome,
    StartOutcome,
    StopOutcome,
    Store,
)

R = TypeVar("R")
T = TypeVar("T")

MOST_STARTS: Final = 1_000
"""Runs that one statement creates; more are created by several in the same transaction."""
MOST_LISTED: Final = 1_000
LONGEST_REASON: Final = 10_000


class Missing(Enum):
    """What was not passed. None is a value like any other."""

    VALUE = auto()


MISSING: Final = Missing.VALUE


@dataclass(frozen=True, slots=True)
class Call(Generic[R, T]):
    """A verb, ready to run: `make` makes its operation, `settle` turns the outcome into the answer or an error."""

    make: MakeOp[R]
    settle: Callable[[R], T]
    read_committed: bool = False
    """True for what could be missed in a transaction that sees an old snapshot."""


@dataclass(frozen=True, slots=True)
class Start:
    """A run to be started. `compares`: an existing run of that id must be the same work. `is_new`: nobody has the id yet."""

    run: NewRun
    shape: Shape[Any]
    compares: bool
    is_new: bool

    def settle(self, outcome: StartOutcome) -> StartOutcome:
        """Return what there is under the id now. Raises RunIdConflict when that is other work."""
        if self.is_new and not outcome.created:
            # A repeat after a lost answer finds what the first try wrote. Held by tests/faults/test_lost_answers.py.
            return replace(outcome, created=True)
        if outcome.created or not self.compares:
            return outcome
        if outcome.workflow != self.run.workflow:
            raise RunIdConflict(outcome.id, f"another workflow, {outcome.workflow!r}")
        if not self.shape.same(outcome.input, self.run.input):
            raise RunIdConflict(outcome.id, "another input")
        return outcome


@dataclass(frozen=True, slots=True)
class Message:
    """A signal to be sent. `is_new`: nobody has used its id yet."""

    new: NewSignal
    is_new: bool

    def settle(self, outcome: SignalOutcome) -> SignalReceipt:
        """Return what became of it. Raises SignalIdConflict when its id is another message's."""
        if not outcome.created and outcome.topic != self.new.topic:
            raise SignalIdConflict(self.new.name, self.new.dedupe_id)
        # An id made for this call was nobody else's: what is there is this call's, written before an answer was lost.
        return SignalReceipt(self.new.dedupe_id, outcome.created or self.is_new, outcome.woken)


class Calls:
    """The verbs, for the workflows registered with one application."""

    def __init__(self, store: Store, catalog: Catalog) -> None:
        self._store = store
        self._catalog = catalog
        self._ids = Ids()

    # How a run begins.

    def start(
        self,
        workflow: object,
        value: object,
        *,
        id: str | None,
        timeout: Duration | None,
        priority: int,
        version: int | None,
    ) -> Start:
        """Check and encode one start. Raises UnknownWorkflow, InvalidArgument and ValueNotStorable; writes nothing."""
        chosen = self._catalog.find(_name_of(workflow), version)
        step = current_step()
        if id is not None:
            run_id = ids.run_id(id)
        elif step is not None:
            run_id = RunId(derived(step.idempotency_key, f"start {chosen.name}", step.next_call()))
        else:
            run_id = self._ids.run()
        run = NewRun(
            id=run_id,
            workflow=chosen.name,
            version=chosen.version,
            input=_encoded_input(chosen, value),
            priority=checked_priority(priority),
            timeout=_run_timeout(chosen, timeout),
        )
        return Start(run, chosen.input_shape, compares=id is not None, is_new=id is None and step is None)

    def start_alone(self, start: Start) -> Call[tuple[StartOutcome, ...], StartOutcome]:
        """Start one run in a transaction that it shares with nothing else of ours."""
        return Call(lambda: self._store.start([start.run]), lambda outcomes: start.settle(outcomes[0]))

    def start_many(
        self,
        workflow: object,
        values: Iterable[object],
        *,
        ids: Sequence[str] | None,
        timeout: Duration | None,
        priority: int,
        version: int | None,
    ) -> Call[tuple[StartOutcome, ...], tuple[StartOutcome, ...]]:
        """Check and encode many starts; one conflict among them undoes all that this transaction wrote."""
        inputs = _listed(values, "inputs")
        names = _listed(ids, "ids") if ids is not None else [None] * len(inputs)
        if len(names) != len(inputs):
            raise InvalidArgument(f"ids must name every input: {len(names)} ids were given for {len(inputs)} inputs.")
        if ids is not None and len(set(names)) != len(names):
            raise InvalidArgument("ids must differ from each other; one of them stands there twice.")
        starts = [
            self.start(workflow, value, id=name, timeout=timeout, priority=priority, version=version)
            for value, name in zip(inputs, names, strict=True)
        ]

        return Call(lambda: self.start_together(starts), lambda outcomes: outcomes)

    def start_together(self, starts: Sequence[Start]) -> Op[tuple[StartOutcome, ...]]:
        """Start any number of runs in one transaction. A conflict among them is raised before it ends."""
        outcomes = yield from self.create([start.run for start in starts], together=True)
        return tuple(start.settle(outcome) for start, outcome in zip(starts, outcomes, strict=True))

    def create(self, runs: Sequence[NewRun], *, together: bool, waits: bool = True) -> Op[tuple[StartOutcome, ...]]:
        """Create any number of runs in one transaction, in statements of a bounded size. Ids may repeat. `waits` is
        `Store.start`'s."""
        outcomes: tuple[StartOutcome, ...] = ()
        groups = _groups(runs)
        for group in groups:
            outcomes += yield from self._store.start(group, together=together or len(groups) > 1, waits=waits)
        return outcomes

    # How a run is spoken to.

    def signal(
        self, sent: object, payload: object, *, key: str | None, id: str | None
    ) -> Call[tuple[SignalOutcome, ...], SignalReceipt]:
        """Check and encode one signal. Raises InvalidArgument and ValueNotStorable; writes nothing."""
        message = self.message(sent, payload, key=key, id=id)
        return Call(lambda: self.send([message]), lambda outcomes: message.settle(outcomes[0]), read_committed=True)

    def message(self, sent: object, payload: object, *, key: str | None, id: str | None) -> Message:
        """Check and encode one signal, as `signal` does."""
        signal = _signal(sent)
        step = current_step()
        if id is not None:
            dedupe_id = ids.dedupe_id(id)
        elif step is not None:
            dedupe_id = derived(step.idempotency_key, f"signal {signal.name}", step.next_call())
        else:
            dedupe_id = self._ids.new()
        topic = ids.topic(signal.name, ids.signal_key(key))
        text = signal.shape.encode(None if payload is MISSING else payload, f"payload of signal {signal.name!r}")
        return Message(NewSignal(signal.name, topic, dedupe_id, text), is_new=id is None and step is None)

    def send(self, messages: Sequence[Message]) -> Op[tuple[SignalOutcome, ...]]:
        """Send signals in one transaction."""
        return self._store.send([message.new for message in messages])

    def stop(self, id: str, kind: StopKind, reason: str) -> Call[StopOutcome | None, StopReceipt]:
        """Check a cancel or terminate."""
        run_id = ids.run_id(id)
        told = RunCancelled if kind is StopKind.CANCEL else RunTerminated
        failure = encode_failure(Failure(type=type_name(told), message=_checked_reason(reason)))

        def settle(outcome: StopOutcome | None) -> StopReceipt:
            if outcome is None:
                raise RunNotFound(run_id)
            return StopReceipt(run_id, outcome.accepted, outcome.status)

        return Call(lambda: self._store.request_stop(run_id, kind, failure), settle)

    # What is known about runs.

    def get(self, id: str, *, journal: bool) -> Call[RunDetails | None, Run | None]:
        """Check a read of one run."""
        run_id = ids.run_id(id)

        def settle(details: RunDetails | None) -> Run | None:
            return None if details is None else run_view(self._catalog, details)

        return Call(lambda: self._store.get(run_id, journal=journal), settle)

    def page(
        self,
        *,
        status: Status | str | Iterable[Status | str] | None,
        workflow: object,
        version: int | None,
        created_after: datetime | None,
        created_before: datetime | None,
        limit: int,
        cursor: str | None,
    ) -> Call[tuple[RunDetails, ...], Page]:
        """Check a list's filters. One run more than asked for is read, to know whether a page follows."""
        if type(limit) is not int or not 1 <= limit <= MOST_LISTED:
            raise InvalidArgument(f"limit is a whole number from 1 to {MOST_LISTED:,}; {limit!r} is not.")
        statuses = _statuses(status)
        wanted = RunFilter(
            statuses=statuses or (),
            workflow=None if workflow is None else _name_of(workflow),
            version=_version(version),
            created_after=None if created_after is None else to_instant(created_after, what="created_after"),
            created_before=None if created_before is None else to_instant(created_before, what="created_before"),
            limit=limit + 1,
            after=None if cursor is None else position_after(cursor),
        )

        def settle(found: tuple[RunDetails, ...]) -> Page:
            runs = tuple(run_view(self._catalog, details) for details in found[:limit])
            return Page(runs, cursor_after(found[limit - 1].run) if len(found) > limit else None)

        return Call(lambda: self._page(None if statuses == () else wanted), settle)

    def _page(self, wanted: RunFilter | None) -> Op[tuple[RunDetails, ...]]:
        """Read a page and, of those that are parked, what they wait for: one statement more, only where there are any. A run
        that goes on between the two waits for nothing, or for what it waits for by then."""
        runs = () if wanted is None else (yield from self._store.list(wanted))
        parked = [run.id for run in runs if run.status is Status.SUSPENDED and run.owner is None]
        waits: Mapping[RunId, tuple[str, ...]] = {}
        if parked:
            waits = yield from self._store.waiting_for(parked)
        return tuple(RunDetails(run, (), waits.get(run.id, ())) for run in runs)

    def look(self, run_ids: Sequence[RunId]) -> Call[Mapping[RunId, Outcome], tuple[Outcome | None, ...]]:
        """Look how far runs are."""
        return Call(lambda: self._store.outcomes(run_ids), lambda found: tuple(map(found.get, run_ids)))

    def known(self, workflow: object) -> str:
        """Return the name of a registered workflow. Raises UnknownWorkflow."""
        return self._catalog.find(_name_of(workflow), None).name

    def result(
        self, run_id: RunId, outcome: Outcome, workflow: str | None = None, *, had_ended: bool = False
    ) -> object:
        """Return the output of a run that has ended, or raise why there is none; or that it is no run of `workflow`.
        `had_ended`: it was started again, and nothing ran."""
        if workflow is not None and outcome.workflow != workflow:
            raise InvalidArgument(f"Run {run_id!r} is one of workflow {outcome.workflow!r}, not of {workflow!r}.")
        return result_of(self._catalog, run_id, outcome, had_ended=had_ended)


def wait_limit(timeout: Duration | None) -> timedelta | None:
    """Check how long a caller wants to wait. Zero looks once."""
    return None if timeout is None else parse_duration(timeout, what="timeout")


def refuse_transaction(tx: object) -> None:
    """Raise for `start_and_wait` inside of a transaction: it would wait for what begins when that commits."""
    if tx is not None:
        raise InvalidArgument(
            "start_and_wait(...) takes no tx=: the run begins when that transaction commits, and until then there is "
            "nothing to wait for. Call start(..., tx=tx), and result() of the handle after the commit."
        )


def _name_of(workflow: object) -> str:
    """Return the name of what `@workflow` made, of an instance of a class it stands on, or the name itself."""
    if isinstance(workflow, str):
        return workflow
    if not is_declared(workflow):
        raise no_workflow(workflow)
    # An instance would only be bound: its class knows the name.
    declared = cast("object", workflow if isinstance(workflow, Workflow | type) else type(workflow))
    return workflow_of(declared).name


def _signal(sent: object) -> Signal[Any]:
    if not isinstance(sent, Signal):
        raise InvalidArgument(f"signal must be a Signal(...), not {type(sent).__name__}.")
    return sent  # pyright: ignore[reportUnknownVariableType]  an instance does not tell its type argument


def _checked_reason(reason: object) -> str:
    if isinstance(reason, str) and 1 <= len(reason) <= LONGEST_REASON:
        try:
            reason.encode()
        except UnicodeEncodeError:
            pass
        else:
            return reason
    raise InvalidArgument(
        f"reason must be a text of 1 to {LONGEST_REASON:,} characters; {reprlib.repr(reason)} is not."
    )


def _encoded_input(workflow: Workflow[Any, Any], value: object) -> str:
    if not workflow.has_input:
        if value is not MISSING and value is not None:
            raise InvalidArgument(f"Workflow {workflow.name!r} takes no input, but one was given.")
        return "null"
    if value is MISSING:
        value = workflow.default_input()
    return workflow.input_shape.encode(value, f"input of workflow {workflow.name!r}")


def _run_timeout(workflow: Workflow[Any, Any], timeout: Duration | None) -> int | None:
    limit = workflow.timeout if timeout is None else timeout
    return None if limit is None else to_us(limit, what="timeout", allow_zero=False)


def _listed(values: Iterable[Any], what: str) -> list[Any]:
    if not hasattr(values, "__iter__") or isinstance(values, str | bytes | Mapping):
        raise InvalidArgument(
            f"{what} must be a list, one item for each run; {reprlib.repr(cast('object', values))} is not."
        )
    return list(values)


def _version(version: object) -> int | None:
    if version is None or type(version) is int:
        return version
    raise InvalidArgument(f"version is a whole number; {version!r} is not.")


def _statuses(status: Status | str | Iterable[Status | str] | None) -> tuple[Status, ...] | None:
    if status is None:
        return None
    try:
        wanted = tuple(Status(one) for one in ([status] if isinstance(status, str) else status))
        if Status.UNKNOWN in wanted:
            raise ValueError("what is unknown cannot be looked for")
    except (TypeError, ValueError) as error:
        known = ", ".join(one for one in Status if one is not Status.UNKNOWN)
        raise InvalidArgument(f"status must be one or several of {known}: {error}.") from error
    return wanted


def _groups(runs: Sequence[NewRun]) -> list[list[NewRun]]:
    """Cut into groups of a bounded size in which no id stands twice: a statement cannot tell which of two came first."""
    groups: list[list[NewRun]] = [[]]
    taken: set[RunId] = set()
    for run in runs:
        if len(groups[-1]) == MOST_STARTS or run.id in taken:
            groups.append([])
            taken = set()
        groups[-1].append(run)
        taken.add(run.id)
    return groups if runs else []
