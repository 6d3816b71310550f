"""Durations: what people write for them, checked once and kept exactly.

A duration is a `timedelta` or a text. A text holds numbers with a unit each, the largest unit first, each at most once:
`"3d"`, `"1h30m"`, `"1.5h"`, `"250ms"`. The units are w, d, h, m (minutes), s and ms. The ISO-8601 form is read as well,
but for years and months, which have no fixed length: `"P1DT2H"`. Only the last number may have a fraction; a sign may
stand in front. A number without a unit is refused: nobody can tell seconds from milliseconds by looking at it.
"""

from __future__ import annotations

import re
import reprlib
from datetime import timedelta
from fractions import Fraction
from typing import Final

from outlast.errors import InvalidDuration

Duration = str | timedelta

LONGEST: Final = timedelta(days=36_525)
"""A hundred years. Every due time then fits the databases' and Python's dates; a longer wait is a mistake."""

_FORMS: Final = "a text such as '3d', '1h30m', '1.5h', '250ms' or 'P1DT2H', or a timedelta"
_UNITS: Final = {
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
_MICROSECOND: Final = timedelta(microseconds=1)
_NUMBER: Final = r"([0-9]{1,15}(?:\.[0-9]{1,15})?)"
_PLAIN: Final = re.compile(
    rf"[+-]?(?:{_NUMBER}w)?(?:{_NUMBER}d)?(?:{_NUMBER}h)?(?:{_NUMBER}m(?!s))?(?:{_NUMBER}s)?(?:{_NUMBER}ms)?"
)
_ISO: Final = re.compile(
    rf"[+-]?P(?:{_NUMBER}W)?(?:{_NUMBER}D)?(?:T(?=[0-9])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?"
)


def parse_duration(value: object, *, what: str, allow_zero: bool = True, allow_negative: bool = False) -> timedelta:
    """Read a duration exactly; `what` names it in the refusal.

    Refused with `InvalidDuration`: other types (numbers too), other forms, more than a hundred years, and zero or less
    unless allowed. A fraction of a microsecond is rounded away from zero, so that no wait is shorter than written.

    >>> parse_duration("1h30m", what="timeout")
    datetime.timedelta(seconds=5400)
    """
    if isinstance(value, timedelta):
        duration = timedelta(value.days, value.seconds, value.microseconds)
    else:
        duration = _parsed(value, what)
    if abs(duration) > LONGEST:
        raise InvalidDuration(f"{what} must not be longer than 100 years; {reprlib.repr(value)} is.")
    if not allow_negative and duration < timedelta(0):
        raise InvalidDuration(f"{what} must not be negative; {reprlib.repr(value)} is.")
    if not allow_zero and not duration:
        raise InvalidDuration(f"{what} must be longer than zero; {reprlib.repr(value)} is not.")
    return duration


def to_us(value: object, *, what: str, allow_zero: bool = True, allow_negative: bool = False) -> int:
    """Read a duration as `parse_duration` does, in whole microseconds.

    >>> to_us("250ms", what="poll")
    250000
    """
    return parse_duration(value, what=what, allow_zero=allow_zero, allow_negative=allow_negative) // _MICROSECOND


def format_duration(duration: timedelta) -> str:
    """Write a duration as people write it, exactly: what `parse_duration` would read back.

    >>> format_duration(timedelta(hours=49, milliseconds=250))
    '2d1h250ms'
    """
    if not duration:
        return "0s"
    rest = abs(duration)
    text = "-" if duration < timedelta(0) else ""
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, _UNITS[unit])
        text += f"{count}{unit}" if count else ""
    if rest:
        whole, micros = divmod(rest // _MICROSECOND, 1000)
        text += f"{whole}.{micros:03}".rstrip("0") + "ms" if micros else f"{whole}ms"
    return text


def _parsed(value: object, what: str) -> timedelta:
    if not isinstance(value, str):
        given = reprlib.repr(value)
        hint = f" Say the unit: '{given}s' is seconds." if _numbers(f"{given}s") else ""
        raise InvalidDuration(f"{what} must be {_FORMS}; {given} is of type {type(value).__name__}.{hint}")
    numbers = _numbers(value)
    if not numbers:
        unitless = re.fullmatch(r"[+-]?[0-9.]+", value)
        hint = f" Say the unit: '{value[:20]}s' is seconds." if unitless else ""
        raise InvalidDuration(f"{what} must be {_FORMS}; {reprlib.repr(value)} is not.{hint}")
    micros = sum(Fraction(number) * (_UNITS[unit] // _MICROSECOND) for unit, number in numbers)
    if micros > LONGEST // _MICROSECOND:
        raise InvalidDuration(f"{what} must not be longer than 100 years; {reprlib.repr(value)} is.")
    duration = -(-micros // 1) * _MICROSECOND
    return -duration if value.startswith("-") else duration


def _numbers(text: str) -> list[tuple[str, str]]:
    """The units of a text with their numbers; nothing when it has not one of the two forms."""
    matched = _PLAIN.fullmatch(text) or _ISO.fullmatch(text)
    if matched is None:
        return []
    numbers = [(unit, number) for unit, number in zip(_UNITS, matched.groups(), strict=False) if number is not None]
    fractions = [number for _, number in numbers[:-1] if "." in number]
    return [] if fractions else numbers
