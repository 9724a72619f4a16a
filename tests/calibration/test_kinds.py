"""Each kind of log that people hold: the value that pandas computes, the flag that names a doubt, or the refusal."""

import gzip
import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from fedsim.calibration import Calibration, calibrate
from fedsim.cli import cli
from fedsim.errors import UserError
from fedsim.scenario.loading import load_scenario_dict
from fedsim.traces.bundle import TraceBundle
from tests.calibration.worlds import few_simulations

TIMES = ["start", "downloaded", "computed", "end"]


def _truth(rounds: int = 8) -> pd.DataFrame:
    """Rounds of three clients; 007 and 7 are two of them."""
    generator = np.random.default_rng(7)
    rows, start = [], 3.217
    for number in range(rounds):
        ends = []
        for client, step_s in (("007", 0.1), ("7", 0.6), ("phone", 0.2)):
            marks = start + np.cumsum([1.031, 20 * step_s * generator.uniform(0.9, 1.1), 2.057])
            rows.append((client, start, *marks.round(3), 20, 1_000_000, 1_000_000, number))
            ends.append(marks[-1])
        start = round(max(ends) + 5.011, 3)
    columns = ["client", *TIMES, "steps", "bytes_down", "bytes_up", "round"]
    return pd.DataFrame(rows, columns=columns)


TRUTH = _truth()
STEP_S = ((TRUTH["computed"] - TRUTH["downloaded"]) / 20).groupby(TRUTH["client"]).mean()
RATE_BPS = (8e6 / (TRUTH["downloaded"] - TRUTH["start"])).groupby(TRUTH["client"]).mean()


def _timed(convert: Callable[[pd.Series], pd.Series], **columns: object) -> pd.DataFrame:
    return TRUTH.assign(**{name: convert(TRUTH[name]) for name in TIMES}, **columns)


def _instants(seconds: pd.Series) -> pd.Series:
    return pd.to_datetime(1_714_550_400 + seconds, unit="s", utc=True).dt.round("ms")


def _parquet(frame: pd.DataFrame, path: Path) -> None:
    frame.to_parquet(path, index=False)


def _csv(frame: pd.DataFrame, path: Path, **options: object) -> None:
    frame.to_csv(path, index=False, **options)


def _gz(frame: pd.DataFrame, path: Path) -> None:
    path.write_bytes(gzip.compress(frame.to_csv(index=False).encode()))


def _jsonl(frame: pd.DataFrame, path: Path) -> None:
    frame.to_json(path, orient="records", lines=True)


def _feather(frame: pd.DataFrame, path: Path) -> None:
    pyarrow.feather.write_feather(frame, path)


def _nested(frame: pd.DataFrame, path: Path) -> None:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    table = table.append_column("metrics", pa.array([[0.1, 0.2]] * len(frame)))
    pq.write_table(table.append_column("tags", pa.array([{"a": 1}] * len(frame))), path)


def _text(frame: pd.DataFrame, form: str) -> pd.DataFrame:
    stamps = {name: frame[name].dt.strftime(form).str[:-3] for name in TIMES}
    return frame.assign(**stamps)


READ = {
    "seconds": ("log.csv", TRUTH, _csv),
    "semicolons": ("log.csv", TRUTH, lambda frame, path: _csv(frame, path, sep=";")),
    "ending .log": ("server.log", TRUTH, _csv),
    "gz": ("log.csv.gz", TRUTH, _gz),
    "JSON lines": ("log.jsonl", TRUTH, _jsonl),
    "Feather": ("log.feather", TRUTH, _feather),
    "nested columns": ("log.parquet", TRUTH, _nested),
    "other spellings": (
        "log.csv",
        TRUTH.rename(columns={"client": "Device ID", "start": "Dispatched", "end": "arrived"}),
        _csv,
    ),
    "timedeltas": ("log.parquet", _timed(lambda s: pd.to_timedelta(s, unit="s")), _parquet),
    "timedeltas in us": (
        "log.parquet",
        _timed(lambda s: pd.to_timedelta(s, unit="s").astype("timedelta64[us]")),
        _parquet,
    ),
    "instants": ("log.parquet", _timed(_instants), _parquet),
    "instants in ms": (
        "log.parquet",
        _timed(lambda s: _instants(s).astype("datetime64[ms, UTC]")),
        _parquet,
    ),
    "ISO 8601": ("log.csv", _timed(lambda s: _instants(s).dt.tz_convert("Asia/Tokyo")), _csv),
    "comma before the fraction": (
        "log.csv",
        _text(_timed(_instants), "%Y-%m-%d %H:%M:%S,%f"),
        lambda frame, path: _csv(frame, path, sep=";"),
    ),
    "unix seconds": ("log.csv", _timed(lambda s: 1_714_550_400 + s), _csv),
    "unix milliseconds": (
        "log.csv",
        _timed(lambda s: ((1_714_550_400 + s) * 1e3).round().astype(np.int64)),
        _csv,
    ),
}


