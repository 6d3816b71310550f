"""Options of retries are refused where they are written, not when a step has failed at night."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from outlast import InvalidArgument, InvalidDuration, Retry, RetryAfter


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


@pytest.mark.parametrize("delay", [5, 5.0, None, b"5s"])
def test_a_number_is_no_time_to_try_again_after(delay: Any) -> None:
    """Raised in a step it ended that for good; now it is an error as any other, and tried again as the step says."""
    with pytest.raises(InvalidDuration, match="A number of seconds is RetryAfter"):
        RetryAfter(delay)
