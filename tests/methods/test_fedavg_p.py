"""FedAvg-P against its card: worked iterates in exact fractions, limits, noise."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from tests.methods.driver import quadratic
from tests.methods.personal_worlds import (
    CASE_A,
    CASE_B,
    ROUNDS_B,
    Story,
    close,
    coupled,
    exact,
    history,
)


def test_gradient_norms_after_the_rounds_of_a1() -> None:
    """G_u = |mean of the u-gradients|^2 and G_v = mean of |v-gradient|^2 at (u, v_i)."""
    task = coupled(CASE_A)
    story = Story("fedavg_p", task)
    norms = []
    for _ in range(3):
        story.round([0, 1])
        gradients = task.gradients(story.clients, story.models).numpy()
        norms.append((gradients[:, 0].mean() ** 2, (gradients[:, 1] ** 2).mean()))
    expected = [(0.107666, 1.199463), (0.163456, 0.793296), (0.159922, 0.550389)]
    np.testing.assert_allclose(norms, expected, atol=1e-6)


B1 = [
    "1/32 27/64 3/64 0",
    "309/8192 27/64 5/64 -147/512",
    "658123/1048576 389967/524288 5/64 -67191/131072",
]


def test_fedavg_p_of_case_b() -> None:
    """B1: the client that is left out keeps its part, and the mean is over those who took part."""
    story = Story("fedavg_p", coupled(CASE_B)).rounds(ROUNDS_B)
    for row, numbers in zip(history(story, "uv"), B1, strict=True):
        close(row, exact(numbers))


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, Fraction(-4, 9)),
        ({"gamma_u": 1 / 32, "eta_u": 4}, Fraction(-20, 41)),
        ({"gamma_u": 1 / 256, "eta_u": 32}, Fraction(-508, 1019)),
        ({"K": 1}, Fraction(-1, 2)),
    ],
)
def test_fixed_point_of_fedavg(options: dict[str, Any], limit: Fraction) -> None:
    """sum w_i p_i / sum w_i with w_i = 1 - (1 - a_i gamma_u)^K, whatever the outer step size."""
    task = quadratic([1.0, -1.0], [1.0, 3.0])
    story = Story("fedavg_p", task, personal="none", **options).rounds([[0, 1]] * 150)
    close(story.u[-1], float(limit), rel=1e-10)
    gamma, K = Fraction(options.get("gamma_u", 1 / 8)), options.get("K", 2)
    w = [1 - (1 - a * gamma) ** K for a in (1, 3)]
    assert (w[0] - w[1]) / (w[0] + w[1]) == limit


def test_everything_personal() -> None:
    """v = q (1 - (1 - eta_v (1 - (1 - gamma_v)^K))^r) after r participations; eta_v = 1 is local SGD."""
    task = quadratic([1.0], [1.0])
    story = Story("fedavg_p", task, personal="all", lr=1 / 4, eta_v=1.5).rounds([[0]] * 3)
    close(story.v[1:], exact("21/32 903/1024 31437/32768"))
    alone = Story("fedavg_p", task, personal="all", lr=1 / 4).rounds([[0]] * 3)
    close(alone.v[1:], [1 - 0.75 ** (2 * r) for r in (1, 2, 3)])


def test_variance_of_a_sample_of_clients() -> None:
    """The mean over all samples of m clients of |mean of X_i|^2, exactly."""
    task = quadratic(None, 0.0, slopes=[-1.0, -2.0, -4.0, -9.0])
    for m, expected in zip(range(1, 5), (25.5, 115 / 6, 307 / 18, 16), strict=True):
        samples = [list(sample) for sample in combinations(range(4), m)]
        story = Story("fedavg_p", task, personal="none", K=1, lr=1.0).rounds(samples)
        close(np.mean(np.diff(np.ravel(story.u)) ** 2), expected)


DIMENSIONS = 500


@pytest.mark.parametrize(
    ("m", "K", "gammas", "plateaus"),
    [
        (9, 1, [0.01], [5.118e-4]),
        (9, 25, [0.01], [1.2729e-2]),
        (5, 1, [0.01], [4.606e-3]),
        (5, 25, [0.01, 0.001], [1.1456e-1, 1.1463e-2]),
    ],
)
def test_sampling_plateau(m: int, K: int, gammas: list[float], plateaus: list[float]) -> None:
    """E|grad f|^2 of FedAvg-P without noise, p = i - 4.5: (1 - r) / (1 + r) (n - m) / (m (n - 1)) b^2.

    A round is u -> r u + kick with r = (1 - gamma)^K; every possible sample of clients takes its turn, so that the
    variance of the kicks, and with it the plateau variance / (1 - r^2), is exact. Each step size has a dimension of its
    own, with a curvature in proportion.
    """
    n, r = 10, (1 - np.array(gammas)) ** K
    theory = (1 - r) / (1 + r) * (n - m) / (m * (n - 1)) * 8.25
    np.testing.assert_allclose(plateaus, theory, rtol=1e-3)
    curvature = [gamma / gammas[0] for gamma in gammas]
    task = quadratic([[i - 4.5] * len(gammas) for i in range(n)], [curvature] * n)
    samples = [list(sample) for sample in combinations(range(n), m)]
    u = np.array(Story("fedavg_p", task, personal="none", K=K, lr=gammas[0]).rounds(samples).u)
    kicks = u[1:] - r * u[:-1]
    close(kicks.mean(0), np.zeros(len(gammas)))
    close(np.mean(kicks**2, 0) / (1 - r**2), theory, rel=1e-10)


@pytest.mark.parametrize(
    ("m", "K", "gamma_u", "eta_u", "plateau"),
    [
        (1, 1, 0.1, 1.0, 0.052632),
        (4, 1, 0.1, 1.0, 0.013158),
        (4, 5, 0.1, 1.0, 0.013158),
        (4, 5, 0.05, 2.0, 0.014695),
        (4, 5, 0.1, 1.5, 0.022653),
    ],
)
def test_noise_plateau(m: int, K: int, gamma_u: float, eta_u: float, plateau: float) -> None:
    """E|grad f|^2 of f_i = u^2 / 2 with unit noise, within 3%: V / (1 - phi^2), see the card."""
    q = 1 - gamma_u
    V = (eta_u * gamma_u) ** 2 * (1 - q ** (2 * K)) / ((1 - q**2) * m)
    phi = 1 - eta_u * (1 - q**K)
    np.testing.assert_allclose(plateau, V / (1 - phi**2), rtol=1e-4)
    task = quadratic(np.zeros((m, DIMENSIONS)).tolist(), noise_std=1.0)
    options = {"personal": "none", "K": K, "lr": gamma_u, "eta_u": eta_u}
    story = Story("fedavg_p", task, **options).rounds([list(range(m))] * 200)
    np.testing.assert_allclose(np.mean(np.square(story.u[40:])), plateau, rtol=0.03)
