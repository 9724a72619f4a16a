"""Logs of changes of states: logs whose answer is known by hand, and random ones sampled by brute force."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedsim.traces.bundle import TraceBundle
from fedsim.traces.eligibility import INITIAL
from tests.traces.helpers import import_, intervals, put

US = 1_000_000


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
    # The last row of a repeats its state: it was observed until then. That of b opens an interval without length.
    assert spans(bundle) == {"a": [(10, 20), (30, 50)], "b": [], "c": []}
    assert windows(bundle) == {"a": (10, 50), "b": (5, 40), "c": None}
    counts = {name: count for name, count in bundle.manifest.counts.items() if count}
    assert counts == {
        "repeated_states": 2,
        "not_observed": 1,
        "open_at_end": 1,
        "never_available": 1,
    }
    assert bundle.manifest.horizon_us == 50 * US
    assert bundle.manifest.eligibility is not None
    assert bundle.manifest.eligibility.expression == "state"
    assert any("until its last row" in caveat for caveat in bundle.manifest.caveats)


def test_the_window_ends_the_last_state(tmp_path: Path) -> None:
    bundle = import_("table", put(tmp_path / "a.csv", SWITCHES), time_unit="s", window="45s")
    assert spans(bundle) == {"a": [(10, 20), (30, 45)], "b": [(40, 45)], "c": [(7, 45)]}
    assert windows(bundle) == {"a": (10, 45), "b": (5, 45), "c": (7, 45)}
    assert bundle.manifest.counts["after_window"] == 1
    state = {"state": "on"}
    given = import_("table", tmp_path / "a.csv", time_unit="s", window="45s", initial=state)
    assert spans(given) == {"a": [(0, 20), (30, 45)], "b": [(0, 5), (40, 45)], "c": [(0, 45)]}
    assert set(windows(given).values()) == {(0, 45)}
    # Rows a,10 and a,25 and c,7 change nothing any more; a,50 is outside.
    assert given.manifest.counts["repeated_states"] == 3


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
    assert spans(bundle) == {"a": [(6 * 3600, 6 * 3600 + 1800)], "b": []}
    assert bundle.manifest.epoch == "2024-05-01T00:00:00+00:00"
    assert windows(bundle)["b"] is None
    assert bundle.tables["network"].column("bandwidth_bps").to_pylist() == [5e6, 6e6]


RULES: dict[str, Callable[[bool, bool, bool], bool]] = {
    "a": lambda a, b, c: a,
    "not a": lambda a, b, c: not a,
    "a and b": lambda a, b, c: a and b,
    "a or not b": lambda a, b, c: a or not b,
    "a and (b or c) ": lambda a, b, c: a and (b or c),
    "not (a or b) or c": lambda a, b, c: not (a or b) or c,
}


@pytest.mark.parametrize("seed", range(40))
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
    compared = 0
    for device in shown:
        mine = sorted((row for row in rows if row[0] == device), key=lambda row: row[1])
        values = []
        for instant in np.arange(window or mine[-1][1]) + 0.5:
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
        first = undecided[-1] + 1 if undecided else 0
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
