"""Clients that train parts of a model: rounds by brute force, overlaps by hand, costs of a part, and bits."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fedsim
from fedsim.analysis.figures.time import vectors
from fedsim.composition.build import build, build_task, check_scenario
from fedsim.composition.submodels import parts_of
from fedsim.composition.world import World
from fedsim.errors import UserError
from fedsim.learning.submodels.parts import Parts
from fedsim.randomness import Purpose, Stream
from fedsim.scenario.loading import load_scenario_dict
from fedsim.tasks.kinds.supervised import SupervisedTask
from tests.composition.worlds import digests, digits

RATES, HIDDEN, SEED, LR = [1, 0.5, 0.25], [4, 6], 3, 0.2
KINDS: Mapping[str, dict[str, Any]] = {
    "plain": {"name": "heterofl", "scaler": False, "masked_loss": False},
    **{name: {"name": name} for name in ("heterofl", "fedrolex", "fjord", "depth")},
}
SCALER = {"name": "heterofl", "masked_loss": False}


def scenario(kind: str, **changes: Any) -> dict[str, Any]:
    """Three clients that train parts of different rates of a perceptron with all their samples at every step."""
    return {
        "name": "parts",
        "seed": SEED,
        "task": {
            "dataset": {"name": "digits"},
            "partition": {"name": "dirichlet", "alpha": 0.3, "clients": 3},
            "model": {"name": "mlp", "hidden": HIDDEN},
        },
        "training": {
            "optimizer": {"lr": LR},
            "local_steps": 2,
            "batch_size": 2000,
            "dtype": "float64",
        },
        "devices": {
            "compute": {"name": "values", "step": ["1s", "2s", "4s"]},
            "network": {"latency": 0, "down": "8Mbps", "up": "8kbps"},
        },
        "server": {"submodels": {**KINDS.get(kind, SCALER), "rates": RATES, "by": "speed"}},
        "stop": {"rounds": 3},
        **changes,
    }


def built(content: Mapping[str, Any], folder: Path) -> World:
    return build(load_scenario_dict(content, folder))


def parts_in(content: Mapping[str, Any], folder: Path) -> Parts:
    parts = built(content, folder).parts
    assert parts is not None
    return parts


def unchecked(content: Mapping[str, Any], folder: Path) -> Parts:
    """The parts alone, all clients with the first."""
    loaded = load_scenario_dict(content, folder)
    parts = parts_of(loaded.scenario, build_task(loaded), np.zeros(3, dtype=np.int64))
    assert parts is not None
    return parts


def layers_of_part(rate: float) -> list[tuple[int, int]]:
    """Inputs and outputs of the layers of a part."""
    return list(pairwise([64, *(int(np.ceil(n * rate)) for n in HIDDEN), 10]))


def final_model(folder: Path, content: Mapping[str, Any]) -> dict[str, Tensor]:
    return fedsim.run(content, folder).model()


# -- a round by brute force -------------------------------------------------------------------------------------------


def units(kind: str, full: int, rate: float, round_: int) -> list[int]:
    count = int(np.ceil(full * rate))
    shift = round_ if kind == "fedrolex" else 0
    return sorted((shift + unit) % full for unit in range(count))


def brute_force(kind: str, task: SupervisedTask, start: dict[str, Tensor]) -> dict[str, Tensor]:
    """Three rounds of FedAvg in which client i trains the part of ``RATES[i]``, written with slices of matrices."""
    model = {name: value.clone() for name, value in start.items()}
    widths = [64, *HIDDEN, 10]
    for round_ in range(3):
        sums = {name: torch.zeros_like(value) for name, value in model.items()}
        counts = {name: torch.zeros_like(value) for name, value in model.items()}
        for client, limit in enumerate(RATES):
            rows = torch.from_numpy(task.rows[task.offsets[client] : task.offsets[client + 1]])
            inputs = task.inputs(task.train_x[rows], torch.float64).flatten(1)
            labels = task.train_y[rows]
            local = {name: value.clone() for name, value in model.items()}
            moved = {name: torch.zeros_like(value) for name, value in model.items()}
            present = torch.isin(torch.arange(10), labels)
            masked = kind in ("heterofl", "fedrolex")
            scaled = masked or kind == "scaler"
            draws = Stream(SEED, Purpose.SUBMODEL, client, round_, 0).uniforms(np.arange(2))
            for step in range(2):
                rate = RATES[client + int(draws[step] * (3 - client))] if kind == "fjord" else limit
                kept = [list(range(64)), *(units(kind, n, rate, round_) for n in HIDDEN)]
                kept.append(list(range(10)))
                sliced = []
                values = inputs
                for layer in range(3):
                    place = np.ix_(kept[layer + 1], kept[layer])
                    weight = local[f"layers.{layer}.weight"][place].requires_grad_()
                    bias = local[f"layers.{layer}.bias"][kept[layer + 1]].requires_grad_()
                    sliced += [weight, bias]
                    values = functional.linear(values, weight, bias)
                    if layer < 2:
                        values = torch.relu(values / rate if scaled else values)
                if masked:
                    values = values.masked_fill(~present, 0.0)
                loss = functional.cross_entropy(values, labels)
                gradients = torch.autograd.grad(loss, sliced)
                for layer in range(3):
                    place = np.ix_(kept[layer + 1], kept[layer])
                    local[f"layers.{layer}.weight"][place] -= LR * gradients[2 * layer]
                    local[f"layers.{layer}.bias"][kept[layer + 1]] -= LR * gradients[2 * layer + 1]
            held = [list(range(64)), *(units(kind, n, limit, round_) for n in HIDDEN)]
            held.append(np.flatnonzero(present).tolist() if masked else list(range(10)))
            for layer in range(3):
                moved[f"layers.{layer}.weight"][np.ix_(held[layer + 1], held[layer])] = 1
                moved[f"layers.{layer}.bias"][held[layer + 1]] = 1
            for name in model:
                sums[name] += len(rows) * moved[name] * (local[name] - model[name])
                counts[name] += len(rows) * moved[name]
        model = {name: model[name] + sums[name] / counts[name].clamp(min=1) for name in model}
    assert widths[0] == inputs.shape[1]
    return model


@pytest.mark.parametrize(
    ("kind", "executor"),
    [
        *((kind, "parallel") for kind in KINDS if kind != "depth"),
        *(("plain", "auto"), ("scaler", "parallel"), ("scaler", "stacked")),
    ],
)
def test_rounds_by_brute_force(tmp_path: Path, kind: str, executor: str) -> None:
    content = scenario(kind)
    content["training"]["executor"] = executor
    task = built(content, tmp_path).task
    assert isinstance(task, SupervisedTask)
    model = task.initial(Stream(SEED, Purpose.INITIAL_MODEL), torch.float64)
    expected = brute_force(kind, task, task.layout.views(model))
    result = final_model(tmp_path / "run", content)
    for name, value in expected.items():
        assert (value != task.layout.views(model)[name]).any()
        torch.testing.assert_close(result[name], value, rtol=1e-9, atol=1e-12)


def test_a_masked_loss_is_not_stacked(tmp_path: Path) -> None:
    content = scenario("heterofl")
    content["training"]["executor"] = "stacked"
    with pytest.raises(UserError, match="masked loss"):
        fedsim.run(content, tmp_path / "run")


def test_exits_by_brute_force(tmp_path: Path) -> None:
    """Two exits of two clients, of which one has the first alone: one round, one step."""
    content = scenario("depth", stop={"rounds": 1})
    content["server"]["submodels"] |= {"rates": [1, 0.5], "distillation": 0.7}
    content["task"]["partition"]["clients"] = 2
    content["training"]["local_steps"] = 1
    content["devices"]["compute"]["step"] = ["1s", "2s"]
    task = built(content, tmp_path).task
    assert isinstance(task, SupervisedTask)
    flat = task.initial(Stream(SEED, Purpose.INITIAL_MODEL), torch.float64)
    start = task.layout.views(flat)
    hidden = ["blocks.0.1", "blocks.1.1"]
    exits = ["exits.0.classifier", "exits.1"]

    def outputs_of(model: Mapping[str, Tensor], inputs: Tensor, depth: int) -> list[Tensor]:
        results, values = [], inputs
        for block, leave in list(zip(hidden, exits, strict=True))[:depth]:
            values = torch.relu(values @ model[f"{block}.weight"].T + model[f"{block}.bias"])
            results.append(values @ model[f"{leave}.weight"].T + model[f"{leave}.bias"])
        return results

    sums = {name: torch.zeros_like(value) for name, value in start.items()}
    samples = dict.fromkeys(start, 0)
    for client, depth in ((0, 2), (1, 1)):
        rows = torch.from_numpy(task.rows[task.offsets[client] : task.offsets[client + 1]])
        inputs = task.inputs(task.train_x[rows], torch.float64).flatten(1)
        names = [
            f"{x}.{end}" for x in (*hidden[:depth], *exits[:depth]) for end in ("weight", "bias")
        ]
        model = {name: start[name].clone().requires_grad_() for name in names}
        outputs = outputs_of(model, inputs, depth)
        loss = sum(functional.cross_entropy(one, task.train_y[rows]) for one in outputs)
        if depth == 2:
            for one, other in (outputs, outputs[::-1]):
                loss = loss + 0.7 * functional.kl_div(
                    one.log_softmax(1), other.detach().softmax(1), reduction="batchmean"
                )
        for name, gradient in zip(
            names, torch.autograd.grad(loss, list(model.values())), strict=True
        ):
            sums[name] -= len(rows) * LR * gradient
            samples[name] += len(rows)
    run = fedsim.run(content, tmp_path / "run")
    result = run.model()
    for name, value in start.items():
        expected = value + sums[name] / samples[name]
        torch.testing.assert_close(result[name], expected, rtol=1e-9, atol=1e-12)
    with torch.no_grad():
        inputs = task.inputs(task.test_x, torch.float64).flatten(1)
        mean = torch.stack([one.softmax(1) for one in outputs_of(result, inputs, 2)]).mean(0)
    accuracy = (mean.argmax(1) == task.test_y).double().mean().item()
    assert run.metrics.iloc[-1]["accuracy"] == pytest.approx(accuracy)
    loss = functional.nll_loss(mean.log(), task.test_y).item()
    assert run.metrics.iloc[-1]["loss"] == pytest.approx(loss)


@pytest.mark.parametrize(
    ("kind", "model"),
    [*((kind, "cnn") for kind in KINDS), ("fedrolex", "resnet18"), ("fjord", "resnet20")],
)
def test_models_of_the_package_are_divided(tmp_path: Path, kind: str, model: str) -> None:
    content = scenario(kind)
    content["task"]["model"] = {"name": model, **({"norm": "batch"} if "resnet" in model else {})}
    if model == "resnet18":
        content["server"]["submodels"]["rates"] = [0.1, 0.05]
    parts = unchecked(content, tmp_path)
    whole = torch.arange(parts.whole.layout.size)
    for round_ in (0, 3):
        sizes = []
        for level, task in enumerate(parts.tasks):
            layouts = parts.whole.layout, task.layout
            positions = parts.submodels.positions(*layouts, round_)
            assert len(np.unique(positions)) == len(positions) == task.layout.size
            # Every tensor of a part consists of entries of the tensor of its name.
            owner = parts.whole.layout.views(whole)
            for name, view in task.layout.views(torch.from_numpy(positions)).items():
                assert owner[name].min() <= view.min()
                assert view.max() <= owner[name].max()
            assert parts.sent(level) == (task.layout.size if kind == "depth" else task.parameters)
            sizes.append(task.layout.size)
        assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("rate", [0.75, 0.5, 0.1])
def test_a_part_of_resnet20_computes_what_the_whole_does_without_its_other_channels(
    tmp_path: Path, rate: float
) -> None:
    content = scenario("plain")
    content["task"]["model"] = {"name": "resnet20", "norm": "batch"}
    content["server"]["submodels"]["rates"] = [1, rate]
    parts = unchecked(content, tmp_path)
    whole, part = (task.module.eval() for task in parts.tasks)
    kept = torch.zeros(parts.whole.layout.size)
    kept[parts.submodels.positions(parts.whole.layout, parts.tasks[1].layout, 0)] = 1
    state = whole.state_dict()
    for name, mask in parts.whole.layout.views(kept).items():
        state[name] = (torch.randn_like(state[name]) + (name.endswith("var") * 9)) * mask
    blocks = {
        name: state[name][tuple(slice(n) for n in value.shape)]
        for name, value in part.state_dict().items()
    }
    images = torch.randn(2, 1, 8, 8, dtype=next(iter(blocks.values())).dtype)
    expected = torch.func.functional_call(whole, state, images)
    torch.testing.assert_close(torch.func.functional_call(part, blocks, images), expected)
    assert expected.abs().min() > 0


def test_a_rolled_window_keeps_the_pixels_of_a_channel_together(tmp_path: Path) -> None:
    content = scenario("fedrolex")
    content["task"]["model"] = {"name": "cnn", "channels": [2, 4], "hidden": [3], "kernel": 3}
    parts = parts_in(content, tmp_path)
    layout, half = parts.whole.layout, parts.tasks[1].layout
    positions = torch.from_numpy(parts.submodels.positions(layout, half, 3))
    owner = layout.views(torch.arange(layout.size))
    second, flat = half.views(positions)["3.weight"], half.views(positions)["7.weight"]
    # In round 3 channels 3 and 0 of the four of the second convolution, and the second of the first's two.
    assert torch.equal(second, owner["3.weight"][[0, 3]][:, [1]])
    pixels = [*range(4), *range(12, 16)]
    assert torch.equal(flat, owner["7.weight"][[0, 1]][:, pixels])


def test_static_batch_normalization(tmp_path: Path) -> None:
    """Statistics are those of all training samples at the final model, in one batch; clients send none."""
    file = tmp_path / "net.py"
    file.write_text(NET, encoding="utf-8")
    content = scenario("heterofl", stop={"rounds": 2})
    content["task"]["model"] = {"name": f"{file}:Net"}
    content["training"] |= {"dtype": "float32", "batch_size": 64}
    parts = parts_in(content, tmp_path)
    assert [parts.sent(level) for level in range(3)] == [75 * n + 10 + 2 * n for n in (8, 4, 2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedsim.learning.evaluation._CPU_BATCH", 4096)
        model = final_model(tmp_path / "run", content)
    task = parts.whole
    inputs = task.inputs(task.train_x[np.unique(task.rows)]).flatten(1)
    values = inputs @ model["first.weight"].T + model["first.bias"]
    torch.testing.assert_close(model["norm.running_mean"], values.mean(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model["norm.running_var"], values.var(0), rtol=1e-4, atol=1e-5)


NET = """
import math
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, input_shape, classes, model_rate=1.0):
        super().__init__()
        width = math.ceil(8 * model_rate)
        self.first = nn.Linear(math.prod(input_shape), width)
        self.norm = nn.BatchNorm1d(width)
        self.last = nn.Linear(width, classes)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x.flatten(1)))))
