"""Columns of compute and network, and their series in time, against the requested distributions."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from fedsim.traces.synthesis import ComputeSeriesParams, NetworkSeriesParams
from tests.traces.synthesis.making import make


def test_compute_and_network_columns():
    bundle = make("always", 20_000)
    speed = np.log(bundle.numpy("compute", "relative_speed"))
    assert np.median(speed) == pytest.approx(0, abs=0.02)
    # Cutting at 8 either side leaves 0.78 a little smaller.
    assert speed.std() == pytest.approx(0.765, abs=0.015)
    assert np.abs(speed).max() <= np.log(8) + 1e-12
    assert bundle.numpy("compute", "sample_s") * np.exp(speed) == pytest.approx(0.00064)
    assert bundle.numpy("compute", "step_fixed_s") * np.exp(speed) == pytest.approx(0.010)
    ram = bundle.numpy("compute", "ram_bytes") / 1e9
    # Real phones: 1 to 16 GB; 18% with up to 3 GB, 41% with 8 GB or more; Spearman's correlation with speed 0.79.
    assert set(ram) == {1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0}
    assert [np.mean(ram <= 3), np.mean(ram >= 8)] == pytest.approx([0.181, 0.415], abs=0.012)
    assert spearmanr(ram, speed).statistic == pytest.approx(0.79, abs=0.03)
    rate = bundle.numpy("network", "bandwidth_bps")
    down, up = np.log(rate[::2]), np.log(rate[1::2])
    assert np.median(down) == pytest.approx(np.log(6.496e6), abs=0.03)
    assert down.std() == pytest.approx(1.164, rel=0.02)
    assert np.median(up - down) == pytest.approx(np.log(0.2), abs=0.01)
    # Compute and bandwidth are independent, as FedScale's are.
    assert abs(np.corrcoef(speed, down)[0, 1]) < 0.03
    assert np.median(bundle.numpy("network", "rtt_s")) == pytest.approx(0.075, rel=0.02)


def test_step_noise_has_memory_and_stragglers():
    series = ComputeSeriesParams(straggler_share=0.05, straggler_length=4)
    bundle = make("always", 300, compute_series=series)
    multiplier = bundle.numpy("compute_series", "multiplier").reshape(300, -1)
    assert multiplier.shape == (300, 1008)
    slow = multiplier > 1.45
    assert slow.mean() == pytest.approx(0.05, abs=0.006)
    runs = (slow[:, 1:] & ~slow[:, :-1]).sum()
    assert slow.sum() / runs == pytest.approx(4, rel=0.1)
    calm = make("always", 300, compute_series=ComputeSeriesParams(straggler_share=0.0))
    noise = np.log(calm.numpy("compute_series", "multiplier").reshape(300, -1))
    assert noise.std() == pytest.approx(0.075, rel=0.03)
    assert np.corrcoef(noise[:, 1:].ravel(), noise[:, :-1].ravel())[0, 1] == pytest.approx(
        0.7, abs=0.02
    )


def test_bandwidth_series_have_memory_outages_and_the_devices_own_mean():
    bundle = make("always", 40, network_series=NetworkSeriesParams(series=20))
    table = bundle.tables["network_series"].to_pandas()
    for _, rows in table.groupby("series_id", observed=True):
        assert rows.start_us.iloc[0] == 0
        assert rows.dur_us.sum() == 3_600_000_000
        assert (rows.rate_bps * rows.dur_us).sum() / 3.6e9 == pytest.approx(1e6)
    outage = table.dur_us[table.rate_bps == 0]
    assert outage.sum() / (40 * 3.6e9) == pytest.approx(0.05, abs=0.012)
    assert np.median(outage) / 1e6 <= 3
    rates = np.repeat(table.rate_bps, table.dur_us // 1_000_000).to_numpy().reshape(40, 3600)
    on = rates[rates > 0]
    assert on.std() / on.mean() == pytest.approx(0.7, abs=0.06)
    logs = np.log(np.where(rates > 0, rates, np.nan))
    pairs = np.stack([logs[:, 1:].ravel(), logs[:, :-1].ravel()])
    pairs = pairs[:, np.isfinite(pairs).all(axis=0)]
    assert np.corrcoef(pairs)[0, 1] == pytest.approx(0.86, abs=0.03)
    scale = bundle.numpy("network_assign", "scale")
    assert scale * 1e6 == pytest.approx(bundle.numpy("network", "bandwidth_bps"), rel=1e-6)
