"""Scaffold-P against its card: worked iterates in exact fractions, lost updates, its prologue."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.methods.driver import quadratic
from tests.methods.personal_worlds import (
    CASE_A,
    CASE_B,
    ROUNDS_B,
    Reference,
    Story,
    close,
    coupled,
    exact,
    history,
)

A3 = [
    "-1/64 15/32 0 1/16 -23/8 3",
    "-141/2048 3429/4096 15/4096 109/512 -2573/1024 3009/1024",
    "-32957/262144 37109/32768 311/16384 14909/65536 -149205/65536 179023/65536",
]
A3Z = ["1/32 27/64 3/64 -1/8 -5/2 9/4", "-81/2048 801/1024 21/512 145/512 -2459/1024 3039/1024"]
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
        for row, numbers in zip(history(story, ("u", "v", "c", "ci")), expected, strict=True):
            close(row, exact(numbers))
    single = Story("scaffold_p", coupled(CASE_A), uplink=uplink, K=1).rounds([[0, 1]] * 3)
    for row, numbers in zip(history(single, ("c", "ci")), A4_CONTROLS, strict=True):
        close(row, exact(numbers))


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
    for row, numbers in zip(history(story, ("u", "v", "c", "ci")), expected, strict=True):
        close(row, exact(numbers))


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


def test_scaffold_p_has_no_sampling_plateau() -> None:
    """The same world with control variates: the gradient vanishes."""
    rng = np.random.default_rng(5)
    log = [rng.choice(10, 5, replace=False).tolist() for _ in range(100)]
    task = quadratic([i - 4.5 for i in range(10)])
    story = Story("scaffold_p", task, personal="none", K=5, lr=0.1).rounds(log)
    assert abs(story.u[-1][0]) < 1e-12
