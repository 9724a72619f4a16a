"""Weights of stale updates, and methods without rounds: every version by its paper's rule, as updates arrive."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from fedsim.methods.asynchronous import (
    ConstantStaleness,
    FedAsmuStaleness,
    HingeStaleness,
    PolynomialStaleness,
    ReciprocalStaleness,
)
from tests.methods.fakes import Written, make
from tests.scheduling.worlds import World, play

PLAIN = {"alpha": 1.0, "staleness": {"name": "constant"}}
CENTRES = [1.0, 3.0, -2.0]
SHRINK = 0.9**2
"""Client i pulls to its own center; two local steps with rate 0.1 shrink the distance by this factor."""
FAST = [1.0, 1.7, 4.1]


class Update(NamedTuple):
    """An update of a version: its client, the model it started from and the one it came to, and its staleness."""

    client: int
    start: float
    model: float
    age: int

    @property
    def change(self) -> float:
        return self.model - self.start


Rule = Callable[[float, list[Update]], float]
"""The model after a version from that before and the version's updates."""


def quadratics(step_s: list[float], method: dict[str, Any], **world: Any) -> World:
    """Clients with objectives (x - b_i)^2 / 2 that do two steps with rate 0.1."""
    task = {"centers": [[center] for center in CENTRES[: len(step_s)]], "curvatures": 1.0}
    return play(step_s, task=task, lr=0.1, method=method, **{"steps": 2, **world})


def trained(world: World) -> list[list[Update]]:
    """The updates of each version."""
    by_id = {row["dispatch_id"]: row for row in world.book.rows}
    result = []
    for aggregate in world.book.aggregates:
        updates = []
        for item in aggregate.contributions:
            start = world.w[by_id[item.dispatch_id]["version"]]
            model = CENTRES[item.client] + SHRINK * (start - CENTRES[item.client])
            updates.append(Update(item.client, start, model, item.staleness))
        result.append(updates)
    return result


def follow(
    rule: Rule,
    method: dict[str, Any],
    schedule: dict[str, Any],
    step_s: list[float] = FAST,
    *,
    rel: float = 1e-12,
    **world: Any,
) -> World:
    """Check every version of a run, of 60 s by default, against the rule."""
    limits = {} if "rounds" in world else {"until_s": 60}
    run = quadratics(step_s, method, schedule=schedule, **(limits | world))
    assert len(run.times) > 3
    for (before, after), updates in zip(pairwise(run.w), trained(run), strict=True):
        assert after == pytest.approx(rule(before, updates), rel=rel, abs=1e-15)
    return run


def mean_change(updates: list[Update]) -> float:
    return float(np.mean([update.change for update in updates]))


# -- batches at one model ----------------------------------------------------------------------------------------------


def test_rennala_steps_along_the_mean_of_the_batch() -> None:
    def rule(x: float, updates: list[Update]) -> float:
        assert [update.start for update in updates] == [x] * 4
        return x + 0.7 * mean_change(updates)

    follow(rule, {"name": "rennala", "server_lr": 0.7}, {"name": "rennala", "batch": 4})


def test_malenia_steps_along_the_mean_of_the_clients_means() -> None:
    def rule(x: float, updates: list[Update]) -> float:
        changes: dict[int, list[float]] = {}
        for update in updates:
            assert update.start == x
            changes.setdefault(update.client, []).append(update.change)
        assert sorted(changes) == [0, 1, 2]
        return x + 0.7 * float(np.mean([np.mean(each) for each in changes.values()]))

    schedule = {"name": "malenia", "batch": 5}
    follow(rule, {"name": "malenia", "server_lr": 0.7}, schedule)


@pytest.mark.parametrize("expected", [None, 3.5])
def test_mindflayer_divides_by_the_expected_or_the_actual_number(expected: float | None) -> None:
    def rule(x: float, updates: list[Update]) -> float:
        # Client 2 needs 8.2 s for a trial of 5 s.
        assert [update.client for update in updates] == [0, 1, 0, 1]
        return x + 0.7 * sum(update.change for update in updates) / (expected or 4)

    method = {"name": "mindflayer", "server_lr": 0.7, "expected": expected}
    follow(rule, method, {"name": "mindflayer", "limit": "5s", "horizon": "10s"}, rounds=4)


