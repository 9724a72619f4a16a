"""Fits recover what was drawn; figures agree with cases worked by hand and with the published ones of real traces."""

import io
import math

import numpy as np
import pytest
from rich.console import Console

from fedsim.analysis.bundles import _panels
from fedsim.parts.catalog import CATALOG
from fedsim.traces.combine import scale
from fedsim.traces.importers import import_bundle
from fedsim.traces.inspection import first_rows, write_text
from fedsim.traces.statistics import describe
from tests.traces.helpers import import_

from .cases import DAY, HOUR, bundle_of


def test_a_case_worked_by_hand(hand):
    statistics = describe(hand)
    assert (statistics.devices, statistics.valid_devices, statistics.device_days) == (3, 2, 4.0)
    online = statistics.availability
    assert online.online_share == pytest.approx(8 / 96)
    assert online.share.samples.tolist() == pytest.approx([4 / 48, 4 / 48])
    assert online.never_online == 0
    assert sorted(online.sessions_s.samples) == [7200.0, 7200.0, 14400.0]
    assert online.gaps_s.samples.tolist() == [16 * 3600.0]
    assert sorted(online.sessions_a_day.samples) == [0.5, 1.0]
    picked = pytest.approx((1 + 1 + 3) / 8)
    hour = {"length_s": 3600.0, "sessions": 1.0, "devices_picked_online": picked}
    assert online.at_least[-1] == hour
    # a: 6-8 and 0-2 o'clock; b, 6 hours ahead: 13-17 o'clock. Each hour is observed twice by each device.
    expected = np.zeros(24)
    expected[[6, 7, 0, 1]] += 1 / 4
    expected[[13, 14, 15, 16]] += 1 / 4
    assert online.by_hour.tolist() == pytest.approx(expected.tolist())
    # The middles of these hours as directions on the face of a clock of 24 hours, added up.
    directions = [2 * math.pi * (hour + 0.5) / 24 for hour in (6, 7, 0, 1, 13, 14, 15, 16)]
    east, north = sum(map(math.sin, directions)), sum(map(math.cos, directions))
    assert online.rhythm["peak_hour"] == pytest.approx(math.atan2(east, north) * 12 / math.pi % 24)
    # Wednesday: a observed from 6 and b from 12 o'clock: 30 hours, 6 of them online; Thursday: 48, 2; Friday 6 + 12, 0.
    assert online.by_weekday[[2, 3, 4]] == pytest.approx([6 / 30, 2 / 48, 0.0])
    assert np.isnan(online.by_weekday[[0, 1, 5, 6]]).all()
    # Remaining: lengths 2, 2, 4 h: the density falls from 3/8 to 1/8 at 2 h; median at 4/3 h; mean (4 + 4 + 16) / 16.
    assert online.remaining_s.percentile(50) == pytest.approx(4 / 3 * 3600, rel=0.02)
    assert online.remaining_s.mean == pytest.approx(1.5 * 3600)
    assert online.remaining_s.percentile(100) == pytest.approx(4 * 3600, rel=0.05)
    assert statistics.speed_bandwidth_rank_correlation is None
    assert statistics.network_series_bps["both"].mean == pytest.approx(1.5e6)
    assert (statistics.network_series_bps["both"].samples == 0).mean() == pytest.approx(0.25)
    assert statistics.network["bandwidth_bps up"].samples.tolist() == [1e5, 3e5]


