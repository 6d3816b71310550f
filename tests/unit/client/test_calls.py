"""What the verbs accept, store and answer, over a database of dicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from outlast.client.access import Access
from outlast.client.blocking import BlockingClient
from outlast.client.calls import Calls
from outlast.client.catalog import Catalog
from outlast.client.publishing import Publishing
from outlast.engine.context import Context
from outlast.engine.definition import Workflow, workflow, workflow_of
from outlast.engine.frames import StepFrame, inside
from outlast.errors import (
    CompensationFailed,
    DefinitionError,
    Failure,
    InvalidArgument,
    InvalidDuration,
    InvalidName,
    RunCancelled,
    RunFailed,
    RunIdConflict,
    RunNotFound,
    RunTerminated,
    RunTimedOut,
    SignalIdConflict,
    UnknownWorkflow,
    ValueNotStorable,
    ValueUnreadable,
)
from outlast.events.routes import Routes
from outlast.model.failures import encode_failure
from outlast.model.ids import RunId
from outlast.model.run import Status, StopKind
from outlast.model.signal import Signal
from support.fake_database import FakeDatabase


@dataclass
class Order:
    id: str
    items: list[str]


@workflow("fulfil", timeout="30d")
async def fulfil(ctx: Context, order: Order) -> int:
    return len(order.items)


@workflow("tidy")
async def tidy(ctx: Context) -> None: ...


@workflow("tidy", version=3)
async def tidy_better(ctx: Context) -> None: ...


@workflow("anything")
async def anything(ctx: Context, value: object) -> object:
    return value


@workflow("mail")
class Mail:
    def __init__(self, sender: str) -> None:
        self.sender = sender

    async def run(self, ctx: Context, to: str) -> str:
        return f"{self.sender} to {to}"


@workflow("stranger")
async def stranger(ctx: Context) -> None: ...


approved = Signal("approved", Order)
poked = Signal("poked", None)


@pytest.fixture
def database() -> FakeDatabase:
    return FakeDatabase()


@pytest.fixture
def client(database: FakeDatabase) -> BlockingClient:
    return client_of(database, fulfil, tidy, tidy_better, anything, workflow_of(Mail("ada")))


def client_of(database: FakeDatabase, *workflows: Workflow[Any, Any]) -> BlockingClient:
    calls = Calls(cast("Any", database.store), Catalog(workflows))
    return BlockingClient(Access(cast("Any", database), migrates=False), calls, Publishing(calls, Routes(())))


# Starting.


def test_a_start_stores_the_input_as_its_type_and_the_workflows_timeout(
    client: BlockingClient, database: FakeDatabase
) -> None:
    handle = client.start(fulfil, Order("o-1", ["book"]), id="order-1", priority=7)

    stored = database.store.runs[RunId("order-1")]
    assert (stored.workflow, stored.version, stored.priority) == ("fulfil", 1, 7)
    assert stored.timeout == timedelta(days=30) // timedelta(microseconds=1)
    assert (handle.id, handle.created, handle.status) == ("order-1", True, Status.PENDING)
    run = client.get("order-1")
    assert run is not None
    assert run.input == Order("o-1", ["book"])


def test_the_callers_timeout_goes_before_the_workflows(client: BlockingClient, database: FakeDatabase) -> None:
    client.start(fulfil, Order("o-1", []), id="a", timeout="250ms")

    assert database.store.runs[RunId("a")].timeout == 250_000


def test_the_highest_version_is_started_unless_one_is_asked_for(client: BlockingClient, database: FakeDatabase) -> None:
    assert client.start(tidy).version == 3
    assert client.start(tidy_better).version == 3
    assert client.start(tidy_better, version=1).version == 1


def test_an_unknown_workflow_or_version_is_refused_before_anything_is_written(
    client: BlockingClient, database: FakeDatabase
) -> None:
    with pytest.raises(UnknownWorkflow, match="tidy version 2"):
        client.start(tidy, version=2)
    with pytest.raises(UnknownWorkflow, match="stranger"):
        client.start(stranger)
    with pytest.raises(DefinitionError, match="workflow"):
        client.start(len, "x")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]

    assert database.store.runs == {}


def test_a_class_and_its_instance_both_name_their_workflow(client: BlockingClient) -> None:
    assert client.start(Mail, "bob").workflow == "mail"
    assert client.start(Mail("grace"), "bob").workflow == "mail"


@pytest.mark.parametrize(
    "start",
    [
        lambda client: client.start(fulfil),
        lambda client: client.start(tidy, "surplus"),
        lambda client: client.start(tidy, priority=-1),
        lambda client: client.start(tidy, priority=2_097_152),
        lambda client: client.start(tidy, priority=True),
        lambda client: client.start_many(tidy, [None], ids=["a", "b"]),
        lambda client: client.start_many(tidy, [None, None], ids=["a", "a"]),
    ],
)
def test_wrong_arguments_of_a_start_are_refused(
    client: BlockingClient, database: FakeDatabase, start: Callable[[BlockingClient], object]
) -> None:
    with pytest.raises(InvalidArgument):
        start(client)

    assert database.store.runs == {}


@pytest.mark.parametrize("run_id", ["", "x" * 256, "a\0b", "a\nb", "\ud800", 7])
def test_an_unusable_id_is_refused(client: BlockingClient, database: FakeDatabase, run_id: Any) -> None:
    with pytest.raises(InvalidName):
        client.start(tidy, id=run_id)

    assert database.store.runs == {}


@pytest.mark.parametrize("timeout", ["0s", "-1s", "nan", "inf", "3", timedelta(0), timedelta(days=400_000), 5])
def test_an_unusable_timeout_is_refused(client: BlockingClient, database: FakeDatabase, timeout: Any) -> None:
    with pytest.raises(InvalidDuration):
        client.start(tidy, timeout=timeout)

    assert database.store.runs == {}


def test_an_input_that_cannot_be_stored_is_refused_by_its_place(client: BlockingClient, database: FakeDatabase) -> None:
    with pytest.raises(ValueNotStorable, match=rf"input of workflow '{anything.name}'\['file'\]"):
        client.start(anything, {"file": object()})
    with pytest.raises(ValueNotStorable, match="input"):
        client.start(fulfil, {"id": 7})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    assert database.store.runs == {}


def test_none_is_an_input_and_missing_is_not(client: BlockingClient, database: FakeDatabase) -> None:
    client.start(anything, None, id="none")

    assert database.store.runs[RunId("none")].input == "null"
    with pytest.raises(InvalidArgument, match="takes an input"):
        client.start(anything)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


# One id, one piece of work.


def test_the_same_id_and_input_give_the_existing_run(client: BlockingClient) -> None:
    client.start(anything, {"a": 1, "b": 2}, id="a")

    assert client.start(anything, {"b": 2, "a": 1}, id="a").created is False


@pytest.mark.parametrize(
    "first, second",
    [({}, {"f": 1}), ({"f": 1}, {}), (1, 1.0), (1, True), (1, "1"), ("é", "e\u0301"), (None, {}), ([1, 2], [2, 1])],
)
def test_the_same_id_with_another_input_is_a_conflict(client: BlockingClient, first: object, second: object) -> None:
    client.start(anything, first, id="a")

    with pytest.raises(RunIdConflict, match="another input") as raised:
        client.start(anything, second, id="a")
    assert raised.value.run_id == "a"


def test_the_same_id_for_another_workflow_is_a_conflict(client: BlockingClient) -> None:
    client.start(tidy, id="a")

    with pytest.raises(RunIdConflict, match="another workflow, 'tidy'"):
        client.start(anything, None, id="a")


def test_another_version_of_the_same_work_is_the_same_work(client: BlockingClient) -> None:
    client.start(tidy, id="a", version=1)

    handle = client.start(tidy, id="a")

    assert (handle.created, handle.version) == (False, 1)


def test_ids_made_here_differ_and_grow(client: BlockingClient) -> None:
    ids = [client.start(tidy).id for _ in range(50)]

    assert ids == sorted(set(ids))


def test_a_start_inside_a_step_gets_the_same_id_in_every_attempt(
    client: BlockingClient, database: FakeDatabase
) -> None:
    def attempt() -> list[str]:
        with inside(StepFrame(RunId("r"), "notify", "r:notify", 1)):
            return [client.start(anything, 1).id, client.start(anything, 2).id, client.signal(poked, key="k").id]

    first, second = attempt(), attempt()

    assert first == second
    assert len(set(first)) == 3
    assert (len(database.store.runs), len(database.store.signals)) == (2, 1)


def test_a_repeated_step_does_not_compare_what_it_started_before(client: BlockingClient) -> None:
    """A step that reads the clock passes another input in its second attempt; the first attempt's run is the one."""
    with inside(StepFrame(RunId("r"), "notify", "r:notify", 1)):
        first = client.start(anything, "at 10:00")
    with inside(StepFrame(RunId("r"), "notify", "r:notify", 2)):
        second = client.start(anything, "at 10:01")

    assert (second.id, second.created) == (first.id, False)


