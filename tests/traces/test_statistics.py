"""Fits recover what was drawn; figures agree with cases worked by hand and with the published ones of real traces."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from fedsim.traces.fitting import (
    exponential,
    fit_all,
    lognormal,
    thinned,
    two_lognormals,
    weibull,
)
from fedsim.traces.importers import import_bundle, registry
from fedsim.traces.inspection import as_data, write_text
from fedsim.traces.statistics import AtLeast, describe
from fedsim.traces.synthesis import NetworkSeriesParams, Synthesis, synthesize

from .cases import DAY, HOUR, bundle_of


def drawn(distribution, count=50_000):
    return np.sort(distribution.rvs(count, random_state=np.random.default_rng(1)))


def test_fits_recover_the_parameters_and_prefer_the_right_family():
    for family, distribution, expected in (
        ("lognormal", stats.lognorm(1.6, scale=np.exp(7.26)), {"mu": 7.26, "sigma": 1.6}),
        ("weibull", stats.weibull_min(0.41, scale=575), {"k": 0.41, "scale": 575}),
    ):
        best = fit_all(drawn(distribution))[0]
        assert best.family in (family, "two lognormals")
        fit = {"lognormal": lognormal, "weibull": weibull}[family](drawn(distribution))
        assert fit.parameters == pytest.approx(expected, rel=0.03)
        assert fit.ks < 0.01
    fit = exponential(drawn(stats.expon(scale=2054)))
    assert fit.parameters["mean"] == pytest.approx(2054, rel=0.02)
    assert fit.ks < 0.01


def test_fits_agree_with_scipy():
    samples = drawn(stats.gamma(0.7, scale=1000), 3000)
    for family, fit, frozen in (
        (
            stats.lognorm,
            lognormal(samples),
            lambda p: stats.lognorm(p["sigma"], scale=np.exp(p["mu"])),
        ),
        (
            stats.weibull_min,
            weibull(samples),
            lambda p: stats.weibull_min(p["k"], scale=p["scale"]),
        ),
        (stats.expon, exponential(samples), lambda p: stats.expon(scale=p["mean"])),
    ):
        theirs = family(*family.fit(samples, floc=0))
        ours = frozen(fit.parameters)
        assert ours.logpdf(samples).sum() == pytest.approx(theirs.logpdf(samples).sum(), abs=0.05)
        assert fit.ks == pytest.approx(stats.kstest(samples, ours.cdf).statistic, abs=1e-12)
        count = len(fit.parameters)
        assert fit.aic == pytest.approx(2 * (count - ours.logpdf(samples).sum()) / 3000)


def test_a_mixture_is_taken_apart():
    low, high = stats.lognorm(1.0, scale=np.exp(2.0)), stats.lognorm(0.8, scale=np.exp(8.0))
    samples = np.sort(np.concatenate([drawn(low, 30_000), drawn(high, 70_000)]))
    fit = two_lognormals(samples)
    assert fit.parameters == pytest.approx(
        {"w1": 0.3, "mu1": 2.0, "mu2": 8.0, "sigma1": 1.0, "sigma2": 0.8}, rel=0.03
    )
    assert fit_all(samples)[0].family == "two lognormals"


def test_few_or_equal_samples_are_not_fitted():
    assert fit_all(np.array([3.0] * 500)) == []
    assert fit_all(np.array([1.0, 2.0])) == []
    assert thinned(np.arange(10.0), 5).tolist() == [1.0, 3.0, 5.0, 7.0, 9.0]


@pytest.fixture
def hand():
    """Two devices over two days from Wednesday 6 o'clock; one is 6 hours ahead."""
    return bundle_of(
        {
            "a": [(0, 2 * HOUR), (18 * HOUR, 20 * HOUR)],
            "b": [(1 * HOUR, 5 * HOUR)],
            "c": [],
        },
        days=2,
        devices={"tz_offset_s": [0, 6 * 3600, 0], "valid": [True, True, False]},
        epoch="2020-01-01T06:00:00",
        epoch_weekday=2,
        tables={
            "compute": {
                "device_id": ["a", "b"],
                "task": ["*", "*"],
                "phase": ["training", "training"],
                "sample_s": [0.1, 0.2],
            },
            "network": {
                "device_id": ["a", "a", "b", "b"],
                "direction": ["down", "up", "down", "up"],
                "bandwidth_bps": [1e6, 1e5, 2e6, 3e5],
            },
            "network_series": {
                "series_id": ["s", "s"],
                "direction": ["both", "both"],
                "start_us": [0, 30],
                "dur_us": [30, 10],
                "rate_bps": [2e6, 0.0],
            },
        },
    )


