"""FedLGA against its card: worked cases C1 to C6, invariants, baselines of partial work."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.tasks.kinds.quadratic import QuadraticTask
from tests.methods.driver import FloatArray, Part, Round, close, play, quadratic

SOURCES = ("mean_delta", "last_grad", "raw_delta", "secant")
HESSIANS = ("outer", "diag", "per_tensor", "identity", "none")


def f(text: str) -> float:
    return float(Fraction(text))


# -- two clients (C1 to C3, C5) --------------------------------------------------------------------

TWO: Round = [Part(0, 3), Part(1, 1)]


def two(start: float, center_a: float, center_b: float) -> QuadraticTask:
    """F = (w - c)^2 / 2; eta = 1/2, E = 3; A does all three steps, B one."""
    return quadratic([center_a, center_b], 1.0, start)


def lga(task: QuadraticTask, log: Any, **params: Any) -> FloatArray:
    return play("fedlga", task, log, lr=0.5, steps=3, **params).x


def contribution(task: QuadraticTask, log: Any = TWO, **params: Any) -> float:
    """What the limited client B counts as, from the model after one round of A and B."""
    x = lga(task, [log], **params)
    alone = play("fedavg", task, [[Part(0, 3)]], lr=0.5, steps=3).x
    return float(2 * (x[1] - x[0]) - (alone[1] - alone[0]))


C1 = [
    ({"hessian": "none"}, "-1/4", "7/16", "67/256"),
    ({"lam": 0.0}, "-1/4", "7/16", "67/256"),
    ({}, "-13/32", "23/64", "979371/4194304"),
    ({"sign": -1}, "-3/32", "33/64", "1200355/4194304"),
    ({"grad_source": "last_grad"}, "-37/128", "107/256", "274097415/1073741824"),
    ({"grad_source": "last_grad", "sign": -1}, "-27/128", "117/256", None),
    ({"hessian": "identity"}, "-7/8", "1/8", "1/64"),
]


@pytest.mark.parametrize(("params", "counted", "first", "second"), C1)
def test_aligned_pulls(
    params: dict[str, Any], counted: str, first: str, second: str | None
) -> None:
    """C1: centers 0 and 1/2, start 1."""
    task = two(1.0, 0.0, 0.5)
    close(contribution(task, **params), f(counted))
    x = lga(task, [TWO, TWO], **params)
    close(x[1], f(first))
    if second is None:
        assert x[2] == pytest.approx(0.26791952, abs=5.1e-9)
    else:
        close(x[2], f(second))


def test_rescaling_partial_work() -> None:
    """C1: B counts 3 times -1/4; with weights of samples, too."""
    task = two(1.0, 0.0, 0.5)
    x = play("rescale", task, [TWO], lr=0.5, steps=3, server_lr=0.5).x
    close(x[1], 1 + 0.5 * (-7 / 8 - 3 / 4) / 2)
    weighted = quadratic([0.0, 0.5], 1.0, 1.0, samples=[1, 3])
    close(play("rescale", weighted, [TWO], lr=0.5, steps=3).x[1], 1 + (-7 / 8 - 9 / 4) / 4)


# -- four clients (C4) -----------------------------------------------------------------------------

FOUR: Round = [Part(0, 4), Part(1, 4), Part(2, 2), Part(3, 1)]


def four() -> QuadraticTask:
    return quadratic([0.0, 0.25, 0.5, -0.25], [1.0, 2.0, 1.0, 2.0], 1.0)


# -- two dimensions (C6) ---------------------------------------------------------------------------


def reference(task: QuadraticTask, parts: Round, lr: float, full: int, **params: Any) -> FloatArray:
    """Algorithm 2 in numpy, one round from the task's start, whatever the switches."""
    start = task.initial(None).numpy()  # type: ignore[arg-type]
    a, b = task._curvatures, task._centers

    def gradient(i: int, w: FloatArray) -> FloatArray:
        result: FloatArray = a[i] @ (w - b[i]) if a.ndim == 3 else a[i] * (w - b[i])
        return result

    work = [part if isinstance(part, Part) else Part(part) for part in parts]
    ends, counts = {}, {}
    for part in work:
        w = start.copy()
        for _ in range(part.steps or full):
            w = w - lr * gradient(part.client, w)
        ends[part.client], counts[part.client] = w, part
    done = [part for part in work if (part.steps or full) == full]
    draws = sum(part.times for part in work)
    total = sum(part.times * (ends[part.client] - start) for part in work) / draws
    if done and params.get("hessian", "outer") != "none":
        m = sum(p.times * (ends[p.client] - start) for p in done) / sum(p.times for p in done)
        for part in work:
            steps = part.steps or full
            if steps == full:
                continue
            delta = ends[part.client] - start
            d = m - delta
            g = {
                "mean_delta": -delta / (lr * steps),
                "last_grad": gradient(part.client, ends[part.client]),
                "raw_delta": delta,
                "secant": -d / (lr * (full - steps)),
            }[params.get("grad_source", "mean_delta")]
            if params.get("unit_gradient"):
                g = g / np.linalg.norm(g)
            bent = {
                "outer": g * (g @ d),
                "diag": g * g * d,
                "per_tensor": np.concatenate([g[:1] * (g[:1] @ d[:1]), g[1:] * (g[1:] @ d[1:])]),
                "identity": d,
            }[params.get("hessian", "outer")]
            correction = params.get("sign", 1) * params.get("lam", 1.0) * bent
            limit = (full / steps - 1) * np.linalg.norm(delta)
            if params.get("clip") and np.linalg.norm(correction) > limit:
                correction *= limit / np.linalg.norm(correction)
            total = total + part.times / draws * correction
    return np.asarray(start + params.get("server_lr", 1.0) * total)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("hessian", HESSIANS)
