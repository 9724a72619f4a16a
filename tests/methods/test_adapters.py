"""Federated adapters on a network of two layers, whose gradients and aggregations are computed here by hand."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fedsim
from fedsim.composition.build import build, build_task
from fedsim.errors import UserError
from fedsim.scenario.loading import load_scenario, load_scenario_dict
from tests.composition.worlds import digits

Array = npt.NDArray[np.float64]
Model = dict[str, Array]
RANK, SCALING, RATE, STEPS, SEED = 3, 0.5, 2.0, 3, 4
ROUNDS = [[0, 1], [1], [0, 1], [0, 1]]
METHODS = ("ffa_lora", "hetlora", "flexlora", "flora")

USERS = """
import torch
from torch import nn

class Adapted(nn.Module):
    '''W x + scaling B A x, named as in loralib; ``stored`` transposes W.'''

    scaling = 0.5

    def __init__(self, inputs, outputs, rank, stored):
        super().__init__()
        self.fan_in_fan_out = stored
        shape = (inputs, outputs) if stored else (outputs, inputs)
        self.weight = nn.Parameter(torch.randn(shape) / 4, requires_grad=False)
        self.lora_A = nn.Parameter(torch.randn(rank, inputs) / 8)
        self.lora_B = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, x):
        weight = self.weight.T if self.fan_in_fan_out else self.weight
        return x @ weight.T + self.scaling * (x @ self.lora_A.T @ self.lora_B.T)

class Net(nn.Module):
    def __init__(self, classes, rank=3, model_rate=1.0):
        super().__init__()
        rank = round(rank * model_rate)
        self.first = Adapted(64, 5, rank, False)
        self.last = Adapted(5, classes, rank, True)
        self.bias = nn.Parameter(torch.zeros(classes))

    def forward(self, x):
        return self.last(torch.tanh(self.first(x.flatten(1)))) + self.bias
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.py").write_text(USERS)
    monkeypatch.chdir(tmp_path)


def scenario(method: Any, **changes: Any) -> dict[str, Any]:
    """Full-batch SGD on two clients."""
    task = {
        "dataset": {"name": "digits"},
        "partition": {"name": "dirichlet", "alpha": 0.5, "clients": 2},
        "model": {"name": "own.py:Net"},
    }
    training = {"optimizer": {"name": "sgd", "lr": RATE}, "local_steps": STEPS}
    world = {
        "seed": SEED,
        "task": task,
        "training": training | {"batch_size": 10_000, "dtype": "float64"},
        "server": {"method": method, "selection": {"name": "scripted", "rounds": ROUNDS}},
        "stop": {"rounds": len(ROUNDS)},
        "evaluation": {"every_rounds": 9},
    }
    return digits(**(world | changes))


def trained(model: Model, x: Array, y: Any, frozen: tuple[str, ...] = ()) -> Model:
    """Local steps of SGD on the mean cross-entropy, with the gradients of the chain rule."""
    model = dict(model)
    for _ in range(STEPS):
        w1, w2 = model["first.weight"], model["last.weight"].T
        a1, b1, a2, b2 = (
            model[f"{layer}.lora_{kind}"] for layer in ("first", "last") for kind in "AB"
        )
        h = np.tanh(x @ (w1 + SCALING * b1 @ a1).T)
        z = h @ (w2 + SCALING * b2 @ a2).T + model["bias"]
        p = np.exp(z - z.max(1, keepdims=True))
        dz = (p / p.sum(1, keepdims=True) - np.eye(z.shape[1])[y]) / len(x)
        dh = dz @ (w2 + SCALING * b2 @ a2) * (1 - h**2)
        g1, g2 = SCALING * dh.T @ x, SCALING * dz.T @ h
        gradients = {
            "first.lora_A": b1.T @ g1,
            "first.lora_B": g1 @ a1.T,
            "last.lora_A": b2.T @ g2,
            "last.lora_B": g2 @ a2.T,
            "bias": dz.sum(0),
        }
        for name, gradient in gradients.items():
            if not name.endswith(frozen or ("-",)):
                model[name] = model[name] - RATE * gradient
    return model


def cut(model: Model, rank: int) -> Model:
    """The first rows of every A and the first columns of every B."""
    return {
        name: value[:rank]
        if name.endswith("_A")
        else value[:, :rank]
        if name.endswith("_B")
        else value
        for name, value in model.items()
    }


