"""What grows with the number of clients is built and read once."""

from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.composition.build import build
from fedsim.runs.folder import Status
from fedsim.runs.tables import read_parquet
from fedsim.scenario.loading import load_scenario_dict
from fedsim.simulation.simulation import Simulation
from fedsim.traces.bundle import TraceBundle
from tests.composition.worlds import quadratic
from tests.simulation.harness import online_bundle


def test_what_grows_with_the_clients_is_built_once_and_not_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten million clients each time plane takes seconds to build, and so would each reading of their table."""
    built, read = [], []

    def counting_server(*args: Any, **more: Any) -> Simulation:
        built.append(args)
        return Simulation(*args, **more)

    def counting_read(path: Path) -> Any:
        read.append(path.name)
        return read_parquet(path)

    monkeypatch.setattr("fedsim.composition.planes.Simulation", counting_server)
    monkeypatch.setattr("fedsim.runs.run.read_parquet", counting_read)
    run = fedsim.run(quadratic([[0, 1]]), tmp_path / "run")
    assert run.status is Status.COMPLETE
    assert len(built) == 1
    assert "clients.parquet" not in read


@pytest.mark.parametrize(
    ("clock", "epoch", "availability", "time_of_day_s"),
    [
        ("local", None, {"start": "30h"}, 6 * 3600),
        ("utc", "2026-01-01T22:00:00+00:00", {"start": "3h", "shift": "days"}, 3600),
        ("local", None, {"shift": "any"}, None),
        ("device-relative", None, {}, None),
    ],
)
def test_the_time_of_day_is_that_of_the_clock_of_the_trace(
    tmp_path: Path,
    clock: str,
    epoch: str | None,
    availability: dict[str, Any],
    time_of_day_s: float | None,
) -> None:
    bundle = online_bundle(*[[(0, 1e6)]] * 3)
    manifest = bundle.manifest.model_copy(update={"clock": clock, "epoch": epoch})
    TraceBundle(manifest, bundle.tables).write(tmp_path / "bundle")
    scenario = quadratic([[0, 1]])
    trace = {"name": "trace", "trace": str(tmp_path / "bundle"), **availability}
    scenario["devices"]["availability"] = trace
    world = build(load_scenario_dict(scenario, tmp_path))
    assert world.devices.time_of_day_s == time_of_day_s
