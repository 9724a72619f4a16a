"""FedAsync, FedBuff, FedAT and FedAvgM against iterates written out from their papers' equations."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedsim
from fedsim.catalog import CATALOG
from fedsim.methods import registry
from fedsim.methods.staleness import (
    ConstantStaleness,
    HingeStaleness,
    PolynomialStaleness,
)
from fedsim.scenario.loading import load_scenario_dict
from tests.methods.fakes import Written, make
from tests.scheduling.worlds import World, play

PLAIN = {"alpha": 1.0, "staleness": {"name": "constant"}}
# Client i pulls to its own centre; two local steps with rate 0.1 shrink the distance by 0.9^2.
CENTRES = [1.0, 3.0, -2.0]
SHRINK = 0.9**2


def quadratics(step_s: list[float], method: dict[str, Any], **world: Any) -> World:
    """Clients with objectives (x - b_i)^2 / 2 that do two steps with rate 0.1."""
    return play(
        step_s,
        task={"centers": [[centre] for centre in CENTRES[: len(step_s)]], "curvatures": 1.0},
        lr=0.1,
        steps=2,
        method=method,
        **world,
    )


def local(x: float, client: int) -> float:
    """The model of a client after its two steps from x."""
    return CENTRES[client] + SHRINK * (x - CENTRES[client])


def trained(world: World) -> list[list[tuple[int, float, float, int]]]:
    """Of each version's updates: client, model it started from, model it came to, staleness."""
    by_id = {row["dispatch_id"]: row for row in world.book.rows}
    result = []
    for aggregate in world.book.aggregates:
        updates = []
        for item in aggregate.contributions:
            start = world.w[by_id[item.dispatch_id]["version"]]
            updates.append((item.client, start, local(start, item.client), item.staleness))
        result.append(updates)
    return result


# -- weights of stale updates ------------------------------------------------------------------------------------------


def test_staleness_weights() -> None:
    ages = np.arange(6.0)
    assert PolynomialStaleness().factor(ages) * 0.9 == pytest.approx(
        [0.9, 0.636396, 0.519615, 0.45, 0.402492, 0.367423], abs=5.1e-7
    )
    assert PolynomialStaleness(exponent=0.0).factor(ages).tolist() == [1.0] * 6
    assert ConstantStaleness(name="constant").factor(ages).tolist() == [1.0] * 6
    # Xie et al., section 5.2: 1 up to b, then 1 / (a (s - b) + 1).
    assert HingeStaleness(name="hinge", delay=3, slope=2).factor(ages).tolist() == [
        1,
        1,
        1,
        1,
        1 / 3,
        1 / 5,
    ]


# -- FedAsync ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("staleness", "factor"),
    [
        ({"name": "constant"}, lambda s: 1.0),
        ({"name": "polynomial", "exponent": 0.5}, lambda s: (s + 1) ** -0.5),
        ({"name": "polynomial", "exponent": -0.5}, lambda s: (s + 1) ** 0.5),
        (
            {"name": "hinge", "delay": 1, "slope": 2},
            lambda s: 1.0 if s <= 1 else 1 / (2 * (s - 1) + 1),
        ),
    ],
)
def test_fedasync_mixes(staleness: dict[str, Any], factor: Any) -> None:
    """x_t = (1 - a) x_{t-1} + a x_new with a = alpha s(age) (Algorithm 1)."""
    method = {"name": "fedasync", "alpha": 0.6, "staleness": staleness}
    world = quadratics([1.0, 1.7, 4.1], method, schedule={"name": "async"}, until_s=60)
    ages = set()
    for (before, after), updates in zip(pairwise(world.w), trained(world), strict=True):
        ((_, _, model, age),) = updates
        mixing = 0.6 * factor(age)
        assert after == pytest.approx((1 - mixing) * before + mixing * model, rel=1e-12)
        ages.add(age)
    assert max(ages) >= 4