def padded(value: Array, rank: int) -> Array:
    """With zero rows up to this rank."""
    return np.concatenate([value, np.zeros((rank - len(value), value.shape[1]))])


def mean(models: list[Model], weights: Array, name: str) -> Array:
    return np.asarray(sum(w * model[name] for w, model in zip(weights, models, strict=True)))


def ffa_lora(before: Model, models: list[Model], weights: Array) -> Model:
    """Only B and the bias have changed."""
    return {name: mean(models, weights, name) for name in before}


def hetlora(before: Model, models: list[Model], weights: Array) -> Model:
    """Weights are the norms of the products, separately for each layer."""
    after = before | {"bias": mean(models, weights, "bias")}
    for layer in ("first", "last"):
        a, b = f"{layer}.lora_A", f"{layer}.lora_B"
        norms = np.array([np.sqrt(((m[b] @ m[a]) ** 2).sum()) for m in models])
        full = [{a: padded(m[a], RANK), b: padded(m[b].T, RANK).T} for m in models]
        after |= {name: mean(full, norms / norms.sum(), name) for name in (a, b)}
    return after


def flexlora(before: Model, models: list[Model], weights: Array) -> Model:
    """The best approximation of the mean product by a matrix of the largest rank."""
    after = before | {"bias": mean(models, weights, "bias")}
    for layer in ("first", "last"):
        a, b = f"{layer}.lora_A", f"{layer}.lora_B"
        product = mean([{"ba": m[b] @ m[a]} for m in models], weights, "ba")
        v = np.linalg.svd(product)[2][:RANK]
        after |= {a: v, b: product @ v.T}
    return after


def flora(before: Model, models: list[Model], weights: Array) -> Model:
    """One large adapter of the stacked matrices is added to each matrix."""
    after = before | {"bias": mean(models, weights, "bias")}
    for layer, transposed in (("first", False), ("last", True)):
        a, b = f"{layer}.lora_A", f"{layer}.lora_B"
        stacked_a = np.concatenate([w * m[a] for w, m in zip(weights, models, strict=True)])
        change = SCALING * np.concatenate([m[b] for m in models], 1) @ stacked_a
        name = f"{layer}.weight"
        after[name] = before[name] + (change.T if transposed else change)
    return after


RULES: dict[str, Callable[[Model, list[Model], Array], Model]] = {
    "ffa_lora": ffa_lora,
    "hetlora": hetlora,
    "flexlora": flexlora,
    "flora": flora,
}


def products(model: Model) -> list[Array]:
    """What the network computes with, which does not depend on the signs of singular vectors."""
    return [
        model["bias"],
        *(
            (model["last.weight"].T if layer == "last" else model["first.weight"])
            + SCALING * model[f"{layer}.lora_B"] @ model[f"{layer}.lora_A"]
            for layer in ("first", "last")
        ),
    ]


def drawn(model: Model, client: int, sequence: int) -> Model:
    """New adapters, from the stream of the method."""
    from fedsim.randomness import Purpose, Stream

    generator = Stream(SEED, Purpose.METHOD, 2, client, sequence).generator()
    model = dict(model)
    for layer in ("first", "last"):
        a, b = f"{layer}.lora_A", f"{layer}.lora_B"
        bound = 1 / np.sqrt(model[a].shape[1])
        model[a], model[b] = generator.uniform(-bound, bound, model[a].shape), 0 * model[b]
    return model


def by_hand(run: Any, start: Model, method: str, ranks: tuple[int, ...]) -> Model:
    """The rounds of a run."""
    task: Any = build_task(load_scenario(run.folder.scenario))
    model, sequences = start, [0, 0]
    for clients in ROUNDS:
        models, samples = [], []
        for client in clients:
            rows = task.rows[task.offsets[client] : task.offsets[client + 1]]
            x = task.inputs(task.train_x[rows]).double().flatten(1).numpy()
            local = cut(model, ranks[client])
            local = drawn(local, client, sequences[client]) if method == "flora" else local
            frozen = ("_A",) if method == "ffa_lora" else ()
            models.append(trained(local, x, task.train_y[rows].numpy(), frozen))
            samples.append(len(rows))
            sequences[client] += 1
        model = RULES[method](model, models, np.array(samples) / sum(samples))
    return model


