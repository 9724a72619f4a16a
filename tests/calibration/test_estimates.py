"""Estimates of devices from a log."""

import io
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedsim.calibration.estimates import Assumptions, Estimates, Varying, estimate, family_p
from fedsim.calibration.log import WORK, numbered, read_log
from fedsim.errors import UserError
from fedsim.network.transports.fluid import Fluid
from fedsim.parts.parameters import Parameters
from fedsim.traces.bundle import TraceBundle
from tests.calibration.worlds import calibrated


def test_sizes_that_differ_show_the_latency(tmp_path: Path) -> None:
    """8 Mbit/s and 50 ms: 1 MB takes 1.05 s, 2 MB 2.05 s."""
    rows = []
    for number in range(20):
        size, start = 1_000_000 * (1 + number % 2), 10.0 * number
        downloaded = start + 0.05 + size / 1e6
        computed = downloaded + 2.0
        end = computed + 0.05 + size / 1e6
        rows.append(("phone", start, downloaded, computed, end, 4, size, size))
    columns = PHASES.strip().split(",")[:-1]
    estimates = calibrated(tmp_path, pd.DataFrame(rows, columns=columns)).estimates
    assert estimates.latency_s == pytest.approx([0.05])
    assert estimates.latency_from == "log"
    assert np.ravel([rate.mean for rate in estimates.rates_bps]) == pytest.approx([8e6, 8e6])
    assert estimates.step_s.mean == pytest.approx([0.5])


@pytest.mark.parametrize("latency_s", [0.3, 0.7])
def test_a_latency_longer_than_the_transfers_is_flagged(tmp_path: Path, latency_s: float) -> None:
    """Client a has transfers of 1 s and more, client b one of 0.5 s."""
    (tmp_path / "log.csv").write_text(_phases("b,60,60.5,63,65,4,1e6,1e6,"))
    log = numbered(read_log(tmp_path / "log.csv").dispatches, ["a", "b"])
    facts = Assumptions(Fluid(Parameters()), np.full(2, latency_s))
    estimates = estimate(log, ["a", "b"], facts)
    flags = [flag for flag in estimates.flags if "Correct devices.network.latency" in flag]
    assert ["of 1 of 2 clients" in flag for flag in flags] == [True] * (latency_s > 0.5)
    assert estimates.latency_from == "scenario"
    assert math.isnan(estimates.medians[1, 3]), "a given latency has no error"