@pytest.mark.parametrize(("name", "frame", "write"), READ.values(), ids=READ)
def test_a_log_of_any_kind_is_read(
    name: str, frame: pd.DataFrame, write: Callable[[pd.DataFrame, Path], None], tmp_path: Path
) -> None:
    write(frame, tmp_path / name)
    estimates = calibrate(tmp_path / name, tmp_path / "bundle").estimates
    assert dict(zip(estimates.clients, estimates.step_s.mean, strict=True)) == pytest.approx(
        STEP_S.to_dict(), rel=1e-5
    )
    rates = dict(zip(estimates.clients, estimates.rates_bps[0].mean, strict=True))
    assert rates == pytest.approx(RATE_BPS.to_dict(), rel=1e-5)
    assert estimates.rounds.gap_s == pytest.approx(5.011, abs=2e-3)


ROW = "a,2024-05-01T08:00:00Z,{}\na,2024-05-01T09:00:00Z,2024-05-01T09:01:00Z\n"
REFUSED = {
    "no time for steps": (
        "client,start,downloaded,computed,end,steps\na,0,1.5,3.0001,4,20\na,9,10.5,10.5,14,20\n",
        r"log.csv:3: computed is downloaded.* \(1 such row\)\n  correct it, or leave it empty",
    ),
    "no time at all": ("client,start,end\na,0,1.0001\na,9,9\n", "log.csv:3: end is start"),
    "no client": ("client,start,end\nnan,0,1\n", "log.csv:2: client is 'nan'\n  every dispatch"),
    "far start": (
        "client,start,end\na,9999-12-31T23:59:59Z,\na,2024-05-01T09:00:00Z,2024-05-01T09:01:00Z\n",
        "log.csv:2: start is '9999-12-31T23:59:59Z'\n  every dispatch needs",
    ),
    "two clocks": (
        "client,start,end\na,0,2024-05-01T09:01:00Z\n",
        "log.csv: end has dates, but start has times from 0 on\n  write all instants on one clock",
    ),
    "no such day": ("client,start,end\n" + ROW.format("2024-02-30T08:00:00Z"), "log.csv:2: end is"),
    "lines of Flower without times": (
        "INFO : [ROUND 1]\nINFO : configure_fit: strategy sampled 2 clients (out of 2)\n",
        "log.csv:2: the line has no time\n  log with times",
    ),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_a_log_that_cannot_be_read_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        calibrate(tmp_path / "log.csv", tmp_path / "bundle")


@pytest.mark.parametrize("end", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "never", ""])
def test_an_end_that_never_comes_is_no_arrival(end: str, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("client,start,end\n" + ROW.format(end))
    result = calibrate(tmp_path / "log.csv", tmp_path / "bundle")
    assert result.estimates.dispatches.tolist() == [1]
    assert result.estimates.step_s.mean.tolist() == [60.0]
    flagged = any("what never happened (1 cells)" in flag for flag in result.flags)
    assert flagged is (end[:1].isdigit())


def _calibrated(folder: Path, frame: pd.DataFrame) -> Calibration:
    frame.to_csv(folder / "log.csv", index=False)
    return calibrate(folder / "log.csv", folder / "bundle", overwrite=True)


def test_whole_seconds_are_a_resolution(tmp_path: Path) -> None:
    """Transfers of a second and less: rates are at least those that last a whole second."""
    whole = TRUTH.assign(**{name: np.floor(TRUTH[name]) for name in TIMES})
    result = _calibrated(tmp_path, whole)
    zeros = sum(
        int((whole[after] == whole[before]).sum())
        for before, after in itertools.pairwise(TIMES)
        if (whole[after] - whole[before]).median() < 10
    )
    (flag,) = (flag for flag in result.flags if "resolution of 1 s" in flag)
    assert zeros == 0 or f"Phases of 0 s ({zeros}) count as 1 s" in flag
    assert result.estimates.rates_bps[0].mean.max() <= 8e6
    exact = _calibrated(tmp_path, TRUTH)
    assert not [flag for flag in exact.flags if "resolution" in flag]


def test_one_dispatch_per_client_shows_no_spread(tmp_path: Path) -> None:
    result = _calibrated(tmp_path, TRUTH[TRUTH["round"] == 0])
    assert np.isnan(result.estimates.medians[1, :3]).all()
    assert any("No client has two completed dispatches" in flag for flag in result.flags)
    bundle = TraceBundle.read(tmp_path / "bundle")
    assert not bundle.has("compute", "step_fixed_error")
    assert not bundle.has("network", "bandwidth_error")
    arguments = ["calibrate", str(tmp_path / "log.csv"), "-o", str(tmp_path / "again")]
    printed = CliRunner().invoke(cli, arguments).output
    assert "exact" not in printed
    assert printed.count("error unknown") == 3


def _several_runs() -> pd.DataFrame:
    later = TRUTH.assign(**{name: TRUTH[name] + 1000 for name in TIMES})
    return pd.concat([TRUTH, later])


def _throttled() -> pd.DataFrame:
    """Local steps that take 5% longer from round to round."""
    more = (TRUTH["computed"] - TRUTH["downloaded"]) * 0.05 * TRUTH["round"]
    return TRUTH.assign(computed=TRUTH["computed"] + more, end=TRUTH["end"] + more)


def _overlapping() -> pd.DataFrame:
    return TRUTH.assign(**{name: TRUTH[name] - 8 * TRUTH["round"] for name in TIMES})


def _paused() -> pd.DataFrame:
    return TRUTH.assign(**{name: TRUTH[name] + 30_000 * (TRUTH["round"] > 4) for name in TIMES})


DOUBTS = {
    "several runs": (_several_runs, "Round 0 begins again 1,000 s after"),
    "throttling": (_throttled, "Step times grow by "),
    "overlapping rounds": (_overlapping, "In 7 rounds, the next one begins before"),
    "a pause": (_paused, "pass after round 4, far more than after the others"),
}


@pytest.mark.parametrize(("make", "said"), DOUBTS.values(), ids=DOUBTS)
def test_a_doubtful_log_has_a_flag(
    make: Callable[[], pd.DataFrame], said: str, tmp_path: Path
) -> None:
    result = _calibrated(tmp_path, make())
    sound = _calibrated(tmp_path, TRUTH)
    starts = [text for _, text in DOUBTS.values()]
    assert [text for text in starts if any(text in flag for flag in result.flags)] == [said]
    assert not [text for text in starts if any(text in flag for flag in sound.flags)]


def test_a_pause_is_no_time_between_rounds(tmp_path: Path) -> None:
    rounds = _calibrated(tmp_path, _paused()).estimates.rounds
    assert rounds.gap_s == pytest.approx(5.011, abs=2e-3)
    assert rounds.gap_error_s < 0.01
    assert rounds.pause == pytest.approx((4, 30_005.011), abs=0.01)


FLOWER = {
    "1.5": (
        "DEBUG flwr {} | server.py:222 | fit_round {n}: strategy sampled 2 clients (out of 2)",
        "DEBUG flwr {} | server.py:236 | fit_round {n} received 2 results and 0 failures",
    ),
    "1.20": (
        "{}Z \x1b[92mINFO \x1b[0m:      configure_train: Sampled 2 nodes (out of 2)",
        "{}Z \x1b[92mINFO \x1b[0m:      aggregate_train: Received 2 results and 0 failures",
    ),
}


@pytest.mark.parametrize(("sent", "arrived"), FLOWER.values(), ids=FLOWER)
def test_lines_of_a_flower_server_show_whole_rounds(
    sent: str, arrived: str, tmp_path: Path
) -> None:
    lines, at, durations = [], pd.Timestamp("2024-05-01T08:00:00.500"), [10, 12, 11, 13, 14, 12]
    mark = "," if "flwr" in sent else "."
    for number, seconds in enumerate(durations, start=1):
        for line, later in ((sent, 0), (arrived, seconds)):
            at += pd.Timedelta(seconds=later)
            text = at.strftime(f"%Y-%m-%d %H:%M:%S{mark}%f")[:-3]
            lines.append(line.format(text, n=number))
        lines.append(lines[-1].replace("fit", "evaluate").replace("train", "evaluate"))
        at += pd.Timedelta(seconds=3)
    (tmp_path / "server.log").write_text("\n".join(lines) + "\n")
    result = calibrate(tmp_path / "server.log", tmp_path / "bundle")
    assert result.estimates.step_s.mean.tolist() == pytest.approx([np.mean(durations)])
    assert result.estimates.rounds.gap_s == pytest.approx(3.0)
    assert any("slowest client" in flag for flag in result.flags)


# Watts of the two phones: idle, downloading, computing and uploading.
WATTS = {"007": (5.0, 6.0, 45.0, 8.0), "7": (3.0, 3.5, 23.0, 4.0)}


def _readings(client: str, gpus: int = 1) -> pd.DataFrame:
    """The power of a client every 0.25 s."""
    of = TRUTH[TRUTH["client"] == client]
    rows = []
    for second in np.arange(0, of["end"].max() + 4, 0.25):
        done = of[of["start"] <= second]
        phase = 0
        if len(done) and second <= done.iloc[-1]["end"]:
            phase = 1 + int((second >= done.iloc[-1][["downloaded", "computed"]]).sum())
        rows += [(second, gpu, WATTS[client][phase] / gpus) for gpu in range(gpus)]
    return pd.DataFrame(rows, columns=["time", "index", "power"])


def _nvidia(readings: pd.DataFrame) -> str:
    stamps = _instants(readings["time"]).dt.strftime("%Y/%m/%d %H:%M:%S.%f").str[:-3]
    rows = zip(stamps, readings["index"], readings["power"], strict=True)
    lines = [f"{stamp}, {index}, {power:.2f} W" for stamp, index, power in rows]
    return "\n".join(["timestamp, index, power.draw [W]", *lines, f"{stamps.iloc[-1]}, 0, [N/A]"])


def _tegrastats(readings: pd.DataFrame) -> str:
    stamps = _instants(readings["time"]).dt.strftime("%m-%d-%Y %H:%M:%S")
    whole = readings["time"] % 1 == 0
    return "\n".join(
        f"{stamp} RAM 2448/7337MB (lfb 4x4MB) SWAP 0/3668MB (cached 0MB) CPU [0%@729,off] GPU@36C"
        f" VDD_IN {1000 * watts:.0f}mW/{1000 * watts:.0f}mW VDD_CPU_GPU_CV 4mW/4mW VDD_SOC 0mW/0mW"
        for stamp, watts in zip(stamps[whole], readings["power"][whole], strict=True)
    )


def _codecarbon(client: str) -> str:
    """A row per fit, as of a tracker that is started and stopped around it, and one per time between."""
    of = TRUTH[TRUTH["client"] == client]
    idle, _, computing, _ = WATTS[client]
    spans = [(row.downloaded, row.computed, computing) for row in of.itertuples()]
    ends = zip(of["end"], of["start"].shift(-1).fillna(of["end"].max() + 4), strict=True)
    spans += [(end, start, idle) for end, start in ends]
    rows = pd.DataFrame(sorted(spans), columns=["from", "timestamp", "watts"])
    seconds = rows["timestamp"] - rows["from"]
    return pd.DataFrame(
        {
            "timestamp": _instants(rows["timestamp"]).dt.tz_localize(None),
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
    _timed(_instants).to_csv(tmp_path / "log.csv", index=False)
    for client in WATTS:
        (tmp_path / f"{client}.csv").write_text(text(client))
    scenario = load_scenario_dict(
        {
            "task": {"name": "timing", "clients": 3, "size": "1MB"},
            "training": {"local_steps": 20},
            "devices": {"compute": {"name": "values", "step": "1s"}},
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


BAD_POWER = {
    "no power": ("007.csv", "time,load\n1,2\n", "has no power readings|no power readings"),
    "another clock": (
        "007.csv",
        "time,power\n2031-05-01T08:00:00Z,2\n",
        "no power reading lies in a dispatch of its client\n  give each file the name",
    ),
    "another client": ("x.csv", "time,power\n6,2\n", "no power reading lies in a dispatch"),
    "negative": ("007.csv", "time,power\n6,-2\n", "007.csv:2: power is '-2'"),
    "tegrastats without times": ("007.csv", "RAM 1/2MB VDD_IN 3mW/3mW\n", "007.csv:1: the line"),
}


@pytest.mark.parametrize(("name", "text", "message"), BAD_POWER.values(), ids=BAD_POWER)
def test_power_that_fits_no_dispatch_is_refused(
    name: str, text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    TRUTH.to_csv(tmp_path / "log.csv", index=False)
    with pytest.raises(UserError, match=message):
        calibrate(tmp_path / "log.csv", tmp_path / "bundle", power=[tmp_path / name])
    assert not math.isnan(STEP_S.sum())
