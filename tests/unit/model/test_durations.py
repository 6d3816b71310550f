"""Durations are read exactly or refused; none ever becomes a smaller one."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.errors import InvalidArgument, InvalidDuration, OutlastError
from outlast.model.durations import LONGEST, format_duration, parse_duration, to_us

any_duration = st.timedeltas(min_value=-LONGEST, max_value=LONGEST)


@pytest.mark.parametrize(
    "text,expected",
    [
        ("90s", timedelta(seconds=90)),
        ("42m30s", timedelta(seconds=2550)),
        ("1h", timedelta(seconds=3600)),
        ("1.5h", timedelta(seconds=5400)),
        ("36h", timedelta(seconds=129_600)),
        ("P1DT2H", timedelta(seconds=93_600)),
        ("3d", timedelta(days=3)),
        ("2w", timedelta(days=14)),
        ("250ms", timedelta(milliseconds=250)),
        ("5m", timedelta(minutes=5)),
        ("5ms", timedelta(milliseconds=5)),
        ("5m5ms", timedelta(minutes=5, milliseconds=5)),
        ("1w2d3h4m5s6ms", timedelta(weeks=1, days=2, hours=3, minutes=4, seconds=5, milliseconds=6)),
        ("0.1s", timedelta(milliseconds=100)),
        ("1h0.5s", timedelta(hours=1, milliseconds=500)),
        ("007s", timedelta(seconds=7)),
        ("+5s", timedelta(seconds=5)),
        ("P1W", timedelta(weeks=1)),
        ("PT0.5S", timedelta(milliseconds=500)),
        ("PT90M", timedelta(minutes=90)),
        ("P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
    ],
)
def test_a_text_is_read_exactly(text: str, expected: timedelta) -> None:
    assert parse_duration(text, what="delay") == expected
    assert to_us(text, what="delay") == expected // timedelta(microseconds=1)


@pytest.mark.parametrize(
    "text",
    [
        "5", "1.5", "1m 5x", "1m 5s", "", " ", " 1s", "1s ", "1s\n", "1x", "s", "-", "+", "--1s", "1s1m", "1s1s",
        "1ms1s", "1.5h30m", "1.s", ".5s", "1e-9s", "1,5h", "1M", "1H", "30 days", "1us", "nan", "inf", "NaN", "P", "PT",
        "P1DT", "P1Y", "P1M", "P1", "1P", "PT1.5H1M", "p1d", "P1DT2", "\u0663d", "1\u00b5s", "1s\x00",
        "9" * 16 + "s", "1" * 5000 + "s",
    ],
)  # fmt: skip
def test_a_text_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidDuration, match=r"^timeout must be a text such as '3d', '1h30m'"):
        parse_duration(text, what="timeout", allow_negative=True)


@pytest.mark.parametrize("value", [5, 0, -5, True, 1.5, float("nan"), float("inf"), None, b"1s", ["1s"]])
def test_a_value_of_another_type_is_refused_by_name(value: object) -> None:
    with pytest.raises(InvalidDuration, match=rf"^timeout must be .* is of type {type(value).__name__}\."):
        parse_duration(value, what="timeout", allow_negative=True)


@pytest.mark.parametrize(
    "value, hint",
    [(2, "'2s'"), (30, "'30s'"), (-5, "'-5s'"), (1.5, "'1.5s'"), (0.1, "'0.1s'"), (True, None), (float("nan"), None)],
)
def test_a_number_is_told_how_to_say_its_unit(value: float, hint: str | None) -> None:
    """`Retry(delay=2)` and `timeout=30` were only told of the forms, not of the one that was meant."""
    with pytest.raises(InvalidDuration) as refused:
        parse_duration(value, what="timeout")

    told = str(refused.value).partition(" Say the unit: ")[2]
    assert told == ("" if hint is None else f"{hint} is seconds.")


def test_a_number_without_a_unit_is_told_how_to_say_it() -> None:
    with pytest.raises(InvalidDuration, match="Say the unit: '30s' is seconds"):
        parse_duration("30", what="lease")


@pytest.mark.parametrize(
    "value",
    [
        timedelta.max, timedelta.min, timedelta(days=400 * 365), LONGEST + timedelta(microseconds=1), "36525d0.001s",
        "400000d", "P36526D", "999999999999999w", "-999999999999999w", f"{10**15 - 1}h",
    ],
)  # fmt: skip
def test_more_than_a_hundred_years_is_refused(value: object) -> None:
    with pytest.raises(InvalidDuration, match="delay must not be longer than 100 years"):
        parse_duration(value, what="delay", allow_negative=True)


def test_a_hundred_years_are_accepted() -> None:
    assert parse_duration("36525d", what="delay") == LONGEST == parse_duration(LONGEST, what="delay")


@pytest.mark.parametrize("value", ["-5s", "-P1D", timedelta(seconds=-5), timedelta(microseconds=-1)])
def test_a_negative_duration_is_refused_unless_allowed(value: object) -> None:
    with pytest.raises(InvalidDuration, match=r"^lease must not be negative"):
        parse_duration(value, what="lease")

    assert parse_duration(value, what="sleep", allow_negative=True) < timedelta(0)


def test_a_sign_covers_the_whole_text() -> None:
    assert parse_duration("-1h30m", what="sleep", allow_negative=True) == timedelta(minutes=-90)


@pytest.mark.parametrize("value", ["0s", "-0s", "0w0ms", "PT0S", timedelta(0)])
def test_zero_is_accepted_unless_refused(value: object) -> None:
    assert to_us(value, what="delay") == 0

    with pytest.raises(InvalidDuration, match=r"^timeout must be longer than zero"):
        to_us(value, what="timeout", allow_zero=False)


def test_a_fraction_of_a_microsecond_never_becomes_a_shorter_wait() -> None:
    assert to_us("0.000000001s", what="sleep") == 1
    assert to_us("0.0000011s", what="sleep") == 2
    assert to_us("-0.000000001s", what="sleep", allow_negative=True) == -1


def test_a_subclass_of_timedelta_becomes_a_plain_one() -> None:
    class Length(timedelta):
        pass

    assert type(parse_duration(Length(seconds=5), what="delay")) is timedelta


def test_the_error_is_a_value_error_of_this_library() -> None:
    assert issubclass(InvalidDuration, ValueError)
    assert issubclass(InvalidDuration, InvalidArgument)
    assert issubclass(InvalidDuration, OutlastError)


@pytest.mark.parametrize(
    "duration,text",
    [
        (timedelta(0), "0s"),
        (timedelta(days=3), "3d"),
        (timedelta(minutes=90), "1h30m"),
        (timedelta(milliseconds=250), "250ms"),
        (timedelta(seconds=-5), "-5s"),
        (timedelta(microseconds=1), "0.001ms"),
        (timedelta(microseconds=1_500), "1.5ms"),
        (timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=5), "1d2h3m4s5ms"),
    ],
)
def test_a_duration_is_written_as_people_write_it(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text


@given(any_duration)
def test_what_is_written_is_read_back_exactly(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration), what="delay", allow_negative=True) == duration


@given(st.text(alphabet="0123456789.wdhmsPT+-WDHMS ", max_size=12))
def test_any_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    try:
        duration = parse_duration(text, what="delay", allow_negative=True)
    except InvalidDuration:
        return
    assert abs(duration) <= LONGEST