def test_a_case_worked_by_hand(hand):
    found = describe(hand)
    assert (found.devices, found.valid_devices, found.device_days) == (3, 2, 4.0)
    online = found.availability
    assert online.online_share == pytest.approx(8 / 96)
    assert online.share.samples.tolist() == pytest.approx([4 / 48, 4 / 48])
    assert online.never_online == 0
    assert sorted(online.sessions_s.samples) == [7200.0, 7200.0, 14400.0]
    assert online.gaps_s.samples.tolist() == [16 * 3600.0]
    assert sorted(online.sessions_a_day.samples) == [0.5, 1.0]
    assert online.at_least[-1] == AtLeast(3600.0, 1.0, pytest.approx((1 + 1 + 3) / 8))
    # a: 6-8 and 0-2 o'clock; b, 6 hours ahead: 13-17 o'clock. Each hour is observed twice by each device.
    expected = np.zeros(24)
    expected[[6, 7, 0, 1]] += 1 / 4
    expected[[13, 14, 15, 16]] += 1 / 4
    assert online.by_hour.tolist() == pytest.approx(expected.tolist())
    # Wednesday: a observed from 6 and b from 12 o'clock: 30 hours, 6 of them online; Thursday: 48, 2; Friday 6 + 12, 0.
    assert online.by_weekday[[2, 3, 4]] == pytest.approx([6 / 30, 2 / 48, 0.0])
    assert np.isnan(online.by_weekday[[0, 1, 5, 6]]).all()
    # Remaining: lengths 2, 2, 4 h: the density falls from 3/8 to 1/8 at 2 h; median at 4/3 h; mean (4 + 4 + 16) / 16.
    assert online.remaining_s.percentile(50) == pytest.approx(4 / 3 * 3600, rel=0.02)
    assert online.remaining_s.mean == pytest.approx(1.5 * 3600)
    assert online.remaining_s.percentile(100) == pytest.approx(4 * 3600, rel=0.05)
    assert found.speed_bandwidth_rank_correlation is None
    assert found.network_series_bps["both"].mean == pytest.approx(1.5e6)
    assert (found.network_series_bps["both"].samples == 0).mean() == pytest.approx(0.25)
    assert found.network["bandwidth_bps up"].samples.tolist() == [1e5, 3e5]


def test_text_and_data_show_bundles_side_by_side(hand):
    phones = synthesize(
        Synthesis(
            population="phone_mostly_on",
            devices=80,
            network_series=NetworkSeriesParams(series=2, length=60.0),
        )
    )
    described = [describe(hand), describe(phones)]
    out = io.StringIO()
    write_text(described, Console(file=out, width=200))
    text = out.getvalue()
    for expected in ("case", "phone_mostly_on", "Wed 20.0", "session: weibull", "below 0.1 Mbit/s"):
        assert expected in text
    data = as_data(described[0])
    assert data["availability"]["by_weekday"][0] is None
    assert data["availability"]["sessions_s"]["percentiles"]["100"] == 14400.0
    assert data["compute"]["sample_s"]["mean"] == pytest.approx(0.15)


def test_a_bundle_without_availability_is_described():
    bundle = bundle_of({"a": []}, tables={"rtt_matrix": {"src": [], "dst": [], "rtt_s": []}})
    del bundle.tables["availability"]
    found = describe(bundle)
    assert found.availability is None
    out = io.StringIO()
    write_text([found], Console(file=out))
    assert "device-days" in out.getvalue()
    empty = describe(bundle_of({"a": []}, days=1))
    assert empty.availability.online_share == 0
    assert empty.availability.never_online == 1
    assert empty.availability.by_hour.tolist() == [0.0] * 24
    assert DAY == 24 * HOUR


# Published figures of the real traces (from the files by other code than ours).


