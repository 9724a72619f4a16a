"""The FedSUM family against its card: worked iterates, invariants, reductions, bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.methods.driver import Part, Player, Round, close, play, x_of
from tests.methods.problems import LOG, LOGS, q2, q3

FAMILY = ("fedsum_b", "fedsum", "fedsum_cr")
DECAY = {"lr_schedule": {"name": "inverse_sqrt", "scale": 10}}
Q2_WITH_TWO_STEPS = {
    "fedsum_b": ([1.9, 0.93, 0.067, -0.1598], [1, 9.7, 8.63, 2.268], [-0.933, 3.201]),
    "fedsum": (
        [1.9025, 1.00686875, 0.228021078125, -0.01897981328125],
        [0.975, 8.9563125, 7.78847671875, 2.4700089140625],
        [-0.952212261328125, 3.422221175390625],
    ),
    "fedsum_cr": (
        [1.9025, 1.0032125, 0.211134125, -0.0247043265625],
        [0.975, 8.992875, 7.92078375, 2.358384515625],
        [-0.969591103125, 3.32797561875],
    ),
}


@pytest.mark.parametrize("method", FAMILY)
def test_two_clients_with_two_steps(method: str) -> None:
    """Models, y after every round and the final h_i of problem Q2."""
    played = play(method, q2(), LOG, steps=2)
    x, y, h = Q2_WITH_TWO_STEPS[method]
    close(played.x[1:], x)
    close(played.state("merged")[1:, 0], y)
    close(played.memory("gradient")[:, 0], h)


@pytest.mark.parametrize(
    ("method", "params", "expected"),
    [
        ("fedavg", {"weights": "uniform"}, [1.81, 0.3769, 0.495289, 0.16193785]),
        ("scaffold", {}, [1.81, 0.29615, -0.15382225, -0.29956703125]),
        ("scaffold", {"uplink": 1}, [1.81, 0.29615, -0.15382225, -0.29956703125]),
        ("mifa", {}, [1.905, 1.069225, 0.321873625, 0.04921785625]),
        ("mifa", {"remembers": "changes"}, [1.905, 1.069225, 0.321873625, 0.04921785625]),
        ("fedvarp", {}, [1.81, 0.2819, -0.203211, -0.29208715]),
    ],
)
def test_the_methods_it_is_compared_with_on_the_same_problem(
    method: str, params: dict[str, Any], expected: list[float]
) -> None:
    close(x_of(method, q2(), LOG, steps=2, **params), expected)


@pytest.mark.parametrize(
    ("method", "params", "expected"),
    [
        ("fedsum_b", {}, [1.9, 0.9751412884, 0.1832128596, -0.0564740674]),
        ("fedsum", {}, [1.9025, 1.0453268934, 0.3263058518, 0.0726922100]),
        ("fedsum_cr", {}, [1.9025, 1.0421652637, 0.3125995746, 0.0708809390]),
        ("fedsum_cr", {"correction": "lr_sum"}, [1.9025, 1.0420030298, 0.3115836102, 0.0664550188]),
    ],
)
def test_a_decaying_learning_rate(
    method: str, params: dict[str, Any], expected: list[float]
) -> None:
    """eta_l(t) = 0.1 / sqrt(t / 10 + 1); the card gives ten decimals."""
    values = x_of(method, q2(), LOG, steps=2, training=DECAY, **params)
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-10)


@settings(max_examples=20)
@given(LOGS, st.integers(1, 3), st.sampled_from(FAMILY))
def test_any_participation_gives_what_the_algorithms_give(
    log: list[list[int]], steps: int, method: str
) -> None:
    expected = written_out(method, [0.0, 3.0, -1.0], [1.0, 2.0, 4.0], 1.0, log, 0.1, steps)
    close(x_of(method, q3(), log, steps=steps), expected, 1e-9)


def written_out(
    variant: str,
    centers: Sequence[float],
    curvatures: Sequence[float],
    x: float,
    log: Sequence[Round],
    lr: float,
    steps: int,
) -> list[float]:
    """Algorithms 1 to 3 in plain Python, one dimension, exact gradients, eta_g = 1."""
    clients = len(centers)
    h, z, last, y, iterates = [0.0] * clients, [x] * clients, [-1] * clients, 0.0, []
    for t, active in enumerate(log):
        total = 0.0
        for part in active:
            i = int(part[0]) if isinstance(part, tuple) else part
            if variant == "fedsum_cr":
                correction = clients / (lr * steps) * (z[i] - x) / (t - last[i]) - h[i]
                z[i], last[i] = x, t
            else:
                correction = y - h[i]
            w, gathered = x, 0.0
            for _ in range(steps):
                g = curvatures[i] * (w - centers[i])
                gathered += g / steps
                if variant != "fedsum_b":
                    w -= lr / clients * (g + correction)
            total += gathered - h[i]
            h[i] = gathered
        y += total
        x -= lr * steps / clients * y
        iterates.append(x)
    return iterates


@st.composite
def asynchronous(draw: st.DrawFn) -> list[tuple[str, int]]:
    """Hand-outs, and ends of work: used, late or lost, in any order."""
    return draw(
        st.lists(
            st.tuples(st.sampled_from(["hand out", "use", "lose", "version"]), st.integers(0, 2)),
            min_size=12,
            max_size=60,
        )
    )


@given(asynchronous(), st.sampled_from([*FAMILY, "scaffold"]))
def test_lost_and_late_updates_leave_clients_and_server_consistent(
    events: list[tuple[str, int]], method: str
) -> None:
    """Whatever is dropped, late or merged several versions later: y = sum of h_i, c = mean of c_i."""
    player = Player(method, q3(), steps=2, lr=0.05)
    at_work: dict[int, Any] = {}
    buffered: list[Any] = []
    for what, client in events:
        if what == "hand out" and client not in at_work:
            at_work[client] = player.dispatch(Part(client))
        elif what == "use" and client in at_work:
            buffered.append(at_work.pop(client))
        elif what == "lose" and client in at_work:
            player.lose(at_work.pop(client))
        elif what == "version":
            player.aggregate(buffered)
            buffered = []
    for train in [*at_work.values(), *buffered]:
        player.lose(train)
    played = player.played
    played.learner.close()
    if method == "scaffold":
        close(played.memory("control").mean(0), played.learner.server["control"].numpy())
    else:
        close(played.memory("gradient").sum(0), played.learner.server["merged"].numpy())
        used = played.memory("gradient").any(1)
        assert (used | (played.memory("gradient")[:, 0] == 0)).all()


@settings(max_examples=20)
@given(LOGS)
def test_one_step_makes_the_variants_the_same(log: list[list[int]]) -> None:
    """K = 1: all gradients are at x, so the family and MIFA agree for any participation; SCAFFOLD and FedVARP do."""
    first = play("fedsum_b", q3(), log).x
    for other in ("fedsum", "fedsum_cr", "mifa"):
        close(play(other, q3(), log).x, first)
    close(play("scaffold", q3(), log).x, play("fedvarp", q3(), log).x)


def test_a_client_drawn_twice_has_one_memory() -> None:
    """y stays the sum of h_i; SCAFFOLD's model counts the client twice, its c once."""
    for method in FAMILY:
        twice = play(method, q2(), [[Part(0, times=2), 1]], steps=2)
        once = play(method, q2(), [[0, 1]], steps=2)
        assert (twice.x == once.x).all()
    for uplink in (1, 2):
        twice = play("scaffold", q2(), [[Part(0, times=2), 1], [0, 1]], steps=2, uplink=uplink)
        ends = np.array([1 + 0.81 * 1, -1 + 0.49 * 3])
        close(twice.x[1], 2 + (2 * (ends[0] - 2) + (ends[1] - 2)) / 3)
        close(twice.memory("control").mean(0), twice.learner.server["control"].numpy())


@pytest.mark.parametrize("method", ["fedsum_b", "fedsum", "fedsum_cr", "scaffold"])
def test_weight_decay_is_part_of_the_objective(method: str) -> None:
    """(x - 1) + 3 (x + 1) + 2 x = 0 at -1/3, whichever clients come."""
    log = [[k % 2] if k % 3 else [0, 1] for k in range(150)]
    training = {"optimizer": {"name": "sgd", "lr": 0.02, "weight_decay": 1.0}}
    close(play(method, q2(), log, steps=2, training=training).x[-1], -1 / 3, rel=2e-3)