def test_every_switch(source: str, hessian: str) -> None:
    """Against the algorithm written out, in three dimensions and two tensors, with a multiple draw."""
    rng = np.random.default_rng(5)
    task = quadratic(
        rng.normal(size=(4, 3)).tolist(),
        rng.uniform(0.5, 2, size=(4, 3)).tolist(),
        rng.normal(size=3).tolist(),
        names={"first": 1, "second": 2},
    )
    parts: Round = [Part(3, 1), Part(0, 4, times=3), Part(2, 3, times=2), Part(1, 4)]
    for sign, clip, lam, unit in (
        (1, False, 1.0, False),
        (-1, True, 1.0, False),
        (1, True, 0.5, False),
        (-1, False, 1.0, True),
    ):
        params = {
            "unit_gradient": unit,
            "grad_source": source,
            "hessian": hessian,
            "sign": sign,
            "clip": clip,
            "lam": lam,
            "server_lr": 0.7,
        }
        x = play("fedlga", task, [parts], lr=0.2, steps=4, **params).models[1]
        close(x, reference(task, parts, 0.2, 4, **params))


def test_momentum_of_the_local_optimizer() -> None:
    """g = -Delta / (eta a), where a sums the coefficients of S gradients: 1 for S = 1, and 2.5 for S = 2 (1 + 1.5)."""
    training = {"optimizer": {"name": "sgd", "lr": 0.2, "momentum": 0.5}}
    task = four()
    x = play("fedlga", task, [FOUR], steps=4, training=training).x
    a, b = np.array([1.0, 2.0, 1.0, 2.0]), np.array([0.0, 0.25, 0.5, -0.25])
    deltas = []
    for i, steps in enumerate((4, 4, 2, 1)):
        w, v = 1.0, 0.0
        for _ in range(steps):
            v = 0.5 * v + a[i] * (w - b[i])
            w -= 0.2 * v
        deltas.append(w - 1)
    m = (deltas[0] + deltas[1]) / 2
    for i, steps in ((2, 2), (3, 1)):
        g = -deltas[i] / (0.2 * {1: 1.0, 2: 2.5}[steps])
        deltas[i] += g * g * (m - deltas[i])
    close(x[1], 1 + np.mean(deltas))


