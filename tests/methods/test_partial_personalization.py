"""FedAvg-P, Scaffold-P and FedAlt against their card: worked iterates in exact fractions, limits, mutants, noise."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from tests.methods.driver import play, quadratic
from tests.methods.personal_worlds import (
    CASE_A,
    CASE_B,
    Reference,
    Story,
    coupled,
    exact,
)

ROUNDS_B = [[0, 1], [1, 2], [0, 2]]


def close(value: Any, expected: Any, rel: float = 1e-12) -> None:
    np.testing.assert_allclose(np.ravel(value), np.ravel(expected), rtol=rel, atol=1e-14)


def told(story: Story, names: Sequence[str]) -> list[np.ndarray]:
    """The named series after each round, flat."""
    columns = [getattr(story, name) for name in names]
    return [np.concatenate([np.ravel(c[t]) for c in columns]) for t in range(1, len(story.u))]


# -- case A: two clients, all take part (card 7.1) ---------------------------------------------------------------------

A1 = ["1/32 27/64 3/64", "-5/2048 763/1024 5/64", "-3419/65536 131661/131072 14199/131072"]
A2 = [
    "1/64 59/128 3/128",
    "-277/8192 3319/4096 39/1024",
    "-47995/524288 1141885/1048576 62631/1048576",
]
A2B = ["1/256 121/256 3/256", "-3385/65536 54511/65536 1295/65536"]
A4 = ["0 1/4 0", "-1/64 15/32 0", "-5/128 339/512 1/512"]


@pytest.mark.parametrize(
    ("method", "options", "expected"),
    [
        ("fedavg_p", {}, A1),
        ("fedavg_p", {"gamma_u": 1 / 8, "gamma_v": 1 / 8, "lr": 0.3}, A1),
        ("fedsim", {}, A1),
        ("fedavg_p", {"lr": 1 / 16, "eta_u": 2, "eta_v": 2}, A2),
        ("fedavg_p", {"gamma_u": 1 / 32, "eta_u": 4, "gamma_v": 1 / 16, "eta_v": 2}, A2B),
        ("fedavg_p", {"K": 1}, A4),
        ("scaffold_p", {"K": 1}, A4),
        ("scaffold_p", {"K": 1, "uplink": 1}, A4),
    ],
)
def test_iterates_of_case_a(method: str, options: dict[str, Any], expected: list[str]) -> None:
    """A1, A2, A2b and A4: u and both v_i."""
    story = Story(method, coupled(CASE_A), **options).rounds([[0, 1]] * len(expected))
    for row, wanted in zip(told(story, "uv"), expected, strict=True):
        close(row, exact(wanted))


A3 = [
    "-1/64 15/32 0 1/16 -23/8 3",
    "-141/2048 3429/4096 15/4096 109/512 -2573/1024 3009/1024",
    "-32957/262144 37109/32768 311/16384 14909/65536 -149205/65536 179023/65536",
]
A3Z = [
    "1/32 27/64 3/64 -1/8 -5/2 9/4",
    "-81/2048 801/1024 21/512 145/512 -2459/1024 3039/1024",
]
A4_CONTROLS = ["0 -3 3", "1/8 -11/4 3", "3/16 -41/16 47/16"]
UPLINKS = pytest.mark.parametrize("uplink", [1, 2])


@UPLINKS
def test_scaffold_p_of_case_a(uplink: int) -> None:
    """A3 from the paper's start and A3z from zero: u, v_i, c and c_i."""
    for expected, options in ((A3, {}), (A3Z, {"c0": "zero"})):
        story = Story("scaffold_p", coupled(CASE_A), uplink=uplink, **options)
        close(story.ci[0], [0, 0] if options else [-3, 3])
        close(story.c[0], 0)
        story.rounds([[0, 1]] * len(expected))
        for row, wanted in zip(told(story, ("u", "v", "c", "ci")), expected, strict=True):
            close(row, exact(wanted))
    single = Story("scaffold_p", coupled(CASE_A), uplink=uplink, K=1).rounds([[0, 1]] * 3)
    for row, wanted in zip(told(single, ("c", "ci")), A4_CONTROLS, strict=True):
        close(row, exact(wanted))