def test_fedasync_in_the_form_of_fedcompass() -> None:
    """w <- w - st(s) p_i Delta_i with p_i the client's share of all samples."""
    samples = [1, 2, 5]
    method = {"name": "fedasync", "form": "delta", "alpha": 0.9}
    world = quadratics(
        [1.0, 1.7, 4.1], method, schedule={"name": "async"}, until_s=60, samples=samples
    )
    for (before, after), updates in zip(pairwise(world.w), trained(world), strict=True):
        ((client, start, model, age),) = updates
        step = 0.9 * (age + 1) ** -0.5 * samples[client] / 8 * (model - start)
        assert after == pytest.approx(before + step, rel=1e-12)


def test_fedasync_is_sequential_sgd_with_one_client() -> None:
    """alpha = 1 and nobody else: the model is the client's own, as if it had never stopped."""
    world = quadratics([1.0], {"name": "fedasync", **PLAIN}, schedule={"name": "async"}, until_s=20)
    x = 0.0
    for version in range(11):
        assert world.w[version] == pytest.approx(x, rel=1e-12, abs=1e-15)
        x = local(x, 0)


def test_the_proximal_term() -> None:
    """Two steps on (x - b)^2 / 2 + rho (x - x_t)^2 / 2."""
    world = quadratics(
        [1.0], {"name": "fedasync", **PLAIN, "proximal": 0.5}, schedule={"name": "async"}, until_s=6
    )
    x = 0.0
    for version in range(1, 4):
        start = x
        for _ in range(2):
            x -= 0.1 * (x - CENTRES[0] + 0.5 * (x - start))
        assert world.w[version] == pytest.approx(x, rel=1e-12)


def test_several_updates_at_once_are_mixed_one_after_the_other() -> None:
    method = make({"name": "fedasync", "alpha": 0.5, "staleness": {"name": "constant"}}, [1, 1])
    updates = Written({"model": [[4.0], [8.0]]}, multiplicity=[1, 2])
    state = method.aggregate({"model": torch.tensor([0.0], dtype=torch.float64)}, updates)
    # 0 -> 2, then twice half-way to 8.
    assert state["model"].item() == pytest.approx(6.5, rel=1e-12)


# -- FedBuff -----------------------------------------------------------------------------------------------------------

# Ties fall in order of dispatching; the card's fall in order of clients. A little later, nothing ties.
CARD = {"step_s": [1.0, 2.00001, 4.00003], "slopes": [3.0, 6.0, 9.0], "lr": 0.01}


def test_o5_baselines_of_the_card() -> None:
    fedavg = play(**CARD, method={"name": "fedavg"}, rounds=1)
    assert fedavg.w[-1] == pytest.approx(-6.0, rel=1e-12)
    assert fedavg.times == pytest.approx([400], rel=1e-4)
    fedasync = play(
        **CARD,
        method={"name": "fedasync", "form": "delta", **PLAIN},
        schedule={"name": "async"},
        until_s=401,
    )
    assert fedasync.w[-1] == pytest.approx(-11.0, rel=1e-12)
    assert [sum(m == [c] for m in fedasync.members) for c in (1, 2, 3)] == [4, 2, 1]
    fedbuff = play(
        **CARD,
        method={"name": "fedbuff", "scale": "population", **PLAIN},
        schedule={"name": "buffered", "buffer_size": 2},
        until_s=401,
    )
    assert fedbuff.times == pytest.approx([200, 300, 400], rel=1e-4)
    assert fedbuff.w[1:] == pytest.approx([-2.0, -5.0, -8.0], rel=1e-12)
    # The update of client 3 is pending.
    (pending,) = [row for row in fedbuff.book.rows if row["client"] == 2 and row["sequence"] == 0]
    assert fedbuff.book.outcomes()[pending["dispatch_id"]] == "unfinished"


def test_fedbuff() -> None:
    """Algorithm 1: w + eta_g / K sum of s(age) Delta_i with s = 1 / sqrt(1 + age)."""
    world = quadratics(
        [1.0, 1.7, 4.1],
        {"name": "fedbuff", "server_lr": 0.7},
        schedule={"name": "buffered", "buffer_size": 3},
        until_s=60,
    )
    assert len(world.times) > 8
    twice = False
    for (before, after), updates in zip(pairwise(world.w), trained(world), strict=True):
        change = sum((model - start) / (age + 1) ** 0.5 for _, start, model, age in updates)
        assert after == pytest.approx(before + 0.7 / 3 * change, rel=1e-12)
        twice |= len({client for client, *_ in updates}) < 3
    assert twice


