"""Power of the phases from readings of each program, against the watts that the readings were made with."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedsim.calibration import calibrate
from fedsim.calibration.log import read_log
from fedsim.calibration.power import read_power
from fedsim.errors import UserError
from fedsim.scenario.loading import load_scenario_dict
from tests.calibration.worlds import LOG, few_simulations, instants, timed

# Watts of the two phones: idle, downloading, computing and uploading.
WATTS = {"007": (5.0, 6.0, 45.0, 8.0), "7": (3.0, 3.5, 23.0, 4.0)}


def _readings(client: str, gpus: int = 1) -> pd.DataFrame:
    """The power of a client every 0.25 s."""
    of = LOG[LOG["client"] == client]
    seconds = np.arange(0, of["end"].max() + 4, 0.25)
    # Every mark of a dispatch begins the next phase, and its end the idle one.
    marks = of[["start", "downloaded", "computed", "end"]].to_numpy().ravel()
    phase = np.searchsorted(marks, seconds, side="right") % 4
    watts = np.array(WATTS[client])[phase] / gpus
    rows = {"time": np.repeat(seconds, gpus), "index": np.tile(np.arange(gpus), len(seconds))}
    return pd.DataFrame(rows | {"power": np.repeat(watts, gpus)})


def _nvidia(readings: pd.DataFrame) -> str:
    stamps = instants(readings["time"]).dt.strftime("%Y/%m/%d %H:%M:%S.%f").str[:-3]
    rows = zip(stamps, readings["index"], readings["power"], strict=True)
    lines = [f"{stamp}, {index}, {power:.2f} W" for stamp, index, power in rows]
    return "\n".join(["timestamp, index, power.draw [W]", *lines, f"{stamps.iloc[-1]}, 0, [N/A]"])


def _tegrastats(readings: pd.DataFrame) -> str:
    stamps = instants(readings["time"]).dt.strftime("%m-%d-%Y %H:%M:%S")
    whole = readings["time"] % 1 == 0
    return "\n".join(
        f"{stamp} RAM 2448/7337MB (lfb 4x4MB) SWAP 0/3668MB (cached 0MB) CPU [0%@729,off] GPU@36C"
        f" VDD_IN {1000 * watts:.0f}mW/{1000 * watts:.0f}mW VDD_CPU_GPU_CV 4mW/4mW VDD_SOC 0mW/0mW"
        for stamp, watts in zip(stamps[whole], readings["power"][whole], strict=True)
    )


def _codecarbon(client: str) -> str:
    """A row per fit, as of a tracker that is started and stopped around it, and one per time between."""
    of = LOG[LOG["client"] == client]
    idle, _, computing, _ = WATTS[client]
    spans = [(row.downloaded, row.computed, computing) for row in of.itertuples()]
    ends = zip(of["end"], of["start"].shift(-1).fillna(of["end"].max() + 4), strict=True)
    spans += [(end, start, idle) for end, start in ends]
    rows = pd.DataFrame(sorted(spans), columns=["from", "timestamp", "watts"])
    seconds = rows["timestamp"] - rows["from"]
    return pd.DataFrame(
        {
            "timestamp": instants(rows["timestamp"]).dt.tz_localize(None),
            "duration": seconds - 0.002,
            "emissions": 0.0,
            "energy_consumed": rows["watts"] * (seconds - 0.002) / 3.6e6,
        }
    ).to_csv(index=False)


POWER = {
    "nvidia-smi": (lambda client: _nvidia(_readings(client)), True),
    "nvidia-smi of two GPUs": (lambda client: _nvidia(_readings(client, 2)), True),
    "tegrastats": (lambda client: _tegrastats(_readings(client)), True),
    "CodeCarbon": (_codecarbon, False),
}


@pytest.mark.parametrize(("text", "has_transfers"), POWER.values(), ids=POWER)
@few_simulations(2)
def test_power_of_each_phase(
    text: Callable[[str], str], has_transfers: bool, tmp_path: Path
) -> None:
    timed(instants).to_csv(tmp_path / "log.csv", index=False)
    for client in WATTS:
        (tmp_path / f"{client}.csv").write_text(text(client))
    scenario = load_scenario_dict(
        {
            "task": {"name": "timing", "clients": 3, "size": "1MB"},
            "training": {"local_steps": 20},
            "devices": {
                "compute": {"name": "values", "step": "1s"},
                "network": {"name": "static", "down": "8Mbps", "up": "4Mbps"},
            },
            "server": {"selection": {"name": "uniform", "cohort": 3}},
            "stop": {"rounds": 3},
        },
        tmp_path,
    )
    tables = [tmp_path / f"{client}.csv" for client in WATTS]
    result = calibrate(tmp_path / "log.csv", tmp_path / "bundle", scenario, power=tables)
    table = np.array(list(WATTS.values()))
    above = (table[:, 1:] - table[:, :1]).mean(axis=0)
    right = dict(zip(("download_w", "compute_w", "upload_w"), above, strict=True))
    if not has_transfers:
        right = {"compute_w": right["compute_w"]}
    assert result.power == pytest.approx({**right, "idle_w": table[:, 0].mean()}, rel=0.15)
    assert result.power["compute_w"] == pytest.approx(right["compute_w"], rel=0.02)
    assert result.scenario is not None
    energy = result.scenario["devices"]["energy"]
    assert {name: energy[name] for name in right} == {name: result.power[name] for name in right}
    assert any("read as UTC" in flag for flag in result.flags)


@pytest.mark.parametrize(
    ("name", "share", "doubted"),
    [("power_mW", 1.0, False), ("power", 1.0, True), ("power_mW", 0.8, True), ("power", 0.2, True)],
)
def test_milliwatts_by_name_or_doubted(
    name: str, share: float, doubted: bool, tmp_path: Path
) -> None:
    """Of the readings, a share is in mW, the rest in W."""
    LOG.to_csv(tmp_path / "log.csv", index=False)
    for client in WATTS:
        readings = _readings(client).drop(columns="index")
        readings.loc[: int(share * len(readings)), "power"] *= 1000
        readings.rename(columns={"power": name}).to_csv(tmp_path / f"{client}.csv", index=False)
    watts, flags = read_power(
        [tmp_path / f"{client}.csv" for client in WATTS], read_log(tmp_path / "log.csv")
    )
    if share == 1:
        right = np.mean([idle for idle, *_ in WATTS.values()])
        assert watts["idle_w"] == pytest.approx(right * (1000 if doubted else 1), rel=0.02)
    assert any("call the column power_mw" in flag for flag in flags) == doubted


@pytest.mark.parametrize("form", ["time of the reading", "duration", "instants"])
def test_readings_that_are_means_of_the_time_before(form: str, tmp_path: Path) -> None:
    """Those that cross the border of a phase belong to none; a phase without another one is flagged."""
    client = "7"
    of = LOG[LOG["client"] == client]
    marks = of[["start", "downloaded", "computed", "end"]].to_numpy().ravel()
    grid = np.arange(0, of["end"].max() + 4, 1e-3)
    watts = np.array(WATTS[client])[np.searchsorted(marks, grid, side="right") % 4]
    size = 5000 if form == "instants" else 200
    whole = len(grid) // size * size
    means = pd.DataFrame({"time": grid[:whole].reshape(-1, size)[:, -1] + 1e-3})
    means["power"] = watts[:whole].reshape(-1, size).mean(axis=1)
    if form == "duration":
        means["duration"] = size / 1000
    LOG.to_csv(tmp_path / "log.csv", index=False)
    means.to_csv(tmp_path / f"{client}.csv", index=False)
    result, flags = read_power([tmp_path / f"{client}.csv"], read_log(tmp_path / "log.csv"))
    blurred = any("Phases shorter than the time between power readings" in each for each in flags)
    assert blurred == (form == "instants")
    if not blurred:
        right = np.array(WATTS[client]) - [0, *[WATTS[client][0]] * 3]
        names = ("idle_w", "download_w", "compute_w", "upload_w")
        assert [result[name] for name in names] == pytest.approx(right.tolist(), rel=0.01)


def test_a_reading_that_begins_before_the_first_dispatch_is_not_idle(tmp_path: Path) -> None:
    """Means of 10 s: of 2 W idle, and of 50 W for the steps, from 14 s to 58 s; two cross the borders."""
    log = "client,start,downloaded,computed,end\na,12,14,58,60\n"
    (tmp_path / "log.csv").write_text(log, encoding="utf-8")
    readings = {10: 2, 20: 39.6, 30: 50, 40: 50, 50: 50, 60: 44, 70: 2, 80: 2}
    text = "".join(f"{time},{watts}\n" for time, watts in readings.items())
    (tmp_path / "a.csv").write_text(f"time,power\n{text}", encoding="utf-8")
    watts, _ = read_power([tmp_path / "a.csv"], read_log(tmp_path / "log.csv"))
    assert (watts["compute_w"], watts["idle_w"]) == (48, 2)


def test_different_readings_at_one_time_count_as_their_mean(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("client,start,end,steps\na,10,20,1\n", encoding="utf-8")
    readings = "".join(f"{second},{watts}\n" for second in range(11, 20) for watts in (40, 60))
    (tmp_path / "a.csv").write_text(f"time,power\n{readings}", encoding="utf-8")
    watts, flags = read_power([tmp_path / "a.csv"], read_log(tmp_path / "log.csv"))
    assert watts == {"compute_w": 50}
    assert any(each.startswith("9 times with different") for each in flags)


@pytest.mark.parametrize("count", ["rows", "GPUs"])
def test_an_index_of_rows_is_none_of_parts(count: str, tmp_path: Path) -> None:
    """pandas and polars call it so."""
    (tmp_path / "log.csv").write_text("client,start,end,steps\na,10,20,1\n", encoding="utf-8")
    rows = [(second, watts) for second in range(11, 20, 2) for watts in (40, 60)]
    rows = [(second + n % 2 * (count == "rows"), watts) for n, (second, watts) in enumerate(rows)]
    text = [
        f"{n if count == 'rows' else n % 2},{each[0]},{each[1]}\n" for n, each in enumerate(rows)
    ]
    (tmp_path / "a.csv").write_text("index,time,power\n" + "".join(text), encoding="utf-8")
    watts, _ = read_power([tmp_path / "a.csv"], read_log(tmp_path / "log.csv"))
    assert watts == {"compute_w": 50 if count == "rows" else 100}


def test_a_column_of_nvidia_smi_changes_no_name(tmp_path: Path) -> None:
    text = "client,start,end,power.draw [W]\nphone[1],0,9,5 W\nphone[2],0,9,[N/A]\n"
    (tmp_path / "log.csv").write_text(text, encoding="utf-8")
    assert read_log(tmp_path / "log.csv").clients() == ["phone[1]", "phone[2]"]


BAD_POWER = {
    "no header": (
        "007.csv",
        "2026/05/01 08:00:00.000, 0, 45.2\n" * 2,
        "007.csv: does not begin with the names of its columns, but with '2026/05/01 08:00:00.000'",
    ),
    "no power": ("007.csv", "time,load\n1,2\n", "has no power readings|no power readings"),
    "two columns of power": (
        "007.csv",
        "time,power,power_mw\n6,2,2000\n",
        "007.csv: has the columns power and power_mw",
    ),
    "another clock": (
        "007.csv",
        "time,power\n2031-05-01T08:00:00Z,2\n",
        "no power reading lies in a dispatch of its client\n  give each file the name",
    ),
    "no known power": (
        "a.csv",
        "time,power.draw [W]\n6,[N/A]\n",
        "no reading with a time and a power",
    ),
    "another client": ("x.csv", "time,power\n6,2\n", "no power reading lies in a dispatch"),
    "negative": ("007.csv", "time,power\n6,-2\n", "007.csv:2: power is '-2'"),
    "absurd": ("007.csv", "time,power\n6,2\n7,1e308\n", "007.csv:3: power is '1e308'\n  .*at most"),
    "energy in no time": (
        "007.csv",
        "time,energy_consumed,duration\n6,1e300,1e-300\n",
        "007.csv:2: energy_consumed is '1e300'",
    ),
    "a share": ("007.csv", "time,power\n6,2\n7,600%\n", "007.csv:3: power is '600%'"),
    "tegrastats that is cut": (
        "007.csv",
        "05-01-2024 08:00:00 RAM 1/2MB GPU 3/3 CPU 4/4\n05-01-2024 08:00:01 RAM 1/2MB GPU 3/3 CP\n",
        "007.csv:2: the line has the power of GPU, not of",
    ),
    "tegrastats with a day that is none": (
        "007.csv",
        "05-01-2024 08:00:00 RAM 1/2MB GPU 3/3\n05-32-2024 08:00:01 RAM 1/2MB GPU 3/3\n",
        "007.csv:2: time is '2024-05-32T08:00:01'",
    ),
    "tegrastats with absurd power": (
        "007.csv",
        f"05-01-2024 08:00:00 RAM 1/2MB GPU 3/3\n05-01-2024 08:00:01 RAM 1/2MB GPU {'9' * 5000}/3\n",
        "007.csv:2: power is 'inf'",
    ),
    "a clock that was never set": (
        "007.csv",
        "time,power\n1970-01-01T00:00:06Z,2\n",
        "007.csv: has no reading with a time and a power\n  .*before 1971",
    ),
    "tegrastats without times": ("007.csv", "RAM 1/2MB VDD_IN 3mW/3mW\n", "007.csv:1: the line"),
}


@pytest.mark.parametrize(("name", "text", "message"), BAD_POWER.values(), ids=BAD_POWER)
def test_power_that_fits_no_dispatch_is_refused(
    name: str, text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    LOG.to_csv(tmp_path / "log.csv", index=False)
    with pytest.raises(UserError, match=message):
        calibrate(tmp_path / "log.csv", tmp_path / "bundle", power=[tmp_path / name])


def test_readings_of_clients_that_the_log_does_not_have_are_counted(tmp_path: Path) -> None:
    readings = pd.concat([_readings(client).assign(client=client) for client in WATTS])
    other = readings.assign(client="other")
    pd.concat([readings, other]).to_csv(tmp_path / "power.csv", index=False)
    LOG.to_csv(tmp_path / "log.csv", index=False)
    _, flags = read_power([tmp_path / "power.csv"], read_log(tmp_path / "log.csv"))
    assert any("power readings of clients that the log does not have" in flag for flag in flags)
