"""Importing tables: values, what is dropped and counted, and what is refused."""

import itertools
import re
import tracemalloc
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedsim.errors import UserError
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.eligibility import INITIAL
from tests.traces.helpers import import_, intervals, put, refused

US = 1_000_000


def test_all_missing_units_are_reported_together(tmp_path: Path) -> None:
    text = "device,start,end,step_time,down,up,rtt\na,1,2,3,4,5,6\n"
    message = refused("table", put(tmp_path / "a.csv", text), compute_unit="s")
    assert re.findall(r"columns? (.*) is not|-s (\w+)=", message) == [
        ("start and end", ""),
        ("", "time_unit"),
        ("down and up", ""),
        ("", "rate_unit"),
        ("rtt", ""),
        ("", "latency_unit"),
    ]
    dated = "device,start,end,rtt\na,2024-05-01T00:00Z,2024-05-01T01:00Z,3\n"
    assert "time_unit" not in refused("table", put(tmp_path / "b.csv", dated))


def test_a_table_with_very_many_columns(tmp_path: Path) -> None:
    """The time is proportional to their number: a second, not minutes."""
    names = ",".join(f"c{n}" for n in range(20_000))
    path = put(tmp_path / "a.csv", f"device,start,end,{names}\na,0,5{20_000 * ',1'}\n")
    assert import_("table", path, time_unit="s").device_ids.to_pylist() == ["a"]


def test_profiles_in_a_second_file(tmp_path: Path) -> None:
    first = put(tmp_path / "a.csv", "device,start,end,kind\na,0,10,pc\nb,0,5,\n")
    second = put(
        tmp_path / "p.csv",
        "Device, model ,sample_time,step_time,ram_bytes,down,up,rtt,loss,radio\n"
        "b,M1,20,,4000000000,8,2,50,0.5,wifi\n"
        "\n"
        "a,,,5,,4,,,,\n"
        "c,M2,,,,,,,,\n",
    )
    units = {"time_unit": "s", "compute_unit": "ms", "rate_unit": "Mbps", "latency_unit": "ms"}
    bundle = import_("table", first, second, **units)
    assert bundle.device_ids.to_pylist() == ["a", "b", "c"]
    assert bundle.devices.column("model").to_pylist() == [None, "M1", "M2"]
    assert bundle.devices.column("kind").to_pylist() == ["pc", None, None]
    assert bundle.manifest.counts["never_available"] == 1
    assert [
        (r["device_id"], r["sample_s"], r["step_fixed_s"], r["ram_bytes"], r["phase"])
        for r in bundle.tables["compute"].to_pylist()
    ] == [("a", 0.0, 0.005, None, "training"), ("b", 0.02, 0.0, 4_000_000_000, "training")]
    assert [
        (r["device_id"], r["direction"], r["bandwidth_bps"], r["rtt_s"], r["loss"], r["radio"])
        for r in bundle.tables["network"].to_pylist()
    ] == [
        ("a", "down", 4e6, None, None, None),
        ("b", "down", 8e6, 0.05, 0.5, "wifi"),
        ("b", "up", 2e6, 0.05, 0.5, "wifi"),
    ]


def test_an_epoch_of_ones_own_and_fractions_of_a_second(tmp_path: Path) -> None:
    text = "device,start,end\na,2024-05-01T00:00:00.000001Z,2024-05-01 00:00:02+00:00\n"
    bundle = import_("table", put(tmp_path / "a.csv", text), epoch="2024-05-01T02:00:00+02:00")
    assert intervals(bundle) == {"a": [(1, 2 * US)]}
    assert bundle.manifest.epoch == "2024-05-01T02:00:00+02:00"


