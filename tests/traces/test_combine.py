"""Populations made from bundles: what is kept, what is drawn, and that correlations come out as asked for."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from fedsim import bundled
from fedsim.errors import UserError
from fedsim.traces.availability import AvailabilityIndex
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.combine import join, perturbed, redrawn, sample, scale
from fedsim.traces.statistics import describe, device_bandwidths, device_shares, device_speeds
from fedsim.traces.synthesis import NetworkSeriesParams, Synthesis, synthesize
from fedsim.traces.tables import make_table
from fedsim.traces.validation import validate_bundle

from .cases import DAY, HOUR, bundle_of


@pytest.fixture(scope="module")
def phones():
    return synthesize(
        Synthesis(
            population="phone_idle_charging_wifi",
            devices=300,
            network_series=NetworkSeriesParams(series=2, length=60.0),
        )
    )


def columns(bundle, table, device):
    rows = bundle.device_rows(table) == device
    row_columns = bundle.tables[table].filter(rows).to_pydict()
    del row_columns["device_id"]
    return row_columns


def test_a_sample_is_a_part_of_the_bundle_and_depends_on_the_seed_alone(phones):
    sampled = sample(phones, 40, seed=3)
    assert validate_bundle(sampled) == []
    ids = sampled.device_ids.to_pylist()
    assert len(set(ids)) == 40
    assert ids == sorted(ids)
    everybody = phones.device_ids.to_pylist()
    for row in (0, 17, 39):
        source = everybody.index(ids[row])
        for table in ("availability", "compute", "network", "network_assign"):
            assert columns(sampled, table, row) == columns(phones, table, source)
    assert sample(phones, 40, seed=3).device_ids.to_pylist() == ids
    assert sample(phones, 40, seed=4).device_ids.to_pylist() != ids
    assert sampled.tables["network_series"].num_rows == phones.tables["network_series"].num_rows
    with pytest.raises(UserError, match="fewer than 301"):
        sample(phones, 301)


def test_scaling_without_shifts_makes_exact_copies(phones):
    large = scale(phones, 1000, seed=1, shift=False)
    assert validate_bundle(large) == []
    everybody = phones.device_ids.to_pylist()
    ids = large.device_ids.to_pylist()
    assert len(set(ids)) == 1000
    for row in (0, 500, 999):
        source = everybody.index(ids[row].split("~")[0])
        assert columns(large, "availability", row) == columns(phones, "availability", source)
        assert columns(large, "compute", row) == columns(phones, "compute", source)
    counts = np.bincount([everybody.index(name.split("~")[0]) for name in ids], minlength=300)
    # Each device is drawn a Poisson number of times with mean 1000 / 300.
    assert counts.var() == pytest.approx(1000 / 300, rel=0.3)


def test_a_shift_moves_by_whole_days_and_keeps_the_hour_of_the_day(phones):
    large = scale(phones, 800, seed=1)
    assert validate_bundle(large) == []
    old, new = AvailabilityIndex.from_bundle(phones), AvailabilityIndex.from_bundle(large)
    everybody = phones.device_ids.to_pylist()
    hours = np.arange(14 * 24) * 3_600_000_000_000
    day_ns = 24 * 3_600_000_000_000
    shifts = []
    for row in range(0, 800, 8):
        source = everybody.index(large.device_ids[row].as_py().split("~")[0])
        states = [new.is_online(row, t) for t in hours.tolist()]
        matching = [
            days
            for days in range(7)
            if [old.is_online(source, t + days * day_ns) for t in hours.tolist()] == states
        ]
        assert matching
        if len(matching) == 1:
            shifts.append(matching[0])
    assert np.bincount(shifts, minlength=7).min() > 0
    before, after = describe(phones).availability, describe(large).availability
    assert after.online_share == pytest.approx(before.online_share, rel=0.2)
    assert large.manifest.epoch_weekday is None


def test_a_shift_cuts_traces_to_whole_days_and_splits_at_the_seam():
    bundle = bundle_of({"a": [(20 * HOUR, 30 * HOUR), (50 * HOUR, 52 * HOUR)]}, days=2.5)
    shifted = [scale(bundle, 1, seed=seed) for seed in range(12)]
    sessions = {
        tuple(
            zip(
                (item.numpy("availability", "start_us") // HOUR).tolist(),
                (item.numpy("availability", "end_us") // HOUR).tolist(),
                strict=True,
            )
        )
        for item in shifted
    }
    # Two days remain; a shift by one day cuts the session at midnight and moves its evening to the second day.
    assert sessions == {((20, 30),), ((0, 6), (44, 48))}
    for item in shifted:
        assert item.numpy("devices", "window_end_us").tolist() == [2 * DAY]
        assert item.manifest.counts["device_seconds_cut_to_whole_days"] == 43_200
    index = AvailabilityIndex.from_bundle(
        next(item for item in shifted if item.manifest.counts["shifted"])
    )
    assert index.online_until(0, 45 * HOUR * 1000) == 54 * HOUR * 1000


def test_scaling_refuses_what_it_cannot_do():
    assert scale(bundle_of({"a": [(0, HOUR)]}, days=0.5), 3).manifest.counts["shifted"] == 0
    with pytest.raises(UserError, match="does not wrap"):
        scale(bundle_of({"a": []}, on_end="hold"), 2)
    assert scale(bundle_of({"a": []}, on_end="hold"), 2, shift=False).device_count == 2
    with pytest.raises(UserError, match="no usable device"):
        scale(bundle_of({"a": []}, devices={"valid": [False]}), 2)


def test_join_draws_independently_by_default(phones):
    links = synthesize(Synthesis(population="desktop", devices=200, seed=8))
    joined = join(phones, links, links, seed=2)
    assert validate_bundle(joined) == []
    assert joined.tables["availability"] == phones.tables["availability"]
    assert set(joined.numpy("compute", "sample_s")) <= set(links.numpy("compute", "sample_s"))
    assert set(device_bandwidths(joined)) <= set(device_bandwidths(links))
    assert "network_assign" not in joined.tables
    assert abs(spearmanr(device_speeds(joined), device_bandwidths(joined)).statistic) < 0.15
    only = join(phones, compute=links, seed=2)
    assert only.tables["compute"] == joined.tables["compute"]
    assert only.tables["network_assign"].num_rows == phones.tables["network_assign"].num_rows
    assert only.manifest.options["sources"]["compute"]["name"] == "desktop"


@pytest.mark.parametrize("asked", [-0.9, -0.3, 0.6, 1.0])
def test_join_correlates_ranks_as_asked(asked):
    devices = synthesize(Synthesis(population="phone_mostly_on", devices=3000))
    parts = synthesize(Synthesis(population="always", devices=2500, seed=4))
    joined = join(
        devices, parts, parts, seed=1, compute_correlation=asked, network_correlation=-asked
    )
    speeds = device_speeds(joined)
    correlation = spearmanr(device_shares(joined), speeds).statistic
    assert correlation == pytest.approx(asked, abs=0.03)
    correlation = spearmanr(speeds, device_bandwidths(joined)).statistic
    assert correlation == pytest.approx(-asked, abs=0.03)
    # The drawn speeds keep their distribution.
    assert np.percentile(speeds, [10, 50, 90]) == pytest.approx(
        np.percentile(device_speeds(parts), [10, 50, 90]), rel=0.1
    )


def test_links_that_have_only_series_can_be_joined_and_caveats_are_kept(phones):
    links = TraceBundle.read(bundled.resolved("builtin:norway_3g"))
    joined = join(phones, network=links)
    assert validate_bundle(joined) == []
    assert joined.tables["network_series"] == links.tables["network_series"]
    assert "network" not in joined.tables
    assert joined.manifest.caveats == [f"network: {text}" for text in links.manifest.caveats]
    assert sample(links, 10).manifest.caveats == links.manifest.caveats
    with pytest.raises(UserError, match=r"builtin:norway_3g: (?s:.*)give --network"):
        join(phones, network=links, network_correlation=0.5)
    bare = bundle_of({"a": [(0, HOUR)]})
    with pytest.raises(UserError, match="give --compute"):
        join(phones, compute=bare)
    with pytest.raises(UserError, match="give --compute"):
        join(bare, network=phones, network_correlation=0.5)
    with pytest.raises(UserError, match="outside -1 to 1"):
        join(phones, compute=phones, compute_correlation=1.5)
    values = {"device_id": ["a", "b"], "task": ["*"] * 2, "phase": ["training"] * 2}
    unknown = bundle_of({"a": [], "b": []}, tables={"compute": {**values, "sample_s": [0.1, None]}})
    with pytest.raises(UserError, match="a value for every device"):
        join(phones, compute=unknown, compute_correlation=0.5)


def test_devices_are_redrawn_from_an_urn(phones):
    """The first of n devices is any of them; the second is the same one with probability 2 / (n + 1), by the copy."""
    small = sample(phones, 4)
    draws = [redrawn(small, 2, seed).device_ids.to_pylist() for seed in range(800)]
    names = [[name.partition("~")[0] for name in pair] for pair in draws]
    counts = [sum(first == name for first, _ in names) for name in small.device_ids.to_pylist()]
    assert counts == pytest.approx([200] * 4, abs=50)
    assert sum(first == second for first, second in names) == pytest.approx(800 * 2 / 5, abs=50)
    large = redrawn(phones, 50, seed=1)
    assert validate_bundle(large) == []
    source = phones.device_ids.to_pylist().index(large.device_ids.to_pylist()[7].partition("~")[0])
    for table in ("availability", "compute", "network", "network_assign"):
        assert columns(large, table, 7) == columns(phones, table, source)


def test_the_mean_of_redrawn_devices_varies_twice_as_much_as_a_bootstrap(phones):
    """By the sampling of the n given devices and by that of the n new ones: 2 n / (n + 1) times s^2 / n."""
    speeds = device_speeds(sample(phones, 30))
    means = [device_speeds(redrawn(sample(phones, 30), 30, seed)).mean() for seed in range(300)]
    assert np.var(means) == pytest.approx(2 * 30 / 31 * speeds.var() / 30, rel=0.25)


def test_estimates_are_drawn_within_their_errors(phones):
    table = phones.tables["network"]
    columns_ = {name: table.column(name) for name in table.column_names}
    columns_["bandwidth_error"] = np.full(table.num_rows, 0.1)
    with_errors = TraceBundle(
        phones.manifest, phones.tables | {"network": make_table("network", columns_)}
    )
    drawn = perturbed(with_errors, 1)
    logs = np.log(
        drawn.numpy("network", "bandwidth_bps") / phones.numpy("network", "bandwidth_bps")
    )
    assert (logs.mean(), logs.std()) == pytest.approx((0, 0.1), abs=0.015)
    assert drawn.tables["compute"] is phones.tables["compute"]
    assert validate_bundle(drawn) == []