def test_fedbuff_is_fedavg_where_everybody_is_equally_fast() -> None:
    """K = N and alike devices: every buffer holds everybody's update of one version.

    Up to the start: a client whose update does not complete the buffer goes on from the old version, so from the
    second buffer on updates are one version old.
    """
    world = quadratics(
        [1.0, 1.0, 1.0],
        {"name": "fedbuff", **PLAIN},
        schedule={"name": "buffered", "buffer_size": 3},
        until_s=10,
    )
    fedavg = quadratics([1.0, 1.0, 1.0], {"name": "fedavg"}, rounds=1)
    assert world.times == [2, 4, 6, 8, 10]
    assert all(sorted(members) == [1, 2, 3] for members in world.members)
    assert world.w[1] == fedavg.w[1]
    assert world.staleness[:2] == [[0, 0, 0], [1, 1, 0]]


def test_fedbuff_under_the_synchronous_schedule_is_fedavg() -> None:
    fedbuff = quadratics([1.0, 2.0, 3.0], {"name": "fedbuff"}, rounds=5)
    fedavg = quadratics([1.0, 2.0, 3.0], {"name": "fedavg"}, rounds=5)
    assert fedbuff.w == fedavg.w


# -- FedAT -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("silent", ["skip", "initial"])
@pytest.mark.parametrize("cross_tier", ["reversed", "uniform"])
def test_fedat(cross_tier: str, silent: str) -> None:
    """Equation 4 with three tiers: w = sum_k (updates of tier M + 1 - k) / (all updates) w_k; of the tiers heard from,
    or literally."""
    samples = [1, 3, 2]
    step_s = [1.0, 2.5, 6.5]
    world = quadratics(
        step_s,
        {"name": "fedat", "cross_tier": cross_tier, "silent_tiers": silent},
        schedule={"name": "tiered"},
        until_s=80,
        samples=samples,
    )
    models, counts = [0.0] * 3, [0] * 3
    for version, updates in enumerate(trained(world)):
        ((tier, _, model, _),) = updates
        models[tier] = model
        counts[tier] += 1
        heard = [k for k in range(3) if counts[k] or silent == "initial"]
        weights = [0.0] * 3
        for k, mirrored in zip(heard, heard[::-1], strict=True):
            uniform = cross_tier == "uniform"
            weights[k] = 1 / len(heard) if uniform else counts[mirrored] / sum(counts)
        expected = sum(weight * value for weight, value in zip(weights, models, strict=True))
        assert world.w[version + 1] == pytest.approx(expected, rel=1e-12, abs=1e-15)
    assert min(counts) > 5


def test_fedat_averages_inside_a_tier_and_with_one_tier_is_fedavg() -> None:
    fedat = quadratics(
        [1.0, 1.2, 1.4],
        {"name": "fedat"},
        schedule={"name": "tiered"},
        until_s=14,
        samples=[1, 2, 5],
    )
    fedavg = quadratics([1.0, 1.2, 1.4], {"name": "fedavg"}, rounds=5, samples=[1, 2, 5])
    assert fedat.times == fedavg.times
    assert fedat.w == pytest.approx(fedavg.w, rel=1e-12)
    sync = quadratics([1.0, 1.2, 1.4], {"name": "fedat"}, rounds=5, samples=[1, 2, 5])
    assert sync.w == fedat.w


# -- FedAvgM -----------------------------------------------------------------------------------------------------------


def test_fedavgm() -> None:
    """v = beta v + Delta, w = w + eta v (Hsu et al., section 4)."""
    world = quadratics(
        [1.0, 1.0, 1.0],
        {"name": "fedavgm", "momentum": 0.8, "server_lr": 0.5},
        rounds=8,
        samples=[1, 2, 5],
    )
    x = v = 0.0
    for version in range(9):
        assert world.w[version] == pytest.approx(x, rel=1e-12, abs=1e-15)
        changes = [local(x, client) - x for client in range(3)]
        v = 0.8 * v + (changes[0] + 2 * changes[1] + 5 * changes[2]) / 8
        x += 0.5 * v