def model_of(run: Any) -> Model:
    return {name: value.double().numpy() for name, value in run.model().items()}


# The second client's device is faster.
UNEQUAL: dict[str, Any] = {
    "devices": {
        "compute": {"name": "values", "step": ["2s", "1s"]},
        "network": {"down": "1Mbps", "up": "1Mbps"},
    },
    "submodels": {"name": "ranks", "rates": [1, 0.34], "by": "speed"},
}


def unequal(method: Any) -> dict[str, Any]:
    """The first client has rank 1."""
    content = scenario(method, devices=UNEQUAL["devices"])
    content["server"]["submodels"] = UNEQUAL["submodels"]
    return content


@cache
def started() -> Model:
    """The initial model of all scenarios."""
    still = scenario("fedavg", stop={"rounds": 1})
    still["training"]["optimizer"] = {"name": "sgd", "lr": 1e-300}
    return model_of(fedsim.run(still, Path("still")))


@pytest.mark.parametrize(
    ("method", "ranks"),
    [(method, (3, 3)) for method in METHODS] + [(method, (1, 3)) for method in METHODS[1:]],
)
def test_rounds_by_hand(tmp_path: Path, method: str, ranks: tuple[int, ...]) -> None:
    start = started()
    content = unequal(method) if ranks[0] < RANK else scenario(method)
    run = fedsim.run(content, tmp_path / "run")
    expected = by_hand(run, start, method, ranks)
    for mine, theirs in zip(products(model_of(run)), products(expected), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)
    if method == "ffa_lora":
        assert (model_of(run)["first.lora_A"] == start["first.lora_A"]).all()
    assert not np.allclose(products(start)[1], products(expected)[1], atol=1e-3)


# Of 64 x 5 and 5 x 10: matrices of 320 and 50 numbers, A of 192 and 15, B of 15 and 30, a bias of 10.
A, B, BIAS, BASE = 192 + 15, 15 + 30, 10, 320 + 50


@pytest.mark.parametrize(
    ("method", "first", "down", "up"),
    [
        ("fedavg", BASE + A + B + BIAS, A + B + BIAS, A + B + BIAS),
        ("ffa_lora", BASE + A + B + BIAS, B + BIAS, B + BIAS),
        ("hetlora", BASE + A + B + BIAS, A + B + BIAS, A + B + BIAS),
        ("flora", BASE + BIAS, BASE + BIAS, A + B + BIAS),
        # Two stacked adapters of rank 1: 64 + 5 and 5 + 10 numbers each.
        ({"name": "flora", "stacked_rank": 2}, BASE + BIAS, 2 * 84 + BIAS, A + B + BIAS),
        ({"name": "flora", "stacked_rank": 9}, BASE + BIAS, BASE + BIAS, A + B + BIAS),
    ],
)
def test_bytes(tmp_path: Path, method: Any, first: int, down: int, up: int) -> None:
    table = fedsim.run(scenario(method), tmp_path / "run").dispatches
    assert set(table[table["sequence"] == 0]["bytes_down"]) == {8 * first}
    assert set(table[table["sequence"] > 0]["bytes_down"]) == {8 * down}
    assert set(table["bytes_up"]) == {8 * up}


def test_compressed_matrices_of_flora_are_no_buffers(tmp_path: Path) -> None:
    """All that is sent is rounded to 16 bits; uploads have no matrices."""
    content = scenario("flora")
    content["server"]["compression"] = {"up": "cast", "down": "cast"}
    table = fedsim.run(content, tmp_path / "run").dispatches
    assert set(table[table["sequence"] > 0]["bytes_down"]) == {2 * (BASE + BIAS)}
    assert set(table["bytes_up"]) == {2 * (A + B + BIAS)}


