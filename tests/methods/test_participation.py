"""Methods of rounds on quadratics in one dimension: papers' algorithms written out, under any participation."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.tasks.kinds.quadratic import QuadraticTask
from tests.methods.driver import Part, Played, Player, Round, close, play, quadratic, x_of

LOG: list[Round] = [[0], [1], [0], [0, 1]]
LOGS = st.lists(st.lists(st.integers(0, 2), unique=True, max_size=3), min_size=1, max_size=9)
FEDSUM = ("fedsum_b", "fedsum", "fedsum_cr")
DECAY = {"lr_schedule": {"name": "inverse_sqrt", "scale": 10}}
WEIGHT_DECAY = {"optimizer": {"name": "sgd", "lr": 0.1, "weight_decay": 1.0}}
A, B, START = np.array([1.0, 2.0, 4.0]), np.array([0.0, 3.0, -1.0]), 1.0


def q2() -> QuadraticTask:
    """f_1 = (x - 1)^2 / 2, f_2 = 3 (x + 1)^2 / 2 from 2; minimum at -0.5."""
    return quadratic([1.0, -1.0], [1.0, 3.0], 2.0)


def q3(**more: Any) -> QuadraticTask:
    """f_i = a_i / 2 (x - b_i)^2 with a = (1, 2, 4), b = (0, 3, -1) from 1."""
    return quadratic(B.tolist(), A.tolist(), START, **more)


def end(client: int, w: float, lr: float = 0.1, steps: int = 2) -> float:
    """Where plain local steps lead."""
    return float(B[client] + (1 - lr * A[client]) ** steps * (w - B[client]))


Rule = Callable[[int, float, list[int]], float]
"""The model after a round from its number, the model before and its clients."""


def follow(rule: Rule, method: str, log: list[list[int]], **options: Any) -> Played:
    """Check every round of Q3, by default with two local steps, against the rule."""
    played, x = play(method, q3(), log, **{"steps": 2, **options}), START
    for number, clients in enumerate(log):
        close(played.x[number], x)
        x = rule(number, x, clients)
    close(played.x[len(log)], x)
    return played


# -- any participation -------------------------------------------------------------------------------------------------


@settings(max_examples=12)
@given(LOGS, st.sampled_from(["gradients", "changes"]))
def test_mifa(log: list[list[int]], remembers: str) -> None:
    """Gu et al. (NeurIPS 2021), Algorithm 1, with a decaying learning rate: G_i = (w - w_i) / eta of its time."""
    table = [0.0] * 3

    def rule(t: int, x: float, clients: list[int]) -> float:
        lr = 0.1 / (t / 10 + 1) ** 0.5
        unit = lr if remembers == "gradients" else 1
        for i in clients:
            table[i] = (end(i, x, lr) - x) / unit
        return x + float(np.mean(table)) * unit

    played = follow(rule, "mifa", log, remembers=remembers, training=DECAY)
    close(played.memory("latest")[:, 0], table)


@pytest.mark.parametrize("method", ["mifa", "fedvarp"])
def test_a_rate_that_decays_to_zero_leaves_the_memory(method: str) -> None:
    """A client that does not move shows no gradient."""
    log = [[0, 1, 2], [0, 1], [1, 2], [0, 2]]

    def played(rounds: list[list[int]]) -> Any:
        decay = {"lr_schedule": {"name": "cosine", "length": 2}}
        return play(method, q3(), rounds, steps=2, remembers="gradients", training=decay)

    latest, before = (played(rounds).memory("latest") for rounds in (log, log[:2]))
    assert latest.all()
    assert latest.tolist() == before.tolist()


@settings(max_examples=12)
@given(LOGS, st.sampled_from(["gradients", "changes"]))
def test_fedvarp(log: list[list[int]], remembers: str) -> None:
    """Jhunjhunwala et al. (UAI 2022), Algorithm 2; in the unit of changes, old entries count in full as rates decay."""
    table = [0.0] * 3

    def rule(t: int, x: float, clients: list[int]) -> float:
        if not clients:
            return x
        lr = 0.1 / (t / 10 + 1) ** 0.5
        unit = lr if remembers == "gradients" else 1
        fresh = {i: (end(i, x, lr) - x) / unit for i in clients}
        step = np.mean([fresh[i] - table[i] for i in clients]) + np.mean(table)
        for i in clients:
            table[i] = fresh[i]
        return x + 0.7 * unit * float(step)

    follow(rule, "fedvarp", log, remembers=remembers, server_lr=0.7, training=DECAY)


@settings(max_examples=12)
@given(LOGS, st.sampled_from([1, 2]), st.lists(st.integers(1, 3), min_size=3, max_size=3))
def test_scaffold(log: list[list[int]], uplink: int, steps: list[int]) -> None:
    """Karimireddy et al. (ICML 2020), Algorithm 1, option II, with clients that do different numbers of steps."""
    c, control = [0.0], [0.0] * 3

    def rule(t: int, x: float, clients: list[int]) -> float:
        moves, changes = [0.0] if not clients else [], []
        for i in clients:
            w = x
            for _ in range(steps[i]):
                w -= 0.1 * (A[i] * (w - B[i]) - control[i] + c[0])
            new = control[i] - c[0] + (x - w) / (steps[i] * 0.1)
            changes.append(new - control[i])
            control[i] = new
            moves.append(w - x)
        c[0] += sum(changes) / 3
        return x + 0.7 * float(np.mean(moves))

    played = follow(rule, "scaffold", log, steps=steps, uplink=uplink, server_lr=0.7)
    close(played.memory("control")[:, 0], control)
    close(played.learner.server["control"], c[0])


@settings(max_examples=12)
@given(LOGS, st.floats(0.3, 1.5), st.sampled_from([None, 0.05]))
def test_fedawe(log: list[list[int]], server_lr: float, clip: float | None) -> None:
    """Xiang et al. (NeurIPS 2024), Algorithm 1."""
    own, last = [START] * 3, [-1] * 3

    def rule(t: int, x: float, clients: list[int]) -> float:
        if not clients:
            return x
        moved = [server_lr * (t - last[i]) * (end(i, own[i]) - own[i]) for i in clients]
        step = float(np.mean(moved))
        if clip is not None:
            step = float(np.clip(step, -clip, clip))
        x = float(np.mean([own[i] for i in clients])) + step
        for i in clients:
            own[i], last[i] = x, t
        return x

    played = follow(rule, "fedawe", log, server_lr=server_lr, clip_norm=clip)
    close(played.memory("own")[:, 0], own)


def test_fedawe_measures_the_mean_of_all_clients_models() -> None:
    """From 2 with rate 0.1: client 0 moves to 1.9, then client 1 by twice 0.1 x 3 x 3, then both; their mean counts."""
    played = play("fedawe", q2(), [[0], [1], [0, 1]], evaluated="client_average")
    trained = [2 - 0.1, 2 - 2 * 0.9]
    newest = np.mean(
        [trained[0] - 2 * 0.1 * (trained[0] - 1), trained[1] - 0.1 * 3 * (trained[1] + 1)]
    )
    close(played.x[1:], [(trained[0] + 2) / 2, sum(trained) / 2, newest])
    close(played.memory("own")[:, 0], [newest] * 2)


@settings(max_examples=12)
@given(LOGS, st.sampled_from([None, 1, 2, 3, 50]))
def test_fedau(log: list[list[int]], cutoff: int | None) -> None:
    """Wang and Ji (ICLR 2024), Algorithms 1 and 2: counters advanced round by round."""
    counted, omega = [0] * 3, [1.0] * 3
    intervals: list[list[int]] = [[] for _ in range(3)]

    def rule(t: int, x: float, clients: list[int]) -> float:
        x += 0.7 * sum(omega[i] * (end(i, x) - x) for i in clients) / 3
        for i in range(3):
            counted[i] += 1
            if i in clients or counted[i] == cutoff:
                intervals[i].append(counted[i])
                counted[i], omega[i] = 0, float(np.mean(intervals[i]))
        return x

    follow(rule, "fedau", log, cutoff=cutoff, server_lr=0.7)


def test_fedau_by_hand() -> None:
    """Client 1 comes in rounds 0, 3 and 4: intervals 1 and 3, weights 1, 1 and 2; with a cut-off of 2: 1, 1.5, 4/3."""
    log: list[Round] = [[0, 1], [0], [0], [0, 1], [0, 1]]
    for cutoff, weights in ((50, (1, 1, 2)), (2, (1, 1.5, 4 / 3))):
        x = play("fedau", q3(), log, cutoff=cutoff).x
        for t, weight in zip((0, 3, 4), weights, strict=True):
            step = x[t + 1] - x[t] - (end(0, x[t], 0.1, 1) - x[t]) / 3
            close(step, weight * (end(1, x[t], 0.1, 1) - x[t]) / 3, 1e-9)


@settings(max_examples=12)
@given(LOGS, st.integers(1, 3), st.sampled_from(FEDSUM))
def test_the_fedsum_family(log: list[list[int]], steps: int, method: str) -> None:
    """Algorithms 1 to 3, eta_g = 1."""
    h, z, last, y = [0.0] * 3, [START] * 3, [-1] * 3, [0.0]

    def rule(t: int, x: float, clients: list[int]) -> float:
        received = y[0]
        for i in clients:
            correction = received - h[i]
            if method == "fedsum_cr":
                correction = 3 / (0.1 * steps) * (z[i] - x) / (t - last[i]) - h[i]
                z[i], last[i] = x, t
            w, gathered = x, 0.0
            for _ in range(steps):
                g = A[i] * (w - B[i])
                gathered += g / steps
                if method != "fedsum_b":
                    w -= 0.1 / 3 * (g + correction)
            y[0] += gathered - h[i]
            h[i] = gathered
        return x - 0.1 * steps / 3 * y[0]

    follow(rule, method, log, steps=steps)


@pytest.mark.parametrize("weights", ["samples", "uniform"])
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.6, False), (0.6, True)])
def test_fednova(weights: str, momentum: float, nesterov: bool) -> None:
    """Wang et al. (NeurIPS 2020), equation 6; a_i of momentum from section 4, of Nesterov's form by its definition."""
    steps, samples = [1, 3, 5], np.array([2, 1, 1])
    optimizer = {"name": "sgd", "lr": 0.05, "momentum": momentum, "nesterov": nesterov}
    changes, lengths = [], []
    for i, count in enumerate(steps):
        w, v, reach, length = START, 0.0, 0.0, 0.0
        for _ in range(count):
            g = A[i] * (w - B[i])
            v, reach = momentum * v + g, momentum * reach + 1
            w -= 0.05 * (g + momentum * v if nesterov else v)
            length += 1 + momentum * reach if nesterov else reach
        changes.append(w - START)
        lengths.append(length)
    if not nesterov:
        rest = 1 - momentum
        closed = [(count - momentum * (1 - momentum**count) / rest) / rest for count in steps]
        close(lengths, closed)
    p = samples / samples.sum() if weights == "samples" else np.full(3, 1 / 3)
    a, delta = np.array(lengths), np.array(changes)
    task, training = q3(samples=samples.tolist()), {"optimizer": optimizer}
    x = play("fednova", task, [[0, 1, 2]], steps=steps, weights=weights, training=training).x
    close(x[1], START + (p @ a) * (p @ (delta / a)))


