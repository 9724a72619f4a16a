"""FedAvg-P against its card: worked iterates in exact fractions, limits, noise."""

from __future__ import annotations

from tests.methods.driver import quadratic
from tests.methods.personal_worlds import CASE_B, ROUNDS_B, Story, close, coupled, exact, history

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


def test_everything_personal() -> None:
    """v = q (1 - (1 - eta_v (1 - (1 - gamma_v)^K))^r) after r participations; eta_v = 1 is local SGD."""
    task = quadratic([1.0], [1.0])
    story = Story("fedavg_p", task, personal="all", lr=1 / 4, eta_v=1.5).rounds([[0]] * 3)
    close(story.v[1:], exact("21/32 903/1024 31437/32768"))
    alone = Story("fedavg_p", task, personal="all", lr=1 / 4).rounds([[0]] * 3)
    close(alone.v[1:], [1 - 0.75 ** (2 * r) for r in (1, 2, 3)])