def test_many_runs_are_started_in_groups_of_a_thousand(client: BlockingClient, database: FakeDatabase) -> None:
    handles = client.start_many(anything, range(2_500))

    assert database.store.batches == [1_000, 1_000, 500]
    assert [database.store.runs[handle.id].input for handle in handles] == [str(number) for number in range(2_500)]


def test_starting_many_of_nothing_starts_nothing(client: BlockingClient, database: FakeDatabase) -> None:
    assert client.start_many(anything, []) == []
    assert database.store.batches == []


def test_a_conflict_among_many_is_raised_inside_the_transaction(client: BlockingClient, database: FakeDatabase) -> None:
    client.start(anything, 1, id="b")

    with pytest.raises(RunIdConflict, match="'b'"):
        client.start_many(anything, [1, 2], ids=["a", "b"])


# Signals.


def test_a_signal_is_stored_with_its_payload_as_its_type(client: BlockingClient, database: FakeDatabase) -> None:
    receipt = client.signal(approved, Order("o", []), key="o", id="event-1")

    stored = database.store.signals[("approved", "event-1")]
    assert (stored.topic, stored.payload) == ("approved\no", '{"id":"o","items":[]}')
    assert (receipt.id, receipt.created, receipt.woken) == ("event-1", True, 1)


def test_no_key_and_an_empty_key_are_two_lines(client: BlockingClient, database: FakeDatabase) -> None:
    client.signal(poked, id="a")
    client.signal(poked, key="", id="b")

    assert [signal.topic for signal in database.store.signals.values()] == ["poked", "poked\n"]