@pytest.mark.parametrize(
    ("method", "client", "path"),
    [
        ("fedavg_p", 0, ["3/8 1/4", "5/8 27/64"]),
        ("fedavg_p", 1, ["-3/8 0", "-9/16 3/64"]),
        ("scaffold_p", 0, ["0 1/4", "-1/32 15/32"]),
        ("scaffold_p", 1, ["0 0", "0 0"]),
    ],
)
def test_inner_path_of_the_first_round(method: str, client: int, path: list[str]) -> None:
    """What a client reaches after one and after two local steps."""
    for steps, point in enumerate(path, start=1):
        story = Story(method, coupled(CASE_A), K=steps).round([client])
        close([story.u[1][0], story.v[1][client, 0]], exact(point))


def test_gradient_norms_after_the_rounds_of_a1() -> None:
    """G_u = |mean of the u-gradients|^2 and G_v = mean of |v-gradient|^2 at (u, v_i)."""
    task = coupled(CASE_A)
    story = Story("fedavg_p", task)
    found = []
    for _ in range(3):
        story.round([0, 1])
        gradients = task.gradients(story.clients, story.models).numpy()
        found.append((gradients[:, 0].mean() ** 2, (gradients[:, 1] ** 2).mean()))
    expected = [(0.107666, 1.199463), (0.163456, 0.793296), (0.159922, 0.550389)]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_fedalt_of_case_a() -> None:
    """K steps on v with u frozen, then K steps on u with the new v frozen."""
    story = Story("fedalt", coupled(CASE_A)).rounds([[0, 1]] * 2)
    expected = ["-9/2048 15/32 0", "-382875/8388608 108615/131072 135/131072"]
    for row, wanted in zip(told(story, "uv"), expected, strict=True):
        close(row, exact(wanted))


@pytest.mark.parametrize(
    ("method", "options", "u", "v"),
    [
        ("fedavg_p", {}, -0.4396783, (2.3368441, 0.5597472)),
        ("fedavg_p", {"gamma_u": 1 / 32, "eta_u": 4}, -0.4875896, (2.4623762, 0.5136444)),
        ("scaffold_p", {}, -0.5, (2.5, 0.5)),
        ("scaffold_p", {"gamma_u": 1 / 32, "eta_u": 4}, -0.5, (2.5, 0.5)),
    ],
)
def test_limits_of_case_a(
    method: str, options: dict[str, Any], u: float, v: tuple[float, float]
) -> None:
    """Only the control variates remove the bias of several local steps."""
    story = Story(method, coupled(CASE_A), **options).rounds([[0, 1]] * 250)
    np.testing.assert_allclose([story.u[-1][0], *story.v[-1][:, 0]], [u, *v], atol=6e-8)


# -- case B: two of three clients a round ------------------------------------------------------------------------------

B1 = [
    "1/32 27/64 3/64 0",
    "309/8192 27/64 5/64 -147/512",
    "658123/1048576 389967/524288 5/64 -67191/131072",
]
B2 = [
    "3/16 29/64 -1/64 0 -5/6 -11/4 13/4 -3",
    "6349/24576 29/64 -377/6144 -217/768 -4301/9216 -11/4 11707/3072 -315/128",
    "293961/1048576 3581789/4718592 -377/6144 -612559/1179648 -758161/3538944 "
    "-2337235/1179648 11707/3072 -162023/65536",
]
B3 = [
    "1/32 27/64 3/64 0 -1/12 -5/2 9/4 0",
    "6511/24576 27/64 1/24 -443/1536 -5999/9216 -5/2 9085/3072 -617/256",
]
B4 = [
    "7/32 61/128 -1/128 0 -11/12 -23/8 25/8 -3",
    "8943/32768 61/128 -1481/24576 -913/3072 -16589/36864 -23/8 47707/12288 -1207/512",
    "21449057/75497472 29554157/37748736 -1481/24576 -5076907/9437184 -5091169/28311552 "
    "-18558067/9437184 47707/12288 -3862013/1572864",
]


