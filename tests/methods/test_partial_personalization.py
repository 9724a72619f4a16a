"""FedAvg-P, Scaffold-P and FedAlt against their cards: worked iterates in exact fractions, limits, noise."""

from typing import Any

import pytest

from tests.methods.driver import quadratic
from tests.methods.personal_worlds import CASE_A, CASE_B, Story, close, coupled, exact

A1 = ["1/32 27/64 3/64", "-5/2048 763/1024 5/64", "-3419/65536 131661/131072 14199/131072"]
A2 = [
    "1/64 59/128 3/128",
    "-277/8192 3319/4096 39/1024",
    "-47995/524288 1141885/1048576 62631/1048576",
]
A2B = ["1/256 121/256 3/256", "-3385/65536 54511/65536 1295/65536"]
A3 = [
    "-1/64 15/32 0 1/16 -23/8 3",
    "-141/2048 3429/4096 15/4096 109/512 -2573/1024 3009/1024",
    "-32957/262144 37109/32768 311/16384 14909/65536 -149205/65536 179023/65536",
]
A3Z = ["1/32 27/64 3/64 -1/8 -5/2 9/4", "-81/2048 801/1024 21/512 145/512 -2459/1024 3039/1024"]
A4 = ["0 1/4 0", "-1/64 15/32 0", "-5/128 339/512 1/512"]
A4_CONTROLS = ["0 -3 3", "1/8 -11/4 3", "3/16 -41/16 47/16"]
FEDALT = ["-9/2048 15/32 0", "-382875/8388608 108615/131072 135/131072"]
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
BOTH = ({"uplink": 1}, {"uplink": 2})


@pytest.mark.parametrize(
    ("method", "options", "names", "expected"),
    [
        ("fedavg_p", {}, "u v", A1),
        ("fedavg_p", {"gamma_u": 1 / 8, "gamma_v": 1 / 8, "lr": 0.3}, "u v", A1),
        ("fedsim", {}, "u v", A1),
        ("fedavg_p", {"lr": 1 / 16, "eta_u": 2, "eta_v": 2}, "u v", A2),
        ("fedavg_p", {"gamma_u": 1 / 32, "eta_u": 4, "gamma_v": 1 / 16, "eta_v": 2}, "u v", A2B),
        *(("scaffold_p", uplink, "u v c ci", A3) for uplink in BOTH),
        *(("scaffold_p", {**uplink, "c0": "zero"}, "u v c ci", A3Z) for uplink in BOTH),
        ("fedavg_p", {"K": 1}, "u v", A4),
        *(("scaffold_p", {**uplink, "K": 1}, "u v", A4) for uplink in BOTH),
        *(("scaffold_p", {**uplink, "K": 1}, "c ci", A4_CONTROLS) for uplink in BOTH),
        ("fedalt", {}, "u v", FEDALT),
    ],
)
def test_iterates_of_case_a(
    method: str, options: dict[str, Any], names: str, expected: list[str]
) -> None:
    """Two clients, all take part (card 7.1): A1 to A4."""
    story = Story(method, coupled(CASE_A), **options).rounds([[0, 1]] * len(expected))
    for row, numbers in zip(story.history(names), expected, strict=True):
        close(row, exact(numbers))


@pytest.mark.parametrize(
    ("method", "options", "names", "expected"),
    [
        ("fedavg_p", {}, "u v", B1),
        *(("scaffold_p", uplink, "u v c ci", B2) for uplink in BOTH),
    ],
)
def test_iterates_of_case_b(
    method: str, options: dict[str, Any], names: str, expected: list[str]
) -> None:
    """B1 and B2: a client that is left out keeps its part and its c_i, and the mean is over those who took part."""
    story = Story(method, coupled(CASE_B), **options).rounds([[0, 1], [1, 2], [0, 2]])
    for row, numbers in zip(story.history(names), expected, strict=True):
        close(row, exact(numbers))


@pytest.mark.parametrize(
    ("clients", "options", "ci"),
    [(CASE_A, {}, [-3, 3]), (CASE_A, {"c0": "zero"}, [0, 0]), (CASE_B, {}, [-3, 3, -3])],
)
def test_control_variates_at_the_start(clients: Any, options: Any, ci: list[float]) -> None:
    story = Story("scaffold_p", coupled(clients), **options)
    close(story.ci[0], ci)
    close(story.c[0], sum(ci) / len(ci))


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


def tape(first: int) -> list[dict[str, Any]]:
    """The card's noise (7.1, tape C), with client i's first round as its dispatch ``first``."""
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
    first, second = story.history("u v")
    close(first, exact("3/128 101/256 19/256"))
    close(second, exact("-823/16384 2859/4096 525/4096"))
    story = Story("scaffold_p", coupled(CASE_A, noise_tape=tape(1))).rounds([[0, 1]] * 2)
    close(story.history("u v c ci")[0], exact("-3/128 113/256 7/256 3/32 -179/64 191/64"))
    close(story.history("u v c")[1], exact("-1899/16384 3233/4096 223/4096 1515/4096"))


def test_everything_shared() -> None:
    """FedAvg and SCAFFOLD with two step sizes (card 7.2)."""
    task, log = quadratic([1.0, -1.0], [1.0, 3.0]), [[0, 1]] * 3

    def story(method: str, **options: Any) -> Story:
        return Story(method, task, personal="none", **options)

    close(story("fedavg_p").rounds(log).u[1:], exact("-3/16 -303/1024 -23499/65536"))
    paper = story("scaffold_p").rounds(log)
    close(paper.u[1:], exact("-7/32 -705/2048 -54277/131072"))
    close(paper.c[1:], exact("7/8 257/512 9157/32768"))
    zero = story("scaffold_p", c0="zero").rounds(log)
    close(zero.u[1:], [-3 / 16, -0.322265625, -0.401275634765625])
    paper.rounds([[0, 1]] * 200)
    close([paper.u[-1], *paper.ci[-1]], [-0.5, -1.5, 1.5], rel=1e-10)
    close(paper.c[-1], 0, rel=0)


def test_everything_personal() -> None:
    """v = q (1 - (1 - eta_v (1 - (1 - gamma_v)^K))^r) after r participations; eta_v = 1 is local SGD (card 7.3)."""
    task = quadratic([1.0], [1.0])
    story = Story("fedavg_p", task, personal="all", lr=1 / 4, eta_v=1.5).rounds([[0]] * 3)
    close(story.v[1:], exact("21/32 903/1024 31437/32768"))
    alone = Story("fedavg_p", task, personal="all", lr=1 / 4).rounds([[0]] * 3)
    close(alone.v[1:], [1 - 0.75 ** (2 * r) for r in (1, 2, 3)])