@pytest.mark.parametrize(
    ("method", "down", "up"),
    [
        ("hetlora", (A + B) // 3 + BIAS, (A + B) // 3 + BIAS),
        ("flora", BASE + BIAS, (A + B) // 3 + BIAS),
        ({"name": "flora", "stacked_rank": 2}, 2 * 84 + BIAS, (A + B) // 3 + BIAS),
    ],
)
def test_bytes_time_and_memory_follow_the_rank(
    tmp_path: Path, method: Any, down: int, up: int
) -> None:
    """Rank 1 of 3: a third of A and B, of their products, and of their gradients."""
    run = fedsim.run(unequal(method), tmp_path / "run")
    table = run.dispatches[run.dispatches["sequence"] > 0].set_index("client_id")
    assert set(table.loc[0, ["bytes_up"]].to_numpy().ravel()) == {8 * up}
    assert set(table.loc[0, ["bytes_down"]].to_numpy().ravel()) == {8 * down}
    assert set(table.loc[1, ["bytes_up"]].to_numpy().ravel()) == {8 * (A + B + BIAS)}
    # Of 622 + 362 products, A, B and their gradients have 207 + 45 forward and 207 + 45 + 45 + 15 backward.
    share = 1 - (A + B + A + B + B + 15) * 2 / 3 / (622 + 362)
    assert run.clients["step_s"].tolist() == pytest.approx([2 * share, 1.0])


def test_memory_chooses_the_rank(tmp_path: Path) -> None:
    """Rank 1 of 3 saves two thirds of A and B and of their gradients, and two numbers per adapter and sample."""
    content = unequal("flexlora")
    content["server"]["submodels"]["by"] = "memory"
    content["devices"]["memory"] = "1GB"
    world = build(load_scenario_dict(content, tmp_path))
    parts = world.parts
    assert parts is not None
    needs = [world.devices.memory_of_part(world.method, parts, level) for level in range(2)]
    saved = 2 * (A + B) * 2 // 3 + world.task.samples * 2 * 2
    assert (needs[0] - needs[1]).tolist() == (8 * saved).tolist()
    content["devices"]["memory"] = [int(needs[0][0]) - 1, int(needs[0][1])]
    parts = build(load_scenario_dict(content, tmp_path)).parts
    assert parts is not None
    assert parts.level.tolist() == [1, 0]


@pytest.mark.parametrize(("transfer", "level"), [("changed", 0), ("all", 1)])
def test_the_deadline_counts_the_frozen_matrices_that_are_sent(
    tmp_path: Path, transfer: str, level: int
) -> None:
    """Three steps take 3 s, A, B and the bias 2.1 s each way, and the base model 3 s, of which 1.5 s are left."""
    content = unequal("hetlora")
    content["devices"] = {
        "compute": {"name": "values", "step": "1s"},
        "network": {"down": "8kbps", "up": "8kbps", "latency": 0},
    }
    content["server"]["submodels"]["by"] = "deadline"
    ways_s = 2 * 8 * (A + B + BIAS) / 1e3
    content["server"] |= {
        "transfer": transfer,
        "schedule": {"name": "sync", "deadline": 4.5 + ways_s},
    }
    parts = build(load_scenario_dict(content, tmp_path)).parts
    assert parts is not None
    assert parts.level.tolist() == [level] * 2


def test_ranks_must_not_change_the_factor(tmp_path: Path) -> None:
    users = tmp_path / "own.py"
    users.write_text(
        users.read_text().replace(
            "super().__init__()\n        rank",
            "super().__init__()\n        Adapted.scaling = model_rate\n        rank",
        )
    )
    with pytest.raises(UserError, match=r"the factor of the adapter 'first.lora_A' is 0.34 at"):
        fedsim.run(unequal("hetlora"), tmp_path / "run")


def test_frozen_matrices_save_operations_and_memory(tmp_path: Path) -> None:
    """The products of FedAvg, forward and backward, without those for the gradients of A."""
    devices = {
        "compute": {"name": "flops", "flops_per_s": 1e6},
        "network": {"down": "1Mbps", "up": "1Mbps"},
    }
    steps, needs = {}, {}
    for method in ("fedavg", "ffa_lora"):
        content = scenario(method, devices=devices)
        world = build(load_scenario_dict(content, tmp_path))
        steps[method] = float(world.population.compute.step_s[0])
        assert world.task.flops_per_sample() == 2 * (622 + 362)
        needs[method] = float(world.devices.memory_needed(world.method, world.parts)[0])
    # 622 products forward: 64 x 5 + 5 x 10 + A + B. 362 backward: through W and A of the second layer (50 + 15), the
    # gradients of B (45), of what enters B (45) and of A (207). With A frozen, what enters the first B needs none.
    assert steps["ffa_lora"] / steps["fedavg"] == pytest.approx(1 - (A + 15) / (622 + 362))
    assert needs["fedavg"] - needs["ffa_lora"] == 8 * A