def test_secant_with_momentum_divides_by_the_missing_distance() -> None:
    """Steps 3 and 4 of 4 carry 1.75 + 1.875 with momentum 1/2, steps 2 to 4 1.5 more."""
    training = {"optimizer": {"name": "sgd", "lr": 0.2, "momentum": 0.5}}
    plain = play("fedlga", four(), [FOUR], steps=4, training=training, hessian="none").x
    alone = [
        play("fedavg", four(), [[Part(i, s)]], steps=4, training=training).x
        for i, s in enumerate((4, 4, 2, 1))
    ]
    deltas = [x[1] - x[0] for x in alone]
    m = (deltas[0] + deltas[1]) / 2
    expected = plain[1]
    for i, missing in ((2, 1.75 + 1.875), (3, 1.5 + 1.75 + 1.875)):
        gap = m - deltas[i]
        expected += (gap / (0.2 * missing)) ** 2 * gap / 4
    x = play("fedlga", four(), [FOUR], steps=4, training=training, grad_source="secant").x
    close(x[1], expected)


@pytest.mark.parametrize(
    ("partial", "expected"), [("average", -9 / 16), ("drop", -7 / 8), ("zero", -7 / 16)]
)
def test_fedavg_averages_drops_or_zeroes_partial_work(partial: str, expected: float) -> None:
    """C1: changes of -7/8 (full) and -1/4 (one of three steps)."""
    x = play(
        "fedavg", two(1.0, 0.0, 0.5), [TWO], lr=0.5, steps=3, weights="uniform", partial=partial
    ).x
    close(x[1] - x[0], expected)
    nobody = play(
        "fedavg", two(1.0, 0.0, 0.5), [[Part(0, 1), Part(1, 2)]], lr=0.5, steps=3, partial="drop"
    ).x
    assert nobody[1] == nobody[0] or partial != "drop"


# -- invariants (section 8.1) ----------------------------------------------------------------------


@settings(max_examples=10)
@given(st.lists(st.lists(st.integers(0, 3), unique=True, max_size=4), min_size=1, max_size=4))
def test_full_work_is_fedavg_bit_for_bit(log: list[list[int]]) -> None:
    """I1, I2."""
    fedavg = play("fedavg", four(), log, steps=3, weights="uniform").x
    for source in SOURCES:
        assert (play("fedlga", four(), log, steps=3, grad_source=source).x == fedavg).all()
    for method in ("rescale", "fednova"):
        assert (play(method, four(), log, steps=3, weights="uniform").x == fedavg).all()


STEPS = st.lists(st.integers(1, 4), min_size=4, max_size=4)


@settings(max_examples=10)
@given(STEPS)
def test_without_a_correction_partial_updates_are_averaged(steps: list[int]) -> None:
    """I3, I9: lam 0, no Hessian or nobody with full work is FedAvg on partial work, bit for bit."""
    parts: Round = [Part(client, count) for client, count in enumerate(steps)]
    fedavg = play("fedavg", four(), [parts], steps=4, weights="uniform").x
    for params in ({"hessian": "none"}, {"lam": 0.0}):
        assert (play("fedlga", four(), [parts], steps=4, **params).x == fedavg).all()
    if 4 not in steps:
        for params in ({}, {"k2_empty": "last"}):
            assert (play("fedlga", four(), [parts], steps=4, **params).x == fedavg).all()


def test_the_last_full_update_stands_in() -> None:
    """k2_empty last: m of the last round that had full work; before there is one, no correction."""
    task = two(1.0, 0.0, 0.5)
    nobody: Round = [Part(1, 1)]
    x = lga(task, [nobody, TWO, nobody], k2_empty="last")
    plain = lga(task, [nobody, TWO, nobody])
    assert (x[:3] == plain[:3]).all()
    m = (x[1] * 0.5**3) - x[1]
    delta = -0.5 * (x[2] - 0.5)
    g = -delta / 0.5
    close(x[3], x[2] + delta + g * g * (m - delta))
    assert x[3] != plain[3]
