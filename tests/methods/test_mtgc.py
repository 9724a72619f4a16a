"""MTGC against its algorithm on paper, and against SCAFFOLD without edge servers."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import fedsim
from tests.methods.driver import close, play
from tests.methods.test_participation import q3

FREE = {"name": "static", "latency": 0, "down": "1e30", "up": "1e30"}
EDGES = ((0, 1), (2, 3))


def run(
    folder: Path,
    curvatures: list[float],
    centers: list[float],
    scripts: list[list[int]],
    *,
    steps: int,
    rounds: int,
    **method: Any,
) -> float:
    """The model after ``rounds`` rounds of the cloud; ``scripts`` are the clients of an edge server's rounds."""
    part = {"name": "mtgc", **method}
    scenario = {
        "task": {"name": "quadratic", "curvatures": curvatures, "centers": centers, "initial": 0},
        "training": {"optimizer": {"name": "sgd", "lr": 0.25}, "local_steps": steps},
        "devices": {"compute": {"name": "values", "step": [1.0, 2.0, 3.0, 4.0]}, "network": FREE},
        "server": {
            "method": part,
            "edges": {
                "count": 2,
                "rounds": len(scripts),
                "method": part,
                "network": FREE,
                "selection": {"name": "scripted", "rounds": scripts * rounds},
            },
        },
        "stop": {"rounds": rounds},
    }
    scenario["training"]["dtype"] = "float64"
    (model,) = fedsim.run(scenario, folder / "run").model().values()
    return float(model)


def on_paper(
    curvatures: list[float],
    centers: list[float],
    scripts: list[list[int]],
    *,
    steps: int,
    rounds: int,
    keeps: bool = False,
) -> Fraction:
    """Fang et al., Algorithm 1, with exact fractions; of the clients only those in a script take part."""
    a, b = [Fraction(value) for value in curvatures], [Fraction(value) for value in centers]
    x, rate, y, z = Fraction(0), Fraction(1, 4), [Fraction(0)] * 2, [Fraction(0)] * 4
    for _ in range(rounds):
        edge_models = []
        for j, members in enumerate(EDGES):
            x_j = x
            for i in members:
                z[i] = z[i] if keeps else Fraction(0)
            for script in scripts:
                w = {members[local]: x_j for local in script}
                for i in w:
                    for _ in range(steps):
                        w[i] -= rate * (a[i] * (w[i] - b[i]) + z[i] + y[j])
                x_j = sum(w.values()) / Fraction(len(w))
                for i in w:
                    z[i] += (w[i] - x_j) / (steps * rate)
            edge_models.append(x_j)
        x = sum(edge_models) / Fraction(2)
        for j, x_j in enumerate(edge_models):
            y[j] += (x_j - x) / (steps * len(scripts) * rate)
    return x


BOTH: list[list[int]] = [[0, 1], [0, 1]]
ALIKE, UNLIKE = ([1.0] * 4, [0.0, 4.0, 8.0, 12.0]), ([1.0, 2.0, 1.5, 0.5], [0.0, 3.0, -1.0, 2.0])


@pytest.mark.parametrize(("rounds", "model"), [(1, "21/8"), (2, "525/128")])
def test_iterates_by_hand(rounds: int, model: str, tmp_path: Path) -> None:
    """Curvature 1, centers 0, 4 and 8, 12; one step of 1/4, two rounds of the edge servers, from 0.

    First the clients reach 0, 1 (mean 1/2) and 2, 3 (mean 5/2); z is -2, 2 at both edge servers. With it, both clients
    of an edge server reach 7/8, and 35/8; the cloud has 21/8, and y is -7/2, 7/2. From there the mean directions are
    21/8 - 2 - 7/2 = -23/8 and 21/8 - 10 + 7/2 = -31/8, and the edge servers reach 107/32 and 115/32; then -69/32 and
    -93/32, and they reach 497/128 and 553/128.
    """
    assert on_paper(*ALIKE, BOTH, steps=1, rounds=rounds) == Fraction(model)
    assert run(tmp_path, *ALIKE, BOTH, steps=1, rounds=rounds) == Fraction(model)


@pytest.mark.parametrize(
    ("scripts", "steps", "keeps"),
    [(BOTH, 2, False), ([[0, 1]] * 3, 1, True), ([[0], [1], [0, 1]], 2, False)],
    ids=["zero", "kept", "partial"],
)
def test_iterates_of_the_algorithm(
    scripts: list[list[int]], steps: int, keeps: bool, tmp_path: Path
) -> None:
    options = {"client_corrections": "kept"} if keeps else {}
    model = run(tmp_path, *UNLIKE, scripts, steps=steps, rounds=4, **options)
    expected = on_paper(*UNLIKE, scripts, steps=steps, rounds=4, keeps=keeps)
    assert model == pytest.approx(float(expected), abs=1e-14)


def test_kept_corrections_reach_the_optimum_and_others_do_not(tmp_path: Path) -> None:
    optimum = sum(a * b for a, b in zip(*UNLIKE, strict=True)) / sum(UNLIKE[0])
    kept, zero = (
        run(tmp_path / name, *UNLIKE, BOTH, steps=2, rounds=80, client_corrections=name)
        for name in ("kept", "zero")
    )
    assert kept == pytest.approx(optimum, abs=1e-9)
    assert abs(zero - optimum) > 1e-3


def test_without_edge_servers_it_is_scaffold() -> None:
    log = [[0, 1, 2]] * 4
    close(play("mtgc", q3(), log, steps=3).x, play("scaffold", q3(), log, steps=3).x)
