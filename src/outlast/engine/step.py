"""Steps as authors declare them: typed functions that a run calls once and remembers."""

# Of the ways to declare a function the first that fits counts, and where two fit it is the one that is meant.
# mypy: disable-error-code="overload-overlap"

from __future__ import annotations

import difflib
import functools
import inspect
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)
from uuid import uuid4

from outlast.engine import signatures
from outlast.engine.frames import StepFrame, current_step, inside
from outlast.engine.host import StepOptions, StepRequest, Undo, current_host, to_be_awaited
from outlast.engine.stepcontext import CompensationContext, StepContext
from outlast.errors import DefinitionError, InvalidArgument, NonRetryable
from outlast.model import ids
from outlast.model.durations import Duration, parse_duration
from outlast.model.options import OnCancel, Retry, RetryOption, retry_option
from outlast.model.storable import check_storable
from outlast.model.values import Shape, shape_of

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")

PLAIN: Final = StepOptions()
_OF_WORKFLOWS: Final = ("outlast.engine.context", "outlast.engine.plain")
"""The modules of the contexts that workflow code is given."""


class StepChoices(TypedDict, total=False):
    """What an author may choose about a step, besides its name and its compensation. See `step` for the defaults."""

    retry: RetryOption
    timeout: Duration | None
    compensate_retry: RetryOption
    on_cancel: OnCancel


_OPTIONS: Final = ("compensate", *StepChoices.__annotations__)


def step_options(
    compensate: Callable[[CompensationContext, Any], object] | None = None, **chosen: Unpack[StepChoices]
) -> StepOptions:
    """Check what an author wrote as a step's options. Raises InvalidArgument, or DefinitionError for the function."""
    _check_names(chosen)
    timeout, on_cancel = chosen.get("timeout"), chosen.get("on_cancel", "finish")
    if on_cancel not in ("finish", "abort"):
        raise InvalidArgument(f"on_cancel= is 'finish' or 'abort'; {on_cancel!r} is not.")
    return StepOptions(
        retry=_policy("retry", chosen.get("retry")),
        timeout=None if timeout is None else parse_duration(timeout, what="timeout", allow_zero=False),
        undo=None if compensate is None else undo_by(compensate),
        undo_retry=_policy("compensate_retry", chosen.get("compensate_retry")),
        on_cancel=on_cancel,
    )


def _check_names(chosen: Iterable[str]) -> None:
    """Refuse what is no option: passed over, it would be missed when a step is to be undone or tried again."""
    for name in chosen:
        if name not in _OPTIONS:
            options = ("name", *_OPTIONS)
            near = difflib.get_close_matches(name, options, 1)
            meant = f" Did you mean {near[0]}=?" if near else ""
            raise InvalidArgument(
                f"A step has no option {name}=.{meant} The options are {', '.join(f'{each}=' for each in options)}."
            )


def _policy(name: str, option: RetryOption) -> Retry | None:
    if not isinstance(option, Retry | int | None):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types
        raise InvalidArgument(f"{name}= is a Retry, a number of attempts, False or None; {option!r} is not.")
    return retry_option(option)


def undo_by(function: Callable[..., Any]) -> Undo:
    """Check a compensation's function."""
    signatures.check_callable(function, "A compensation")
    # One argument more where it is a method.
    signatures.check_takes(function, 2, 3, what="A compensation takes a CompensationContext and the step's result")
    return Undo(function, signatures.is_awaited(function))