def test_ata_is_minibatch_sgd_whichever_client_computes_how_many() -> None:
    # (2, 2, 2) tasks in the first round, (4, 2, 0) afterwards.
    tasks = iter([(2, 2, 2), *[(4, 2, 0)] * 3])

    def rule(x: float, updates: list[Update]) -> float:
        gradient = sum(n * (x - c) for n, c in zip(next(tasks), CENTRES, strict=True)) / 6
        return x - 0.5 * 0.1 * gradient

    schedule = {"name": "ata", "tasks": 6, "spread": 0}
    follow(rule, {"name": "ata", "server_lr": 0.5}, schedule, [1.0, 2.0, 6.0], rounds=4, steps=1)


def test_fedavgm_under_full_participation() -> None:
    """v = beta v + Delta, w = w + eta v (Hsu et al., section 4)."""
    v, samples = [0.0], [1, 2, 5]

    def rule(x: float, updates: list[Update]) -> float:
        v[0] = 0.8 * v[0] + sum(samples[one.client] * one.change for one in updates) / 8
        return x + 0.5 * v[0]

    method = {"name": "fedavgm", "momentum": 0.8, "server_lr": 0.5}
    follow(rule, method, {"name": "sync"}, [1.0] * 3, rounds=8, samples=samples)


# -- buffers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["mean", "population"])
def test_fedbuff(scale: str) -> None:
    """Algorithm 1: w + eta_g sum of s(age) share_i Delta_i with s = 1 / sqrt(1 + age) and 1 / K, or p_i, as share."""
    samples, buffers = [1, 2, 5], []

    def rule(x: float, updates: list[Update]) -> float:
        buffers.append({update.client for update in updates})
        shares = [1 / 3 if scale == "mean" else samples[update.client] / 8 for update in updates]
        return x + 0.7 * sum(
            share * update.change / (update.age + 1) ** 0.5
            for share, update in zip(shares, updates, strict=True)
        )

    options = {} if scale == "mean" else {"scale": scale, "weights": "samples"}
    schedule = {"name": "buffered", "buffer_size": 3}
    follow(rule, {"name": "fedbuff", "server_lr": 0.7, **options}, schedule, samples=samples)
    assert len(buffers) > 8
    assert min(map(len, buffers)) < 3


@pytest.mark.parametrize("delay", [None, 1])
@pytest.mark.parametrize(("beta1", "beta2"), [(0.9, 0.99), (0.0, 0.0)])
def test_fadas_is_amsgrad(beta1: float, beta2: float, delay: int | None) -> None:
    moments, rates = [0.0] * 3, set()

    def rule(x: float, updates: list[Update]) -> float:
        m, v, largest = moments
        change, longest = mean_change(updates), max(update.age for update in updates)
        m, v = beta1 * m + (1 - beta1) * change, beta2 * v + (1 - beta2) * change**2
        moments[:] = m, v, max(largest, v)
        rate = 0.4 if delay is None or longest <= delay else min(0.4, 1 / longest)
        rates.add(rate < 0.4)
        return x + rate * m / (moments[2] ** 0.5 + 1e-8)

    method = {"name": "fadas", "server_lr": 0.4, "beta1": beta1, "beta2": beta2, "delay": delay}
    follow(rule, method, {"name": "buffered", "buffer_size": 2}, [1.0, 1.7, 9.1], rel=1e-10)
    assert (True in rates) is (delay is not None)


def test_ca2fl_calibrates_buffers_with_cached_updates() -> None:
    cache, calibrated = np.zeros(3), []

    def rule(x: float, updates: list[Update]) -> float:
        change = cache.mean()
        for update in updates:
            change += (update.change - cache[update.client]) / len(updates)
            calibrated.append(bool(cache[update.client]))
            cache[update.client] = update.change
        return float(x + 0.7 * change)

    schedule = {"name": "buffered", "buffer_size": 2}
    follow(rule, {"name": "ca2fl", "server_lr": 0.7}, schedule, rel=1e-10)
    assert any(calibrated)


# -- single updates ----------------------------------------------------------------------------------------------------


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
def test_fedasync_mixes(staleness: dict[str, Any], factor: Callable[[int], float]) -> None:
    """x_t = (1 - a) x_{t-1} + a x_new with a = alpha s(age) (Algorithm 1)."""
    ages = []

    def rule(x: float, updates: list[Update]) -> float:
        (update,) = updates
        ages.append(update.age)
        mixing = 0.6 * factor(update.age)
        return (1 - mixing) * x + mixing * update.model

    follow(rule, {"name": "fedasync", "alpha": 0.6, "staleness": staleness}, {"name": "async"})
    assert max(ages) >= 4