"""


# -- overlaps by hand -------------------------------------------------------------------------------------------------


def test_parts_of_rate_1_are_fedavg_bit_for_bit(tmp_path: Path) -> None:
    whole = fedsim.run(digits(), tmp_path / "whole")
    for name in ("heterofl", "fedrolex"):
        submodels = {"name": name, "rates": [1], "by": "speed", "masked_loss": False}
        run = fedsim.run(
            digits(server={**digits()["server"], "submodels": submodels}), tmp_path / name
        )
        assert digests(run.path) == digests(whole.path)


def test_equal_parts_are_fedavg_on_the_smaller_model_bit_for_bit(tmp_path: Path) -> None:
    """FedRolex in its first round: a part is the leading block."""
    content = digits(
        stop={"rounds": 1},
        server={"submodels": {"name": "fedrolex", "rates": [0.5], "by": "speed"}},
    )
    content["server"]["submodels"] |= {"scaler": False, "masked_loss": False}
    half = final_model(tmp_path / "half", content)
    (part,) = built(content, tmp_path).parts.tasks  # type: ignore[union-attr]
    start = built(content, tmp_path).task
    assert isinstance(start, SupervisedTask)
    model = start.initial(Stream(0, Purpose.INITIAL_MODEL))

    def initial(*_: Any) -> Tensor:
        views, shapes = start.layout.views(model), part.layout.shapes
        blocks = [
            v[tuple(slice(n) for n in s)] for v, s in zip(views.values(), shapes, strict=True)
        ]
        return torch.cat([block.reshape(-1) for block in blocks])

    content["server"] = {}
    content["task"]["model"]["hidden"] = [8]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SupervisedTask, "initial", initial)
        small = final_model(tmp_path / "small", content)
    for name, value in small.items():
        assert torch.equal(half[name][tuple(slice(n) for n in value.shape)], value)


# -- what a part costs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["heterofl", "fjord"])
def test_bytes_operations_and_memory_are_those_of_a_module_of_that_size(
    tmp_path: Path, kind: str
) -> None:
    content = scenario(kind)
    content["devices"]["compute"] = {"name": "flops", "flops_per_s": 1e6, "sigma": 0, "fixed": "1s"}
    content["devices"]["memory"] = "1GB"
    world = built(content, tmp_path)
    parts = world.parts
    assert parts is not None
    assert sorted(parts.level.tolist()) == [0, 1, 2]
    samples, seconds = world.task.samples, []
    for level, rate in enumerate(RATES):
        layers = layers_of_part(rate)
        module = nn.Sequential(*(nn.Linear(n, m) for n, m in layers))
        parameters = sum(value.numel() for value in module.parameters())
        assert world.traffic_bytes(level) == (8 * parameters, 8 * parameters)
        assert world.first_download_bytes(level) == 8 * parameters
        # Forward and both backward products, except for the gradient of the first layer's input.
        products = [n * m for n, m in layers]
        seconds.append((6 * sum(products) - 2 * products[0]) / 1e6)
        # Model and gradient; inputs of layers, log-softmax and label per sample.
        needed = 8 * (2 * parameters + (sum(n for n, _ in layers) + 11) * samples)
        memory = world.devices.memory_of_part(world.method, parts, level)
        assert memory.tolist() == needed.tolist()
    if kind == "fjord":
        seconds = [np.mean(seconds[level:]) for level in range(3)]
    step_s = world.population.compute.step_s
    np.testing.assert_allclose(step_s, 1 + np.array(seconds)[parts.level] * samples)
    durations = [world.expected_duration_s(client) for client in range(3)]
    uploads = np.array([world.traffic_bytes(level)[1] for level in parts.level.tolist()]) / 1e3
    np.testing.assert_allclose(durations, 2 * step_s + uploads + uploads / 1e3)


def test_a_compressed_part_is_that_of_its_own_entries(tmp_path: Path) -> None:
    """The slowest client sends three entries of its quarter of the model, and the other entries stay."""
    content = scenario("plain", stop={"rounds": 1})
    content["server"]["selection"] = {"name": "scripted", "rounds": [[2]]}
    content["server"]["compression"] = {"up": {"name": "topk", "share": 0.01}}
    parts = parts_in(content, tmp_path)
    task = parts.whole
    start = task.initial(Stream(SEED, Purpose.INITIAL_MODEL), torch.float64)
    run = fedsim.run(content, tmp_path / "run")
    model = run.model()
    moved = torch.cat([model[name].flatten() for name in task.layout.names]) != start
    size = 65 * 1 + 2 * 2 + 3 * 10
    assert parts.sent(2) == size
    assert set(moved.nonzero().flatten().tolist()) <= set(
        parts.submodels.positions(task.layout, parts.tasks[2].layout, 0).tolist()
    )
    # One of 99 entries of 64 bits, with a position of 7 bits.
    assert (int(moved.sum()), size) == (1, 99)
    assert run.dispatches["bytes_up"].tolist() == [round(71 / 8)]
    figure = vectors(run)
    assert figure is not None
    # 4 entries of 360, with positions of 9 bits; in the run, those of the part.
    assert figure.finding.startswith("An upload of the whole model has 36.5 B")
    assert figure.rows[-1][-1] == 9


@pytest.mark.parametrize("deadline_s", [3.0, 7.0, 12.0, 40.0])
def test_the_deadline_chooses_the_largest_part_that_ends_in_time(
    tmp_path: Path, deadline_s: float
) -> None:
    content = scenario("plain")
    content["server"]["submodels"]["by"] = "deadline"
    content["server"]["schedule"] = {"name": "sync", "deadline": deadline_s}
    parts = parts_in(content, tmp_path)
    costs = []
    for rate in RATES:
        layers = layers_of_part(rate)
        products = [n * m for n, m in layers]
        costs.append((3 * sum(products) - products[0], sum((n + 1) * m for n, m in layers)))
    expected = []
    for step_s in (1, 2, 4):
        seconds = [2 * step_s * a / costs[0][0] + 8 * n / 1e3 + 8 * n / 1e6 for a, n in costs]
        in_time = [level for level, each in enumerate(seconds) if each <= deadline_s]
        expected.append(min(in_time, default=len(RATES) - 1))
    assert parts.level.tolist() == expected


def test_exits_of_a_users_module(tmp_path: Path) -> None:
    """``forward`` returns the outputs of exits in a list; the slow client has the first exit and trains it alone."""
    (tmp_path / "net.py").write_text(EXITS, encoding="utf-8")
    content = scenario("depth", stop={"rounds": 1})
    content["server"]["submodels"]["rates"] = [1, 0.5]
    content["server"]["selection"] = {"name": "scripted", "rounds": [[2]]}
    content["task"]["model"] = {"name": f"{tmp_path / 'net.py'}:Net"}
    parts = parts_in(content, tmp_path)
    assert [parts.sent(level) for level in range(2)] == [65 * 5 + 60 + 30 + 60, 65 * 5 + 60]
    content["training"]["optimizer"]["lr"] = 1e-300
    start = final_model(tmp_path / "still", content)
    content["training"]["optimizer"]["lr"] = LR
    model = final_model(tmp_path / "run", content)
    assert {name for name in model if (model[name] != start[name]).any()} == {
        f"{layer}.0.{kind}" for layer in ("blocks", "exits") for kind in ("weight", "bias")
    }


EXITS = """
import math
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, input_shape, classes, model_rate=1.0):
        super().__init__()
        blocks = round(2 * model_rate)
        sizes = [math.prod(input_shape), 5, 5]
        self.blocks = nn.ModuleList(nn.Linear(sizes[i], sizes[i + 1]) for i in range(blocks))
        self.exits = nn.ModuleList(nn.Linear(5, classes) for i in range(blocks))

    def forward(self, x):
        values, outputs = x.flatten(1), []
        for block, leave in zip(self.blocks, self.exits):
            values = torch.relu(block(values))
            outputs.append(leave(values))
        return outputs
