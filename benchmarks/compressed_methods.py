"""Where every method converges with every compression, on a deterministic problem: the table of benchmarks/README.md.

    python -m benchmarks.compressed_methods [--methods scaffold fedavg ...]

Three clients with unequal quadratic objectives (for methods of low-rank adapters: of the product of two matrices) take
two exact steps in each of 400 rounds, in double precision. The end is compared with that of the same run without
compression.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from fedsim.vocabulary.arrays import Ints

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from torch import Tensor

from benchmarks.tables import markdown
from fedsim.errors import UserError
from fedsim.learning.device import Execution
from fedsim.learning.learner import Learner
from fedsim.learning.rates import learning_rate
from fedsim.learning.workers import Station
from fedsim.methods.base import Method, MethodContext, with_mixin
from fedsim.methods.compression import Compressed
from fedsim.parts.catalog import CATALOG
from fedsim.scenario.training import Training
from fedsim.tasks.kinds.quadratic import QuadraticTask
from fedsim.tasks.layout import Adapter, Layout
from fedsim.vocabulary.timeline import Aggregate, Contribution, Train

PAGE = Path(__file__).parent / "README.md"
TABLE = re.compile(
    r"(<!-- Written by benchmarks/compressed_methods.py\. -->\n).*?(<!-- End\. -->)", re.DOTALL
)
CLIENTS, STEPS, RATE, ROUNDS = 3, 2, 0.1, 400
SAME = 1e-7
OUTCOMES = ("same", "near", "diverges", "moves on")

COMPRESSIONS: dict[str, dict[str, Any]] = {
    "cast": {},
    "qsgd": {"bucket": 16},
    "eden": {"bits": 4},
    "randk": {"share": 0.75, "error_feedback": False},
    "topk": {"share": 0.5},
    "signsgd": {},
    "powersgd": {"rank": 1},
    "sparseloco": {"share": 0.5, "chunk": 4},
}
"""With error feedback, if they have it and it is not switched off."""

OPTIONS: dict[str, dict[str, Any]] = {
    "fedadagrad": {"server_lr": 2.0, "tau": 1.0},
    "fedadam": {"server_lr": 1.0, "tau": 1.0, "beta1": 0.5},
    "fedyogi": {"server_lr": 2.0, "tau": 1.0, "beta1": 0.5},
    "fadas": {"server_lr": 0.05, "beta1": 0.5},
    "fedavgm": {"momentum": 0.5},
    "diloco": {"momentum": 0.5},
    "delayed_nesterov": {"momentum": 0.5, "momentum_every": 2},
    "streaming_diloco": {"momentum": 0.5, "fragments": 2},
    "feddyn": {"alpha": 2.0},
    "generalized_fedavg": {"every_rounds": 2, "amplification": 2.0},
}
"""Parameters with which a method converges within the rounds."""


class Matrices(QuadraticTask):
    """Quadratic objectives of two matrices, the second of which is the last layer."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        super().__init__(
            QuadraticTask.Params(
                centers=rng.normal(size=(CLIENTS, 28)).tolist(),
                curvatures=rng.uniform(0.5, 1.5, size=(CLIENTS, 28)).tolist(),
            )
        )
        self.layout = Layout.of({"body.weight": (4, 4), "head.weight": (3, 4)}.items())


