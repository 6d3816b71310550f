"""Workflows as authors declare them: an async function, or a class with `run`, under a name and a version."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    NoReturn,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
    get_origin,
    overload,
)

from outlast.engine import plain, signatures
from outlast.engine.context import Context
from outlast.engine.plain import BlockingContext
from outlast.engine.step import DeclaredStep
from outlast.errors import DefinitionError, InvalidArgument
from outlast.model import ids
from outlast.model.durations import Duration, parse_duration
from outlast.model.storable import check_storable
from outlast.model.values import Shape, shape_of

I = TypeVar("I")  # noqa: E741  input
O = TypeVar("O")  # noqa: E741  output
I_contra = TypeVar("I_contra", contravariant=True)
O_co = TypeVar("O_co", covariant=True)
K = TypeVar("K", bound=type)

_DECLARED: Final = "__outlast_workflow__"


class Workflow(Generic[I_contra, O_co]):
    """A workflow: its name and version, its code, and the shapes of its input and output. Made by `@workflow`."""

    def __init__(
        self,
        name: str,
        version: int,
        timeout: timedelta | None,
        function: Callable[..., Any],
        *,
        is_method: bool,
        local: Mapping[str, Any] | None,
    ) -> None:
        self.name = name
        self.version = version
        self.timeout = timeout
        self.function = function
        self.is_plain: bool = not signatures.is_awaited(function)
        self.is_bound: bool = not is_method
        self._bound: tuple[object, ...] = ()
        parameters = signatures.positional(function)
        self._input = parameters[-1].name if len(parameters) == (3 if is_method else 2) else None
        self._hints: Mapping[str, Any] = {}
        if local is not None:
            # The names around a nested function are there only now. Elsewhere types are looked up at the first use,
            # when those that stand further down in the module are there too.
            hints = self._hints = signatures.type_hints(function, local)
            self.input_shape = self._shape_of_input(hints)
            self.output_shape = self._shape("return", hints)

    @property
    def has_input(self) -> bool:
        """Whether its code takes an input besides the context."""
        return self._input is not None

    def default_input(self) -> object:
        """Return the input of a run that is given none: the default of its parameter. Raises InvalidArgument without one."""
        default = inspect.signature(self.function).parameters[self._input or ""].default
        if default is inspect.Parameter.empty:
            raise InvalidArgument(f"Workflow {self.name!r} takes an input, but none was given.")
        return default

    @functools.cached_property
    def input_shape(self) -> Shape[Any]:
        """What the input's annotation says of it. Raises DefinitionError when it names nothing that can be found."""
        return self._shape_of_input(signatures.type_hints(self.function))

    @functools.cached_property
    def output_shape(self) -> Shape[O_co]:
        """What the result's annotation says of the output. Raises DefinitionError as `input_shape` does."""
        return self._shape("return", signatures.type_hints(self.function))

    def bind(self, instance: object) -> Workflow[I_contra, O_co]:
        """Return this workflow, declared on a class, with the instance whose services its code uses."""
        bound = copy.copy(self)
        bound.function = type(instance).run  # type: ignore[attr-defined]  # a subclass may have its own
        bound.is_bound, bound._bound = True, (instance,)  # noqa: SLF001  its own class
        return bound

    def check_storable(self, *, is_declared: bool = True) -> None:
        """Raise DefinitionError when its input or output can never be stored. Types that cannot be found yet pass."""
        hints = self._hints or signatures.type_hints(self.function)
        if self._input is not None and self._input in hints:
            check_storable(f"the input of workflow {self.name!r}", hints[self._input], is_declared=is_declared)
        if "return" in hints:
            check_storable(f"the output of workflow {self.name!r}", hints["return"], is_declared=is_declared)

    def begin(self, ctx: Context, value: object) -> Coroutine[Any, Any, O_co]:
        """Make the coroutine of one run; `value` is its input, if it takes one."""
        given = (value,) if self.has_input else ()
        if self.is_plain:
            return plain.begun(self.function, *self._bound, plain.BlockingContext(ctx), *given)
        coroutine: Coroutine[Any, Any, O_co] = self.function(*self._bound, ctx, *given)
        return coroutine

    if not TYPE_CHECKING:  # For those who check types a workflow is not callable at all.

        def __call__(self, *_args: object, **_options: object) -> NoReturn:
            raise TypeError(
                f"Workflow {self.name!r} is not called: `await app.start({signatures.name_of(self.function)}, ...)` starts "
                "a run of it, and `app.blocking.start(...)` does in code that does not await."
            )

    def __repr__(self) -> str:
        return f"<Workflow {self.name!r} version {self.version}>"

    def _shape_of_input(self, hints: Mapping[str, Any]) -> Shape[Any]:
        return shape_of(None) if self._input is None else self._shape(self._input, hints)

    def _shape(self, parameter: str, hints: Mapping[str, Any]) -> Shape[Any]:
        if parameter in hints:
            return shape_of(hints[parameter])
        text = signatures.annotation_text(self.function, parameter)
        if text:
            raise DefinitionError(
                f"Workflow {self.name!r}: the type {text!r} cannot be found where it is needed to store and restore values. "
                "Import it at the top of the module, not under TYPE_CHECKING."
            )
        return shape_of(Any)


