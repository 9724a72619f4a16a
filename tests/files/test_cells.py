"""Cells as typed columns, against pandas and against a search through all instants."""

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fedsim.errors import UserError
from fedsim.files import cells
from fedsim.files.cells import (
    FAR_US,
    NAT,
    RATES,
    Bounds,
    Form,
    instants,
    localize,
    numbers,
    texts,
    time_zone,
)

UTC = [  # text, what pandas reads instead
    ("2024-05-01T08:00:00+02:00", "2024-05-01T08:00:00+02:00"),
    ("2024-05-01 08:00 UTC", "2024-05-01T08:00Z"),
    ("2024-05-01 08:00:00.25 GMT", "2024-05-01T08:00:00.25Z"),
    ("20240501T080000Z", "2024-05-01T08:00Z"),
    ("2024-05-01 08:00:00 +0200", "2024-05-01T06:00Z"),
    ("2024-05-01T08:00:00.5+02", "2024-05-01T06:00:00.5Z"),
    ("2024-05-01T08:00:00+02:00[Europe/Berlin]", "2024-05-01T06:00Z"),
    ("2024-05-01T08:00:00.123456789Z", "2024-05-01T08:00:00.123456Z"),
]
LOCAL = [
    ("2024-05-01", "2024-05-01"),
    ("2024-05-01 08:00:00,500", "2024-05-01 08:00:00.5"),
    ("20240501T0800", "2024-05-01 08:00"),
    ("20240501", "2024-05-01"),
    ("20240501080001", "2024-05-01 08:00:01"),
    ("2024/5/1 8:00", "2024-05-01 08:00"),
    ("2024-05-01 8:05 PM", "2024-05-01 20:05"),
    ("2024-05-01 12:05:01 am", "2024-05-01 00:05:01"),
    (" 2024-02-29 23:59 ", "2024-02-29 23:59"),
]


@pytest.mark.parametrize(("text", "plain"), [*UTC, *LOCAL])
@pytest.mark.parametrize("others", [[], ["x", "", None]])
def test_instants_that_people_write(text: str, plain: str, others: list[str | None]) -> None:
    column = instants(pa.array([text, *others], pa.string()))
    expected = pd.Timestamp(plain)
    assert bool(column.local[0]) == (expected.tz is None)
    assert column.us[0] == expected.value // 1000
    assert column.bad.tolist() == [False, *(other == "x" for other in others)]
    assert (column.us[1:] == NAT).all()


@pytest.mark.parametrize(
    "text", ["soon", "2024-02-30", "2024-05-01T25:00", "01.05.2024 08:00", "08:00"]
)
def test_instants_that_cannot_be_read(text: str) -> None:
    assert instants(pa.array([text, "2024-05-01"])).bad.tolist() == [True, False]


@pytest.mark.parametrize(
    ("form", "right", "wrong"),
    [
        ("%d.%m.%Y %H:%M:%S", "31.12.2016 23:59:59", "31.12.2016 23:59:60"),
        ("%d/%b/%Y:%H:%M:%S %z", "01/May/2024:08:00:01 +0200", "01/May/2024:08:00:61 +0200"),
        ("%b %d %H:%M:%S", "May  1 08:01:00", "May  1 08:00:60"),
        ("%Y%m%d%H%M%S%f", "20240501101601601234", "20240501101660601234"),
    ],
)
def test_a_minute_has_sixty_seconds_in_every_form(form: str, right: str, wrong: str) -> None:
    assert instants(pa.array([wrong, right]), form=form).bad.tolist() == [True, False]


