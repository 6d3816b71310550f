"""Steps whose writes to the application's database commit together with their entry in the journal."""

# Of the ways to declare a function the first that fits counts, and where two fit it is the one that is meant.
# mypy: disable-error-code="overload-overlap"

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from outlast.engine import signatures
from outlast.engine.host import StepRequest, Undo, current_host
from outlast.engine.step import (
    DeclaredStep,
    StepChoices,
    StepDefinition,
    Unlike,
    called_alone,
    check_types,
    context_position,
    step_name,
    step_options,
)
from outlast.engine.stepcontext import CompensationContext, StepContext
from outlast.errors import DefinitionError, NotATransaction

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
U = TypeVar("U")


class TransactionalStep(DeclaredStep[P, R], Generic[T, P, R]):
    """A step that is given a transaction of the application's: call it without that, and await the result.

    Only workflow code can call it so. Elsewhere, such as in a test, `within` calls its function in a transaction that you
    opened.

    Versionadded: 0.1
    """

    async def within(self, tx: T, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function in a transaction of yours, in a test or in another step. Nothing is journaled.

        What it wrote is committed, or not, by you. Workflow code may not use it: what happens there is not replayed.
        """
        host = current_host()
        if host is not None:
            host.refuse(
                f"{self!r} was called with a transaction in workflow code. Call it as `await {self.name}(...)`."
            )
        return cast("R", await called_alone(self.name, lambda context: self._called(context, tx, args, kwargs)))

    @overload
    def compensate(
        self, function: Callable[[T, CompensationContext, R], U], /
    ) -> Callable[[T, CompensationContext, R], U]: ...
    @overload
    def compensate(
        self, function: Callable[[S, Any, CompensationContext, R], U], /
    ) -> Callable[[S, Any, CompensationContext, R], U]: ...
    def compensate(self, function: Callable[..., Any], /) -> Callable[..., Any]:
        """Declare what undoes this step: `(transaction, CompensationContext, result)`, async or plain. Used as a decorator.

        It is given a transaction as the step is, which commits together with the record that the step is undone.
        """
        self._definition.undo_with(undo_in_transaction(function), self.name)
        return function

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> TransactionalStep[T, P, R]: ...
    @overload  # As of a Step.
    def __get__(
        self: TransactionalStep[Any, [Unlike, Unlike], R], instance: object, owner: type[Any]
    ) -> TransactionalStep[Any, ..., R]: ...
    @overload
    def __get__(
        self: TransactionalStep[S, Concatenate[Any, Q], R], instance: S, owner: type[Any]
    ) -> TransactionalStep[Any, Q, R]: ...
    def __get__(self, instance: Any, owner: type[Any]) -> TransactionalStep[Any, Any, R]:
        """Bind a method that is a step to its instance."""
        return self if instance is None else TransactionalStep(self._definition, self.name, (instance,))

    def _request(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StepRequest:
        definition = self._definition

        def perform(context: StepContext, tx: object) -> object:
            return definition.performed(context, (*self._bound, tx, *args), kwargs)

        options = definition.options_of(self._bound)
        return StepRequest(
            self.name, perform, definition.is_awaited, definition.shape, options, is_transactional=True
        )  # fmt: skip

    async def _alone(self, *_: object) -> object:
        raise NotATransaction(
            f"{self!r} was called outside of a workflow, where nobody gives it a transaction. Give it yours: "
            f"`await {self.name}.within(session, ...)`."
        )

    def _called(self, context: StepContext, tx: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        return self._definition.called(context, (*self._bound, tx, *args), kwargs)


class TransactionalDecorator(Protocol):
    """What `transactional_step(...)` with options returns."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[T, Unlike, P], Awaitable[R]], /
    ) -> TransactionalStep[T, ..., R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[S, T, Unlike, P], Awaitable[R]], /
    ) -> TransactionalStep[S, Concatenate[T, ...], R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[T, StepContext, P], Awaitable[R]], /
    ) -> TransactionalStep[T, P, R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[S, T, StepContext, P], Awaitable[R]], /
    ) -> TransactionalStep[S, Concatenate[T, P], R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[T, P], Awaitable[R]], /) -> TransactionalStep[T, P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[T, Unlike, P], R], /) -> TransactionalStep[T, ..., R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[S, T, Unlike, P], R], /
    ) -> TransactionalStep[S, Concatenate[T, ...], R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[T, StepContext, P], R], /) -> TransactionalStep[T, P, R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[S, T, StepContext, P], R], /
    ) -> TransactionalStep[S, Concatenate[T, P], R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[T, P], R], /) -> TransactionalStep[T, P, R]: ...