def test_a_bundle_without_availability_is_described():
    bundle = bundle_of({"a": []}, tables={"rtt_matrix": {"src": [], "dst": [], "rtt_s": []}})
    del bundle.tables["availability"]
    statistics = describe(bundle)
    assert statistics.availability is None
    out = io.StringIO()
    write_text([statistics], Console(file=out))
    assert "device-days" in out.getvalue()
    window = {"window_start_us": [HOUR // 4], "window_end_us": [HOUR // 2]}
    without_a_full_hour = bundle_of({"a": [(HOUR // 4, HOUR // 3)]}, devices=window)
    empty = describe(bundle_of({"a": []}, days=1))
    assert empty.availability.online_share == 0
    assert empty.availability.never_online == 1
    assert empty.availability.by_hour.tolist() == [0.0] * 24
    assert DAY == 24 * HOUR
    write_text([describe(without_a_full_hour)], Console(file=out))


def test_only_the_time_of_a_step_that_a_bundle_gives_is_described():
    columns = {"task": ["*"] * 2, "phase": ["training"] * 2}
    fixed = {**columns, "sample_s": [0.0] * 2, "step_fixed_s": [1.25, 3600.0]}
    bundle = bundle_of({"a": [], "b": []}, tables={"compute": {"device_id": ["a", "b"], **fixed}})
    statistics = describe(bundle)
    assert list(statistics.compute) == ["step_fixed_s"]
    assert [panel.columns[0].label for panel in _panels([statistics]) if panel.id == "compute"] == [
        "time per step"
    ]
    out = io.StringIO()
    write_text([statistics], Console(file=out, width=120))
    assert "1 h" in out.getvalue()
    assert "e+0" not in out.getvalue()


# Published figures of the real traces (from the files by other code than ours).
@pytest.mark.real_data
def test_flash_phones(fedsim_data):
    importer = CATALOG.parts("importer")["flash"]
    path = fedsim_data / "traces" / "flash_state_1k" / "cached_timers.json"
    statistics = describe(import_bundle(importer, [path], importer.Params()))
    online = statistics.availability
    assert (statistics.devices, statistics.valid_devices, statistics.device_days) == (
        1000,
        710,
        3376.0,
    )
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
    assert tuple(online.rhythm[name] for name in ("mean", "amplitude", "r2")) == pytest.approx(
        (0.094, 0.33, 0.83), abs=0.006
    )
    assert online.rhythm["peak_hour"] == pytest.approx(3.9, abs=0.05)
    assert online.at_least[-1]["devices_picked_online"] == pytest.approx(0.57, abs=0.02)
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
    importer = CATALOG.parts("importer")["fedscale"]
    folder = fedsim_data / "traces" / "fedscale_100"
    statistics = describe(import_bundle(importer, sorted(folder.glob("*.json")), importer.Params()))
    online = statistics.availability
    assert online.online_share == pytest.approx(0.732, abs=0.0006)
    shares = [online.share.percentile(percent) for percent in (10, 25, 50, 75, 90)]
    assert shares == pytest.approx([0.61, 0.67, 0.74, 0.82, 0.89], abs=0.006)
    speeds = [statistics.compute["sample_s"].percentile(percent) for percent in (5, 50, 95)]
    assert speeds == pytest.approx([0.018, 0.0465, 0.192], rel=0.01)
    assert statistics.compute["sample_s"].fits[0].ks == pytest.approx(0.23, abs=0.006)
    rates = statistics.network["bandwidth_bps both"]
    assert [rates.percentile(percent) / 1e6 for percent in (5, 50, 95)] == pytest.approx(
        [1.13, 5.39, 43.4], rel=0.01
    )
    mu_kbps = rates.fits[0].parameters["mu"] - np.log(1000)
    assert (mu_kbps, rates.fits[0].parameters["sigma"]) == pytest.approx((8.779, 1.164), abs=0.002)
    assert abs(statistics.speed_bandwidth_rank_correlation) < 0.05


def test_shares_are_of_each_devices_own_window_not_of_the_whole_time():
    """A device observed for a day and always online, one for six days and online for three of them."""
    bundle = bundle_of(
        {"short": [(0, 24 * HOUR)], "long": [(0, 72 * HOUR)]},
        days=6,
        devices={"window_end_us": [24 * HOUR, 6 * 24 * HOUR]},
    )
    statistics = describe(bundle)
    assert statistics.device_days == 7.0
    assert statistics.observed_days.samples.tolist() == [1.0, 6.0]
    assert statistics.availability is not None
    assert statistics.availability.share.samples.tolist() == [0.5, 1.0]
    assert statistics.availability.online_share == pytest.approx(4 / 7)
    assert statistics.availability.by_hour == pytest.approx(np.full(24, 4 / 7))
    # Gaps end where the observation does: the short device's further days are not a gap.
    assert statistics.availability.gaps_s.count == 0
    assert statistics.availability.sessions_s.samples.tolist() == [24 * 3600.0, 72 * 3600.0]


def test_hours_of_the_day_follow_the_clocks(tmp_path):
    """Every day from 8:00 to 10:00 in Berlin, over a change of the clocks; the first look says so."""
    days = [f"2024-03-{day}" for day in range(25, 32)] + ["2024-04-01"]
    rows = "".join(f"a,{day} 08:00,{day} 10:00\n" for day in days)
    (tmp_path / "a.csv").write_text(f"device,start,end\n{rows}")
    bundle = import_("table", tmp_path / "a.csv", time_zone="Europe/Berlin", window="8d")
    online = describe(bundle).availability
    assert np.flatnonzero(online.by_hour > 0).tolist() == [8, 9]
    assert np.nonzero(online.by_weekday)[0].tolist() == list(range(7))
    # Copies that are shifted by days keep the zone, but not the day of the week.
    copies = describe(scale(bundle, 3))
    assert copies.first_look.zone == "Europe/Berlin"
    assert copies.availability.by_weekday is None
    look = describe(bundle).first_look
    assert (look.begin, look.zone) == ("2024-03-25T00:00:00+01:00", "Europe/Berlin")
    assert (look.window_s, look.sessions, look.unobserved_share) == ((0, 8 * 86400.0), 8, 0)
    # Without a window, it lasts from the first start to the last end; the hours before are unknown.
    first = describe(import_("table", tmp_path / "a.csv", time_zone="Europe/Berlin")).first_look
    assert first.window_s == (8 * 3600.0, 7 * 86400.0 + 9 * 3600.0)
    assert first.unobserved_share == pytest.approx(8 / (7 * 24 + 9))
    rows = first_rows(first)
    assert rows["begins"] == "2024-03-25T08:00:00+01:00"
    assert rows["online by hour, 0 to 23"].startswith(8 * " " + "██")