def test_transfers_of_no_time_are_flagged(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(_phases("b,60.1237,60.1237,63,65,4,1e6,1e6,"))
    log = numbered(read_log(tmp_path / "log.csv").dispatches, ["a", "b"])
    assert "Transfers of 1 of 2 clients take no time" in estimate(log, "ab", Assumptions()).flags[0]


def test_transfers_of_no_bytes_show_no_rate(tmp_path: Path) -> None:
    """A client that has the model already; 1 byte, which TCP sends in less than a nanosecond, shows some."""
    for size in (0, 1):
        (tmp_path / "log.csv").write_text(_phases(f"a,60,60.8,63,65,4,{size},1e6,"))
        log = numbered(read_log(tmp_path / "log.csv").dispatches, ["a"])
        facts = Assumptions(Fluid(Parameters())) if size == 0 else Assumptions()
        rates = estimate(log, "a", facts).rates_bps[0].mean
        assert rates == pytest.approx([8e6 if size == 0 else rates[0]])


def test_a_client_is_offline_from_a_drop_to_its_next_dispatch(tmp_path: Path) -> None:
    header = "client,start,end,ended,outcome\n"
    rows = "a,0,2,2,aggregated\na,3,,5,dropped\na,9,11,11,aggregated\nb,0,4,4,late\n"
    estimates = calibrated(tmp_path, header + rows).estimates
    assert estimates.online == (("a", 0.0, 5.0), ("a", 9.0, 12.0), ("b", 0.0, 12.0))
    assert TraceBundle.read(tmp_path / "bundle").table("availability").num_rows == 3
    rows = "a,0,,5,dropped\na,3,,7,dropped\na,9,11,11,late\n"
    overlapping = calibrated(tmp_path, header + rows).estimates
    assert overlapping.online == (("a", 0.0, 5.0), ("a", 5.0, 7.0), ("a", 9.0, 12.0))
    rows = "a,0,,2,dropped\na,3,4,4,late\na,5,6,6,late\na,7,,8,dropped\na,9,11,11,late\n"
    later = calibrated(tmp_path, header + rows).estimates
    assert later.online == (("a", 0.0, 2.0), ("a", 3.0, 8.0), ("a", 9.0, 12.0))
    assert any("Availability is estimated" in flag for flag in estimates.flags)
    # Of drops, some of which do not say when they ended, a client is offline from their start.
    rows = "a,0,2,2,aggregated\na,3,,,dropped\na,9,11,11,late\nb,0,,4,dropped\nc,0,,,dropped\n"
    endless = calibrated(tmp_path, header + rows).estimates
    assert endless.online == (("a", 0.0, 3.0), ("a", 9.0, 12.0), ("b", 0.0, 4.0))
    assert any("2 of these do not say when they ended" in flag for flag in endless.flags)


def test_seconds_of_work_without_instants_separate_steps_from_transfers(tmp_path: Path) -> None:
    log = pd.DataFrame(
        [("a", 0, 100, 30, 60, 10), ("a", 200, 300, 28, 62, 10), ("b", 0, 50, 20, 20, 10)],
        columns=["client", "start", "end", "download_s", "compute_s", "upload_s"],
    ).assign(bytes_down=10**6, bytes_up=10**6)
    estimates = calibrated(tmp_path, log.to_csv(index=False)).estimates
    assert estimates.step_s.mean.tolist() == pytest.approx(
        log.groupby("client")["compute_s"].mean().tolist()
    )
    for way, rates in zip(("download_s", "upload_s"), estimates.rates_bps, strict=True):
        exact = (8e6 / log[way]).groupby(log["client"]).mean()
        assert rates.mean.tolist() == pytest.approx(exact.tolist())
    lone = log.drop(columns=["download_s", "upload_s"]).to_csv(index=False)
    estimates = calibrated(tmp_path, lone).estimates
    assert estimates.step_s.mean.tolist() == pytest.approx([61, 20])
    assert any("has no times of transfers" in flag for flag in estimates.flags)
    rest = log.drop(columns="compute_s").to_csv(index=False)
    assert calibrated(tmp_path, rest).estimates.step_s.mean.tolist() == pytest.approx([61, 20])


def _log(seconds: np.ndarray) -> pd.DataFrame:
    """Dispatches of 10 clients, one after another, with these total times."""
    start = np.concatenate([[0.0], np.cumsum(seconds)[:-1]])
    log = pd.DataFrame(
        {
            "client": np.arange(len(seconds)) % 10,
            "start_s": start,
            "end_s": start + seconds,
            "outcome": "aggregated",
            "steps": 1.0,
        }
    )
    marks = ("downloaded_s", "computed_s")
    for name in ("ended_s", "bytes_down", "bytes_up", "round", *marks, *WORK):
        log[name] = np.nan
    return log


def _estimates(seconds: np.ndarray) -> Estimates:
    return estimate(_log(seconds), list("0123456789"), Assumptions(Fluid(Parameters())))


def test_the_error_of_the_variation_is_that_of_repeated_logs() -> None:
    generator = np.random.default_rng(1)
    sigma = math.sqrt(math.log(1 + 0.3**2))
    repeated = [
        _estimates(2 * np.exp(sigma * generator.standard_normal(200) - sigma**2 / 2))
        for _ in range(30)
    ]
    spread = np.std([each.step_s.cv for each in repeated]) / 0.3
    assert spread == pytest.approx(np.mean([each.step_s.cv_error for each in repeated]), rel=0.4)
    drawn = [repeated[0].perturbed(generator).step_s.cv for _ in range(200)]
    assert np.std(drawn) / repeated[0].step_s.cv == pytest.approx(
        repeated[0].step_s.cv_error, rel=0.2
    )
    spread = np.std([np.median(each.step_s.mean) for each in repeated])
    assert spread == pytest.approx(repeated[0].medians[1, 0], rel=0.5)


def test_a_client_that_the_log_does_not_show_is_drawn_from_the_others() -> None:
    """A further value of a normal sample of n has the variance ``s**2 (1 + 1 / n)``; two of them share ``s**2 / n``."""
    logs = np.array([0.0, 0.5, 1.0, 1.5, 2.2])
    means = np.exp([*logs, 0.2, 0.2])
    seen = np.array([True] * 5 + [False] * 2)
    steps = Varying(means, np.where(seen, 0.0, 1.1), seen)
    generator = np.random.default_rng(4)
    drawn = np.array([steps.perturbed(generator, is_rate=False) for _ in range(2000)])
    assert (drawn[:, :5] == means[:5]).all()
    one, other = np.log(drawn[:, 5:]).T
    spread = logs.std(ddof=1)
    expected = stats.norm(logs.mean(), spread * math.sqrt(1 + 1 / 5))
    assert stats.kstest(one, expected.cdf).pvalue > 0.01
    assert np.corrcoef(one, other)[0, 1] == pytest.approx(1 / 6, abs=4 / math.sqrt(2000))


def _drawn(
    seen: np.ndarray,
    unseen: int,
    draws: int,
    generator: np.random.Generator,
    *,
    is_rate: bool = False,
) -> np.ndarray:
    """Draws of the logarithms of ``unseen`` clients that a log does not show, shape (draws, unseen)."""
    count = len(seen)
    mask = np.arange(count + unseen) < count
    of = Varying(np.exp(np.append(seen, np.zeros(unseen))), np.zeros(count + unseen), mask)
    return np.log([of.perturbed(generator, is_rate=is_rate)[count:] for _ in range(draws)])


def test_draws_end_three_local_spreads_beyond_the_slowest_client_of_the_log() -> None:
    """Step times with the median -2, above it the squared distances 4 and 1; and rates that are their reciprocals."""
    times = -np.array([0.0, 1.0, 2.0, 10.0, 14.0])
    drawn = _drawn(times, 2, 1000, np.random.default_rng(1))
    assert drawn.max() == pytest.approx(3 * math.sqrt(5 / 2))
    assert drawn.min() < -20, "fast clients do not lengthen a run"
    rates = _drawn(-times, 2, 1000, np.random.default_rng(1), is_rate=True)
    assert rates.min() == pytest.approx(-3 * math.sqrt(5 / 2))
    assert rates.max() > 20
    # Three links that are too fast to be measured do not stretch the slow end.
    links = np.append(np.linspace(-1, 1, 12), [14.0, 14.0, 14.0])
    drawn = _drawn(links, 9, 1000, np.random.default_rng(1), is_rate=True)
    slower = links[:7] - links[7]
    assert drawn.min() == pytest.approx(-1 - 3 * math.sqrt((slower**2).mean()))


@pytest.mark.parametrize(("family", "fits"), [("lognormal", True), ("two", False)])
def test_a_family_that_does_not_fit_is_flagged(family: str, fits: bool) -> None:
    """A tenth of the dispatches being four times as slow is not lognormal."""
    generator = np.random.default_rng(5)
    factor = np.exp(0.1 * generator.standard_normal(400))
    if family == "two":
        factor[::11] *= 4
    flags = _estimates(2 * factor).flags
    assert any("assumed to vary lognormally" in flag for flag in flags)
    assert any("step times do not follow one lognormal" in flag for flag in flags) is not fits


def test_the_test_of_a_family_rejects_as_often_as_it_says() -> None:
    """Of normal samples with few values per client, a tenth has p <= 0.1."""
    generator = np.random.default_rng(2)
    client = np.repeat(np.arange(12), 3)
    low = sum(family_p(client, generator.standard_normal(36)) <= 0.1 for _ in range(60))
    assert 1 <= low <= 13, "binomial, 60 x 0.1, within 3 standard deviations"
    assert family_p(np.arange(5), np.ones(5)) == 1


PHASES = "client,start,downloaded,computed,end,steps,bytes_down,bytes_up,outcome\n"


def _phases(*rows: str) -> str:
    """Dispatches of 1 MB each way at 8 and 4 Mbit/s, with 4 steps of 0.5 s, and further rows."""
    complete = [f"a,{10 * n},{10 * n + 1},{10 * n + 3},{10 * n + 5},4,1e6,1e6," for n in range(5)]
    return PHASES + "\n".join([*complete, *rows]) + "\n"


@pytest.mark.parametrize(
    ("row", "missing"),
    [
        ("a,60,61,,65,4,1e6,1e6,", "computed is missing in 1"),
        ("a,60,,63,65,4,1e6,1e6,", "downloaded is missing in 1"),
        ("a,60,61,63,65,,1e6,1e6,", "steps is missing in 1"),
        ("a,60,61,63,65,4,,,", "bytes_down is missing in 1 and bytes_up is missing in 1"),
    ],
)
def test_a_value_that_some_rows_lack_is_estimated_from_the_others(
    tmp_path: Path, row: str, missing: str
) -> None:
    estimates = calibrated(tmp_path, _phases(row)).estimates
    assert estimates.step_s.mean == pytest.approx([0.5])
    assert np.ravel([rate.mean for rate in estimates.rates_bps]) == pytest.approx([8e6, 4e6])
    assert list(estimates.dispatches) == [6]
    assert [flag for flag in estimates.flags if "missing" in flag] == [
        f"Of 6 completed dispatches, {missing}: each estimate rests on the dispatches that show it."
    ]
    assert not any(
        "only total times" in flag or "no local steps" in flag for flag in estimates.flags
    )


def test_a_client_without_complete_rows_gets_the_median_of_the_others(tmp_path: Path) -> None:
    estimates = calibrated(tmp_path, _phases("b,60,,,65,4,1e6,1e6,")).estimates
    assert estimates.step_s.mean == pytest.approx([0.5, 0.5])
    assert any("get the median of the others: 1 of 2" in flag for flag in estimates.flags)


def test_a_log_in_which_steps_and_phases_never_meet_is_refused(tmp_path: Path) -> None:
    text = "client,start,downloaded,computed,end,steps\na,0,1,3,5,\na,10,,,15,4\n"
    with pytest.raises(UserError, match="both its local steps and their number"):
        calibrated(tmp_path, text)


@pytest.mark.parametrize(
    ("later_s", "size", "flagged"), [(0, 1e6, False), (500, 1e6, True), (0, 1e3, True)]
)
def test_times_that_are_probably_milliseconds_are_flagged(
    tmp_path: Path, later_s: float, size: float, flagged: bool
) -> None:
    """Steps of more than two minutes, or links of 8 kbit/s."""
    log = pd.read_csv(io.StringIO(_phases()))
    log[["computed", "end"]] += later_s
    log[["bytes_down", "bytes_up"]] = size
    assert ("divide them by 1000" in calibrated(tmp_path, log).flags[0]) is flagged