def test_fedasync_in_the_form_of_fedcompass() -> None:
    """w <- w - st(s) p_i Delta_i with p_i the client's share of all samples."""
    samples = [1, 2, 5]

    def rule(x: float, updates: list[Update]) -> float:
        (update,) = updates
        return x + 0.9 * (update.age + 1) ** -0.5 * samples[update.client] / 8 * update.change

    method = {"name": "fedasync", "form": "delta", "alpha": 0.9}
    follow(rule, method, {"name": "async"}, samples=samples)


def test_the_proximal_term_of_fedasync() -> None:
    """Two steps on (x - b)^2 / 2 + rho (x - x_t)^2 / 2."""

    def rule(x: float, updates: list[Update]) -> float:
        start = x
        for _ in range(2):
            x -= 0.1 * (x - CENTRES[0] + 0.5 * (x - start))
        return x

    follow(rule, {"name": "fedasync", **PLAIN, "proximal": 0.5}, {"name": "async"}, [1.0])


def test_several_updates_at_once_are_mixed_one_after_the_other() -> None:
    method = make({"name": "fedasync", "alpha": 0.5, "staleness": {"name": "constant"}}, [1, 1])
    updates = Written({"model": [[4.0], [8.0]]}, multiplicity=[1, 2])
    state = method.aggregate({"model": torch.tensor([0.0], dtype=torch.float64)}, updates)
    # 0 -> 2, then twice half-way to 8.
    assert state["model"].item() == pytest.approx(6.5, rel=1e-12)


def test_steps_of_asynchronous_sgd_shrink_with_the_delay() -> None:
    """gamma min(1, c / tau), Koloskova et al. (2022) and Mishchenko et al. (2022)."""
    ages = []

    def rule(x: float, updates: list[Update]) -> float:
        (update,) = updates
        ages.append(update.age)
        return x + 0.7 * min(1, 2 / max(update.age, 1)) * update.change

    reciprocal = {"name": "reciprocal", "delay": 2}
    method = {"name": "async_sgd", "server_lr": 0.7, "staleness": reciprocal}
    follow(rule, method, {"name": "async"}, [1.0, 1.7, 9.1])
    assert max(ages) > 5


def test_ringmaster_uses_no_gradient_older_than_its_threshold() -> None:
    ages = set()

    def rule(x: float, updates: list[Update]) -> float:
        (update,) = updates
        ages.add(update.age)
        return x + 0.7 * update.change

    schedule = {"name": "ringmaster", "threshold": 2}
    follow(rule, {"name": "ringmaster", "server_lr": 0.7}, schedule)
    assert ages == {0, 1}


@pytest.mark.parametrize("stale", ["ignore", "stop"])
def test_ringmaster_without_a_threshold_is_asynchronous_sgd(stale: str) -> None:
    schedule: dict[str, Any] = {"name": "ringmaster", "threshold": 10**9, "stale": stale}
    ringmaster = quadratics(FAST, {"name": "ringmaster"}, schedule=schedule, until_s=60)
    same = {"name": "async", "next_client": "same"}
    assert ringmaster.w == quadratics(FAST, {"name": "async_sgd"}, schedule=same, until_s=60).w
    assert len(ringmaster.w) > 40


@pytest.mark.parametrize("delay", [None, 1, 3, 50])
def test_ace_and_aced_step_along_the_mean_of_latest_updates(delay: int | None) -> None:
    """ACE's cache holds zeros of clients not seen yet; ACED's, the clients of the last ``delay`` arrivals."""
    arrivals: list[tuple[int, float]] = []
    engaged = set()

    def rule(x: float, updates: list[Update]) -> float:
        ((client, start, model, _),) = updates
        arrivals.append((client, model - start))
        latest = dict(arrivals if delay is None else arrivals[-delay:])
        engaged.add(len(latest))
        return x + 0.3 * sum(latest.values()) / (3 if delay is None else len(latest))

    method = {"name": "ace"} if delay is None else {"name": "aced", "delay": delay}
    follow(rule, {**method, "server_lr": 0.3}, {"name": "async"}, rel=1e-10)
    assert engaged == ({1} if delay == 1 else {1, 2, 3})


