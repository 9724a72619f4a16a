"""How numbers are written: the table of cases that the terminal, pages and their scripts share."""

import math
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.vocabulary.formatting import (
    Kind,
    axis_unit,
    format_command,
    format_counted,
    format_difference,
    format_duration,
    format_interval,
    format_level,
    format_mean,
    format_names,
    format_probability,
    format_rate,
    format_ratio,
    format_speed,
    format_value,
    format_watt_hours,
    natural_order,
)

CASES: list[tuple[Kind, float, str]] = [
    ("time", 0.0, "0 s"),
    ("time", 2.5e-8, "25 ns"),
    ("time", 0.04, "40 ms"),
    ("time", 0.25, "0.25 s"),
    ("time", 6.2, "6.2 s"),
    ("time", 59.94, "59.9 s"),
    ("time", 59.96, "1 min"),
    ("time", 725.0, "12 min 5 s"),
    ("time", 3599.4, "59 min 59 s"),
    ("time", 3599.6, "1 h"),
    ("time", 76.67 * 60, "1 h 17 min"),
    ("time", 86_399.9, "1 d"),
    ("time", 90_061.0, "1 d 1 h"),
    ("time", 999.9 * 86_400, "999 d 22 h"),
    ("time", 17_333.4 * 86_400, "17,333 d"),
    ("time", -725.0, "−12 min 5 s"),
    ("time", math.nan, "–"),
    ("count", 0, "0"),
    ("count", 2.5, "3"),
    ("count", 1_234_567, "1,234,567"),
    ("share", 0.0, "0.0%"),
    ("share", 0.9304, "93.0%"),
    ("share", 0.0004, "0.04%"),
    ("share", 1e-8, "1e-6%"),
    ("share", -0.123, "−12.3%"),
    ("mean", 66.25, "66.3"),
    ("mean", 40.0, "40"),
    ("mean", 11.999999999999998, "12"),
    ("mean", 1_234_567.0, "1,234,567"),
    ("number", 0.0, "0"),
    ("number", 0.24871, "0.2487"),
    ("number", 999.94, "999.9"),
    ("number", 999.96, "1,000"),
    ("number", 12_345.5, "12,346"),
    ("number", 1.25e-5, "1.25e-5"),
    ("number", 3e20, "3e+20"),
    ("number", math.inf, "–"),
    ("bytes", 0, "0 B"),
    ("bytes", 999.4, "999 B"),
    ("bytes", 999_600, "1 MB"),
    ("bytes", 1_234_567_890, "1.23 GB"),
    ("energy", 4500.0, "4.5 kJ"),
]
LEVELS: list[tuple[Kind, float, str]] = [
    ("share", 0.8, "80%"),
    ("share", 0.905, "90.5%"),
    ("number", 0.1, "0.1"),
    ("count", 1000, "1,000"),
]


@pytest.mark.parametrize(("kind", "value", "text"), CASES)
def test_values(kind: Kind, value: float, text: str) -> None:
    assert format_value(value, kind) == text


@pytest.mark.parametrize(("kind", "value", "text"), LEVELS)
def test_levels(kind: Kind, value: float, text: str) -> None:
    assert format_level(value, kind) == text


@given(st.floats(60.0, 1e8))
def test_a_duration_is_rounded_to_its_smaller_unit(seconds: float) -> None:
    """The text, read back, is never off by more than half of the smaller unit of its size."""
    lengths = {"d": 86_400, "h": 3600, "min": 60, "s": 1}
    words = format_duration(seconds).replace(",", "").split()
    counts = dict(zip(words[1::2], map(int, words[::2]), strict=True))
    units = list(lengths)
    largest = units.index(next(iter(counts)))
    smaller = units[largest + 1] if counts.get("d", 0) < 1000 else "d"
    assert set(counts) <= {units[largest], smaller}
    read = sum(count * lengths[unit] for unit, count in counts.items())
    assert abs(read - seconds) <= lengths[smaller] / 2
    # Never 60 min or 24 h.
    assert counts.get("h", 0) < 24
    assert max(counts.get("min", 0), counts.get("s", 0)) < 60