@pytest.mark.real_data
def test_flash_phones(fedsim_data):
    importer = registry()["flash"]
    path = fedsim_data / "traces" / "flash_state_1k" / "cached_timers.json"
    found = describe(import_bundle(importer, [path], importer.Params()))
    online = found.availability
    assert (found.devices, found.valid_devices, found.device_days) == (1000, 710, 3376.0)
    assert online.online_share == pytest.approx(0.094, abs=0.0005)
    shares = [online.share.percentile(percent) for percent in (10, 25, 50, 75, 90)]
    assert shares == pytest.approx([0.001, 0.013, 0.055, 0.131, 0.255], abs=0.0006)
    sessions = [online.sessions_s.percentile(percent) for percent in (10, 50, 90)]
    assert sessions == pytest.approx([9, 181, 4526], abs=0.5)
    assert online.sessions_s.mean == pytest.approx(2054, abs=1)
    published = [
        *(0.106, 0.117, 0.129, 0.135, 0.137, 0.134, 0.122, 0.111, 0.100, 0.089, 0.078, 0.069),
        *(0.069, 0.065, 0.066, 0.070, 0.076, 0.080, 0.089, 0.077, 0.069, 0.073, 0.087, 0.098),
    ]
    assert online.by_hour.tolist() == pytest.approx(published, abs=0.0006)
    assert online.by_weekday.tolist() == pytest.approx(
        [0.092, 0.103, 0.098, 0.097, 0.100, 0.089, 0.081], abs=0.0008
    )
    assert (online.rhythm.mean, online.rhythm.amplitude, online.rhythm.r2) == pytest.approx(
        (0.094, 0.33, 0.83), abs=0.006
    )
    assert online.rhythm.peak_hour == pytest.approx(3.9, abs=0.05)
    assert online.at_least[-1].devices_picked_online == pytest.approx(0.57, abs=0.02)
    fits = {fit.family: fit for fit in online.sessions_s.fits}
    assert fits["lognormal"].parameters == pytest.approx({"mu": 5.06, "sigma": 2.59}, abs=0.006)
    assert fits["weibull"].parameters == pytest.approx({"k": 0.411, "scale": 575}, rel=0.002)
    assert fits["two lognormals"].parameters == pytest.approx(
        {"w1": 0.34, "mu1": 2.25, "mu2": 6.53, "sigma1": 1.06, "sigma2": 1.83}, abs=0.006
    )
    distances = [
        fits[name].ks for name in ("lognormal", "weibull", "exponential", "two lognormals")
    ]
    assert distances == pytest.approx([0.102, 0.079, 0.430, 0.080], abs=0.0006)


@pytest.mark.real_data
def test_fedscale_phones(fedsim_data):
    importer = registry()["fedscale"]
    folder = fedsim_data / "traces" / "fedscale_100"
    found = describe(import_bundle(importer, sorted(folder.glob("*.json")), importer.Params()))
    online = found.availability
    assert online.online_share == pytest.approx(0.732, abs=0.0006)
    shares = [online.share.percentile(percent) for percent in (10, 25, 50, 75, 90)]
    assert shares == pytest.approx([0.61, 0.67, 0.74, 0.82, 0.89], abs=0.006)
    speeds = [found.compute["sample_s"].percentile(percent) for percent in (5, 50, 95)]
    assert speeds == pytest.approx([0.018, 0.0465, 0.192], rel=0.01)
    assert found.compute["sample_s"].fits[0].ks == pytest.approx(0.23, abs=0.006)
    rates = found.network["bandwidth_bps both"]
    assert [rates.percentile(percent) / 1e6 for percent in (5, 50, 95)] == pytest.approx(
        [1.13, 5.39, 43.4], rel=0.01
    )
    mu_kbps = rates.fits[0].parameters["mu"] - np.log(1000)
    assert (mu_kbps, rates.fits[0].parameters["sigma"]) == pytest.approx((8.779, 1.164), abs=0.002)
    assert abs(found.speed_bandwidth_rank_correlation) < 0.05


def test_shares_are_of_each_devices_own_window_not_of_the_whole_time():
    """A device observed for a day and always online, one for six days and online for three of them."""
    bundle = bundle_of(
        {"short": [(0, 24 * HOUR)], "long": [(0, 72 * HOUR)]},
        days=6,
        devices={"window_end_us": [24 * HOUR, 6 * 24 * HOUR]},
    )
    found = describe(bundle)
    assert found.device_days == 7.0
    assert found.observed_days.samples.tolist() == [1.0, 6.0]
    assert found.availability is not None
    assert found.availability.share.samples.tolist() == [0.5, 1.0]
    assert found.availability.online_share == pytest.approx(4 / 7)
    assert found.availability.by_hour == pytest.approx(np.full(24, 4 / 7))
    # Gaps end where the observation does: the short device's further days are not a gap.
    assert found.availability.gaps_s.count == 0
    assert found.availability.sessions_s.samples.tolist() == [24 * 3600.0, 72 * 3600.0]