def test_fedavgm_without_momentum_is_fedavg() -> None:
    plain = quadratics([1.0, 1.0, 1.0], {"name": "fedavgm", "momentum": 0.0}, rounds=4)
    assert plain.w == quadratics([1.0, 1.0, 1.0], {"name": "fedavg"}, rounds=4).w


# -- FedCompass --------------------------------------------------------------------------------------------------------


def test_timing_does_not_depend_on_the_aggregation() -> None:
    """I11: FedCompass, +M, +N and any staleness weight live through the same events."""
    variants: list[dict[str, Any]] = [
        {},
        {"momentum": 0.9},
        {"normalized": True},
        {"alpha": 0.3, "staleness": {"name": "hinge"}},
        {"staleness_at": "aggregation"},
    ]
    worlds = [
        quadratics(
            [1.0, 2.3, 5.9],
            {"name": "fedcompass", **variant},
            schedule={"name": "compass", "min_steps": 2, "max_steps": 10},
            until_s=300,
            compute={"jitter": {"name": "normal", "cv": 0.2}},
        )
        for variant in variants
    ]
    for world in worlds[1:]:
        assert world.assignments == worlds[0].assignments
        assert world.book.aggregates == worlds[0].book.aggregates
        assert world.w != worlds[0].w
    assert any(
        item.group not in (0, aggregate.attributes["group"])
        for aggregate in worlds[0].book.aggregates
        for item in aggregate.contributions
    )


def test_first_updates_bypass_momentum_and_normalization() -> None:
    state = {
        "model": torch.tensor([1.0], dtype=torch.float64),
        "momentum": torch.tensor([5.0], dtype=torch.float64),
    }
    method = make({"name": "fedcompass", **PLAIN, "momentum": 0.9, "normalized": True}, [1, 3])
    updates = Written({"delta": [[8.0]]}, samples=[3], steps=[7], attributes={"group": 0.0})
    after = method.aggregate(state, updates)
    assert after["model"].item() == 7.0
    assert after["momentum"] is state["momentum"]


def test_an_empty_version_changes_nothing() -> None:
    empty = Written({"delta": np.empty((0, 1)), "model": np.empty((0, 1))})  # type: ignore[dict-item]
    for name in ("fedcompass", "fedbuff", "fedasync", "fedat", "fedavgm"):
        method = make({"name": name}, [1, 1])
        state = method.initial_state(torch.tensor([2.0], dtype=torch.float64))
        assert method.aggregate(state, empty)["model"].item() == 2.0


def test_the_server_state_is_never_changed_in_place() -> None:
    for name in ("fedcompass", "fedbuff", "fedasync", "fedat", "fedavgm"):
        given = {"name": name} | ({"momentum": 0.5} if name == "fedcompass" else {})
        method = make(given, [1, 1])
        state = method.initial_state(torch.tensor([2.0], dtype=torch.float64))
        before = {key: value.clone() for key, value in state.items()}
        vector = method.upload()[0].name
        method.aggregate(state, Written({vector: [[1.0], [4.0]]}))
        assert all(torch.equal(state[key], before[key]) for key in before)


# -- presets -----------------------------------------------------------------------------------------------------------


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
    loaded = load_scenario_dict(scenario, tmp_path, CATALOG)
    assert loaded.scenario.server.schedule.name == schedule
    run = fedsim.run(scenario, tmp_path / "run")
    assert len(run.aggregations) > 10
    losses = run.metrics["loss"]
    assert losses.iloc[-1] < losses.iloc[0]
    timing = fedsim.run(scenario, tmp_path / "timing", timing_only=True)
    assert timing.dispatches.equals(run.dispatches)


def test_every_method_here_says_where_it_comes_from() -> None:
    for name in ("fedcompass", "fedasync", "fedbuff", "fedat", "fedavgm"):
        method = registry()[name]
        assert method.title
        assert method.paper
