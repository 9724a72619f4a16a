"""What every method keeps: the same bits wherever and in whatever groups it is executed, and plain means of buffers."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from ruamel.yaml import YAML

import fedsim
from fedsim.cli import cli
from fedsim.learning.device import Execution
from fedsim.learning.learner import Learner
from fedsim.methods.fedavg import FedAvg
from fedsim.parts.catalog import CATALOG
from fedsim.scenario.loading import load_scenario_dict
from fedsim.scheduling.schedules.compass import Compass
from tests.learning.problems import Timeline, make_learner, make_training, supervised_task
from tests.methods.driver import play
from tests.methods.fakes import Written, make
from tests.methods.own_method import SCENARIO, run_with
from tests.methods.personal_worlds import CASE_B, Story, coupled

CPU = torch.device("cpu")


def variants(text: str) -> list[dict[str, Any]]:
    """Methods with parameters, written as in a scenario, without the outer braces."""
    lines = (f"{{name: {line.strip()}}}" for line in text.split(";"))
    return [YAML(typ="safe").load(line) for line in lines]


VARIANTS = [
    *({"name": name} for name in CATALOG.parts("method")),
    *variants(
        """fedsum_cr, correction: lr_sum; scaffold, uplink: 1; scaffold_p, uplink: 1, keep_v_on_drop: true;
        scaffold_p, keep_v_on_drop: true; fedau, cutoff: 2; fedawe, clip_norm: 0.5;
        fedlga, hessian: per_tensor, clip: true, k2_empty: last; fedlga, grad_source: last_grad, sign: -1, lam: 0.1;
        generalized_fedavg, every_rounds: 3, amplification: 2.0; wait, local: frozen"""
    ),
]


def rounds(count: int = 5, clients: int = 8) -> Timeline:
    """Everybody, as in a prologue; then random participants, partial work, lost work of which some was done, an empty
    round; an evaluation after every other round."""
    rng = np.random.default_rng(5)
    timeline = Timeline()
    timeline.aggregate(*[timeline.dispatch(client, 4) for client in range(clients)])
    for number in range(count):
        members = rng.choice(clients, int(rng.integers(2, 5)), replace=False).tolist()
        trains = [timeline.dispatch(client, 4) for client in members]
        if number == 3:
            for train in trains:
                timeline.lose(train)
            trains = []
        elif number % 3 == 1:
            timeline.lose(trains.pop())
        elif number % 3 == 2:
            timeline.calls.append(("submit", replace(trains.pop(), used=False)))
        done = rng.integers(1, 5, len(trains)).tolist()
        timeline.aggregate(
            *[replace(train, steps=steps) for train, steps in zip(trains, done, strict=True)]
        )
        if number % 2:
            timeline.evaluate()
    return timeline


def label(variant: dict[str, Any]) -> str:
    return "-".join(str(value) for value in variant.values())


def learner_of(variant: dict[str, Any], task: Any, *, threads: int = 1, **options: Any) -> Learner:
    given = dict(variant)
    kind = CATALOG.parts("method")[given.pop("name")]
    training = make_training(optimizer={"name": "sgd", "lr": 0.05}, threads=threads)
    return make_learner(task, training, kind, kind.Params.model_validate(given), **options)


Results = tuple[dict[str, torch.Tensor], list[Mapping[str, float]]]


def executed(
    variant: dict[str, Any], timeline: Timeline, until: int | None = None, **options: Any
) -> Results:
    """State, memories and metrics after a timeline, or after its first instructions and then, resumed, all of it."""
    metrics: list[Mapping[str, float]] = []
    task = supervised_task("mlp", own_test=True)

    def made(**more: Any) -> Learner:
        metrics.clear()
        return learner_of(variant, task, on_metrics=lambda _, row: metrics.append(row), **more)

    if until is not None:
        half = timeline.play(made(**options), until=until)
        half.flush()
        tensors, meta = half.state()
        options = {**options, "checkpoint": (tensors, json.loads(json.dumps(meta)))}
    learner = timeline.play(made(**options))
    learner.close()
    state = {name: value.clone() for name, value in learner.server.items()}
    state |= {f"memory/{name}": rows for name, rows in learner.store.tensors().items()}
    return state, list(metrics)


def assert_same(actual: Results, expected: Results) -> None:
    assert actual[1] == expected[1]
    assert actual[0].keys() == expected[0].keys()
    for name, value in expected[0].items():
        assert torch.equal(actual[0][name].nan_to_num(7), value.nan_to_num(7)), name


@pytest.mark.parametrize("variant", VARIANTS, ids=label)
def test_the_same_bits_however_it_is_executed(variant: dict[str, Any]) -> None:
    """Eagerly; deferred in small waves on two threads, and on two devices, both resumed on the way."""
    timeline = rounds()
    expected = executed(variant, timeline, eager=True)
    assert torch.isfinite(expected[0]["model"]).all()
    personal = any(name.startswith("memory/personal.rows") for name in expected[0])
    start = learner_of(variant, supervised_task("mlp", own_test=True)).server["model"]
    assert personal or not torch.equal(expected[0]["model"], start)
    half, nearly_all = len(timeline.calls) // 2, len(timeline.calls) - 7
    assert_same(executed(variant, timeline, half, max_pending=3, threads=2), expected)
    execution = replace(Execution.of(make_training(threads=1)), others=(CPU,))
    assert_same(executed(variant, timeline, nearly_all, execution=execution), expected)


# -- buffers are plainly averaged --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "steps"),
    [
        *(
            (variant, [3, 2, 3, 1])
            for variant in variants(
                """mifa, server_lr: 3; fedvarp, server_lr: 3; fedau, server_lr: 3; fedawe, server_lr: 3; fednova;
                fedlga; fedlga, hessian: identity; rescale; generalized_fedavg, every_rounds: 1, amplification: 9;
                wait, server_lr: 3; fedavg, server_lr: 3; fedprox, server_lr: 3; fedavgm, server_lr: 3;
                fedbuff, server_lr: 3; scaffold, server_lr: 3; scaffold, server_lr: 3, uplink: 1"""
            )
        ),
        # One local step sees the same batches at the same model as FedAvg.
        *(
            ({"name": name}, [1, 1, 1])
            for name in [
                "feddyn",
                "fedadagrad",
                "fedadam",
                "fedyogi",
                "fedsum_b",
                "fedsum",
                "fedsum_cr",
            ]
        ),
    ],
    ids=lambda given: label(given) if isinstance(given, dict) else "",
)
def test_buffers_are_plainly_averaged(variant: dict[str, Any], steps: list[int]) -> None:
    """Running statistics are those of FedAvg, however the method weighs, amplifies or corrects parameters."""
    if "weights" in CATALOG.parts("method")[variant["name"]].Params.model_fields:
        variant = variant | {"weights": "uniform"}
    learner, fedavg = (
        one_round(one, steps) for one in (variant, {"name": "fedavg", "weights": "uniform"})
    )
    trainable = learner.station.task.layout.trainable
    model, expected = learner.server["model"], fedavg.server["model"]
    assert trainable < len(model)
    rounding = 1e-5 if max(steps) > 1 or variant["name"].startswith("fedsum") else 1e-6
    torch.testing.assert_close(model[trainable:], expected[trainable:], rtol=rounding, atol=1e-7)
    if max(steps) > 1 and variant["name"] != "scaffold":
        assert (model[:trainable] - expected[:trainable]).abs().max() > 1e-4
    for name in ("merged", "control", "h"):
        assert not learner.server.get(name, model[:trainable])[trainable:].any()
    for name in {"gradient", "control"} & set(learner.store.of_clients):
        assert not learner.store[name].get(range(len(steps)))[:, trainable:].any()


def one_round(variant: dict[str, Any], steps: list[int]) -> Learner:
    """The first round of the given steps by clients 0, 1, ..., on a model with batch normalization."""
    timeline = Timeline()
    trains = [timeline.dispatch(client, max(steps)) for client in range(len(steps))]
    timeline.aggregate(
        *[replace(train, steps=done) for train, done in zip(trains, steps, strict=True)]
    )
    return timeline.play(learner_of(variant, supervised_task("batch_norm"), eager=True))


@pytest.mark.parametrize(
    "variant",
    variants(
        """fedavg, server_lr: 3; fedavgm, server_lr: 3; fedadam; fedbuff, server_lr: 2; fedbuff, scale: population;
        fedcompass, momentum: 0.5, normalized: true; fedasync, form: delta;
        async_sgd, server_lr: 3, staleness: {name: reciprocal, delay: 1}; ringmaster, server_lr: 3;
        delayed_nesterov, momentum_every: 2; ringleader, server_lr: 3; mindflayer, expected: 4; ata; fadas;
        ace, server_lr: 3; aced, server_lr: 3; ca2fl, server_lr: 3; mifa; fedau; fedlga, server_lr: 3;
        generalized_fedavg, every_rounds: 1, amplification: 9; scaffold, server_lr: 3; fedsum; fedsum_cr;
        fedavg_p, eta_u: 3; fedsim"""
    ),
    ids=label,
)
def test_buffers_of_late_updates_are_not_added_up(variant: dict[str, Any]) -> None:
    """A late update brings the values of its buffers, as if it had come alone and in time; weights are positive."""
    timeline = Timeline()
    trains = [timeline.dispatch(client) for client in range(3)]
    for train in trains:
        timeline.aggregate(train)
    alone = Timeline()
    first = [alone.dispatch(client) for client in range(3)]
    alone.aggregate(first[2])
    task = supervised_task("batch_norm")
    late, expected = (
        one.play(learner_of(variant, task, eager=True)).server["model"][task.layout.trainable :]
        for one in (timeline, alone)
    )
    assert late.tolist() == expected.tolist()
    names = [name for name in task.layout.names if "running" in name]
    assert len(late) == sum(task.layout.sizes[name] for name in names)


@pytest.mark.parametrize("name", ["fedavgm", "fedbuff", "fedcompass"])
def test_buffers_become_the_mean_whatever_the_momentum(name: str) -> None:
    method = make({"name": name}, [1] * 4, buffers=2)
    state = method.initial_state(torch.tensor([0.0, 1.0, 5.0], dtype=torch.float64))
    for version, mean in ((1, 0.6), (2, 0.6)):
        values = [[1.0, mean - 0.1, 0.0], [1.0, mean + 0.1, 0.0]]
        state = method.aggregate(state, Written({"delta": values}, version=version, steps=[2, 6]))
        assert state["model"][1:].tolist() == pytest.approx([mean, 0.0])
    assert float(state["model"][0]) > 0.5


# -- users -------------------------------------------------------------------------------------------------------------


def test_a_round_in_which_nothing_arrives_changes_nothing() -> None:
    for method in ("fedavg_p", "scaffold_p"):
        story = Story(method, coupled(CASE_B)).round([], lost=[0, 1, 2])
        for name in ("u", "v", "c", "ci"):
            if series := getattr(story, name):
                np.testing.assert_array_equal(series[0], series[1])
    others = "fedalt ditto feddyn fedadam fedprox fedcompass fedbuff fedasync fedat fedavgm"
    for method in others.split():
        played = play(method, coupled(CASE_B, initial=[0.3, -0.2]), [[]])
        np.testing.assert_array_equal(played.models[0], played.models[1])


@pytest.mark.parametrize(
    ("method", "schedule"),
    [
        ("fedasync", "async"),
        ("fedbuff", "buffered"),
        ("fedat", "tiered"),
        ("fedcompass", "compass"),
    ],
)
def test_a_method_brings_its_schedule(method: str, schedule: str, tmp_path: Path) -> None:
    scenario = {
        "task": {"name": "quadratic", "centers": [1.0, 3.0, -2.0, 4.0], "samples": [1, 2, 3, 4]},
        "training": {"dtype": "float64", "optimizer": {"lr": 0.1}, "device": "cpu"},
        "devices": {
            "compute": {"name": "values", "step": [1, 1.5, 4, 9]},
            "network": {"down": "8Mbps", "up": "8Mbps"},
        },
        "server": {"method": {"name": method}},
        "stop": {"simulated_time": 600},
    }
    loaded = load_scenario_dict(scenario, tmp_path)
    assert loaded.scenario.server.schedule.name == schedule
    run = fedsim.run(scenario, tmp_path / "run")
    assert len(run.aggregations) > 10
    losses = run.metrics["loss"]
    assert losses.iloc[-1] < losses.iloc[0]
    timing = fedsim.run(scenario, tmp_path / "timing", timing_only=True)
    assert timing.dispatches.equals(run.dispatches)


def test_a_users_class_does_not_inherit_title_and_paper() -> None:
    """A class that derives from FedAvg is not FedAvg."""

    class Mine(FedAvg):
        pass

    class Published(Mine):
        title, paper = "Published", "Author, Paper"

    class Ticking(Compass):
        pass

    assert (Mine.title, Mine.paper) == ("Mine", "")
    assert (Published.title, Published.paper) == ("Published", "Author, Paper")
    assert Compass.paper
    assert Ticking.paper == ""
    assert FedAvg.title == "FedAvg"


def test_messages_and_descriptions_name_the_users_class(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from fedsim.methods.fedavg import FedAvg\n\n\nclass NeedSync(FedAvg):\n"
        '    """Mine."""\n\n    only_synchronous = "so it is"\n'
    )
    (tmp_path / "own.yaml").write_text(
        SCENARIO.replace(
            'method: {name: "mine.py:Mine"}', "method: 'mine.py:NeedSync', schedule: async"
        )
    )
    result = CliRunner().invoke(cli, ["scenario", "check", str(tmp_path / "own.yaml")])
    assert "NeedSync cannot run under the async schedule: so it is" in result.stderr
    described = CliRunner().invoke(cli, ["describe", f"{tmp_path}/mine.py:NeedSync"]).output
    assert "McMahan" not in described
    assert "McMahan" in CliRunner().invoke(cli, ["describe", "fedavg"]).output


def test_weights_of_an_average_are_named_correctly(tmp_path: Path) -> None:
    right = '{"model": server["model"] + updates.weighted_sum("delta", [1.0] * len(updates))}'
    wrong = '__import__("fedsim.methods.base").methods.base.averaging_weights(updates, "sample")'
    result = run_with(tmp_path, right, wrong)
    assert result.exit_code == 2, result.stderr
    assert "weights must be 'samples' or 'uniform', not 'sample'" in result.stderr