def test_other_texts() -> None:
    assert format_value("late", "text") == "late"
    assert format_difference(0.012, "share") == "+1.2 pp"
    assert format_difference(-185.0, "time") == "−3 min 5 s"
    assert format_difference(0.0, "number") == "±0"
    assert format_difference(math.nan, "share") == "–"
    assert format_value(None, "share") == "–"
    assert format_value(1e308, "share").endswith(".0%")
    assert format_ratio(1.466) == "1.47×"
    chances = map(format_probability, (0.004, 0.006, 0.994, 0.996, math.nan))
    assert list(chances) == ["<0.01", "0.01", "0.99", ">0.99", "–"]
    assert [format_probability(share, 1) for share in (0.04, 0.86, 0.96)] == ["<0.1", "0.9", ">0.9"]
    assert format_interval(60.0, 90.0, format_duration) == "1 min to 1 min 30 s"
    by_seed = format_interval(0.0, 0.014, lambda value: format_difference(value, "share"))
    assert by_seed == "0.0 pp to +1.4 pp"
    assert format_interval(math.nan, math.nan, format_duration) == "–"
    assert format_duration(1e300) == "1.16e+295 d"
    assert [format_names("ABC"[:n]) for n in range(4)] == ["", "A", "A and B", "A, B and C"]
    assert [format_counted(n, "row") for n in (0, 1, 12_345)] == ["0 rows", "1 row", "12,345 rows"]
    assert format_watt_hours(4500.0) == "1.25 Wh"
    rates = [format_rate(bps) for bps in (0, 950, 12_500_000, 1e11)]
    assert rates == ["0 bit/s", "950 bit/s", "12.5 Mbit/s", "100 Gbit/s"]
    assert format_command("resume", Path("my runs/a")) == "fedsim resume 'my runs/a'"
    assert format_command("ls", "-o", Path("-x")) == "fedsim ls -o ./-x"
    name = "it's \x1b[31m\n\\ \u200bé\x85\udc80"
    command = format_command(name)
    assert command.isprintable()
    said = subprocess.run(
        ["bash", "-c", f"printf %s {command.removeprefix('fedsim ')}"],
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        stdout=subprocess.PIPE,
        check=True,
    )
    assert os.fsdecode(said.stdout) == name


def test_the_unit_of_an_axis() -> None:
    assert axis_unit(3 * 86_400.0, "time") == (86_400.0, "d")
    assert axis_unit(100.0, "time") == (1.0, "s")
    assert axis_unit(5e6, "bytes") == (1e6, "MB")
    assert axis_unit(math.nan, "time") == (1.0, "s")
    assert axis_unit(7.0, "count") == (1.0, "")


@pytest.mark.parametrize(
    ("mean", "spread", "kind", "text"),
    [
        (0.93042, 0.0043, "share", "93.0% ± 0.4%"),
        (0.93042, 0.00032, "share", "93.04% ± 0.03%"),
        (0.93042, 0.1234, "share", "93% ± 12%"),
        (0.93042, math.nan, "share", "93.0%"),
        (2.12634, 0.03214, "number", "2.126 ± 0.032"),
        (-2.12634, 1.5, "number", "−2.1 ± 1.5"),
        (2.12634, 0.0, "number", "2.126 ± 0.000"),
        (2.12634, 1e-17, "number", "2.12634 ± 0.00000"),
        (12_345.0, 234.0, "number", "12,350 ± 230"),
        (1.2e-7, 3e-8, "number", "1.20e-7 ± 0.30e-7"),
        (0.0, 0.0, "number", "0 ± 0"),
        (90.0, 3.0, "time", "90.0 s ± 3.0 s"),
        (200.0, 61.0, "time", "3.3 min ± 1.0 min"),
        (0.05, 0.001, "time", "50.0 ms ± 1.0 ms"),
        (5e-10, 0.0, "time", "0.500 ns ± 0.000 ns"),
        (4.2e9, 0.283e9, "bytes", "4.20 GB ± 0.28 GB"),
        (3.4e6, 0.0, "energy", "3.40 MJ ± 0.00 MJ"),
        (66.333, 4.12, "mean", "66.3 ± 4.1"),
        (math.nan, math.nan, "number", "–"),
    ],
)
def test_a_mean_and_its_spread_end_at_the_same_decimal_place(
    mean: float, spread: float, kind: Kind, text: str
) -> None:
    assert format_mean(mean, spread, kind) == text


def test_texts_are_sorted_with_their_numbers_in_order() -> None:
    names = ["a10", "a9b", "a", "10", "2", "x²", "a9"]
    assert sorted(names, key=natural_order) == ["2", "10", "a", "a9", "a9b", "a10", "x²"]
    long = ["8" * 5000, "0" * 6000 + "9"]
    assert sorted(long, key=natural_order) == long[::-1]


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ((2.84, 2.6, 3.2), "2.8 times as fast as b, range 2.6 to 3.2"),
        ((0.8, 0.5, 2.0), "1.2 times as slow as b, range 0.5 to 2"),
        ((0.99, 0.9, 1.2), "about as fast as b, range 0.9 to 1.2"),
        ((0.5, 0.5, 0.5), "2 times as slow as b"),
        ((2.0,), "2 times as fast as b"),
        ((math.nan,), "–"),
    ],
)
def test_a_speed_is_at_least_one(ratios: tuple[float, ...], expected: str) -> None:
    assert format_speed(*ratios, rival="b", spread="range") == expected
