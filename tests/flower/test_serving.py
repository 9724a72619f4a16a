"""The ServerApp of a scenario against the simulation of the scenario."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

import fedsim
from fedsim.flower import local_update, run, server_app
from fedsim.runs.checkpoint import load_model

DEVICES: dict[str, Any] = {
    "compute": {"name": "values", "step": ["1s", "1.5s", "2s", "4s"] * 2, "jitter": {"cv": 0.3}},
    "network": {"name": "static", "latency": "50ms", "down": "800kbps", "up": "400kbps"},
}
COLUMNS = ["dispatch_id", "client_id", "sequence", "version", "round", "dispatched_s", "arrived_s"]
COLUMNS += ["ended_s", "steps_assigned", "steps_done", "outcome", "staleness", "aggregated_version"]
COLUMNS += ["group", "bytes_down", "bytes_up"]


def scenario(server: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "name": "served",
        "task": {
            "name": "supervised",
            "dataset": {"name": "digits"},
            "partition": {"name": "dirichlet", "alpha": 1.0, "clients": 8},
            "model": {"name": "mlp", "hidden": [16]},
        },
        "training": {"local_steps": 3, "batch_size": 8, "optimizer": {"lr": 0.1}},
        "devices": DEVICES,
        "server": server,
        "stop": {"rounds": 5},
        **more,
    }


def client_of(section: dict[str, Any]) -> ClientApp:
    app, train = ClientApp(), local_update(section)

    @app.train()  # type: ignore[untyped-decorator]
    def _(message: Message, context: Context) -> Message:
        return train(message, context)

    return app


def served(section: dict[str, Any], folder: Path, **more: Any) -> Any:
    """The run of the ServerApp under the simulated clock."""
    devices = {"task": {"clients": 8}, "devices": section["devices"]}
    app = server_app(section, output=folder / "served", **more)
    run(app, client_of(section), devices, output=folder / "flower")
    return fedsim.load(folder / "served")


@pytest.mark.parametrize(
    ("schedule", "more"),
    [
        ({"name": "sync"}, {"selection": {"name": "uniform", "cohort": 4}}),
        (
            {"name": "sync", "deadline": "9s", "over_selection": 1.5, "pause": "1s"},
            {"selection": {"name": "uniform", "cohort": 4}},
        ),
        ({"name": "buffered", "buffer_size": 3}, {}),
        ({"name": "async"}, {}),
        ({"name": "compass"}, {}),
        ({"name": "tiered", "tiers": 2}, {}),
        ({"name": "rennala", "batch": 5}, {}),
    ],
)
def test_under_the_simulated_clock_as_simulated(
    schedule: dict[str, Any], more: dict[str, Any], tmp_path: Path
) -> None:
    """The same dispatches, times, outcomes, metrics and model as ``fedsim run``, exactly."""
    section = scenario({"schedule": schedule, **more})
    simulated = fedsim.run(section, tmp_path / "simulated")
    real = served(section, tmp_path, local_update=True)
    assert len(real.dispatches) > 5
    ours, theirs = (each.dispatches[COLUMNS] for each in (real, simulated))
    # A server does not see how far the work has come that is left at the end.
    for each in (ours, theirs):
        each.loc[each["outcome"] == "unfinished", ["steps_done", "bytes_down", "bytes_up"]] = 0
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)
    assert real.aggregations.equals(simulated.aggregations)
    assert real.metrics.equals(simulated.metrics)
    models = [load_model(each.folder.model)[0] for each in (real, simulated)]
    assert all(torch.equal(value, models[1][name]) for name, value in models[0].items())