class Adapters(QuadraticTask):
    """|W + B A - M_i|^2 / 2 for matrices M_i; W is part of the model only if it ``merges``."""

    def __init__(self, merges: bool) -> None:
        rng = np.random.default_rng(0)
        super().__init__(QuadraticTask.Params(centers=rng.normal(size=(CLIENTS, 16)).tolist()))
        shapes = {"a": (2, 4), "b": (4, 2), "base": (4, 4)}
        if not merges:
            del shapes["base"]
        self.layout = Layout.of(shapes.items(), adapters=[Adapter("a", "b", "base")])
        self._start = rng.normal(size=self.layout.size) / 2

    def _factors(self, clients: Ints, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """A, B and the difference from M_i of B clients."""
        a, b = points[:, :8].view(-1, 2, 4), points[:, 8:16].view(-1, 4, 2)
        centers, _, _ = self._of(clients, points)
        distance = b @ a - centers.view(-1, 4, 4)
        if points.shape[1] > 16:
            distance = distance + points[:, 16:].view(-1, 4, 4)
        return a, b, distance

    def gradients(self, clients: Ints, points: Tensor) -> Tensor:
        """Those of A and B; W is not trained."""
        a, b, distance = self._factors(clients, points)
        result = torch.zeros_like(points)
        result[:, :8] = (b.mT @ distance).flatten(1)
        result[:, 8:16] = (distance @ a.mT).flatten(1)
        return result

    def losses(self, clients: Ints, points: Tensor) -> Tensor:
        """Objectives."""
        return self._factors(clients, points)[2].square().sum((1, 2)) / 2


@cache
def task_of(name: str) -> QuadraticTask:
    """The problem of a method."""
    method = CATALOG.parts("method")[name]
    return Adapters(method.merges) if method.needs_adapters else Matrices()


def play(
    name: str,
    up: str = "none",
    down: str = "none",
    *,
    rounds: int = ROUNDS,
    cohort: Callable[[int], Sequence[int]] = lambda version: range(CLIENTS),
    **options: Any,
) -> Learner:
    """The learner after the rounds.

    Args:
        name, options: the method and its parameters.
        up, down: compressions.
        rounds: number of rounds.
        cohort: the clients that take part in the round of a version.

    Raises:
        UserError: the method does not work with these compressions.
    """
    task, method = task_of(name), CATALOG.parts("method")[name]
    parts = CATALOG.parts("compression")
    ways = {
        way: parts[name](parts[name].Params(**COMPRESSIONS.get(name, {})), task.layout)
        for way, name in (("up", up), ("down", down))
    }
    exact = {up, down} == {"none"}
    kind: type[Method] = method if exact else with_mixin(method, Compressed, ways=ways)
    section = {"optimizer": {"lr": RATE}, "dtype": "float64", "device": "cpu", "threads": 1}
    training = Training.model_validate(section)
    execution = Execution.of(training)
    context = MethodContext(
        layout=task.layout,
        clients=CLIENTS,
        samples=task.samples,
        learning_rate=learning_rate(training),
        local_steps=np.full(CLIENTS, STEPS),
        tensors=lambda: (execution.dtype, execution.device),
        seed=0,
    )
    built = kind(method.Params(**{**OPTIONS.get(name, {}), **options}), context)
    learner = Learner(Station(task, built, training, 0, execution))
    trains: list[Train] = []
    sequences = [0] * CLIENTS
    for version in range(rounds):
        number = len(trains)
        for client in cohort(version):
            at = sequences[client], version, version
            trains.append(Train(len(trains), client, *at, STEPS, STEPS, float(version)))
            sequences[client] += 1
            learner.hold(version)
            learner.submit(trains[-1])
        used = tuple(Contribution(one.dispatch_id, one.client, 0) for one in trains[number:])
        learner.submit(Aggregate(version + 1, float(version), version, used))
        learner.flush()
    return learner


def run(name: str, up: str = "none", down: str = "none", **options: Any) -> Tensor:
    """The model at the end of :func:`play`."""
    return play(name, up, down, **options).server["model"]


@cache
def settled(name: str) -> tuple[Tensor, bool]:
    """The model without compression, and whether it no longer moved in the last tenth of the rounds."""
    end, before = run(name), run(name, rounds=ROUNDS * 9 // 10)
    return end, _distance(name, before, end) <= SAME


def outcome(name: str, up: str = "none", down: str = "none") -> str:
    """The row's text for a method and its compressions; a reason if they are refused."""
    try:
        model = run(name, up, down)
    except UserError as error:
        return str(error.message)
    expected, is_settled = settled(name)
    if not is_settled:
        return "moves on"
    distance = _distance(name, model, expected)
    return "same" if distance <= SAME else "near" if distance < 1 else "diverges"


def _distance(name: str, model: Tensor, expected: Tensor) -> float:
    """Distance of two models as a share of the way from the initial one to the second."""
    start = torch.as_tensor(task_of(name)._start)
    return float((model - expected).norm() / (expected - start).norm())


def table(names: Sequence[str], way: str) -> Iterator[str]:
    """The lines of the table of one direction, and the reasons of refusals."""
    rows, reasons = [], dict[str, None]()
    for name in names:
        cells = {one: outcome(name, **{way: one}) for one in COMPRESSIONS}
        for one, text in cells.items():
            if text not in OUTCOMES:
                reasons.setdefault(text, None)
                cells[one] = "refused"
        print(way, name, *cells.values(), flush=True)
        rows.append((f"`{name}`", *cells.values()))
    yield markdown(("method", *(f"`{one}`" for one in COMPRESSIONS)), rows)
    for text in reasons:
        yield f"- {text}.\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--methods", nargs="+", default=sorted(CATALOG.parts("method")))
    names = parser.parse_args().methods
    lines = ["**Uploads**\n", *table(names, "up"), "**Downloads**\n", *table(names, "down")]
    text = PAGE.read_text(encoding="utf-8")
    content = "\n".join(lines)
    PAGE.write_text(
        TABLE.sub(lambda match: f"{match[1]}\n{content}\n{match[2]}", text), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
