"""The stored form of errors, and how an exception becomes one."""

from __future__ import annotations

import traceback
from typing import Final, cast

import msgspec

from outlast.errors import Failure, StepFailed

_LONGEST_MESSAGE: Final = 10_000
_LONGEST_TRACEBACK: Final = 20_000
_MOST_INNER: Final = 50
_DEEPEST: Final = 5


class _Stored(msgspec.Struct, omit_defaults=True):
    type: str
    message: str = ""
    traceback: str = ""
    inner: list[_Stored] = []


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Stored)


def failure_of(error: BaseException) -> Failure:
    """Describe an exception in plain text. Never raises: an exception whose own `str` fails is described as such."""
    return _describe(error, depth=0)


def in_ascii(failure: Failure) -> Failure:
    """Return a failure with other characters escaped, for where its text may be what cannot be stored."""
    return Failure(
        type=_escaped(failure.type),
        message=_escaped(failure.message),
        traceback=_escaped(failure.traceback),
        inner=tuple(in_ascii(part) for part in failure.inner),
    )


def _escaped(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def type_name(kind: type[BaseException]) -> str:
    """Return how a failure names the class of an error."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def encode_failure(failure: Failure) -> str:
    """Return the JSON text of a failure."""
    return _encoder.encode(_to_stored(failure)).decode()


def decode_failure(text: str) -> Failure:
    """Read a failure back. Text that is not one becomes a failure that says so, since an error must always be showable."""
    try:
        return _from_stored(_decoder.decode(text))
    except msgspec.MsgspecError as error:
        return Failure(type="outlast.errors.ValueUnreadable", message=f"the stored error cannot be read: {error}")


def _describe(error: BaseException, depth: int) -> Failure:
    return Failure(
        type=type_name(type(error)),
        message=_storable(_message(error), _LONGEST_MESSAGE),
        traceback=_storable(_traceback(error), _LONGEST_TRACEBACK) if depth == 0 else "",
        inner=_inner_or_none(error, depth + 1) if depth < _DEEPEST else (),
    )


def _inner_or_none(error: BaseException, depth: int) -> tuple[Failure, ...]:
    try:
        return _inner(error, depth)
    except Exception:  # noqa: BLE001  the application's code: a property of the error that raises
        return ()


def _inner(error: BaseException, depth: int) -> tuple[Failure, ...]:
    inner = [_describe(member, depth) for member in _members(error)[:_MOST_INNER]]
    if error.__cause__ is not None:
        inner.append(_describe(error.__cause__, depth))
    if isinstance(error, StepFailed):
        inner.append(error.cause)
    return tuple(inner)


def _members(error: BaseException) -> tuple[BaseException, ...]:
    if not isinstance(error, BaseExceptionGroup):
        return ()
    return cast("BaseExceptionGroup[BaseException]", error).exceptions


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001  the application's code
        return f"<its message could not be made: {type(broken).__name__}>"


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_tb(error.__traceback__))
    except Exception as broken:  # noqa: BLE001  the same
        return f"<its traceback could not be made: {type(broken).__name__}>"


def _storable(text: str, longest: int) -> str:
    """Cut a text that is too long in its middle, and replace lone surrogates, which UTF-8 cannot hold."""
    if len(text) > longest:
        text = f"{text[: longest // 2]}\n[{len(text) - longest:,} characters left out]\n{text[-(longest // 2) :]}"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _to_stored(failure: Failure) -> _Stored:
    return _Stored(failure.type, failure.message, failure.traceback, [_to_stored(part) for part in failure.inner])


def _from_stored(stored: _Stored) -> Failure:
    inner = tuple(_from_stored(part) for part in stored.inner)
    return Failure(type=stored.type, message=stored.message, traceback=stored.traceback, inner=inner)
