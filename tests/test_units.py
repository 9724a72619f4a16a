"""Durations, sizes and rates as users write them, and the one way from seconds to the clock."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.units import (
    CLOCK_YEARS,
    LONGEST_S,
    NEVER,
    NS_PER_S,
    duration_at_least,
    parse_duration_s,
    parse_rate_bps,
    parse_size_bytes,
    to_ns,
    to_s,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90s", 90), ("1.5 min", 90), ("7d", 604_800), (" 2e3ms ", 2), ("250us", 2.5e-4), (3, 3)],
)
def test_durations(text: object, expected: float) -> None:
    assert parse_duration_s(text) == pytest.approx(expected, rel=1e-15)


def test_sizes_and_rates() -> None:
    """KiB are powers of two; kB and Mbps are powers of ten."""
    assert (parse_size_bytes("4KiB"), parse_size_bytes("25MB"), parse_size_bytes("7")) == (
        4096,
        25_000_000,
        7,
    )
    assert (parse_rate_bps("20Mbps"), parse_rate_bps(".5kbps")) == (20_000_000, 500)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (True, "is not a duration: give a number of seconds"),
        ("soon", "'soon' is not a duration"),
        (
            "1,5 h",
            "'1,5 h' is not a duration: decimal numbers are written with a point: 1.5 h",
        ),
        ("1,500s", "write 1500s, or 1.500s if the comma is a decimal point"),
        ("1,5,0s", "'1,5,0s' is not a duration: write a number and a unit"),
        ("3 months", "no known unit of a duration: use one of ns, us, ms, s, min, h, d"),
        (float("nan"), "not a finite duration"),
        ("1e400s", "not a finite duration"),
        (10**400, "not a finite duration"),
        ("1e-400s", "'1e-400s' is too small a duration"),
        ("-1s", "is negative"),
        ("40000d", "longer than a hundred years"),
    ],
)
def test_what_is_not_a_duration_is_refused_with_the_reason(text: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_duration_s(text)


@pytest.mark.parametrize(
    ("parse", "text", "hint"),
    [
        (parse_rate_bps, "20mbps", "did you mean 20Mbps?"),
        (parse_rate_bps, "5MBps", "did you mean 40Mbps?"),
        (parse_rate_bps, "20 Mbit/s", "write a number and a unit, such as 12kbps"),
        (parse_size_bytes, "3m", "use one of B, kB"),
        (parse_size_bytes, "20mb", "did you mean 20MB?"),
    ],
)
def test_other_spellings_of_a_unit_lead_to_fedsims(
    parse: Callable[[object], float], text: str, hint: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(hint)):
        parse(text)


LEAST = {150.1: "151s", 150.0: "150s", 150 + 1e-9: "150s", 42.11: "42.2s", 0.0421: "42.1ms"}
LEAST |= {14_412.0: "241min", 1e6: "278h", 5e-9: "0ns"}


def test_a_least_duration_is_rounded_up_to_one_that_can_be_given() -> None:
    assert {seconds: duration_at_least(seconds) for seconds in LEAST} == LEAST


@given(st.floats(1e-8, 1e9))
def test_a_least_duration_is_not_shorter(seconds: float) -> None:
    given_s = parse_duration_s(duration_at_least(seconds))
    assert seconds - 1.1e-8 <= given_s * (1 + 1e-12)
    assert given_s <= max(1.02 * seconds, seconds + 2e-9)


def test_the_clock_counts_whole_nanoseconds() -> None:
    assert [to_ns(0.1), to_ns(1e-9), to_ns(0.4e-9), to_ns(86_400)] == [10**8, 1, 0, 86_400 * 10**9]
    assert to_s(to_ns(1.25)) == 1.25
    with pytest.raises(ValueError, match="not a finite time"):
        to_ns(float("inf"))


def test_the_end_of_the_clock_is_stated_once() -> None:
    years = NEVER / NS_PER_S / (365.25 * 86_400)
    assert CLOCK_YEARS <= years < CLOCK_YEARS + 1
    assert LONGEST_S * NS_PER_S < NEVER
    page = (Path(__file__).parents[1] / "docs" / "time.md").read_text(encoding="utf-8")
    assert f"2^62 nanoseconds, which is {CLOCK_YEARS} years" in page
    assert NEVER == 2**62
