"""Estimates of devices from a log."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedsim.calibration import calibrate
from fedsim.calibration.estimates import Assumptions, Estimates, estimate, family_p
from fedsim.calibration.log import WORK
from fedsim.network.transports.fluid import Fluid
from fedsim.parameters import Parameters
from fedsim.traces.bundle import TraceBundle


def test_sizes_that_differ_show_the_latency(tmp_path: Path) -> None:
    """8 Mbit/s and 50 ms: 1 MB takes 1.05 s, 2 MB 2.05 s."""
    rows = []
    for number in range(20):
        size, start = 1_000_000 * (1 + number % 2), 10.0 * number
        downloaded = start + 0.05 + size / 1e6
        computed = downloaded + 2.0
        end = computed + 0.05 + size / 1e6
        rows.append(("phone", start, downloaded, computed, end, 4, size, size))
    columns = [
        "client",
        "start",
        "downloaded",
        "computed",
        "end",
        "steps",
        "bytes_down",
        "bytes_up",
    ]
    pd.DataFrame(rows, columns=columns).to_csv(tmp_path / "log.csv", index=False)
    estimates = calibrate(tmp_path / "log.csv", tmp_path / "bundle").estimates
    assert estimates.latency_s == pytest.approx([0.05])
    assert np.ravel([rate.mean for rate in estimates.rates_bps]) == pytest.approx([8e6, 8e6])
    assert estimates.step_s.mean == pytest.approx([0.5])


def test_a_client_is_offline_from_a_drop_to_its_next_dispatch(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(
        "client,start,end,ended,outcome\na,0,2,2,aggregated\na,3,,5,dropped\na,9,11,11,aggregated\nb,0,4,4,late\n"
    )
    estimates = calibrate(tmp_path / "log.csv", tmp_path / "bundle").estimates
    assert estimates.online == (("a", 0.0, 5.0), ("a", 9.0, 12.0), ("b", 0.0, 12.0))
    assert TraceBundle.read(tmp_path / "bundle").table("availability").num_rows == 3
    (tmp_path / "log.csv").write_text(
        "client,start,end,ended,outcome\na,0,,5,dropped\na,3,,7,dropped\na,9,11,11,late\n"
    )
    overlapping = calibrate(tmp_path / "log.csv", tmp_path / "overlapping").estimates
    assert overlapping.online == (("a", 0.0, 5.0), ("a", 5.0, 7.0), ("a", 9.0, 12.0))
    assert any("is based on 1 dropped dispatches of 1 clients" in flag for flag in estimates.flags)


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
    log["client"] = log["client"].astype(str)
    for name in ("ended_s", "bytes_down", "bytes_up", "round", *WORK):
        log[name] = np.nan
    return log


def _estimates(seconds: np.ndarray) -> Estimates:
    return estimate(_log(seconds), list("0123456789"), Assumptions(Fluid(Parameters())))


def test_the_error_of_the_variation_is_that_of_repeated_logs() -> None:
    generator = np.random.default_rng(1)
    sigma = math.sqrt(math.log(1 + 0.3**2))
    found = [
        _estimates(2 * np.exp(sigma * generator.standard_normal(200) - sigma**2 / 2))
        for _ in range(30)
    ]
    spread = np.std([each.step_s.cv for each in found]) / 0.3
    assert spread == pytest.approx(np.mean([each.step_s.cv_error for each in found]), rel=0.4)
    drawn = [found[0].perturbed(generator).step_s.cv for _ in range(200)]
    assert np.std(drawn) / found[0].step_s.cv == pytest.approx(found[0].step_s.cv_error, rel=0.2)
    spread = np.std([np.median(each.step_s.mean) for each in found])
    assert spread == pytest.approx(found[0].medians[1, 0], rel=0.5)


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