@overload
def transactional_step(
    function: Callable[Concatenate[T, Unlike, P], Awaitable[R]], /
) -> TransactionalStep[T, ..., R]: ...
@overload
def transactional_step(
    function: Callable[Concatenate[S, T, Unlike, P], Awaitable[R]], /
) -> TransactionalStep[S, Concatenate[T, ...], R]: ...
@overload
def transactional_step(
    function: Callable[Concatenate[T, StepContext, P], Awaitable[R]], /
) -> TransactionalStep[T, P, R]: ...
@overload
def transactional_step(
    function: Callable[Concatenate[S, T, StepContext, P], Awaitable[R]], /
) -> TransactionalStep[S, Concatenate[T, P], R]: ...
@overload
def transactional_step(function: Callable[Concatenate[T, P], Awaitable[R]], /) -> TransactionalStep[T, P, R]: ...
@overload
def transactional_step(function: Callable[Concatenate[T, Unlike, P], R], /) -> TransactionalStep[T, ..., R]: ...
@overload
def transactional_step(
    function: Callable[Concatenate[S, T, Unlike, P], R], /
) -> TransactionalStep[S, Concatenate[T, ...], R]: ...
@overload
def transactional_step(function: Callable[Concatenate[T, StepContext, P], R], /) -> TransactionalStep[T, P, R]: ...
@overload
def transactional_step(
    function: Callable[Concatenate[S, T, StepContext, P], R], /
) -> TransactionalStep[S, Concatenate[T, P], R]: ...
@overload
def transactional_step(function: Callable[Concatenate[T, P], R], /) -> TransactionalStep[T, P, R]: ...
@overload
def transactional_step(
    *,
    name: str | None = None,
    compensate: Callable[[Any, CompensationContext, Any], object] | None = None,
    **options: Unpack[StepChoices],
) -> TransactionalDecorator: ...
def transactional_step(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    compensate: Callable[[Any, CompensationContext, Any], object] | None = None,
    **options: Unpack[StepChoices],
) -> object:
    """Make a step whose writes to your database commit together with its entry: exactly once, as far as the database goes.

    The function's first parameter is the session or connection of a transaction that `Outlast(transactions=...)` opens for
    each attempt. What it writes there, and what it starts or signals with `tx=` there, is committed with the step's result,
    or rolled back. Let the function neither commit nor roll back. A StepContext may come second, if it is annotated.
    What undoes the step (`compensate=`) is given a transaction too. The other options are those of `step`.

    An `async def` needs transactions that are awaited, a plain function runs on a thread with one that is not.

    >>> import sqlite3
    >>> from outlast import transactional_step
    >>> @transactional_step
    ... def pay(db: sqlite3.Connection, cents: int) -> int:
    ...     db.execute("insert into payments values (?)", (cents,))
    ...     return cents
    >>> pay.name
    'pay'

    Versionadded: 0.1
    """
    local = signatures.caller_names()
    chosen = step_options(None, **options)

    def declare(function: Callable[..., Any]) -> TransactionalStep[Any, Any, Any]:
        given = step_name(function, name, "transactional_step")
        if not signatures.positional(function):
            raise DefinitionError(
                f"Transactional step {given!r} has no parameter for its transaction, the session or connection."
            )
        check_types(given, function, local)
        made = TransactionalStep[Any, Any, Any](StepDefinition(function, chosen, local, leading=1), given)
        if compensate is not None:
            made.compensate(compensate)
        return made

    return declare if function is None else declare(function)


def undo_in_transaction(function: Callable[..., Any]) -> Undo:
    """Check a compensation that is given a transaction."""
    signatures.check_callable(function, "A compensation")
    # One argument more where it is a method.
    signatures.check_takes(
        function, 3, 4, what="A compensation takes its transaction, a CompensationContext and the step's result"
    )
    return Undo(function, signatures.is_awaited(function), is_transactional=True)


def in_transaction(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return what calls a function handed to `ctx.transaction`: with the transaction, and the context if it asks for one.

    It asks by a second parameter that nobody else would fill.
    """
    signatures.check_takes(
        function,
        1,
        2,
        what=f"The function of transaction {name!r} takes its transaction, and its StepContext if it likes",
    )
    second = signatures.positional(function)[1:2]
    asks = any(parameter.default is parameter.empty for parameter in second) or context_position(function) == 1

    def perform(context: StepContext, tx: object) -> object:
        return function(tx, context) if asks else function(tx)

    return perform
