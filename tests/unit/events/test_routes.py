"""Which starts and signals an event means."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, cast

import pytest

from outlast.engine.context import Context
from outlast.engine.definition import Workflow, workflow
from outlast.errors import DefinitionError, InvalidArgument, InvalidName
from outlast.events.mappings import mappings_of, signals_on, starts_on
from outlast.events.routes import Routes
from outlast.model.signal import Signal


@dataclass
class Placed:
    order: str


@dataclass
class Urgent(Placed):
    hours: int = 1


class VeryUrgent(Urgent): ...


@dataclass
class Delivered:
    order: str
    parcel: str = "p"


delivered = Signal("delivered", str)
poked = Signal("poked")


def flow(name: str, *mappings: Any, version: int = 1, takes: type | None = Placed) -> Workflow[Any, Any]:
    async def alone(ctx: Context) -> None: ...

    async def with_input(ctx: Context, value: Any) -> None: ...

    if takes is not None:
        with_input.__annotations__["value"] = takes
    made: Any = workflow(name, version=version)(alone if takes is None else with_input)
    for mapping in mappings:
        mapping(made)
    return cast("Workflow[Any, Any]", made)


def routes(*workflows: Workflow[Any, Any]) -> Routes:
    return Routes((one, mappings_of(one, one)) for one in workflows)


def started(found: Routes, event: object) -> list[tuple[str, int, str, tuple[object, ...], int]]:
    planned = found.route(type(event)).planned_starts(event)
    return [(one.workflow.name, one.workflow.version, one.id, one.given, one.priority) for one in planned]


def sent(found: Routes, event: object) -> list[tuple[str, str | None, str | None, tuple[object, ...]]]:
    planned = found.route(type(event)).planned_signals(event)
    return [(one.signal.name, one.key, one.id, one.given) for one in planned]


by_order: Callable[[Any], str] = lambda event: event.order  # noqa: E731
signals_delivery: Any = signals_on(Delivered, signal=delivered, key=by_order, payload=lambda event: event.parcel)


def test_an_event_starts_a_workflow_with_what_its_mapping_makes() -> None:
    found = routes(flow("fulfil", starts_on(Placed, id=by_order, input=lambda event: 7, priority=lambda event: 3)))

    assert started(found, Placed("o-1")) == [("fulfil", 1, "o-1", (7,), 3)]


def test_the_event_is_the_input_of_a_workflow_that_takes_one() -> None:
    found = routes(
        flow("takes", starts_on(Placed, id=by_order)), flow("alone", starts_on(Placed, id=by_order), takes=None)
    )

    assert [given for _, _, _, given, _ in started(found, Placed("o-1"))] == [(Placed("o-1"),), ()]


def test_an_event_sends_a_signal_with_what_its_mapping_makes() -> None:
    found = routes(
        flow("one", signals_delivery),
        flow("two", signals_on(Delivered, signal=poked, key="all", id=lambda event: event.parcel)),
        flow("three", signals_on(Delivered, signal=Signal("whole", Delivered))),
    )

    assert sent(found, Delivered("o-1")) == [
        ("delivered", "o-1", None, ("p",)),
        ("poked", "all", "p", ()),
        ("whole", None, None, (Delivered("o-1"),)),
    ]


def test_an_event_of_a_subclass_counts_as_one_of_the_nearest_class_that_is_mapped() -> None:
    found = routes(
        flow("general", starts_on(Placed, id=lambda event: "general")),
        flow("special", starts_on(Placed, id=lambda event: "any"), starts_on(Urgent, id=lambda event: "urgent")),
    )

    assert [run_id for _, _, run_id, _, _ in started(found, VeryUrgent("o-1"))] == ["general", "urgent"]
    assert [run_id for _, _, run_id, _, _ in started(found, Placed("o-1"))] == ["general", "any"]


def test_an_event_of_another_type_means_nothing() -> None:
    found = routes(flow("urgent", starts_on(Urgent, id=by_order)))

    assert started(found, Placed("o-1")) == []
    assert sent(found, Delivered("o-1")) == []


def test_the_highest_version_decides_what_starts() -> None:
    first = flow("fulfil", starts_on(Placed, id=lambda event: "old"))
    second = flow("fulfil", starts_on(Placed, id=lambda event: "new"), version=2)

    assert [(version, run_id) for _, version, run_id, _, _ in started(routes(second, first), Placed("o-1"))] == [
        (2, "new")
    ]


def test_the_highest_version_may_decide_that_nothing_starts() -> None:
    found = routes(flow("fulfil", starts_on(Placed, id=by_order)), flow("fulfil", version=2))

    assert started(found, Placed("o-1")) == []
    assert found.route(Placed).former == ("fulfil",)
    assert found.route(Delivered).former == ()


def test_a_signal_that_several_versions_map_is_sent_once() -> None:
    found = routes(flow("fulfil", signals_delivery), flow("fulfil", signals_delivery, version=2))

    assert sent(found, Delivered("o-1")) == [("delivered", "o-1", None, ("p",))]


def test_a_signal_that_only_an_older_version_maps_is_sent() -> None:
    """Runs of that version may wait for it."""
    found = routes(flow("fulfil", signals_delivery), flow("fulfil", version=2))

    assert sent(found, Delivered("o-1")) == [("delivered", "o-1", None, ("p",))]


OTHER: dict[str, Any] = {
    "key": {"key": lambda event: f"order-{event.order}"},
    "id": {"id": lambda event: event.parcel},
    "payload": {"payload": lambda event: "another"},
}


@pytest.mark.parametrize("differs", OTHER)
def test_versions_that_disagree_about_a_signal_are_refused(differs: str) -> None:
    options: Any = {"key": by_order, "payload": lambda event: event.parcel, **OTHER[differs]}
    found = routes(
        flow("fulfil", signals_delivery), flow("fulfil", signals_on(Delivered, signal=delivered, **options), version=2)
    )

    with pytest.raises(DefinitionError, match=f"version 2 and .* version 1 disagree about the {differs} of signal"):
        sent(found, Delivered("o-1"))


def test_payloads_agree_by_their_value() -> None:
    facts = Signal("facts", dict[str, int])
    mappings: Any = [
        signals_on(Delivered, signal=facts, payload=lambda event: {"a": 1, "b": 2}),
        signals_on(Delivered, signal=facts, payload=lambda event: {"b": 2, "a": 1}),
    ]

    assert len(sent(routes(flow("f", mappings[0]), flow("f", mappings[1], version=2)), Delivered("o-1"))) == 1


def test_two_workflows_may_wait_for_a_signal_under_keys_of_their_own() -> None:
    by_parcel: Any = signals_on(
        Delivered, signal=delivered, key=lambda event: event.parcel, payload=lambda event: event.parcel
    )

    assert [
        key for _, key, _, _ in sent(routes(flow("a", signals_delivery), flow("b", by_parcel)), Delivered("o-1"))
    ] == [
        "o-1",
        "p",
    ]


def test_two_workflows_that_wait_on_one_line_get_the_signal_once_and_have_to_agree() -> None:
    other: Any = signals_on(Delivered, signal=delivered, key=by_order, payload=lambda event: "another")

    assert len(sent(routes(flow("a", signals_delivery), flow("b", signals_delivery)), Delivered("o-1"))) == 1
    with pytest.raises(DefinitionError, match="disagree about the payload"):
        sent(routes(flow("a", signals_delivery), flow("b", other)), Delivered("o-1"))


def test_two_signals_that_carry_the_same_are_both_sent() -> None:
    found = routes(
        flow("a", signals_on(Delivered, signal=Signal("packed", str), key=by_order, payload=by_order)),
        flow("b", signals_on(Delivered, signal=Signal("sent", str), key=by_order, payload=by_order)),
    )

    assert [name for name, _, _, _ in sent(found, Delivered("o-1"))] == ["packed", "sent"]


def test_an_event_that_is_mapped_twice_on_one_workflow_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"@starts_on\(Placed\) of workflow 'twice' version 1 stands there twice"):
        routes(flow("twice", starts_on(Placed, id=by_order), starts_on(Placed, id=lambda event: "other")))
    with pytest.raises(DefinitionError, match=r"@signals_on\(Delivered\) .* stands there twice"):
        routes(flow("twice", signals_delivery, signals_on(Delivered, signal=poked)))


def test_an_event_may_start_a_workflow_and_signal_it() -> None:
    found = routes(flow("both", starts_on(Placed, id=by_order), signals_on(Placed, signal=poked)))

    assert len(started(found, Placed("o-1"))) == len(sent(found, Placed("o-1"))) == 1


def test_what_the_applications_function_raises_says_where_it_came_from() -> None:
    found = routes(flow("broken", starts_on(Placed, id=lambda event: cast("Any", event).absent)))

    with pytest.raises(AttributeError) as caught:
        started(found, Placed("o-1"))

    assert caught.value.__notes__ == [
        "It came from id= of @starts_on(Placed) of workflow 'broken' version 1, when one was published; nothing was written."
    ]


def test_a_run_id_a_key_and_a_signal_id_have_to_be_texts() -> None:
    nothing: Any = lambda event: None  # noqa: E731
    number: Any = lambda event: 7  # noqa: E731

    with pytest.raises(InvalidName, match=r"(?s)A run id must be a str, not NoneType.*id= of @starts_on\(Placed\)"):
        started(routes(flow("a", starts_on(Placed, id=nothing))), Placed("o-1"))
    with pytest.raises(InvalidName, match=r"(?s)A signal key must be a str, not int.*key= of @signals_on\(Delivered\)"):
        sent(routes(flow("a", signals_on(Delivered, signal=poked, key=number))), Delivered("o-1"))
    with pytest.raises(InvalidName, match=r"(?s)A signal id must be a str, not int.*id= of @signals_on\(Delivered\)"):
        sent(routes(flow("a", signals_on(Delivered, signal=poked, id=number))), Delivered("o-1"))
    assert sent(routes(flow("a", signals_on(Delivered, signal=poked, key=nothing, id=nothing))), Delivered("o-1")) == [
        ("poked", None, None, ())
    ]


TOO_LONG: Any = lambda event: "x" * 256  # noqa: E731


@pytest.mark.parametrize(
    "mapping, event, option, wrong",
    [
        (starts_on(Placed, id=TOO_LONG), Placed("o-1"), "id", "A run id has at most 255 characters"),
        (starts_on(Placed, id=by_order, priority=TOO_LONG), Placed("o-1"), "priority", "priority is a whole number"),
        (signals_on(Delivered, signal=poked, key=TOO_LONG), Delivered("o-1"), "key", "A signal key has at most"),
        (signals_on(Delivered, signal=poked, id=TOO_LONG), Delivered("o-1"), "id", "A signal id has at most"),
    ],
)
def test_what_a_mapping_makes_wrong_says_where_it_came_from(
    mapping: Any, event: object, option: str, wrong: str
) -> None:
    found = routes(flow("wrong", mapping))

    with pytest.raises(InvalidArgument, match=wrong) as caught:
        (started if isinstance(event, Placed) else sent)(found, event)

    (note,) = caught.value.__notes__
    assert note.startswith(f"It came from {option}= of @")
    assert note.endswith("of workflow 'wrong' version 1, when one was published; nothing was written.")


def test_ids_keys_and_payloads_may_be_values() -> None:
    found = routes(
        flow("one-run", starts_on(Placed, id="the-only-one")),
        flow("one-signal", signals_on(Delivered, signal=delivered, key="all", id="once", payload="it came")),
    )

    assert [run_id for _, _, run_id, _, _ in started(found, Placed("o-1"))] == ["the-only-one"]
    assert sent(found, Delivered("o-1")) == [("delivered", "all", "once", ("it came",))]


def make_text(event: Placed) -> str:
    return event.order


def test_an_input_of_another_type_is_refused() -> None:
    with pytest.raises(DefinitionError, match="the workflow's input is str; the event itself is Placed"):
        routes(flow("wants-text", starts_on(Placed, id=by_order), takes=str))
    with pytest.raises(DefinitionError, match="the workflow's input is int; what input= returns is str"):
        routes(flow("wants-number", starts_on(Placed, id=by_order, input=make_text), takes=int))
    with pytest.raises(DefinitionError, match="makes an input, but the workflow takes none"):
        routes(flow("wants-nothing", starts_on(Placed, id=by_order, input=make_text), takes=None))


fits: Any = starts_on(Placed, id=by_order)
never: Any = starts_on(Delivered, id=by_order)


@pytest.mark.parametrize(
    "workflows",
    [
        (lambda: (flow("good", fits), flow("bad", never))),
        (lambda: (flow("both", fits), flow("both", never, version=2))),
        (lambda: (flow("both", never), flow("both", fits, version=2))),
        (lambda: (flow("both", fits, never),)),
        (lambda: (flow("both", never, fits),)),
    ],
    ids=["the second workflow", "a newer version", "an older version", "a first event", "a second event"],
)
def test_every_mapping_is_looked_at(workflows: Callable[[], tuple[Workflow[Any, Any], ...]]) -> None:
    with pytest.raises(DefinitionError, match="the workflow's input is Placed; the event itself is Delivered"):
        routes(*workflows())


def test_an_input_whose_type_stands_further_down_is_judged_when_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("further_down")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(  # a module in the middle of its import
        "from __future__ import annotations\n"
        "from outlast import workflow\n"
        "@workflow('early')\n"
        "async def early(ctx, value: Late) -> None: ...\n",
        vars(module),
    )
    found = routes(starts_on(Placed, id=by_order)(vars(module)["early"]))

    with pytest.raises(DefinitionError, match="the type 'Late' cannot be found"):
        found.check_types()
    vars(module)["Late"] = str
    with pytest.raises(DefinitionError, match="the workflow's input is str; the event itself is Placed"):
        found.check_types()


def test_inputs_that_fit_or_cannot_be_judged_are_taken() -> None:
    routes(
        flow("event", starts_on(Placed, id=by_order)),
        flow("made", starts_on(Placed, id=by_order, input=make_text), takes=str),
        flow("lambda", starts_on(Placed, id=by_order, input=by_order), takes=int),
        flow("alone", starts_on(Placed, id=by_order), takes=None),
    ).check_types()
