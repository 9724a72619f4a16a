"""FedAvg-P and Scaffold-P against their card, side by side: worked iterates, limits, noise, the theorems' bounds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.methods.driver import quadratic
from tests.methods.personal_worlds import CASE_A, Story, close, coupled, exact, history

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
    for row, numbers in zip(history(story, "uv"), expected, strict=True):
        close(row, exact(numbers))


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
    for row, numbers in zip(
        history(story, "uv"), ["3/128 101/256 19/256", "-823/16384 2859/4096 525/4096"], strict=True
    ):
        close(row, exact(numbers))
    story = Story("scaffold_p", coupled(CASE_A, noise_tape=tape(1))).rounds([[0, 1]] * 2)
    close(
        history(story, ("u", "v", "c", "ci"))[0], exact("-3/128 113/256 7/256 3/32 -179/64 191/64")
    )
    close(history(story, ("u", "v", "c"))[1], exact("-1899/16384 3233/4096 223/4096 1515/4096"))


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