def test_fedavg_p_of_case_b() -> None:
    """B1: the client that is left out keeps its part, and the mean is over those who took part."""
    story = Story("fedavg_p", coupled(CASE_B)).rounds(ROUNDS_B)
    for row, wanted in zip(told(story, "uv"), B1, strict=True):
        close(row, exact(wanted))


@UPLINKS
@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, B2), ({"c0": "zero"}, B3), ({"lr": 1 / 16, "eta_u": 2, "eta_v": 2}, B4)],
)
def test_scaffold_p_of_case_b(uplink: int, options: dict[str, Any], expected: list[str]) -> None:
    """B2, B3 and B4: u, v_i, c and c_i."""
    story = Story("scaffold_p", coupled(CASE_B), uplink=uplink, **options)
    if not options:
        close(story.c[0], -1)
        close(story.ci[0], [-3, 3, -3])
    story.rounds(ROUNDS_B[: len(expected)])
    for row, wanted in zip(told(story, ("u", "v", "c", "ci")), expected, strict=True):
        close(row, exact(wanted))


@pytest.mark.parametrize(
    ("mutant", "expected"),
    [
        ("", "3/16 6349/24576"),
        ("sign", "-1/8 -4773/8192"),
        ("correct_v", "11/64 527/3072"),
        ("m_in_line_13", "3/16 1983/8192"),
        ("n_in_line_12", "1/8 7369/36864"),
        ("overwritten_c", "3/16 5965/24576"),
    ],
)
def test_these_worlds_tell_mistakes_apart(mutant: str, expected: str) -> None:
    """The card's wrong algorithms give the card's wrong numbers in the reference, which no test above would accept."""
    reference = Reference(CASE_B, controls="paper", mutant=mutant)
    reached = []
    for clients in ROUNDS_B[:2]:
        reference.round(dict.fromkeys(clients, 2))
        reached.append(float(reference.u))
    close(reached, exact(expected))


def test_two_more_mistakes() -> None:
    """The outer step size in line 10 shows only where it is not 1; the new u in the v-step shows at once."""
    reference = Reference(
        CASE_B,
        controls="paper",
        gammas=(Fraction(1, 16), Fraction(1, 16)),
        etas=(2, 2),
        mutant="outer_gamma",
    )
    for clients in ROUNDS_B[:2]:
        reference.round(dict.fromkeys(clients, 2))
    assert reference.u == Fraction(8383, 32768)
    seidel = Reference(CASE_A, mutant="gauss_seidel")
    seidel.round({0: 2, 1: 2})
    assert (seidel.u, *seidel.v) == (Fraction(1, 32), Fraction(1429, 4096), Fraction(459, 4096))


# -- updates that do not arrive (card 7.1 and 9) -----------------------------------------------------------------------


@UPLINKS
def test_a_lost_upload_leaves_the_client_as_it_was(uplink: int) -> None:
    """Round 0 of B2 without client 1's message: its v and c_i are undone, and c stays the mean of the c_i."""
    story = Story("scaffold_p", coupled(CASE_B), uplink=uplink).round([0], lost=[1])
    close([story.u[1][0], story.ci[1][0, 0], story.c[1][0]], exact("3/16 -11/4 -11/12"))
    assert (story.v[1][1, 0], story.ci[1][1, 0]) == (0, 3)
    close(story.c[1], story.ci[1].mean())


@UPLINKS
def test_a_client_may_keep_its_part_of_lost_work(uplink: int) -> None:
    """keep_v_on_drop: v_1 is what B2 gives it, c_1 is undone all the same; and it goes on from there."""
    story = Story("scaffold_p", coupled(CASE_B), uplink=uplink, keep_v_on_drop=True)
    story.round([0], kept=[1])
    close([story.u[1][0], *story.v[1][:, 0]], exact("3/16 29/64 -1/64 0"))
    assert story.ci[1][1, 0] == 3
    close(story.c[1], exact("-11/12"))
    reference = Reference(CASE_B, controls="paper")
    reference.round({0: 2})
    reference.v[1] = Fraction(-1, 64)
    for clients in ROUNDS_B[1:]:
        story.round(clients)
        reference.round(dict.fromkeys(clients, 2))
    close(story.u[-1], float(reference.u))
    close(story.v[-1], [float(value) for value in reference.v])


