"""Instants: microseconds since the epoch inside, aware UTC datetimes outside."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from outlast.errors import InvalidArgument

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def to_datetime(at: int) -> datetime:
    """Turn microseconds since the epoch into an aware UTC datetime, exactly."""
    return _EPOCH + at * _MICROSECOND


def to_instant(value: datetime, *, what: str) -> int:
    """Turn an aware datetime into microseconds since the epoch, exactly. A naive one is refused: it names no instant."""
    if not isinstance(value, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]  who checks no types may pass it
        raise InvalidArgument(
            f"{what} must be an aware datetime, such as datetime(2026, 1, 1, tzinfo=UTC), not {type(value).__name__}."
        )
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidArgument(
            f"{what} must be an aware datetime, such as datetime(2026, 1, 1, tzinfo=UTC); {value!r} has no time zone."
        )
    return (value - _EPOCH) // _MICROSECOND


def shown_time(at: int) -> str:
    """Return a time for people to read, to the second, in UTC. Never raises."""
    try:
        return f"{to_datetime(at).replace(tzinfo=None).isoformat(sep=' ', timespec='seconds')} UTC"
    except (OverflowError, TypeError):
        return f"a time that cannot be shown, {at!r}"