class StepDefinition:
    """What all names and bindings of one step share, so that a compensation declared later is known to each."""

    def __init__(
        self, function: Callable[..., Any], options: StepOptions, local: Mapping[str, Any] | None, *, leading: int = 0
    ) -> None:
        """`leading` parameters of the function, and of what undoes it, are filled before the context."""
        self.function = function
        self.options: StepOptions = options
        self.is_awaited: bool = signatures.is_awaited(function)
        self._leading = leading
        if local is not None:
            # The names around a nested function are there only now. Elsewhere types are looked up at the first use,
            # when those that stand further down in the module are there too.
            self.shape = shape_of(signatures.result_type(function, local))
            self.context_at = context_position(function, local, most=leading + 2)

    @functools.cached_property
    def shape(self) -> Shape[Any]:
        return shape_of(signatures.result_type(self.function))

    @functools.cached_property
    def context_at(self) -> int | None:
        """The position of the StepContext among the parameters; a method has it second."""
        return context_position(self.function, most=self._leading + 2)

    @functools.cached_property
    def undo_is_method(self) -> bool:
        undo = self.options.undo
        return undo is not None and len(signatures.positional(undo.function)) > self._leading + 2

    def called(self, context: StepContext, filled: tuple[Any, ...], kwargs: Mapping[str, Any]) -> object:
        """Call the function, with its context where it wants it."""
        if self.context_at is None:
            return self.function(*filled, **kwargs)
        before, after = filled[: self.context_at], filled[self.context_at :]
        return self.function(*before, context, *after, **kwargs)

    def performed(self, context: StepContext, filled: tuple[Any, ...], kwargs: Mapping[str, Any]) -> object:
        """Call the function for a run, which tries again after an error: but not after a call that can never succeed."""
        try:
            return self.called(context, filled, kwargs)
        except TypeError as error:
            given = filled if self.context_at is None else (*filled, context)
            if signatures.fits(self.function, given, kwargs):
                raise
            raise NonRetryable(
                f"The step's function cannot be called with the arguments of this call: {error}. Nothing was done, and it "
                "is not tried again."
            ) from error

    def undo_with(self, undo: Undo, name: str) -> None:
        """Declare what undoes the step."""
        if self.options.undo is not None:
            raise DefinitionError(f"Step {name!r} has a compensation already.")
        self.options = replace(self.options, undo=undo)

    def options_of(self, bound: tuple[object, ...]) -> StepOptions:
        """Return the options of a step that is bound to an instance, if it is: what undoes it may be a method too."""
        undo = self.options.undo
        if not bound or undo is None or not self.undo_is_method:
            return self.options
        return replace(self.options, undo=replace(undo, function=functools.partial(undo.function, *bound)))