# -- worked iterates of Q2 (card of the FedSUM family) -----------------------------------------------------------------

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


@pytest.mark.parametrize("method", FEDSUM)
def test_two_clients_with_two_steps(method: str) -> None:
    """Models, y after every round and the final h_i."""
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
def test_the_methods_it_is_compared_with(
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


def test_iterates_of_fedsum_b_with_weight_decay() -> None:
    """From 2 along the gradients at the received model, decay included."""
    x1 = 2 - 0.1 * ((2 - 1) + 2)
    x2 = x1 - 0.1 * ((x1 - 1 + x1) + (3 * (x1 + 1) + x1))
    close(x_of("fedsum_b", q2(), [[0], [0, 1]], steps=2, training=WEIGHT_DECAY), [x1, x2])


def test_iterates_of_fedsum_with_weight_decay() -> None:
    """Two steps per round, written out with the gradients a (w - c) + w of the decayed objective."""
    a, c, h, y, x = (1.0, 3.0), (1.0, -1.0), [0.0, 0.0], 0.0, 2.0
    log = [[0], [0, 1], [1], [0, 1]]
    expected = []
    for clients in log:
        received, start, old = y, x, list(h)
        for i in clients:
            w, gradients = start, []
            for _ in range(2):
                gradients.append(a[i] * (w - c[i]) + w)
                w -= 0.1 / 2 * (gradients[-1] + received - old[i])
            h[i] = sum(gradients) / 2
            y += h[i] - old[i]
        x -= 0.1 * 2 / 2 * y
        expected.append(x)
    close(x_of("fedsum", q2(), log, steps=2, training=WEIGHT_DECAY), expected)


@pytest.mark.parametrize("method", ["fedsum_b", "fedsum", "fedsum_cr", "scaffold"])
def test_weight_decay_is_part_of_the_objective(method: str) -> None:
    """(x - 1) + 3 (x + 1) + 2 x = 0 at -1/3, whichever clients come."""
    log = [[k % 2] if k % 3 else [0, 1] for k in range(150)]
    training = {"optimizer": {"name": "sgd", "lr": 0.02, "weight_decay": 1.0}}
    close(play(method, q2(), log, steps=2, training=training).x[-1], -1 / 3, rel=2e-3)


# -- FedSUM-CR ---------------------------------------------------------------------------------------------------------


@settings(max_examples=12)
@given(LOGS)
def test_constant_rates_make_both_corrections_the_same(log: list[list[int]]) -> None:
    literal = play("fedsum_cr", q3(), log, steps=2).x
    close(play("fedsum_cr", q3(), log, steps=2, correction="lr_sum").x, literal)


def test_two_dispatches_of_one_version_leave_cr_finite() -> None:
    """An asynchronous server may hand a client the same version twice: there is no direction to recover then."""
    for correction in ("literal", "lr_sum"):
        player = Player("fedsum_cr", q2(), steps=2, correction=correction)
        first, second = player.dispatch(0), player.dispatch(0)
        player.aggregate([first])
        player.aggregate([second])
        assert np.isfinite(player.played.x).all()
        # y_1 = -h_1: from x = 2, h_1 = 0.975, g = 1: w = 2 - 0.05 x 0.025, and its gradient is 0.99875.
        close(player.played.memory("gradient")[0], (1 + 0.99875) / 2)
        close(player.played.memory("gradient").sum(0), player.played.state("merged")[-1])


# -- consistency -------------------------------------------------------------------------------------------------------


def test_a_client_drawn_twice_counts_twice_and_has_one_memory() -> None:
    """Means count it twice; tables, y as the sum of h_i and SCAFFOLD's c once."""
    twice: list[Round] = [[Part(0, times=2), 1], [2]]
    for method, stored in (("fedvarp", 1.0), ("mifa", 10.0)):
        played = play(method, q3(), twice)
        expected = [
            stored * (end(i, played.x[v], 0.1, 1) - played.x[v])
            for i, v in ((0, 0), (1, 0), (2, 1))
        ]
        close(played.memory("latest")[:, 0], expected)
        close(played.state("mean")[-1], np.mean(expected))
    mean = (2 * (end(0, 1, 0.1, 1) - 1) + end(1, 1, 0.1, 1) - 1) / 3
    for method in ("fedvarp", "fedau"):
        close(play(method, q3(), twice).x[1] - START, mean)
    for method in FEDSUM:
        both = (play(method, q2(), log, steps=2).x for log in ([twice[0]], [[0, 1]]))
        np.testing.assert_array_equal(*both)
    for uplink in (1, 2):
        played = play("scaffold", q2(), [twice[0], [0, 1]], steps=2, uplink=uplink)
        ends = np.array([1 + 0.81 * 1, -1 + 0.49 * 3])
        close(played.x[1], 2 + (2 * (ends[0] - 2) + (ends[1] - 2)) / 3)
        close(played.memory("control").mean(0), played.learner.server["control"].numpy())


# -- cases in which several methods are the same -----------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_full_participation_is_fedavg(rounds: int, steps: int) -> None:
    """FedAU, FedAWE, MIFA, FedVARP, FedNova, waiting; SCAFFOLD with one local step."""
    log = [[0, 1, 2]] * rounds
    fedavg = play("fedavg", q3(), log, steps=steps, weights="uniform").x
    for method in ("fedau", "fedawe", "mifa", "fedvarp"):
        close(play(method, q3(), log, steps=steps).x, fedavg)
    for method in ("fednova", "wait"):
        bits = play(method, q3(), log, steps=steps, weights="uniform").x
        assert (bits == fedavg).all()
    if steps == 1:
        close(play("scaffold", q3(), log).x, fedavg)
