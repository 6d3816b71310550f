"""Declaring workflows: what fits is found at once, what can never work is refused at once."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from outlast import (
    BlockingContext,
    Context,
    DefinitionError,
    InvalidArgument,
    InvalidDuration,
    InvalidName,
    Workflow,
    step,
    workflow,
)
from outlast.engine.decision import Finished
from outlast.engine.definition import listed, workflow_of
from outlast.model.run import Status
from support.replaying import Rehearsal, ended

if TYPE_CHECKING:
    from nowhere import Nothing  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]


@dataclass
class Order:
    id: str


def test_a_function_becomes_a_workflow() -> None:
    @workflow("order", version=2, timeout="30d")
    async def order(ctx: Context, order: Order) -> Order:
        return order

    assert isinstance(order, Workflow)
    assert (order.name, order.version, order.timeout, order.has_input) == ("order", 2, timedelta(days=30), True)
    assert order.input_shape.decode('{"id":"7"}', "") == Order("7")
    assert order.output_shape.decode('{"id":"7"}', "") == Order("7")
    assert repr(order) == "<Workflow 'order' version 2>"
    assert workflow_of(order) is order


def test_an_input_is_optional() -> None:
    @workflow("alone")
    async def alone(ctx: Context) -> str:
        return "alone"

    assert not alone.has_input
    assert ended(alone) == "alone"


def test_an_input_may_have_a_default() -> None:
    @workflow("default")
    async def default(ctx: Context, word: str = "unused") -> str:
        return word

    assert default.has_input
    assert ended(default, "given") == "given"


def test_without_annotations_values_describe_themselves() -> None:
    @workflow("bare")
    async def bare(ctx, value):  # type: ignore[no-untyped-def]
        return value

    assert ended(bare, (1, 2)) == (1, 2)


class Mail:
    def __init__(self) -> None:
        self.sent: list[str] = []

    def send(self, text: str) -> str:
        self.sent.append(text)
        return f"sent {text}"


@workflow("greeting")
class Greeting:
    def __init__(self, mail: Mail) -> None:
        self.mail = mail

    async def run(self, ctx: Context, name: str) -> str:
        return await ctx.step("send", lambda s: self.mail.send(f"Hello, {name}"))


def test_a_class_stays_a_class_and_its_instance_brings_the_services() -> None:
    mail = Mail()
    greeting = Greeting(mail)

    assert isinstance(greeting, Greeting)
    assert Rehearsal(greeting, "Ada").end() == Finished(Status.COMPLETED, '"sent Hello, Ada"', None)
    assert mail.sent == ["Hello, Ada"]


def test_a_class_alone_names_its_workflow() -> None:
    named = workflow_of(Greeting)

    assert (named.name, named.has_input, named.is_bound) == ("greeting", True, False)
    assert workflow_of(Greeting(Mail())).is_bound


def test_two_instances_do_not_share_their_services() -> None:
    first, second = Mail(), Mail()
    for mail in (first, second, second):
        Rehearsal(Greeting(mail), "Ada").end()

    assert (len(first.sent), len(second.sent)) == (1, 2)


def test_a_class_may_run_without_an_input() -> None:
    @workflow("clock")
    class Clock:
        async def run(self, ctx: Context) -> str:
            return "tick"

    assert ended(Clock()) == "tick"


def test_a_subclass_runs_its_own_code_under_the_same_name() -> None:
    class Loud(Greeting):
        async def run(self, ctx: Context, name: str) -> str:
            return name.upper()

    assert workflow_of(Loud(Mail())).name == "greeting"
    assert ended(Loud(Mail()), "ada") == "ADA"


def test_types_of_a_nested_function_are_found() -> None:
    @dataclass
    class Local:
        number: int

    @workflow("nested")
    async def nested(ctx: Context, given: Local) -> Local:
        return Local(given.number + 1)

    assert ended(nested, Local(1)) == Local(2)


def test_a_type_that_is_only_there_for_checkers_is_refused_where_it_is_needed() -> None:
    assert unfindable.input_shape.decode('{"id":"7"}', "") == Order("7")
    with pytest.raises(DefinitionError, match=r"'Nothing' cannot be found.*not under TYPE_CHECKING"):
        _ = unfindable.output_shape


def test_inside_a_function_it_is_refused_at_once_because_its_names_are_there_only_now() -> None:
    with pytest.raises(DefinitionError, match="'Nothing' cannot be found"):

        @workflow("nested")
        async def nested(ctx: Context, given: Nothing) -> None: ...


@workflow("unfindable")
async def unfindable(ctx: Context, given: Order) -> Nothing: ...


def test_a_type_that_stands_further_down_is_found_at_the_first_use() -> None:
    assert further_down.input_shape.decode('{"id":"7"}', "") == Later("7")


@workflow("further-down")
async def further_down(ctx: Context, later: Later) -> None: ...


@dataclass
class Later:
    id: str


# What is refused.


def plain(ctx: Context) -> None: ...
def plain_yields(ctx: BlockingContext) -> Iterator[int]:
    yield 1


async def awaits_blocking(ctx: BlockingContext) -> None: ...
async def no_context() -> None: ...
async def input_alone(name: str) -> None: ...
async def inputs_alone(names: list[str], more: int) -> None: ...
def plain_input_alone(name: str) -> None: ...
async def context_last(number: int, ctx: Context) -> None: ...
async def two_inputs(ctx: Context, a: int, b: int) -> None: ...
async def star(ctx: Context, *rest: int) -> None: ...
async def stars(ctx: Context, **rest: int) -> None: ...
async def keyword(ctx: Context, *, must: int) -> None: ...
async def yields(ctx: Context) -> AsyncIterator[int]:
    yield 1


class NoRun: ...


class PlainRun:
    def run(self, ctx: Context) -> None: ...


class NoContext:
    async def run(self) -> None: ...


@pytest.mark.parametrize(
    ("code", "said"),  # noqa: PT006
    [
        (plain, "must be an `async def`; plain is not"),
        (no_context, r"takes a context and at most one input: .* this one takes 0 parameters"),
        (input_alone, r"takes its context first: \(ctx: Context, name: str\); this one takes no context"),
        (inputs_alone, r"takes its context first: \(ctx: Context, names"),
        (plain_input_alone, r"takes its context first: \(ctx: BlockingContext, name: str\)"),
        (two_inputs, r"this one takes 3 parameters\. Put several inputs into one, such as a dataclass\."),
        (context_last, r"takes its context first: \(ctx: Context, number\)"),
        (star, r"this one takes \*rest"),
        (stars, r"this one takes \*\*rest"),
        (keyword, "this one takes must"),
        (yields, "its code yields"),
        (lambda: None, "this one takes 0 parameters"),
        (plain_yields, "its code yields"),
        (awaits_blocking, "takes a Context; a BlockingContext is for a plain `def`"),
        (NoRun, "NoRun.* has none"),
        (PlainRun, "must be an `async def`"),
        (NoContext, "this one takes 0 parameters"),
        (5, "5 is neither"),
        (None, "None is neither"),
    ],
)
def test_what_can_never_run_is_refused_at_its_declaration(code: Any, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        workflow("refused")(code)


def test_a_keyword_with_a_default_is_left_alone() -> None:
    @workflow("keyword")
    async def with_keyword(ctx: Context, *, word: str = "default") -> str:
        return word

    assert ended(with_keyword) == "default"


def test_a_partial_of_an_async_function_runs() -> None:
    async def greet(word: str, ctx: Context, name: str) -> str:
        return f"{word}, {name}"

    assert ended(workflow("partial")(functools.partial(greet, "Hello")), "Ada") == "Hello, Ada"


def test_a_decorator_without_a_name_says_what_to_write() -> None:
    bare: Any = workflow
    with pytest.raises(DefinitionError, match=r"write @workflow\('plain'\)"):
        bare(plain)


@pytest.mark.parametrize("name", ["", "a b", "ä", "a/b", "x" * 256, "$a", 5, None])
def test_a_name_that_cannot_be_stored_everywhere_is_refused(name: Any) -> None:
    with pytest.raises(InvalidName):
        workflow(name)


@pytest.mark.parametrize("version", [0, -1, True, "1", 1.0, None])
def test_a_version_is_a_whole_number_from_1(version: Any) -> None:
    with pytest.raises(InvalidArgument, match="version of workflow 'order' is a whole number from 1"):
        workflow("order", version=version)


@pytest.mark.parametrize("timeout", ["0s", "-1d", 5, "soon", timedelta(0)])
def test_a_timeout_is_longer_than_nothing(timeout: Any) -> None:
    with pytest.raises(InvalidDuration, match="timeout of workflow 'order'"):
        workflow("order", timeout=timeout)


@step
async def a_step() -> None: ...


@pytest.mark.parametrize("declared", [plain, NoRun, NoRun(), "order", None])
def test_what_was_not_declared_is_no_workflow(declared: object) -> None:
    with pytest.raises(DefinitionError, match="is not a workflow: declare it with @workflow"):
        workflow_of(declared)


def test_a_workflow_that_is_called_says_what_starts_it() -> None:
    @workflow("greet")
    async def greet(ctx: Context, name: str) -> str:
        return name

    called: Any = greet
    with pytest.raises(TypeError, match=r"Workflow 'greet' is not called: `await app\.start\(greet, \.\.\.\)`"):
        called("Ada")


def test_one_workflow_in_the_place_of_a_list_is_refused() -> None:
    @workflow("alone")
    async def alone(ctx: Context) -> None: ...

    @workflow("class")
    class OnClass:
        async def run(self, ctx: Context) -> None: ...

    for one in (alone, OnClass, OnClass(), "alone", 5):
        given: Any = one
        with pytest.raises(DefinitionError, match=r"takes a list: write workflows=\[\.\.\.\] around"):
            listed(given)
    assert listed([alone]) == [alone]


def test_a_step_is_not_taken_for_a_workflow() -> None:
    with pytest.raises(DefinitionError, match="<Step 'a_step'> is not a workflow but a step"):
        workflow_of(a_step)
