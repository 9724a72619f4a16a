"""The state of local optimizers between dispatches: reset, kept by the clients, or sent and averaged."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedsim
from fedsim.composition.build import build
from fedsim.errors import UserError
from fedsim.scenario.loading import load_scenario_dict
from tests.methods.simulated import world

CENTERS, CURVATURES = (1.0, -1.0, 4.0), (1.0, 3.0, 0.5)
OPTIMIZERS: dict[str, Any] = {
    "momentum": ({"name": "sgd", "lr": 0.05, "momentum": 0.9}, torch.optim.SGD, {"momentum": 0.9}),
    "nesterov": (
        {"name": "sgd", "lr": 0.05, "momentum": 0.9, "nesterov": True},
        torch.optim.SGD,
        {"momentum": 0.9, "nesterov": True},
    ),
    "adam": ({"name": "adam", "lr": 0.05}, torch.optim.Adam, {}),
    "adamw": ({"name": "adamw", "lr": 0.05}, torch.optim.AdamW, {}),
}


def scenario(optimizer: dict[str, Any], state: str, **server: Any) -> dict[str, Any]:
    """Three clients with quadratic objectives that do 3, 2 and 1 steps of 1 s, 2 s and 3 s."""
    made = world(
        list(CENTERS),
        list(CURVATURES),
        2.0,
        method={"name": "fedavg", "weights": "uniform"},
        steps=3,
        training={"optimizer": optimizer, "optimizer_state": state},
        devices={
            "compute": {"name": "values", "step": [1.0, 2.0, 3.0]},
            "network": {"name": "static", "down": "8kbps", "up": "8kbps"},
        },
        stop={"rounds": 4},
        evaluation={"every_rounds": 1},
    )
    made["server"] |= server
    return made


def model(folder: Path, content: dict[str, Any]) -> float:
    """The final model of a run."""
    (value,) = fedsim.run(content, folder).model().values()
    return float(value)


def oracle(kind: Any, options: dict[str, Any], state: str, samples: tuple[int, ...]) -> float:
    """The same with one optimizer of torch per client, whose state stays in it, or is averaged as the models are."""
    x, shares = 2.0, np.array(samples) / sum(samples)
    parameters = [torch.tensor([x], dtype=torch.float64, requires_grad=True) for _ in CENTERS]
    optimizers = [kind([each], lr=0.05, **options) for each in parameters]
    for _ in range(4):
        for parameter, optimizer, center, curvature in zip(
            parameters, optimizers, CENTERS, CURVATURES, strict=True
        ):
            parameter.data[0] = x
            for _ in range(3):
                parameter.grad = curvature * (parameter.detach() - center)
                optimizer.step()
        x = float(shares @ [float(each.detach()) for each in parameters])
        if state == "sent":
            held = [opt.state[par] for opt, par in zip(optimizers, parameters, strict=True)]
            for key in held[0]:
                mean = sum(
                    share * one[key].double() for share, one in zip(shares, held, strict=True)
                )
                for one in held:
                    one[key] = mean.to(one[key].dtype).clone()
    return x


@pytest.mark.parametrize(
    ("state", "samples"), [("kept", (1, 2, 5)), ("sent", (1, 1, 1)), ("sent", (1, 2, 5))]
)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_state_goes_on_as_in_torch(
    tmp_path: Path, name: str, state: str, samples: tuple[int, ...]
) -> None:
    optimizer, kind, options = OPTIMIZERS[name]
    content = scenario(optimizer, state, method="fedavg")
    content["task"]["samples"] = list(samples)
    result = model(tmp_path / "run", content)
    assert result == pytest.approx(oracle(kind, options, state, samples), rel=1e-12)
    if state == "kept":
        content["training"]["optimizer_state"] = "reset"
        assert result != pytest.approx(model(tmp_path / "reset", content), rel=1e-4)


def test_states_of_personal_parts_stay_with_the_clients(tmp_path: Path) -> None:
    """FedSim with momentum: the velocity of the shared number is averaged, that of the personal one is not."""
    content = scenario(OPTIMIZERS["momentum"][0], "sent", method="fedsim")
    centers = np.array([[1.0, 2.0], [-1.0, 0.5], [4.0, -2.0]])
    curvature = np.array([[1.0, 0.5], [0.5, 1.5]])
    content["task"] |= {
        "names": {"body": 1, "head": 1},
        "centers": centers.tolist(),
        "curvatures": [curvature.tolist()] * 3,
        "initial": [2.0, 2.0],
    }
    models, velocities = np.full((3, 2), 2.0), np.zeros((3, 2))
    for _ in range(4):
        for _ in range(3):
            velocities = 0.9 * velocities + (models - centers) @ curvature
            models = models - 0.05 * velocities
        models[:, 0], velocities[:, 0] = models[:, 0].mean(), velocities[:, 0].mean()
    run = fedsim.run(content, tmp_path / "run")
    assert run.model()["body"].item() == pytest.approx(models[0, 0], rel=1e-12)
    # The shared number, its velocity and the number of steps, 8 bytes each.
    assert set(run.dispatches["bytes_up"]) == {24}


def test_only_what_is_sent_costs_bytes(tmp_path: Path) -> None:
    adam = OPTIMIZERS["adam"][0]
    traffic = {
        state: build(load_scenario_dict(scenario(adam, state), tmp_path)).traffic_bytes()
        for state in ("reset", "kept", "sent")
    }
    # A model of one number, and two moments with the number of steps, 8 bytes each.
    assert traffic == {"reset": (8, 8), "kept": (8, 8), "sent": (32, 32)}


def test_the_state_is_averaged_beside_fragments(tmp_path: Path) -> None:
    """With one fragment and no overlap, Streaming DiLoCo is DiLoCo."""
    streaming = {"name": "streaming_diloco", "fragments": 1, "overlap": 0, "own_share": 0}
    adam = OPTIMIZERS["adam"][0]
    results = [
        model(tmp_path / method["name"], scenario(adam, "sent", method=method))
        for method in ({"name": "diloco"}, streaming)
    ]
    assert results[0] == pytest.approx(results[1], rel=1e-12)
    with pytest.raises(
        UserError, match="optimizer_state: Streaming DiLoCo does local steps before"
    ):
        fedsim.run(scenario(adam, "sent", method={**streaming, "overlap": 1}), tmp_path / "ahead")


def test_without_a_state_nothing_changes(tmp_path: Path) -> None:
    plain = {"name": "sgd", "lr": 0.05}
    kept = model(tmp_path / "kept", scenario(plain, "kept"))
    assert kept == model(tmp_path / "reset", scenario(plain, "reset"))