@pytest.mark.parametrize("activation", [0.0, 0.2])
def test_delayed_nesterov(activation: float) -> None:
    """Liu et al. (2024), Algorithm 3."""
    every, beta, gradients, momentum = 3, 0.5, [], [0.0]

    def rule(x: float, updates: list[Update]) -> float:
        gradients.append(updates[0].change)
        share = activation
        if len(gradients) % every == 0:
            momentum[0] = beta * momentum[0] + sum(gradients[-every:]) / every
            share = 1 - activation * every + activation
        return x + 0.6 * (share * beta * momentum[0] + gradients[-1] / every)

    method = {"name": "delayed_nesterov", "momentum": beta, "server_lr": 0.6}
    options = {"momentum_every": every, "activation": activation}
    follow(rule, method | options, {"name": "async"}, rel=1e-10)


def test_ringleader_steps_along_the_mean_of_the_table() -> None:
    sums, counts, restarts = np.zeros(3), np.zeros(3), []

    def rule(x: float, updates: list[Update]) -> float:
        # In every round each client makes one version, the first of which also collects.
        restarts.append(len(restarts) % 3 == 0)
        if restarts[-1]:
            sums[:], counts[:] = 0, 0
        for update in updates:
            sums[update.client] += update.change
            counts[update.client] += 1
        return x + 0.3 * float((sums / counts).mean())

    run = follow(rule, {"name": "ringleader", "server_lr": 0.3}, {"name": "ringleader"}, rel=1e-10)
    assert [bool(each.attributes["restart"]) for each in run.book.aggregates] == restarts
    assert sum(restarts) > 4


# -- tiers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("silent", ["skip", "initial"])
@pytest.mark.parametrize("cross_tier", ["reversed", "uniform"])
def test_fedat(cross_tier: str, silent: str) -> None:
    """Equation 4 with three tiers: w = sum_k (updates of tier M + 1 - k) / (all updates) w_k; of the tiers heard from,
    or literally."""
    models, counts = [0.0] * 3, [0] * 3

    def rule(x: float, updates: list[Update]) -> float:
        ((tier, _, model, _),) = updates
        models[tier] = model
        counts[tier] += 1
        heard = [k for k in range(3) if counts[k] or silent == "initial"]
        weights = [0.0] * 3
        for k, mirrored in zip(heard, heard[::-1], strict=True):
            uniform = cross_tier == "uniform"
            weights[k] = 1 / len(heard) if uniform else counts[mirrored] / sum(counts)
        return sum(weight * value for weight, value in zip(weights, models, strict=True))

    method = {"name": "fedat", "cross_tier": cross_tier, "silent_tiers": silent}
    follow(rule, method, {"name": "tiered"}, [1.0, 2.5, 6.5], samples=[1, 3, 2], until_s=80)
    assert min(counts) > 5


def test_fedat_averages_inside_a_tier_and_with_one_tier_is_fedavg() -> None:
    step_s, samples = [1.0, 1.2, 1.4], [1, 2, 5]
    fedat, fedavg, sync = (
        quadratics(step_s, {"name": name}, samples=samples, **world)
        for name, world in (
            ("fedat", {"schedule": {"name": "tiered"}, "until_s": 14}),
            ("fedavg", {"rounds": 5}),
            ("fedat", {"rounds": 5}),
        )
    )
    assert fedat.times == fedavg.times
    assert fedat.w == pytest.approx(fedavg.w, rel=1e-12)
    assert sync.w == fedat.w


def test_staleness_weights() -> None:
    ages = np.arange(6.0)
    assert PolynomialStaleness().factor(ages, 4) * 0.9 == pytest.approx(
        [0.9, 0.636396, 0.519615, 0.45, 0.402492, 0.367423], abs=5.1e-7
    )
    assert PolynomialStaleness(exponent=0.0).factor(ages, 4).tolist() == [1.0] * 6
    assert ConstantStaleness(name="constant").factor(ages, 4).tolist() == [1.0] * 6
    # Xie et al., section 5.2: 1 up to b, then 1 / (a (s - b) + 1).
    assert HingeStaleness(name="hinge", delay=3, slope=2).factor(ages, 4).tolist() == [
        1,
        1,
        1,
        1,
        1 / 3,
        1 / 5,
    ]
    assert ReciprocalStaleness(name="reciprocal", delay=2).factor(ages, 4).tolist() == [
        1,
        1,
        1,
        2 / 3,
        2 / 4,
        2 / 5,
    ]
    # xi = 3 / (sqrt(4) (s + 1)) + 0.5 and 2 xi / (1 + 2 xi).
    asmu = FedAsmuStaleness(name="fedasmu", mu=2, scale=3, exponent=1, offset=0.5)
    assert asmu.factor(ages[:3], 4) == pytest.approx([4 / 5, 2.5 / 3.5, 2 / 3])
