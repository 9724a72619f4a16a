"""Each kind of log that people hold: the value that pandas computes, or the refusal."""

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from fedsim.calibration import calibrate
from fedsim.calibration.log import read_log
from fedsim.cli import cli
from fedsim.errors import UserError
from fedsim.traces.bundle import TraceBundle
from tests.calibration.worlds import LOG, RATE_BPS, STEP_S, TIMES, calibrated, instants, timed


def _parquet(frame: pd.DataFrame, path: Path) -> None:
    frame.to_parquet(path, index=False)


def _csv(frame: pd.DataFrame, path: Path, **options: object) -> None:
    frame.to_csv(path, index=False, **options)


def _nested(frame: pd.DataFrame, path: Path) -> None:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    table = table.append_column("metrics", pa.array([[0.1, 0.2]] * len(frame)))
    pq.write_table(table.append_column("tags", pa.array([{"a": 1}] * len(frame))), path)


def _text(frame: pd.DataFrame, form: str) -> pd.DataFrame:
    stamps = {name: frame[name].dt.strftime(form).str[:-3] for name in TIMES}
    return frame.assign(**stamps)


READ = {
    "seconds": ("log.csv", LOG, _csv),
    "ending .log": ("server.log", LOG, _csv),
    "nested columns": ("log.parquet", LOG, _nested),
    "other spellings": (
        "log.csv",
        LOG.rename(columns={"client": "Device ID", "start": "Dispatched", "end": "arrived"}),
        _csv,
    ),
    "timedeltas": ("log.parquet", timed(lambda s: pd.to_timedelta(s, unit="s")), _parquet),
    "timedeltas in us": (
        "log.parquet",
        timed(lambda s: pd.to_timedelta(s, unit="s").astype("timedelta64[us]")),
        _parquet,
    ),
    "instants": ("log.parquet", timed(instants), _parquet),
    "instants in ms": (
        "log.parquet",
        timed(lambda s: instants(s).astype("datetime64[ms, UTC]")),
        _parquet,
    ),
    "ISO 8601": ("log.csv", timed(lambda s: instants(s).dt.tz_convert("Asia/Tokyo")), _csv),
    "comma before the fraction": (
        "log.csv",
        _text(timed(instants), "%Y-%m-%d %H:%M:%S,%f"),
        lambda frame, path: _csv(frame, path, sep=";"),
    ),
    "unix seconds": ("log.csv", timed(lambda s: 1_714_550_400 + s), _csv),
    "unix milliseconds": (
        "log.csv",
        timed(lambda s: ((1_714_550_400 + s) * 1e3).round().astype(np.int64)),
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
    "a round of Flower that ends before it begins": (
        "2024-05-01T08:00:00Z INFO : Starting Flower server\n\n"
        "2024-05-01T08:00:02Z INFO : configure_fit: strategy sampled 2 clients (out of 2)\n"
        "2024-05-01T08:00:01Z INFO : aggregate_fit: received 2 results and 0 failures\n",
        "log.csv:4: end is before start",
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
    flagged = any("what never happened (1 cell)" in flag for flag in result.flags)
    assert flagged is (end[:1].isdigit())


def test_whole_seconds_are_a_resolution(tmp_path: Path) -> None:
    """Transfers of a second and less: rates are at least those that last a whole second."""
    whole = LOG.assign(**{name: np.floor(LOG[name]) for name in TIMES})
    result = calibrated(tmp_path, whole)
    zeros = sum(
        int((whole[after] == whole[before]).sum())
        for before, after in itertools.pairwise(TIMES)
        if (whole[after] - whole[before]).median() < 10
    )
    (flag,) = (flag for flag in result.flags if "resolution of 1 s" in flag)
    assert zeros == 0 or f"Phases of 0 s ({zeros}) count as 1 s" in flag
    assert result.estimates.rates_bps[0].mean.max() <= 8e6
    exact = calibrated(tmp_path, LOG)
    assert not [flag for flag in exact.flags if "resolution" in flag]


def test_one_dispatch_per_client_shows_no_spread(tmp_path: Path) -> None:
    result = calibrated(tmp_path, LOG[LOG["round"] == 0])
    assert np.isnan(result.estimates.medians[1, :3]).all()
    assert any("No client has two completed dispatches" in flag for flag in result.flags)
    bundle = TraceBundle.read(tmp_path / "bundle")
    assert not bundle.has("compute", "step_fixed_error")
    assert not bundle.has("network", "bandwidth_error")
    arguments = ["calibrate", str(tmp_path / "log.csv"), "-o", str(tmp_path / "again")]
    printed = CliRunner().invoke(cli, arguments).output
    assert "exact" not in printed
    assert printed.count("error unknown") == 3


def _digits(seconds: pd.Series) -> pd.Series:
    """As HHMMSS, from 9:59 on."""
    stamps = pd.Timestamp("2026-01-01T09:59") + pd.to_timedelta(20 * seconds, unit="s")
    return stamps.dt.strftime("%H%M%S.%f").astype(float)


@pytest.mark.parametrize(
    ("convert", "doubted"),
    [
        (lambda s: 45_950.51 + s / 86_400, True),
        (lambda s: 45_950.51 + s, False),
        (lambda s: s.round() + 45_950, False),
        (lambda s: 739_373.34 + s / 86_400, True),
        (lambda s: 2_460_431.8 + s / 86_400, True),
        (_digits, True),
        (lambda s: 10 * s + 10_001, False),
    ],
    ids=[
        *("days", "seconds since the machine started", "whole seconds", "MATLAB", "Julian"),
        *("digits", "any seconds"),
    ],
)
def test_days_and_times_of_day_are_doubted(
    convert: Callable[[pd.Series], pd.Series], doubted: bool, tmp_path: Path
) -> None:
    result = calibrated(tmp_path, timed(convert))
    assert any("read as seconds, but may be" in flag for flag in result.flags) == doubted


def test_large_numbers(tmp_path: Path) -> None:
    """Seconds since the year 1 are exact; Unix times in 32 bits are rounded to two minutes."""
    log = timed(lambda s: s + 6.4e10 + 0.123456)[["client", "start", "end"]]
    log.to_parquet(tmp_path / "log.parquet", index=False)
    assert read_log(tmp_path / "log.parquet").clock.resolution_s == 0
    log["end"] = log["start"] = np.float32(1.7e9)
    log.to_parquet(tmp_path / "log.parquet", index=False)
    with pytest.raises(UserError, match="row 1: start is '1700000000', which"):
        read_log(tmp_path / "log.parquet")