def test_instants_of_other_kinds() -> None:
    moment = pd.Timestamp("2024-05-01T08:00:00Z")
    us = moment.value // 1000
    seconds = us / 1e6
    columns: list[tuple[Any, dict[str, Any], bool]] = [
        (pa.array(["01.05.2024 08:00"]), {"form": "%d.%m.%Y %H:%M"}, True),
        (pa.array(["01.05.2024 08:00Z"]), {"form": "%d.%m.%Y %H:%MZ"}, False),
        (pa.array([seconds]), {"unit": "unix_s"}, False),
        (pa.array([str(us // 1000)]), {"unit": "unix_ms"}, False),
        (pa.array([us]), {"unit": "unix_us"}, False),
        (pa.array([45413 + 8 / 24]), {"unit": "excel"}, True),
        (pa.array([moment.to_pydatetime()], pa.timestamp("ns", "Asia/Tokyo")), {}, False),
        (pa.array([moment.tz_localize(None).to_pydatetime()], pa.timestamp("ms")), {}, True),
    ]
    for values, options, local in columns:
        column = instants(values, **options)
        assert (column.us.tolist(), column.local.tolist(), column.dated) == ([us], [local], True)
    assert instants(pa.array([moment.date()])).us[0] == us - 8 * 3600 * 10**6
    spans = instants(pa.array([timedelta(hours=1), None], pa.duration("ms")))
    assert (spans.us.tolist(), spans.dated) == ([3600 * 10**6, NAT], False)
    assert instants(pa.array([1.5, float("nan"), float("inf")]), "min").us.tolist() == [
        90 * 10**6,
        NAT,
        FAR_US,
    ]
    assert instants(pa.array(["infinity", "never", "2024-05-01"])).us[:2].tolist() == [FAR_US] * 2
    assert instants(pa.array(["1.5", "never"]), "min").us.tolist() == [90 * 10**6, FAR_US]


@pytest.mark.parametrize(
    ("kind", "integers"),
    [
        (pa.duration("s"), pa.int64()),
        (pa.timestamp("s"), pa.int64()),
        (pa.timestamp("ms", "UTC"), pa.int64()),
        (pa.date64(), pa.int64()),
        (pa.date32(), pa.int32()),
    ],
)
def test_instants_beyond_64_bits_are_refused(kind: pa.DataType, integers: pa.DataType) -> None:
    beyond = 2**31 - 1 if kind == pa.date32() else 18_446_744_073_760_000 // 86_400_000 * 86_400_000
    column = instants(pa.array([beyond, 0, None, -beyond], integers).cast(kind))
    assert column.bad.tolist() == [True, False, False, True]
    assert column.us[1:3].tolist() == [0, NAT]


@pytest.mark.parametrize(
    ("number", "given", "fits"),
    [
        (1714550400, "unix_ms", "unix_s"),
        (1714550400000, "unix_s", "unix_ms"),
        (1714550400_000_000, "unix_ms", "unix_us"),
        (1714550400_000_000_000, "unix_us", "unix_ns"),
        (1714550400, "s", "unix_s"),
        (1714550400, "unix_s", None),
        (3600, "s", None),
    ],
)
def test_the_unit_that_fits_unix_times(number: int, given: str, fits: str | None) -> None:
    column = instants(pa.array([number]), given)
    assert cells.fitting_unit(column.us, given) == fits


ZONES = [
    ("Europe/Berlin", "2024-10-27T01:00"),
    ("America/New_York", "2024-11-03T06:00"),
    ("Australia/Lord_Howe", "2024-04-06T15:00"),
    ("America/Havana", "2024-11-03T05:00"),
]


@pytest.mark.parametrize(("zone", "change"), ZONES)
@pytest.mark.parametrize("step", [7, 13, 29])
def test_a_repeated_hour_is_told_apart_by_the_order_of_the_rows(
    zone: str, change: str, step: int
) -> None:
    """The clock is read every few minutes; rows of two devices alternate."""
    begin = datetime.fromisoformat(f"{change}+00:00") - timedelta(hours=3)
    moments = [begin + timedelta(minutes=step * n) for n in range(360 // step)]
    shown = [moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for moment in moments]
    us = np.repeat(pd.DatetimeIndex(shown).as_unit("us").asi8, 2)
    devices, local = np.tile([0, 1], len(shown)), np.ones(len(us), bool)
    right = np.repeat(pd.DatetimeIndex(moments).as_unit("us").asi8, 2)
    for order in (slice(None), slice(None, None, -1)):  # Also with the last row first.
        found, skipped, _ = localize(us[order], local, ZoneInfo(zone), devices[order])
        assert not skipped.any()
        # A time is unclear only if no row before it has a later time of its hour: the first of the two is right then.
        assert (found == right[order]).all()
    order = np.random.default_rng(step).permutation(len(us))
    found, _, unclear = localize(us[order], local, ZoneInfo(zone), devices[order])
    assert (found <= right[order]).all()
    assert unclear >= (found != right[order]).sum() > 0


def test_far_and_skipped_local_times() -> None:
    given = ["2024-03-31 02:30", "9999-12-31 23:59:59", "0001-01-01"]
    column = instants(pa.array(given))
    found, skipped, unclear = localize(column.us, column.local, ZoneInfo("America/New_York"))
    assert (skipped.tolist(), unclear) == ([False] * 3, 0)
    assert found[1:].tolist() == column.us[1:].tolist()
    assert localize(column.us, column.local, ZoneInfo("Europe/Berlin"))[1][0]
    with pytest.raises(UserError, match="Mars"):
        time_zone("Mars/Olympus")


def test_numbers_and_their_units() -> None:
    forms: list[tuple[Form, str, float]] = [
        ("", "0", 0),
        ("share", "5%", 0.05),
        ("duration", "0 days 00:00:01.5", 1.5),
    ]
    for form, own, value in forms:
        text = pa.array(["1.5", " 2", "1e3", "", "-", "nan", own, None])
        values, bad = numbers(text, 2.0, form)
        np.testing.assert_array_equal(values, [3, 4, 2000, *[np.nan] * 3, value, np.nan])
        assert not bad.any()
        # A percentage or a span is no number of anything else.
        others = [other for kind, other, _ in forms if kind not in ("", form)]
        assert numbers(pa.array(["1", *others]), 2.0, form)[1].tolist() == [
            False,
            *[True] * len(others),
        ]
    assert numbers(pa.array(["1_0", "fast", "0x10", "1,5", "1"]))[1].tolist() == [True] * 4 + [
        False
    ]
    spans = pa.array([1500, None], pa.duration("ms"))
    for form, _, _ in forms:
        values, bad = numbers(spans, 60.0, form)
        assert (values[0], bad.tolist()) == (1.5, [form != "duration", False])
    # ISO 8601 writes months so; pandas takes them for minutes.
    assert numbers(pa.array(["P1M", "P1Y", "PT1M", "P1W"]), 1.0, "duration")[1].tolist() == [
        *[True] * 2,
        *[False] * 2,
    ]
    # pandas takes 04,5 for 45 s, and PT1.5H for 5 h.
    clocks = [
        "00:00:04,5",
        "1 day, 00:00:01.5",
        "PT1M1,5S",
        "1 02:00:00",
        "1, 02:00:00",
        "PT1.5H",
        "PT1H30",
        "1:2:3.4.5",
        "P",
        "PT",
    ]
    values, bad = numbers(pa.array(clocks), 1.0, "duration")
    np.testing.assert_array_equal(values, [4.5, 86_401.5, 61.5, *[93_600] * 2, *[np.nan] * 5])
    assert bad.tolist() == [False] * 5 + [True] * 5
    np.testing.assert_array_equal(numbers(pa.array([1, None]))[0], [1, np.nan])


# By SI and IEC: a bit, a byte of 8, thousands and 1024s.
@pytest.mark.parametrize(
    ("spellings", "bps"),
    [
        ("Mbps Mbit/s Mb/s Mbits/s Mbits/sec mbit/s", 1e6),
        ("MB/s MBps MByte/s Mbytes/sec", 8e6),
        ("kbit/s kbps Kbps", 1e3),
        ("kB/s KB/s KBps", 8e3),
        ("GB/s GBps", 8e9),
        ("MiB/s MiBps", 8 * 2.0**20),
        ("Kibit/s", 1024.0),
        ("bps bit/s b/s", 1.0),
        ("B/s Bps", 8.0),
    ],
)
def test_spellings_of_rates(spellings: str, bps: float) -> None:
    assert {RATES[spelling] for spelling in spellings.split()} == {bps}


def test_names_stay_text() -> None:
    codes, words = texts(pa.array(["007", "7", " a ", "", "nan", None, "NA", "7"]))
    assert (codes.tolist(), words) == ([0, 1, 2, -1, -1, -1, 3, 1], ["007", "7", "a", "NA"])
    codes, words = texts(pa.array([80.0, float("nan"), None, 15.5]))
    assert (codes.tolist(), words) == ([0, -1, -1, 1], ["80", "15.5"])
    assert texts(pa.array(["On", "on", "OFF"]).dictionary_encode(), lower=True)[0].tolist() == [
        0,
        0,
        1,
    ]


def test_bounds_of_numbers() -> None:
    share = Bounds(0, 1, open_low=True)
    assert share.contain(np.array([0, 0.5, 1, np.nan, np.inf])).tolist() == [
        False,
        True,
        True,
        False,
        False,
    ]
    assert str(share) == "more than 0 and at most 1"
