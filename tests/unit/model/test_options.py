"""Options of retries are refused where they are written, not when a step has failed at night."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from outlast import InvalidArgument, InvalidDuration, Retry, RetryAfter


def of_three(error: BaseException, attempt: int, more: int) -> bool:
    return attempt < more


async def awaited(error: BaseException, attempt: int) -> bool:
    return attempt < 3


@pytest.mark.parametrize(
    ("options", "told"),  # noqa: PT006
    [
        (
            {"delays": "5s"},
            "Retry(delays=...) is a function (attempt, error) that gives the wait before the next attempt; '5s'",
        ),
        ({"delays": timedelta(seconds=5)}, "A fixed wait is Retry(delay=..., factor=1)."),
        (
            {"retry_if": 5},
            "Retry(retry_if=...) is a function (error, attempt) that says whether to try again; 5 is not.",
        ),
        ({"retry_if": True}, "Retry(retry_if=...) is a function"),
        (
            {"retry_if": ConnectionError},
            "<class 'ConnectionError'> is not. Write retry_if=lambda error, attempt: isinstance(error, ConnectionError).",
        ),
        ({"retry_if": (OSError, KeyError)}, "isinstance(error, (OSError, KeyError))."),
        ({"retry_if": (OSError,)}, "isinstance(error, OSError)."),
        ({"retry_if": bool}, "<class 'bool'> is not."),
        ({"retry_if": lambda error: True}, "Retry(retry_if=...) is a function (error, attempt)"),
        ({"retry_if": of_three}, "Retry(retry_if=...) is a function (error, attempt)"),
        ({"retry_if": awaited}, "Retry(retry_if=...) is a function (error, attempt)"),
        ({"delays": lambda attempt: "1s"}, "Retry(delays=...) is a function (attempt, error)"),
        ({"delays": timedelta}, "Retry(delays=...) is a function (attempt, error)"),
        ({"delays": awaited}, "Retry(delays=...) is a function (attempt, error)"),
        ({"factor": "x"}, "Retry(factor=...) is a number above 0; 'x' is not."),
        ({"factor": True}, "Retry(factor=...) is a number above 0; True is not."),
        ({"factor": float("nan")}, "Retry(factor=...) is a number above 0; nan is not."),
        ({"factor": float("inf")}, "Retry(factor=...) is a number above 0; inf is not."),
        ({"factor": 0}, "Retry(factor=...) is a number above 0; 0 is not."),
        ({"attempts": 0}, "Retry(attempts=...) is a whole number from 1; 0 is not."),
        ({"attempts": 1.5}, "Retry(attempts=...) is a whole number from 1; 1.5 is not."),
        ({"jitter": True}, "Retry(jitter=...) is 'none', 'full' or 'equal'; True is not."),
        ({"delay": 5}, "Retry(delay=...) must be a text such as"),
        ({"max_delay": "-1s"}, "Retry(max_delay=...) must not be negative"),
    ],
)
def test_an_option_that_cannot_be_is_refused_where_it_is_written(options: dict[str, Any], told: str) -> None:
    """They were taken, and the first error of the step then ended it."""
    with pytest.raises(InvalidArgument) as refused:
        Retry(**options)

    assert told in str(refused.value)


class Patient:
    def __call__(self, error: BaseException, attempt: int) -> bool:
        return attempt < 3

    def ask(self, error: BaseException, attempt: int, *, most: int = 3) -> bool:
        return attempt < most


@pytest.mark.parametrize(
    "function",
    [Patient(), Patient().ask, lambda *_: True, lambda e, n, more=1: n < more, partial(of_three, more=3), max],
)
def test_whatever_is_called_with_an_error_and_a_number_is_taken(function: Any) -> None:
    retry = Retry(retry_if=function, delays=function)

    assert (retry.retry_if, retry.delays) == (function, function)


@pytest.mark.parametrize("delay", [5, 5.0, None, b"5s"])
def test_a_number_is_no_time_to_try_again_after(delay: Any) -> None:
    """Raised in a step it ended that for good; now it is an error as any other, and tried again as the step says."""
    with pytest.raises(InvalidDuration, match="A number of seconds is RetryAfter"):
        RetryAfter(delay)