def test_a_round_in_which_nothing_arrives_changes_nothing() -> None:
    for method in ("fedavg_p", "scaffold_p", "fedalt", "ditto", "feddyn", "fedadam", "fedprox"):
        story = Story(method, coupled(CASE_B)) if method.endswith("_p") else None
        if story is not None:
            story.round([], lost=[0, 1, 2])
            for name in ("u", "v", "c", "ci"):
                series = getattr(story, name)
                if series:
                    np.testing.assert_array_equal(series[0], series[1])
        else:
            played = play(method, coupled(CASE_B, initial=[0.3, -0.2]), [[]])
            np.testing.assert_array_equal(played.models[0], played.models[1])


# -- noise (card 7.1, tape C) ------------------------------------------------------------------------------------------


def tape(first: int) -> list[dict[str, Any]]:
    """The card's noise, with client i's first round as its dispatch ``first``."""
    noise = {
        (0, 0): [(0.5, -0.25), (-0.25, 0.5)],
        (0, 1): [(-0.5, 0.25), (0.25, -0.5)],
        (1, 0): [(0.25, 0.0), (0.0, 0.25)],
        (1, 1): [(0.0, -0.25), (0.5, 0.0)],
    }
    return [
        {"client": client, "sequence": first + round_, "step": step, "noise": list(values)}
        for (round_, client), steps in noise.items()
        for step, values in enumerate(steps)
    ]


def test_noise_tape() -> None:
    """One draw serves both gradients of a step; the prologue is noise-free."""
    story = Story("fedavg_p", coupled(CASE_A, noise_tape=tape(0))).rounds([[0, 1]] * 2)
    for row, wanted in zip(
        told(story, "uv"), ["3/128 101/256 19/256", "-823/16384 2859/4096 525/4096"], strict=True
    ):
        close(row, exact(wanted))
    story = Story("scaffold_p", coupled(CASE_A, noise_tape=tape(1))).rounds([[0, 1]] * 2)
    close(told(story, ("u", "v", "c", "ci"))[0], exact("-3/128 113/256 7/256 3/32 -179/64 191/64"))
    close(told(story, ("u", "v", "c"))[1], exact("-1899/16384 3233/4096 223/4096 1515/4096"))


def test_the_prologue_averages_fresh_gradients_at_the_initial_model() -> None:
    """c_i^0 is the mean of K noisy gradients without a step between them."""
    noise = [
        {"client": 0, "sequence": 0, "step": k, "noise": [value, 1.0]}
        for k, value in enumerate((1.0, 4.0))
    ]
    story = Story("scaffold_p", coupled(CASE_A, noise_tape=noise))
    close(story.ci[0], [-3 + 2.5, 3])
    close(story.c[0], 1.25)
    assert (story.u[0], *story.v[0]) == (0, 0, 0)


# -- everything shared, everything personal (card 7.2 and 7.3) ---------------------------------------------------------

SHARED_FEDAVG = "-3/16 -303/1024 -23499/65536"
SHARED_SCAFFOLD = "-7/32 -705/2048 -54277/131072"
SHARED_SCAFFOLD_C = "7/8 257/512 9157/32768"
SHARED_SCAFFOLD_ZERO = [-3 / 16, -0.322265625, -0.401275634765625]


def test_everything_shared() -> None:
    """FedAvg and SCAFFOLD with two step sizes."""
    task, log = quadratic([1.0, -1.0], [1.0, 3.0]), [[0, 1]] * 3

    def story(method: str, **options: Any) -> Story:
        return Story(method, task, personal="none", **options)

    close(story("fedavg_p").rounds(log).u[1:], exact(SHARED_FEDAVG))
    paper = story("scaffold_p").rounds(log)
    close(paper.u[1:], exact(SHARED_SCAFFOLD))
    close(paper.c[1:], exact(SHARED_SCAFFOLD_C))
    close(story("scaffold_p", c0="zero").rounds(log).u[1:], SHARED_SCAFFOLD_ZERO)
    paper.rounds([[0, 1]] * 200)
    close([paper.u[-1], *paper.ci[-1]], [-0.5, -1.5, 1.5], rel=1e-10)
    close(paper.c[-1], 0, rel=0)


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
    story = Story("fedavg_p", task, personal="none", **options).rounds([[0, 1]] * 400)
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