"""


def test_memory_lets_clients_in_by_their_part(tmp_path: Path) -> None:
    """With the memory that the client with most samples needs for half of the model, everybody takes part."""
    content = scenario("plain")
    content["server"]["submodels"]["by"] = "memory"
    content["devices"]["memory"] = "1GB"
    task = built(content, tmp_path).task

    def needed(rate: float) -> Any:
        layers = layers_of_part(rate)
        parameters = sum((n + 1) * m for n, m in layers)
        return 8 * (2 * parameters + (sum(n for n, _ in layers) + 11) * task.samples)

    memory = int(needed(0.5).max())
    content["devices"]["memory"] = memory
    world = built(content, tmp_path)
    assert world.parts is not None
    assert not world.population.short_of_memory.any()
    fits = [needed(rate) <= memory for rate in RATES]
    assert world.parts.level.tolist() == np.argmax(fits, axis=0).tolist()
    assert sorted(set(world.parts.level.tolist())) == [0, 1]
    del content["server"]["submodels"]
    short = built(content, tmp_path).population.short_of_memory
    assert (~short).tolist() == fits[0].tolist()


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "where", "fix"),
    [
        ({"server.submodels.rates": [1.5, 1]}, "server.submodels.rates", "less than or equal to 1"),
        ({"server.submodels.rates": [1, 0]}, "server.submodels.rates", "greater than 0"),
        ({"server.submodels.rates": [0.5, 1]}, "server.submodels.rates", "from the largest"),
        ({"server.submodels.rates": [0.5]}, "server.submodels.rates", "never trained"),
        ({"server.submodels.by": "memory"}, "server.submodels.by", "give devices.memory"),
        ({"server.submodels.by": "deadline"}, "server.submodels.by", "a deadline"),
        ({"devices.memory": "100kB"}, "server.submodels.rates", "no device can hold the part"),
        ({"task.model": {"name": "logistic_regression"}}, "server.submodels", "model_rate"),
        ({"task.model": {"name": "mlp", "hidden": [1]}}, "server.submodels.rates", "not smaller"),
        ({"task.model": "resnet20", "server.submodels.name": "fedrolex"}, "submodels", "shortcuts"),
        ({"server.method": "scaffold"}, "server.submodels", "control"),
        (
            {"server.submodels.by": "deadline", "server.schedule": "async"},
            "server.submodels.by",
            "give server.schedule a timeout",
        ),
        (
            {"server.method": "fedasync"},
            "server.submodels",
            "fedasync does not work with submodels: its clients send models,",
        ),
        ({"server.method": "aced"}, "server.submodels", "latest updates"),
        ({"server.method": "fedlga"}, "server.submodels", "completes"),
        ({"server.method": "ditto"}, "server.submodels", "personal"),
        ({"server.compression": {"up": "powersgd"}}, "server.compression.up", "qsgd"),
        (
            {"training.optimizer_state": "kept", "training.optimizer": "adam"},
            "optimizer_state",
            "reset",
        ),
    ],
)
def test_refusals(tmp_path: Path, changes: dict[str, Any], where: str, fix: str) -> None:
    content = scenario("plain")
    for key, value in changes.items():
        *sections, last = key.split(".")
        section = content
        for name in sections:
            section = section[name]
        section[last] = value
    with pytest.raises(UserError) as caught:
        check_scenario(load_scenario_dict(content, tmp_path))
    text = str(caught.value)
    assert where in text
    assert fix.lower() in text.lower()


def test_a_module_without_exits_is_not_divided_by_depth(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import math\n\nfrom torch import nn\n\n\n"
        "class Net(nn.Module):\n"
        "    def __init__(self, input_shape, classes, model_rate=1.0):\n"
        "        super().__init__()\n"
        "        width = int(16 * model_rate)\n"
        "        self.layers = nn.Sequential(\n"
        "            nn.Flatten(), nn.Linear(math.prod(input_shape), width), nn.Linear(width, classes)\n"
        "        )\n"
        "    def forward(self, x):\n"
        "        return self.layers(x)\n"
    )
    content = scenario("depth")
    content["task"]["model"] = f"{tmp_path / 'net.py'}:Net"
    with pytest.raises(UserError, match="this one returns one tensor") as caught:
        check_scenario(load_scenario_dict(content, tmp_path))
    assert "cannot process" not in str(caught.value)