def test_a_signal_sent_again_is_not_stored_again(client: BlockingClient, database: FakeDatabase) -> None:
    client.signal(poked, key="k", id="a")

    assert client.signal(poked, key="k", id="a").created is False


def test_a_signal_id_used_with_another_key_is_a_conflict(client: BlockingClient) -> None:
    client.signal(poked, key="k", id="a")

    with pytest.raises(SignalIdConflict, match="another key"):
        client.signal(poked, key="other", id="a")


def test_a_payload_of_the_wrong_type_is_refused(client: BlockingClient, database: FakeDatabase) -> None:
    with pytest.raises(ValueNotStorable, match="payload of signal 'approved'"):
        client.signal(approved, "yes")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(ValueNotStorable):
        client.signal(poked, 1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(InvalidArgument, match="Signal"):
        client.signal("approved")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]

    assert database.store.signals == {}


@pytest.mark.parametrize("names", [{"key": "a\0"}, {"key": "x" * 256}, {"key": 3}, {"id": ""}, {"id": "x" * 256}])
def test_unusable_keys_and_ids_of_signals_are_refused(client: BlockingClient, names: dict[str, Any]) -> None:
    with pytest.raises(InvalidName):
        client.signal(poked, **names)


# Stopping.


def test_the_first_stop_counts(client: BlockingClient, database: FakeDatabase) -> None:
    client.start(tidy, id="a")

    first, second = client.cancel("a", "Ada called"), client.terminate("a")

    assert (first.accepted, second.accepted) == (True, False)
    stop = database.store.stops[RunId("a")]
    assert (stop.kind, stop.failure.message) == (StopKind.CANCEL, "Ada called")


def test_stopping_what_is_not_there_is_an_error(client: BlockingClient) -> None:
    with pytest.raises(RunNotFound):
        client.cancel("nobody")
    with pytest.raises(RunNotFound):
        client.terminate("nobody")


@pytest.mark.parametrize("reason", ["", "x" * 10_001, "\ud800", None, 7])
def test_an_unusable_reason_is_refused(client: BlockingClient, reason: Any) -> None:
    client.start(tidy, id="a")

    with pytest.raises(InvalidArgument, match="reason"):
        client.cancel("a", reason)


# Results.


def test_an_output_comes_back_as_its_type(client: BlockingClient, database: FakeDatabase) -> None:
    handle = client.start(fulfil, Order("o", ["book"]))
    database.store.end(handle.id, Status.COMPLETED, output="1")

    assert handle.result() == 1
    assert client.result(handle.id) == 1


