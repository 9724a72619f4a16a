"""Populations made from bundles: what is kept, what is drawn, and that correlations come out as asked for."""

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import spearmanr

from fedsim import bundled
from fedsim.errors import UserError
from fedsim.traces.availability import AvailabilityIndex
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.combine import join, perturbed, redrawn, sample, scale, similar, urn
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
        states = new.state_many(np.full(len(hours), row), hours)[0]
        copies = np.full(len(hours), source)
        moved = [old.state_many(copies, hours + days * day_ns)[0] for days in range(7)]
        matching = [days for days in range(7) if (moved[days] == states).all()]
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
    with pytest.raises(UserError, match="table network\n  give --network "):
        join(phones, network=bundle_of({"a": [(0, HOUR)]}))
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


def test_an_urn_puts_a_copy_back():
    """The first of n items is any of them; the second is the same one with probability 2 / (n + 1), by the copy."""
    draws = [urn(4, row) for row in np.random.default_rng(0).random((2000, 2))]
    assert np.bincount([first for first, _ in draws]) == pytest.approx([500] * 4, abs=60)
    assert sum(first == second for first, second in draws) == pytest.approx(2000 * 2 / 5, abs=70)


def test_the_mean_of_an_urn_varies_twice_as_much_as_a_bootstrap():
    """By the sampling of the n given devices and by that of the n new ones: 2 n / (n + 1) times s^2 / n."""
    rng = np.random.default_rng(0)
    values = rng.lognormal(size=30)
    means = [values[urn(30, rng.random(30))].mean() for _ in range(1500)]
    assert np.var(means) == pytest.approx(2 * 30 / 31 * values.var() / 30, rel=0.12)


def test_new_values_lie_in_each_gap_alike():
    """Without the kernel: 1 / (n + 1) of them in each of the gaps between n values and beyond both ends."""
    sample, rng = np.array([3.0, 1.0, 8.0, np.nan, 4.0]), np.random.default_rng(0)
    picks = rng.choice([0, 1, 2, 4], 20_000)
    values = similar(picks, sample, rng.random(20_000), np.zeros(20_000))
    counts = np.bincount(np.searchsorted(np.sort(sample[[0, 1, 2, 4]]), values))
    assert counts == pytest.approx([4000] * 5, abs=220)
    # Beyond an end, they are exponential: the two outermost values exceed the next one by 5 and 1 on average 3.
    assert (values[values > 8] - 8).mean() == pytest.approx(3, rel=0.06)
    with np.errstate(all="raise"):
        drawn = similar(np.array([2, 3]), sample, np.array([1 - 2**-54, 0.5]), np.zeros(2))
    assert (np.isfinite(drawn) == [True, False]).all()


@pytest.mark.parametrize(("vary", "low", "high"), [(similar, 0.85, 0.96), (None, 0.3, 0.6)])
def test_the_slowest_of_other_devices_lies_between_those_of_19_redraws(vary, low, high):
    """Coverage of the range for the largest of n new values, whose distribution is the n-th power of the normal one."""
    rng, n, covered = np.random.default_rng(0), 30, []
    for _ in range(80):
        sample, largest = rng.standard_normal(n), []
        for _ in range(19):
            picks = urn(n, rng.random(n))
            new = (
                vary(picks, sample, rng.random(n), rng.standard_normal(n))
                if vary
                else sample[picks]
            )
            largest.append(new.max())
        covered.append(ndtr(max(largest)) ** n - ndtr(min(largest)) ** n)
    assert low < np.mean(covered) < high


def test_redrawn_devices_are_similar_and_not_synchronized(phones):
    drawn = redrawn(phones, 50, seed=1)
    assert validate_bundle(drawn) == []
    ids = [name.partition("~")[0] for name in drawn.device_ids.to_pylist()]
    source = [phones.device_ids.to_pylist().index(name) for name in ids]
    assert columns(drawn, "network_assign", 7) == columns(phones, "network_assign", source[7])
    change = np.log(device_speeds(drawn) / device_speeds(phones)[source])
    assert 0.1 < change.std() < 0.5
    assert device_shares(drawn) == pytest.approx(device_shares(phones)[source])
    assert drawn.manifest.counts["shifted"] > 30


def test_estimates_are_drawn_within_their_errors(phones, tmp_path):
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
    before = dict(phones.manifest.sha256)
    drawn.write(tmp_path / "drawn")
    assert drawn.manifest.sha256 != phones.manifest.sha256 == before
