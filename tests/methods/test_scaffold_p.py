"""Scaffold-P against its card: worked iterates in exact fractions, lost updates, its prologue."""

from __future__ import annotations

import pytest

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


@UPLINKS
def test_scaffold_p_of_case_b(uplink: int) -> None:
    """B2: u, v_i, c and c_i; clients that are left out keep their v_i and c_i."""
    story = Story("scaffold_p", coupled(CASE_B), uplink=uplink)
    close(story.c[0], -1)
    close(story.ci[0], [-3, 3, -3])
    story.rounds(ROUNDS_B)
    for row, numbers in zip(history(story, ("u", "v", "c", "ci")), B2, strict=True):
        close(row, exact(numbers))


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