# -- drift (card 7.1, lemma 3.8) ---------------------------------------------------------------------------------------


def test_drift_bound_at_equality_of_its_condition() -> None:
    """E^0 = 11/128 <= 2.75 with L = 4, K = 2, gamma = 1/16: the sum of |x_{i,1} - x_0|^2 (x_{i,0} does not drift)."""
    ends = [Story("fedavg_p", coupled(CASE_A), K=1, lr=1 / 16).round([i]) for i in (0, 1)]
    drift = sum(end.u[1][0] ** 2 + end.v[1][i, 0] ** 2 for i, end in enumerate(ends))
    close(drift, 11 / 128)
    K, gamma, squares_u, squares_v = 2, 1 / 16, 3**2 + 3**2, 2**2 + 0**2
    assert 4 * 4**2 * K * (K - 1) * 2 * gamma**2 == 1
    assert drift <= 8 * K**2 * (K - 1) * gamma**2 * (squares_u + squares_v) == 2.75


# -- statistics (card 7.4) ---------------------------------------------------------------------------------------------


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


def test_scaffold_p_has_no_sampling_plateau() -> None:
    """The same world with control variates: the gradient vanishes."""
    rng = np.random.default_rng(5)
    log = [rng.choice(10, 5, replace=False).tolist() for _ in range(100)]
    task = quadratic([i - 4.5 for i in range(10)])
    story = Story("scaffold_p", task, personal="none", K=5, lr=0.1).rounds(log)
    assert abs(story.u[-1][0]) < 1e-12


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
    """E|grad f|^2 of f_i = u^2 / 2 with unit noise, within 3 %: V / (1 - phi^2), see the card."""
    q = 1 - gamma_u
    V = (eta_u * gamma_u) ** 2 * (1 - q ** (2 * K)) / ((1 - q**2) * m)
    phi = 1 - eta_u * (1 - q**K)
    np.testing.assert_allclose(plateau, V / (1 - phi**2), rtol=1e-4)
    task = quadratic(np.zeros((m, DIMENSIONS)).tolist(), noise_std=1.0)
    options = {"personal": "none", "K": K, "lr": gamma_u, "eta_u": eta_u}
    story = Story("fedavg_p", task, **options).rounds([list(range(m))] * 200)
    np.testing.assert_allclose(np.mean(np.square(story.u[40:])), plateau, rtol=0.03)


def test_averages_stay_below_the_theorems_bounds() -> None:
    """Mean of G_u + (m / n) G_v over 300 rounds with noise 0.5: theorem 4.6 (4.137) and theorem 3.11 (0.925)."""
    a, p, z = (1.0, 3.0, 2.0, 0.5), (1.0, -1.0, 2.0, 0.0), (2.0, 0.0, -1.0, 1.0)
    rng = np.random.default_rng(11)
    log = [rng.choice(4, 2, replace=False).tolist() for _ in range(300)]
    scaffold = coupled(list(zip(a, p, z, strict=True)), noise_std=0.5)
    apart = quadratic(
        [list(pair) for pair in zip(p, z, strict=True)], names={"u": 1, "v": 1}, noise_std=0.5
    )
    eta = 2**0.5
    for method, task, L, limit, measured in (
        ("scaffold_p", scaffold, 4.0, 4.137, 0.665),
        ("fedavg_p", apart, 1.0, 0.925, 0.101),
    ):
        gamma = min(2 / 4 ** (2 / 3), 1) / (72 * L * 3) if method == "scaffold_p" else 1 / (96 * L)
        story = Story(method, task, K=3, lr=gamma / eta, eta_u=eta, eta_v=eta)
        total = 0.0
        for clients in log:
            gradients = task.gradients(story.clients, story.models).numpy()
            total += gradients[:, 0].mean() ** 2 + 0.5 * (gradients[:, 1] ** 2).mean()
            story.round(clients)
        assert total / len(log) <= limit
        np.testing.assert_allclose(total / len(log), measured, rtol=0.15)