@pytest.mark.parametrize(
    "status, recorded, raised",
    [
        (Status.FAILED, "builtins.ValueError", RunFailed),
        (Status.FAILED, "outlast.errors.RunTimedOut", RunTimedOut),
        (Status.CANCELLED, "outlast.errors.RunCancelled", RunCancelled),
        (Status.CANCELLED, "outlast.errors.RunTerminated", RunTerminated),
        (Status.COMPENSATION_FAILED, "builtins.ValueError", CompensationFailed),
    ],
)
def test_a_run_that_did_not_complete_raises_what_tells_why(
    client: BlockingClient, database: FakeDatabase, status: Status, recorded: str, raised: type[RunFailed]
) -> None:
    client.start(tidy, id="a")
    failure = Failure(type=recorded, message="no stock")
    database.store.end("a", status, error=encode_failure(failure))

    with pytest.raises(raised, match="no stock") as told:
        client.result("a")

    assert type(told.value) is raised
    assert (told.value.run_id, told.value.status, told.value.failure) == ("a", status, failure)


def test_the_result_of_nobody_is_not_found(client: BlockingClient) -> None:
    with pytest.raises(RunNotFound):
        client.result("nobody")


def test_only_reading_an_unreadable_output_raises(client: BlockingClient, database: FakeDatabase) -> None:
    client.start(fulfil, Order("o", []), id="a")
    database.store.end("a", Status.COMPLETED, output='"many"')

    run = client.get("a")

    assert run is not None
    assert (run.output, list(run.unreadable)) == ("many", ["output"])
    with pytest.raises(ValueUnreadable, match="'a'"):
        client.result("a")


def test_damaged_values_do_not_hide_a_run(client: BlockingClient, database: FakeDatabase) -> None:
    client.start(anything, 1, id="a")
    client.start(anything, 2, id="b")
    database.store.end("a", Status.COMPLETED, output='{"cut": "sho')
    database.store.end("b", Status.FAILED, error="not even JSON")

    first, second = client.list().runs

    assert (first.output, "output" in first.unreadable) == (None, True)
    assert second.failure is not None
    assert "cannot be read" in second.failure.message


def test_runs_of_workflows_that_are_not_registered_here_are_plain_values(database: FakeDatabase) -> None:
    client_of(database, fulfil).start(fulfil, Order("o", []), id="a")
    database.store.end("a", Status.COMPLETED, output="5")
    elsewhere = client_of(database, tidy)

    run = elsewhere.get("a")

    assert run is not None
    assert run.input == {"id": "o", "items": []}
    assert elsewhere.result("a") == 5


# Lists.


def test_a_list_comes_in_pages_that_continue(client: BlockingClient) -> None:
    client.start_many(anything, range(5), ids=["a", "b", "c", "d", "e"])

    first = client.list(limit=2)
    second = client.list(limit=2, cursor=first.cursor)
    third = client.list(limit=2, cursor=second.cursor)

    assert [[run.id for run in page.runs] for page in (first, second, third)] == [["a", "b"], ["c", "d"], ["e"]]
    assert third.cursor is None


def test_filters_reach_the_store(client: BlockingClient, database: FakeDatabase) -> None:
    client.list(
        status=["running", Status.SUSPENDED],
        workflow=fulfil,
        version=2,
        created_after=datetime(2026, 1, 1, tzinfo=UTC),
        created_before=datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    )
    client.list(status="failed", workflow="gone")

    first, second = database.store.filters
    assert (first.statuses, first.workflow, first.version) == ((Status.RUNNING, Status.SUSPENDED), "fulfil", 2)
    assert (first.created_after, first.created_before) == (1_767_225_600_000_000, 1_767_225_600_000_001)
    assert (second.statuses, second.workflow) == ((Status.FAILED,), "gone")


@pytest.mark.parametrize(
    "wrong",
    [
        {"limit": 0},
        {"limit": 1_001},
        {"limit": True},
        {"limit": "10"},
        {"cursor": "nonsense"},
        {"status": "lost"},
        {"status": ["running", "lost"]},
        {"status": 5},
        {"version": "2"},
        {"created_before": "2026-01-01"},
        {"created_after": datetime(2026, 1, 1)},  # noqa: DTZ001 -- the mistake that is refused
    ],
)
def test_unusable_filters_are_refused(client: BlockingClient, database: FakeDatabase, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        client.list(**wrong)

    assert database.store.filters == []


def test_two_workflows_of_one_name_and_version_cannot_be_registered(database: FakeDatabase) -> None:
    with pytest.raises(DefinitionError, match="'tidy' version 1"):
        client_of(database, tidy, tidy)