class Runs(Protocol[I_contra, O_co]):
    """An instance of a class declared as a workflow that takes an input."""

    def run(self, ctx: Context, input: I_contra, /) -> Coroutine[Any, Any, O_co]: ...


class RunsAlone(Protocol[O_co]):
    """An instance of a class declared as a workflow that takes no input."""

    def run(self, ctx: Context, /) -> Coroutine[Any, Any, O_co]: ...


class RunsPlainly(Protocol[I_contra, O_co]):
    """The same with a plain `run`, and an input."""

    def run(self, ctx: BlockingContext, input: I_contra, /) -> O_co: ...


class RunsPlainlyAlone(Protocol[O_co]):
    """The same with a plain `run`, and no input."""

    def run(self, ctx: BlockingContext, /) -> O_co: ...


AnyWorkflow: TypeAlias = Workflow[I, O] | Runs[I, O] | type[Runs[I, O]] | RunsPlainly[I, O] | type[RunsPlainly[I, O]]
"""What names a workflow with an input to the verbs: what `@workflow` made of a function, a class or an instance of it."""

AnyWorkflowAlone: TypeAlias = (
    Workflow[None, O] | RunsAlone[O] | type[RunsAlone[O]] | RunsPlainlyAlone[O] | type[RunsPlainlyAlone[O]]
)
"""The same for a workflow without an input."""


class WorkflowDecorator(Protocol):
    """What `workflow(...)` returns."""

    @overload
    def __call__(self, code: Callable[[Context, I], Coroutine[Any, Any, O]], /) -> Workflow[I, O]: ...
    @overload
    def __call__(self, code: Callable[[Context], Coroutine[Any, Any, O]], /) -> Workflow[None, O]: ...
    @overload
    def __call__(self, code: Callable[[BlockingContext, I], O], /) -> Workflow[I, O]: ...
    @overload
    def __call__(self, code: Callable[[BlockingContext], O], /) -> Workflow[None, O]: ...
    @overload
    def __call__(self, code: K, /) -> K: ...


def workflow(name: str, *, version: int = 1, timeout: Duration | None = None) -> WorkflowDecorator:
    """Declare a workflow on an `async def (ctx)` or `(ctx, input)`, or on a class with such a `run`.

    It may be a plain `def` too, with a `BlockingContext` (needs `outlast[blocking]`).

    name: letters, digits and `. _ : -`; runs are stored under it, so it stays. version: a whole number from 1; a run keeps
    the one it was started with. timeout: how long a run may take from its start until it is stopped and undone; default
    none, because a workflow may wait for months.

    A class stays a class: pass an instance, with its services, to `Outlast(workflows=[...])`. Raises DefinitionError for
    what is not one of these.

    >>> from outlast import Context, workflow
    >>> @workflow("greet", timeout="1h")
    ... async def greet(ctx: Context, name: str) -> str:
    ...     return f"Hello, {name}"
    >>> greet
    <Workflow 'greet' version 1>
    """
    named: object = name
    if callable(named):
        raise DefinitionError(
            f"A workflow needs a name: write @workflow({signatures.name_of(named)!r}). Runs are stored under it, so it "
            "stays as it is when the function is renamed."
        )
    ids.workflow_name(name)
    if type(version) is not int or version < 1:
        raise InvalidArgument(f"The version of workflow {name!r} is a whole number from 1; {version!r} is not.")
    limit = None if timeout is None else parse_duration(timeout, what=f"timeout of workflow {name!r}", allow_zero=False)
    local = signatures.caller_names()

    def declare(code: object) -> object:
        is_class = isinstance(code, type)
        function = getattr(code, "run", None) if is_class else code
        if is_class and function is None:
            raise DefinitionError(f"Workflow {name!r} must have an `async def run(self, ctx, ...)`; {code!r} has none.")
        _check(name, function, is_method=is_class)
        run = cast("Callable[..., Coroutine[Any, Any, Any]]", function)
        made = Workflow[Any, Any](name, version, limit, run, is_method=is_class, local=local)
        if not is_class:
            return made
        setattr(code, _DECLARED, made)
        return code

    return cast("WorkflowDecorator", declare)