class DeclaredStep(Generic[P, R]):
    """What a decorator makes of a function that a run calls once: called in workflow code, and awaited."""

    def __init__(self, definition: StepDefinition, name: str, bound: tuple[object, ...] = ()) -> None:
        self._definition = definition
        self._bound = bound
        self.name = name
        """The name of the step's entry in the journal."""
        self._label = f"step {name}"
        self.__doc__ = definition.function.__doc__

    if TYPE_CHECKING:

        async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
            """Perform the step. Raises StepFailed when it gives up; in workflow code a name may be used once in a run."""
            ...

    else:

        def __call__(self, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:  # noqa: ANN401  see above
            """Perform the step, as declared above."""
            return to_be_awaited(self._performed(args, kwargs), self._label)

    def named(self, name: str) -> Self:
        """Return this step under another name, to call it more than once in a run."""
        return type(self)(self._definition, ids.entry_name(name), self._bound)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    async def _performed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        host = current_host()
        if host is not None:
            return await host.ask_step(self._request(args, kwargs))
        return await self._alone(args, kwargs)

    @abstractmethod
    def _request(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StepRequest:
        """Return what a call in workflow code asks of its run."""

    @abstractmethod
    async def _alone(self, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> object:
        """Answer a call outside of workflow code."""


class Step(DeclaredStep[P, R]):
    """A step: call it like the function it was made from, and await the result.

    In workflow code the call is journaled: performed once, retried as declared, and on replay answered from the journal.
    Anywhere else, in another step or in a test, it simply runs the function.
    """

    @overload
    def compensate(
        self, function: Callable[[CompensationContext, R], T], /
    ) -> Callable[[CompensationContext, R], T]: ...
    @overload
    def compensate(
        self, function: Callable[[S, CompensationContext, R], T], /
    ) -> Callable[[S, CompensationContext, R], T]: ...
    def compensate(self, function: Callable[..., Any], /) -> Callable[..., Any]:
        """Declare what undoes this step: `(CompensationContext, result)`, async or plain. Used as a decorator.

        It is called when the run fails, times out or is cancelled after the step has completed, under its own retry policy.
        """
        self._definition.undo_with(undo_by(function), self.name)
        return function

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Step[P, R]: ...
    @overload  # To mypy a method with a parameter of Any is a step of Any; nothing else fits here.
    def __get__(self: Step[[Unlike, Unlike], R], instance: object, owner: type[Any]) -> Step[..., R]: ...
    @overload
    def __get__(self: Step[Concatenate[S, Q], R], instance: S, owner: type[Any]) -> Step[Q, R]: ...
    def __get__(self, instance: Any, owner: type[Any]) -> Step[Any, R]:
        """Bind a method that is a step to its instance."""
        return self if instance is None else Step(self._definition, self.name, (instance,))

    def _request(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StepRequest:
        definition = self._definition

        def perform(context: StepContext) -> object:
            return definition.performed(context, (*self._bound, *args), kwargs)

        options = definition.options_of(self._bound) if self._bound else definition.options
        return StepRequest(self.name, perform, definition.is_awaited, definition.shape, options)

    async def _alone(self, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> object:
        return await called_alone(self.name, lambda context: self._called(context, args, kwargs))

    def _called(self, context: StepContext, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        return self._definition.called(context, (*self._bound, *args), kwargs)


async def called_alone(name: str, function: Callable[[StepContext], object]) -> object:
    """Call a step's function where nothing is journaled: in a test, or as a plain function inside of another step."""
    frame = current_step()
    run_id, key = ("no-run", f"no-run:{name}:{uuid4()}") if frame is None else (frame.run_id, frame.nested_key(name))
    context = StepContext(run_id, name, idempotency_key=key)
    with inside(StepFrame(ids.RunId(run_id), name, key, 1)):
        value = function(context)
        return await value if inspect.isawaitable(value) else value


class Unlike:
    """No function takes this but one whose parameter takes anything: an `object`, Any, a type variable.

    Such a parameter is no StepContext, though it would take one. To a type checker its step takes any arguments, since
    only so it can be left out or named as the function allows.
    """


class StepDecorator(Protocol):
    """What `step(...)` with options returns."""

    @overload
    def __call__(self, function: Callable[Concatenate[Unlike, P], Awaitable[Unlike]], /) -> Step[..., Any]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Unlike, P], Awaitable[R]], /) -> Step[..., R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[StepContext, P], Awaitable[R]], /) -> Step[P, R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[S, Unlike, P], Awaitable[R]], /
    ) -> Step[Concatenate[S, ...], R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[S, StepContext, P], Awaitable[R]], /
    ) -> Step[Concatenate[S, P], R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Unlike, P], Unlike], /) -> Step[..., Any]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Unlike, P], R], /) -> Step[..., R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[StepContext, P], R], /) -> Step[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[S, Unlike, P], R], /) -> Step[Concatenate[S, ...], R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[S, StepContext, P], R], /) -> Step[Concatenate[S, P], R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Step[P, R]: ...


@overload
def step(function: Callable[Concatenate[Unlike, P], Awaitable[Unlike]], /) -> Step[..., Any]: ...
@overload
def step(function: Callable[Concatenate[Unlike, P], Awaitable[R]], /) -> Step[..., R]: ...
@overload
def step(function: Callable[Concatenate[StepContext, P], Awaitable[R]], /) -> Step[P, R]: ...
@overload
def step(function: Callable[Concatenate[S, Unlike, P], Awaitable[R]], /) -> Step[Concatenate[S, ...], R]: ...
@overload
def step(function: Callable[Concatenate[S, StepContext, P], Awaitable[R]], /) -> Step[Concatenate[S, P], R]: ...
@overload
def step(function: Callable[P, Awaitable[R]], /) -> Step[P, R]: ...
@overload
def step(function: Callable[Concatenate[Unlike, P], Unlike], /) -> Step[..., Any]: ...
@overload
def step(function: Callable[Concatenate[Unlike, P], R], /) -> Step[..., R]: ...
@overload
def step(function: Callable[Concatenate[StepContext, P], R], /) -> Step[P, R]: ...
@overload
def step(function: Callable[Concatenate[S, Unlike, P], R], /) -> Step[Concatenate[S, ...], R]: ...
@overload
def step(function: Callable[Concatenate[S, StepContext, P], R], /) -> Step[Concatenate[S, P], R]: ...
@overload
def step(function: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    compensate: Callable[[CompensationContext, Any], object] | None = None,
    **options: Unpack[StepChoices],
) -> StepDecorator: ...
def step(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    compensate: Callable[[CompensationContext, Any], object] | None = None,
    **options: Unpack[StepChoices],
) -> object:
    """Make a step of a function: `@step`, or `@step(retry=5, timeout="30s")`.

    name: its entry's name in the journal; default the function's name.
    retry: a Retry, a number of attempts, False or 0 for one; what it leaves out is as the application has it.
    timeout: of one attempt; default none. It counts real time and fails the attempt with TimeoutError.
    compensate: what undoes it; `@the_step.compensate` says the same. compensate_retry: default as `retry`.
    on_cancel: "finish" lets an attempt in flight end when the run is stopped, "abort" cancels it; default "finish",
    because what finished is known and can be undone.

    An `async def` runs on the event loop, a plain function on a thread. The StepContext is passed first if the first
    parameter is annotated with it. Raises DefinitionError for what is not a function.

    >>> from outlast import StepContext, step
    >>> @step(retry=5)
    ... async def charge(s: StepContext, cents: int) -> str:
    ...     return f"charged {cents} under {s.idempotency_key}"
    >>> charge.name
    'charge'
    """
    local = signatures.caller_names()
    chosen = step_options(compensate, **options)

    def declare(function: Callable[..., Any]) -> Step[Any, Any]:
        return _declared(function, name, chosen, local)

    return declare if function is None else declare(function)


def _declared(
    function: Callable[..., Any], name: str | None, options: StepOptions, local: Mapping[str, Any] | None
) -> Step[Any, Any]:
    given = step_name(function, name, "step")
    check_types(given, function, local)
    return Step(StepDefinition(function, options, local), given)


def check_types(name: str, function: Callable[..., Any], local: Mapping[str, Any] | None) -> None:
    """Refuse a result that can never be stored, where its type is known already (else the first use does), and a workflow's
    context among the parameters."""
    result = signatures.result_type(function, local)
    check_storable(f"the result of step {name!r}", result, is_declared=False)
    hints = signatures.type_hints(function, local)
    for parameter in signatures.positional(function):
        if getattr(hints.get(parameter.name), "__module__", "") in _OF_WORKFLOWS:
            raise DefinitionError(
                f"Step {name!r} takes a workflow's context as {parameter.name!r}, which no step may use: annotate it with "
                "StepContext for the step's own, or leave it out and pass what the step needs of the run as arguments."
            )


def step_name(function: Callable[..., Any], name: str | None, decorator: str) -> str:
    """Check what is to be a step, and return its name."""
    if isinstance(function, DeclaredStep):
        raise DefinitionError(f"{function!r} is a step already.")
    signatures.check_callable(function, "A step")
    given = name if name is not None else signatures.name_of(function)
    if given == "<lambda>":
        raise DefinitionError(f"A lambda has no name of its own: {decorator}(name='...') gives it one.")
    return ids.entry_name(given)


def context_position(
    function: Callable[..., Any], local: Mapping[str, Any] | None = None, *, most: int = 2
) -> int | None:
    """Return which of the first parameters is annotated as a StepContext."""
    hints = signatures.type_hints(function, local)
    for position, parameter in enumerate(signatures.positional(function)[:most]):
        hint = hints.get(parameter.name) or signatures.annotation_text(function, parameter.name)
        if hint is StepContext or (isinstance(hint, str) and hint.strip("'\"").rpartition(".")[2] == "StepContext"):
            return position
    return None
