"""Durations, sizes and rates as users write them, and the one way from seconds to the clock."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from fedsim.units import parse_duration_s, parse_rate_bps, parse_size_bytes, to_ns, to_s


@pytest.mark.parametrize(
    ("given", "expected"),
    [("90s", 90), ("1.5 min", 90), ("7d", 604_800), (" 2e3ms ", 2), ("250us", 2.5e-4), (3, 3)],
)
def test_durations(given: object, expected: float) -> None:
    assert parse_duration_s(given) == pytest.approx(expected, rel=1e-15)


def test_sizes_and_rates() -> None:
    """KiB are powers of two; kB and Mbps are powers of ten."""
    assert (parse_size_bytes("4KiB"), parse_size_bytes("25MB"), parse_size_bytes("7")) == (
        4096,
        25_000_000,
        7,
    )
    assert (parse_rate_bps("20Mbps"), parse_rate_bps(".5kbps")) == (20_000_000, 500)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (True, "is not a duration: give a number of seconds"),
        ("soon", "'soon' is not a duration"),
        ("3 months", "no known unit of a duration: use one of ns, us, ms, s, min, h, d"),
        (float("nan"), "not a finite duration"),
        ("1e400s", "not a finite duration"),
        ("-1s", "is negative"),
        ("40000d", "longer than a hundred years"),
    ],
)
def test_what_is_not_a_duration_is_refused_with_the_reason(given: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_duration_s(given)


@pytest.mark.parametrize(
    ("parse", "given", "hint"),
    [
        (parse_rate_bps, "20mbps", "did you mean 20Mbps?"),
        (parse_rate_bps, "20 Mbit/s", "did you mean 20Mbps?"),
        (parse_rate_bps, "20MB", "rates are in bits per second: write 160Mbps"),
        (parse_rate_bps, "20MB/s", "rates are in bits per second: write 160Mbps"),
        (parse_rate_bps, "3parsec", "use one of bps, kbps"),
        (parse_duration_s, "3 weeks", "did you mean 21d?"),
        (parse_duration_s, "1.5 Hours", "did you mean 1.5h?"),
        (parse_duration_s, "5m", "did you mean 5min?"),
        (parse_duration_s, "9 S", "did you mean 9s?"),
        (parse_size_bytes, "3m", "use one of B, kB"),
        (parse_size_bytes, "300 bytes", "did you mean 300B?"),
        (parse_size_bytes, "20mb", "did you mean 20MB?"),
    ],
)
def test_other_spellings_of_a_unit_lead_to_fedsims(
    parse: Callable[[object], float], given: str, hint: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(hint)):
        parse(given)


def test_the_clock_counts_whole_nanoseconds() -> None:
    assert [to_ns(0.1), to_ns(1e-9), to_ns(0.4e-9), to_ns(86_400)] == [10**8, 1, 0, 86_400 * 10**9]
    assert to_s(to_ns(1.25)) == 1.25
    with pytest.raises(ValueError, match="not a finite time"):
        to_ns(float("inf"))