def workflow_of(declared: object) -> Workflow[Any, Any]:
    """Return the workflow that was declared on this function, class or instance. Raises DefinitionError for anything else.

    A class gives a workflow without an instance: it can be started, and run once `bind` has given it one.
    """
    if isinstance(declared, Workflow):
        return declared  # pyright: ignore[reportUnknownVariableType]  of whatever types
    found: Workflow[Any, Any] | None = getattr(declared, _DECLARED, None)
    if found is None:
        raise no_workflow(declared)
    return found if isinstance(declared, type) else found.bind(declared)


def no_workflow(value: object) -> DefinitionError:
    """Return the error for what is no workflow."""
    if isinstance(value, DeclaredStep):
        return DefinitionError(f"{value!r} is not a workflow but a step. A workflow calls it, and can be started.")
    return DefinitionError(f"{value!r} is not a workflow: declare it with @workflow('its-name').")


def is_declared(value: object) -> bool:
    """Tell whether this function, class or instance was declared as a workflow."""
    return isinstance(value, Workflow) or hasattr(value, _DECLARED)


def listed(workflows: Iterable[object]) -> Iterable[object]:
    """Refuse one workflow, or what holds none, in the place of a list of them."""
    if is_declared(workflows) or isinstance(workflows, str) or not isinstance(workflows, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types
        raise DefinitionError(f"Outlast(workflows=...) takes a list: write workflows=[...] around {workflows!r}.")
    return workflows


def _check(name: str, code: object, *, is_method: bool) -> None:
    what = f"Workflow {name!r}"
    if not callable(code):
        raise DefinitionError(f"{what} must be an `async def`, or a class with `async def run`; {code!r} is neither.")
    if inspect.isasyncgenfunction(code) or inspect.isgeneratorfunction(code):
        raise DefinitionError(f"{what} must return its output; its code yields.")
    parameters = signatures.positional(code)[is_method:]
    count = len(parameters)
    extra = signatures.takes_too_much(code)
    if extra is not None or count not in (1, 2):
        takes = f"takes {extra}" if extra is not None else f"takes {count} parameters"
        several = "" if extra is not None or count < 3 else " Put several inputs into one, such as a dataclass."
        raise DefinitionError(
            f"{what} takes a context and at most one input: (ctx) or (ctx, input); this one {takes}.{several}"
        )
    contexts = [signatures.annotation_text(code, parameter.name).rpartition(".")[2] for parameter in parameters]
    _check_context(what, code, contexts, parameters[0].name)


def _check_context(what: str, code: Callable[..., Any], contexts: list[str], first: str) -> None:
    is_plain = not signatures.is_awaited(code)
    if contexts[1:] and contexts[1] in ("Context", "BlockingContext"):
        raise DefinitionError(f"{what} takes its context first: (ctx: {contexts[1]}, {first}); here it comes second.")
    if _is_of_another_type(signatures.type_hints(code).get(first)):
        takes = "BlockingContext" if is_plain else "Context"
        raise DefinitionError(
            f"{what} takes its context first: (ctx: {takes}, {first}: {contexts[0]}); this one takes no context."
        )
    if contexts[0] == "Context" and is_plain:
        raise DefinitionError(
            f"{what} must be an `async def`; {signatures.name_of(code)} is not. As a plain `def` it takes a BlockingContext."
        )
    if contexts[0] == "BlockingContext" and not is_plain:
        raise DefinitionError(
            f"{what} is an `async def`, which takes a Context; a BlockingContext is for a plain `def`."
        )
    if is_plain:
        plain.check_installed(what)


def _is_of_another_type(hint: object) -> bool:
    """Whether a parameter that is annotated so can be no context. A protocol of the author's own may be one."""
    kind = get_origin(hint) or hint
    if not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return False
    return not any(issubclass(kind, context) or issubclass(context, kind) for context in (Context, BlockingContext))