@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("Europe/Berlin", "2024-03-31T01:00"),
        ("Europe/Berlin", "2024-10-27T01:00"),
        ("America/New_York", "2024-03-10T07:00"),
        ("America/New_York", "2024-11-03T06:00"),
        ("Australia/Lord_Howe", "2024-04-06T15:00"),  # by half an hour
        ("America/Sao_Paulo", "2018-11-04T03:00"),  # skips midnight
        ("America/Havana", "2024-11-03T05:00"),  # repeats midnight
        ("Pacific/Apia", "2011-12-30T10:00"),  # skips a day
    ],
)
def test_local_times_around_a_change_of_the_clocks(tmp_path: Path, zone: str, change: str) -> None:
    """The clocks of the zone are read every 10 minutes; each local time is the first moment at which they showed it."""
    changed = datetime.fromisoformat(f"{change}+00:00")
    moments = [changed + timedelta(minutes=10 * step) for step in range(-300, 300)]
    shown: dict[str, datetime] = {}
    first_of_day: dict[str, datetime] = {}
    for moment in moments:
        local = moment.astimezone(ZoneInfo(zone)).isoformat()[:16]
        shown.setdefault(local, moment)
        first_of_day.setdefault(local[:10], moment)
    day = list(first_of_day)[1]  # The first day is not complete.
    locals_ = [local for local in shown if local[:10] >= day]
    last = locals_[-1]
    rows = [f"{local},{local},{last}" for local in locals_[:-1]]
    bundle = import_(
        "table", put(tmp_path / "a.csv", "\n".join(["device,start,end", *rows, ""])), time_zone=zone
    )
    epoch = first_of_day[day]
    assert datetime.fromisoformat(str(bundle.manifest.epoch)) == epoch
    assert intervals(bundle) == {
        local: [tuple((shown[end] - epoch) // timedelta(microseconds=1) for end in (local, last))]
        for local in locals_[:-1]
    }


def test_devices_that_only_some_files_have_are_named(tmp_path: Path) -> None:
    sessions = put(tmp_path / "sess.csv", "device,start,end\nGW-1,0,10\nph-1,0,5\nx,0,5\n")
    more = put(tmp_path / "more.csv", "device,start,end\ny,0,10\n")
    devices = put(tmp_path / "devs.csv", "device,down\ngw1,1\nph1,1\nx,1\ny,1\n")
    units = {"time_unit": "s", "rate_unit": "Mbps"}
    caveats = import_("table", sessions, more, devices, **units).manifest.caveats
    assert "4 devices not in all files, the first is 'GW-1'" in caveats
    caveats = import_("table", sessions, more, time_unit="s").manifest.caveats
    assert not [caveat for caveat in caveats if "not in all files" in caveat]


@pytest.mark.parametrize(
    ("device", "rate", "message"),
    [
        ("\1a", "1", r"online\.csv:2: device is '.x01a', which contains a control character"),
        ("a", "1e308", "down is '1e308'"),
    ],
)
def test_ids_that_control_and_rates_that_overflow_are_refused(
    tmp_path: Path, device: str, rate: str, message: str
) -> None:
    sessions = put(tmp_path / "online.csv", f"device,start,end\n{device},0,10\nb,0,5\n")
    devices = put(tmp_path / "devices.csv", f"device,down\na,{rate}\nb,1\n")
    with pytest.raises(UserError, match=message):
        import_("table", sessions, devices, time_unit="s", rate_unit="Mbps")


def windows(bundle: TraceBundle) -> dict[str, tuple[int, int] | None]:
    """Window of each valid device in seconds."""
    return {
        row["device_id"]: (row["window_start_us"] // US, row["window_end_us"] // US)
        if row["valid"]
        else None
        for row in bundle.devices.to_pylist()
    }


def spans(bundle: TraceBundle) -> dict[str, list[tuple[int, int]]]:
    """Intervals in seconds."""
    return {
        name: [(start // US, end // US) for start, end in rows]
        for name, rows in intervals(bundle).items()
    }


SWITCHES = """\
device,time,state
a,10,on
a,20,off
a,25,off
a,30,ON
a,50,on
b,5,off
b,40,on
c,7,on
"""


def test_a_log_of_one_switch(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", SWITCHES)
    bundle = import_("table", path, time_unit="s")
    # All devices share the window of the log, from 5 s to 50 s; each is unknown before its first row.
    assert spans(bundle) == {"a": [(10, 20), (30, 50)], "b": [(40, 50)], "c": [(7, 50)]}
    assert windows(bundle) == {"a": (10, 50), "b": (5, 50), "c": (7, 50)}
    assert bundle.numpy("devices", "period_us").tolist() == [45 * US] * 3
    counts = {name: count for name, count in bundle.manifest.counts.items() if count}
    assert counts == {"repeated_states": 2}
    assert bundle.manifest.horizon_us == 50 * US
    assert bundle.manifest.eligibility is not None
    assert bundle.manifest.eligibility.expression == "state"
    assert any("the log's last row" in caveat for caveat in bundle.manifest.caveats)


PHONES = """\
device,time,state,charging,Network,Battery-level,model
a,0,on,no,wifi,50,P1
a,10,,yes,,,
a,20,,,cell,,
a,30,off,,wifi,19.5,
a,40,on,,,,
a,60,,no,,,
"""


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("state == on and charging", [(10, 30), (40, 60)]),
        ("state == on and charging and network == WiFi", [(10, 20), (40, 60)]),
        ("network != wifi or not state", [(20, 40)]),
        ("state and (network == cell or not charging)", [(0, 10), (20, 30)]),
        ("battery_level >= 20", [(0, 30)]),
    ],
)
def test_rules_over_several_states(
    tmp_path: Path, rule: str, expected: list[tuple[int, int]]
) -> None:
    wide = put(tmp_path / "a.csv", PHONES)
    bundle = import_("table", wide, time_unit="s", online=rule)
    assert spans(bundle) == {"a": expected}
    assert bundle.devices.column("model").to_pylist() == ["P1"]
    # The same log with one change per row, as Parquet.
    header, *rows = (line.split(",") for line in PHONES.splitlines())
    changes = [
        ("a", int(row[1]), name, cell)
        for row in rows
        for name, cell in zip(header[2:-1], row[2:-1], strict=True)
        if cell
    ]
    columns = dict(zip(("device", "time", "key", "state"), zip(*changes, strict=True), strict=True))
    pq.write_table(pa.table({name: list(cells) for name, cells in columns.items()}), tmp_path / "b")
    assert spans(import_("table", tmp_path / "b", time_unit="s", online=rule)) == {"a": expected}


def test_timestamps_and_links_of_the_same_devices(tmp_path: Path) -> None:
    log = put(
        tmp_path / "log.csv",
        "device,time,online\na,2024-05-01T08:00:00+02:00,true\na,2024-05-01T08:30:00+02:00,false\n",
    )
    links = put(tmp_path / "links.csv", "device,down\na,5\nb,6\n")
    bundle = import_("table", log, links, rate_unit="Mbps", window="1d")
    assert spans(bundle) == {"a": [(8 * 3600, 8 * 3600 + 1800)], "b": []}
    assert bundle.manifest.epoch == "2024-05-01T00:00:00+02:00"
    assert windows(bundle)["b"] is None
    assert bundle.tables["network"].column("bandwidth_bps").to_pylist() == [5e6, 6e6]


def test_heartbeats_and_links_of_the_same_devices(tmp_path: Path) -> None:
    log = put(tmp_path / "log.csv", "device,time,access_point\na,0,x\na,1,y\n")
    links = put(tmp_path / "links.csv", "device,down\na,5\nb,6\n")
    bundle = import_("table", log, links, rate_unit="Mbps", time_unit="s", hold="5s")
    assert spans(bundle) == {"a": [(0, 6)], "b": []}
    assert windows(bundle) == {"a": (0, 6), "b": None}
    message = refused(
        "table", put(tmp_path / "b.csv", "device,time\na,0\na,\n"), time_unit="s", hold="5s"
    )
    assert ":3: has a state without a time" in message


RULES: dict[str, Callable[[bool, bool, bool], bool]] = {
    "a": lambda a, b, c: a,
    "not a": lambda a, b, c: not a,
    "a and b": lambda a, b, c: a and b,
    "a or not b": lambda a, b, c: a or not b,
    "a and (b or c) ": lambda a, b, c: a and (b or c),
    "not (a or b) or c": lambda a, b, c: not (a or b) or c,
}


@pytest.mark.parametrize("seed", range(18))
def test_random_logs_agree_with_sampling(tmp_path: Path, seed: int) -> None:
    """The state at every instant between two times is looked up in the rows, and unknown states are tried out."""
    rng = np.random.default_rng(seed)
    rule = list(RULES)[seed % len(RULES)]
    rows = [
        (
            str(rng.integers(4)),
            int(rng.integers(-5, 25)),
            *rng.choice(["on", "off", ""], 3, p=[0.3, 0.3, 0.4]),
        )
        for _ in range(30)
    ]
    window = int(rng.integers(5, 30)) if seed % 2 else None
    initial = {key: str(rng.choice(["on", "off"])) for key in "abc" if rng.random() < seed % 3 / 3}
    text = "device,time,a,b,c\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)
    bundle = import_(
        "table",
        put(tmp_path / "a.csv", text),
        time_unit="s",
        online=rule,
        initial=initial,
        window=None if window is None else f"{window}s",
    )
    shown, observed = spans(bundle), windows(bundle)
    begin = 0 if window or initial else max(min(row[1] for row in rows), 0)
    end = window or max(row[1] for row in rows)
    compared = 0
    for device in shown:
        mine = sorted((row for row in rows if row[0] == device), key=lambda row: row[1])
        values = []
        for instant in np.arange(end) + 0.5:
            known = dict(initial)
            for row in mine:
                if row[1] <= instant:
                    known |= {key: cell for key, cell in zip("abc", row[2:], strict=True) if cell}
            values.append(
                {
                    RULES[rule](*(word == "on" for word in words))
                    for words in itertools.product(
                        *([known[key]] if key in known else ["on", "off"] for key in "abc")
                    )
                }
            )
        undecided = [second for second, value in enumerate(values) if len(value) > 1]
        first = max(undecided[-1] + 1 if undecided else 0, begin)
        span = observed[device]
        assert span == ((first, len(values)) if first < len(values) else None)
        for second in range(first, len(values)):
            inside = any(start <= second < end for start, end in shown[device])
            assert {inside} == values[second]
            compared += 1
    assert compared


@pytest.mark.real_data
@pytest.mark.parametrize(
    "rule", ["charging and network == wifi and lock", "network in (wifi, 4g) and not screen"]
)
def test_flashs_events_as_a_log(real_traces: Path, tmp_path: Path, rule: str) -> None:
    """The importer of FLASH's format, which has a different algorithm, finds the same intervals."""
    file = real_traces / "format_fixtures" / "flash_state_traces.json"
    flash = import_("flash", file, eligibility=rule)
    rows = [
        f"{row['device_id']},{row['time_us']},{row['key']},{row['value']}\n"
        for row in flash.tables["device_events"].to_pylist()
    ]
    log = put(tmp_path / "log.csv", "device,time,key,state\n" + "".join(rows))
    bundle = import_("table", log, time_unit="us", online=rule, initial=INITIAL)
    assert sum(map(len, intervals(flash).values())) > 10
    assert intervals(bundle) == intervals(flash)


def test_many_keys_take_little_memory_and_different_spellings_are_one(tmp_path: Path) -> None:
    rows = [f"a,{n},k{n},{n % 2}" for n in range(4000)]
    rows += ["a,1,Screen On,1", "a,5,screen_on,0", "a,9,screen on,1"]
    log = put(tmp_path / "log.csv", "\n".join(["device,time,key,state", *rows]))
    tracemalloc.start()
    bundle = import_("table", log, time_unit="s", online="screen_on")
    assert tracemalloc.get_traced_memory()[1] < 4000 * 4000
    tracemalloc.stop()
    assert intervals(bundle)["a"] == [(1_000_000, 5_000_000), (9_000_000, 3_999_000_000)]
    message = refused("table", log, time_unit="s")
    assert "k10: 0; k11: 1; and 3,989 other states)" in message


def test_durations_beside_dates_are_no_times_from_1970_on(tmp_path: Path) -> None:
    columns = {
        "device": ["a", "b"],
        "start": [datetime(2024, 5, 1, 8), datetime(2024, 5, 1, 9)],
        "end": [timedelta(hours=1), timedelta(hours=2)],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    message = refused("table", tmp_path / "a.parquet", time_zone="UTC")
    assert "start has dates, end has times without one" in message
    given = {"time_zone": "UTC", "columns": {"duration": "end"}}
    bundle = import_("table", tmp_path / "a.parquet", **given)
    assert intervals(bundle)["b"] == [(9 * 3600 * US, 11 * 3600 * US)]
