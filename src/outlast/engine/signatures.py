"""What a function that an author hands in looks like: awaited or plain, its parameters, the types it names."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
import types
import typing
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from outlast.errors import DefinitionError
from outlast.model.classes import type_name

_AWAITABLES: Final = (Awaitable, Coroutine, Generator, asyncio.Future, asyncio.Task)


def underlying(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that was written: inside partials, bound methods, decorators and callable instances."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function) and not isinstance(function, type):
        function = type(function).__call__
    written: Callable[..., Any] = inspect.unwrap(function)
    return written


def is_awaited(function: Callable[..., Any]) -> bool:
    """Tell whether calling it gives something to await. A decorator around an `async def` does not hide that."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(underlying(function))


def check_callable(function: object, what: str) -> None:
    """Raise DefinitionError for what cannot be a step's function."""
    if not callable(function):
        named = f" A name is given as name={function!r}." if isinstance(function, str) else ""
        raise DefinitionError(f"{what} must be a function; {function!r} is a {type(function).__name__}.{named}")
    if isinstance(function, type):
        raise DefinitionError(
            f"{what} must be a function; {function.__qualname__} is a class. Pass an instance or a method."
        )
    written = underlying(function)
    if inspect.isgeneratorfunction(written) or inspect.isasyncgenfunction(written):
        raise DefinitionError(f"{what} must return its result; {written.__qualname__} yields. Return a list instead.")


def check_takes(function: Callable[..., Any], *numbers: int, what: str) -> None:
    """Raise DefinitionError for what takes none of these numbers of arguments: found before there is an effect."""
    if not any(_takes(function, number) for number in numbers):
        raise DefinitionError(f"{what}; {name_of(function)} cannot be called so.")


def fits(function: Callable[..., Any], args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """Tell whether a function can be called with these arguments; True where its parameters are not known."""
    try:
        # What a decorator hands on to what it wraps is its own affair.
        signature = _signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _takes(function: Callable[..., Any], number: int) -> bool:
    if isinstance(function, types.MethodType):
        return _takes(function.__func__, number + 1)
    if type(function) is types.FunctionType and not function.__code__.co_kwonlyargcount:
        # As below, without the time that it takes: this is asked of every call of `ctx.step`.
        code = function.__code__
        least = code.co_argcount - len(function.__defaults__ or ())
        return least <= number and (number <= code.co_argcount or bool(code.co_flags & inspect.CO_VARARGS))
    return fits(function, [None] * number, {})


def name_of(function: Callable[..., Any]) -> str:
    """Return the name that was written for a function, or the class's name of a callable instance."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__name__


def positional(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters that a caller fills by position."""
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter for parameter in _parameters(function) if parameter.kind in by_position]


def takes_too_much(function: Callable[..., Any]) -> str | None:
    """Name a parameter that nobody would fill by position: `*args`, `**options`, keywords without a default."""
    for parameter in _parameters(function):
        match parameter.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                return f"*{parameter.name}"
            case inspect.Parameter.VAR_KEYWORD:
                return f"**{parameter.name}"
            case inspect.Parameter.KEYWORD_ONLY if parameter.default is inspect.Parameter.empty:
                return parameter.name
            case _:
                pass
    return None


def type_hints(function: Callable[..., Any], local: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the types that a function names. A type that cannot be found leaves its parameter out of the answer.

    `local` holds the names around a nested function, which Python does not keep for later (`caller_names`).
    """
    written = underlying(function)
    names = dict(local) if local else None
    with suppress(Exception):  # An annotation is code, and may raise anything.
        return typing.get_type_hints(written, localns=names, include_extras=True)
    found: dict[str, Any] = {}
    for parameter, annotation in _annotations(written).items():
        with suppress(Exception):
            found[parameter] = _resolved(annotation, getattr(written, "__globals__", {}), names)
    return found


def annotation_text(function: Callable[..., Any], parameter: str) -> str:
    """Return an annotation as far as it can be shown; empty when there is none."""
    annotation = _annotations(underlying(function)).get(parameter, "")
    if isinstance(annotation, typing.ForwardRef):
        return annotation.__forward_arg__
    return annotation if isinstance(annotation, str) else type_name(annotation)


def result_type(function: Callable[..., Any], local: Mapping[str, Any] | None = None) -> object:
    """Return the type of what a caller gets after awaiting; Any where the function does not say."""
    with suppress(Exception):  # Since Python 3.14 looking at them evaluates them.
        if not underlying(function).__annotations__:
            return Any
    annotation = type_hints(function, local).get("return", Any)
    origin = typing.get_origin(annotation)
    if inspect.iscoroutinefunction(underlying(function)) or origin not in _AWAITABLES:
        return annotation
    return typing.get_args(annotation)[-1]


def caller_names() -> Mapping[str, Any] | None:
    """Return the names around the code that called the function that asks; None when that is a module's top."""
    frame = sys._getframe(2)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  nobody else knows them
    return None if frame.f_locals is frame.f_globals else dict(frame.f_locals)


if sys.version_info >= (3, 14):
    # Annotations are evaluated when somebody looks at them, so looking may fail: unless asked not to.
    import annotationlib

    _signature = functools.partial(inspect.signature, annotation_format=annotationlib.Format.FORWARDREF)
    _annotations = functools.partial(annotationlib.get_annotations, format=annotationlib.Format.FORWARDREF)
else:
    _signature = inspect.signature

    def _annotations(written: Callable[..., Any]) -> dict[str, Any]:
        return dict(getattr(written, "__annotations__", {}))


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(_signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def _resolved(annotation: object, module: dict[str, Any], local: dict[str, Any] | None) -> object:
    def holder() -> None: ...

    holder.__annotations__ = {"it": annotation}
    return typing.get_type_hints(holder, module, local, include_extras=True)["it"]
