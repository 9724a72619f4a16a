"""Every synthesized population is sound, reproducible and extensible."""

import pytest

from fedsim.errors import UserError, UserErrors
from fedsim.traces.synthesis import (
    FAMILIES,
    PRESETS,
    ComputeSeriesParams,
    NetworkSeriesParams,
    Synthesis,
    synthesize,
)
from fedsim.traces.validation import validate_bundle
from tests.traces.synthesis.making import make

HOUR_NS = 3_600_000_000_000


@pytest.mark.parametrize("population", [*sorted(PRESETS), *sorted(FAMILIES)])
def test_every_population_is_sound_reproducible_and_extensible(population, tmp_path):
    series = {
        "compute_series": ComputeSeriesParams(),
        "network_series": NetworkSeriesParams(series=2),
    }
    bundle = make(population, 60, days=3, seed=5, **series)
    assert validate_bundle(bundle) == []
    bundle.write(tmp_path / "a")
    make(population, 60, days=3, seed=5, **series).write(tmp_path / "b")
    for file in sorted((tmp_path / "a").iterdir()):
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()
    larger = make(population, 200, days=3, seed=5)
    for name in ("availability", "compute", "network"):
        rows = larger.device_rows(name) < 60
        columns = larger.tables[name].filter(rows).to_pydict()
        assert columns == bundle.tables[name].to_pydict()
    other = make(population, 60, days=3, seed=6)
    assert other.tables["compute"].to_pydict() != bundle.tables["compute"].to_pydict()


def test_the_manifest_keeps_the_parameters_and_the_seed():
    bundle = make("phone_mostly_on", 10, days=2, seed=9, network={"rtt": "40ms"})
    assert bundle.manifest.seed == 9
    assert bundle.manifest.options["network"]["rtt"] == 0.04


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"population": "martians"}, "no population 'martians'"),
        ({"population": "renewal", "availability": {"share_a": -1}}, "availability.share_a"),
        ({"population": "renewal", "availability": {"mood": 1}}, "known keys: share_a"),
        ({"population": "bernoulli", "availability": {"p": 1.5}}, "availability.p"),
        ({"population": "cosine", "availability": {"mean": 0.9}}, "not a probability"),
        ({"population": "always", "network": {"rtt": "-3s"}}, "network.rtt"),
        (
            {"population": "always", "devices": 200_000, "compute_series": ComputeSeriesParams()},
            "compute_series would have",
        ),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises((UserError, UserErrors), match=message):
        synthesize(Synthesis(**{"devices": 3, **options}))
