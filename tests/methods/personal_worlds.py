"""Worlds of the card of partial personalization, round by round, and a reference in exact fractions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.tasks.kinds.quadratic import QuadraticTask
from tests.methods.driver import Part, Player, quadratic

FloatArray = npt.NDArray[np.float64]
Client = tuple[float, float, float]
"""a, p and z of f(u, v) = a/2 (u - p)^2 + (u + v - z)^2 / 2."""

CASE_A: tuple[Client, ...] = ((1, 1, 2), (3, -1, 0))
CASE_B: tuple[Client, ...] = (*CASE_A, (2, 2, -1))


def coupled(clients: Sequence[Client], **more: Any) -> QuadraticTask:
    """The coupled quadratics as 1/2 (x - b)^T A (x - b) with x = (u, v), which is the same up to a constant."""
    return quadratic(
        [[p, z - p] for _, p, z in clients],
        [[[a + 1, 1], [1, 1]] for a, _, _ in clients],
        names={"u": 1, "v": 1},
        initial=more.pop("initial", [0.0, 0.0]),
        **more,
    )


def exact(text: str) -> FloatArray:
    """Fractions written one after the other."""
    return np.array([float(Fraction(word)) for word in text.replace(",", " ").split()])


class Story:
    """Rounds of one method; entry t of the lists is after round t, entry 0 before the first.

    Args:
        method: its name.
        task: what is learned.
        K: local steps.
        lr: local learning rate.
        params: parameters of the method.
    """

    def __init__(
        self, method: str, task: QuadraticTask, *, K: int = 2, lr: float = 1 / 8, **params: Any
    ) -> None:
        self.player = Player(method, task, lr=lr, steps=K, eager=False, **params)
        self.learner = self.player.played.learner
        self.clients = np.arange(task.clients)
        if self.learner.station.method.prologue() is not None:
            self.player.aggregate([self.player.dispatch(int(i)) for i in self.clients])
        self.u: list[FloatArray] = []
        self.v: list[FloatArray] = []
        self.c: list[FloatArray] = []
        self.ci: list[FloatArray] = []
        self._note()

    def round(
        self,
        clients: Sequence[int | Part],
        lost: Sequence[int | Part] = (),
        kept: Sequence[int | Part] = (),
    ) -> "Story":
        """One round; the updates of ``lost`` clients do not arrive, ``kept`` ones are lost after the work was done."""
        used, gone, done = (
            [self.player.dispatch(part) for part in parts] for parts in (clients, lost, kept)
        )
        for train in gone:
            self.player.lose(train)
        for train in done:
            self.learner.submit(replace(train, used=False))
        self.player.aggregate(used)
        self._note()
        return self

    def rounds(self, log: Sequence[Sequence[int | Part]]) -> "Story":
        """Several rounds in which everybody arrives."""
        for clients in log:
            self.round(clients)
        return self

    def history(self, names: str) -> list[FloatArray]:
        """The named series after each round, flat."""
        columns = [getattr(self, name) for name in names.split()]
        return [np.concatenate([np.ravel(c[t]) for c in columns]) for t in range(1, len(self.u))]

    def _note(self) -> None:
        self.learner.flush()
        server, store = self.learner.server, self.learner.store
        rows = store.rows(self.clients)
        self.u.append(server["shared"].numpy().copy())
        self.v.append(rows["personal"].numpy().copy() if "personal" in rows else np.empty(0))
        if "control" in rows:
            self.c.append(server["control"].numpy().copy())
            self.ci.append(rows["control"].numpy().copy())


class Reference:
    """FedAvg-P and Scaffold-P on coupled quadratics in exact fractions, straight from the card's pseudo-code.

    Args:
        clients: the objectives.
        gammas, etas: inner and outer step sizes of u and v.
        controls: Scaffold-P with the paper's initial control variates ("paper") or "zero"; FedAvg-P when None.
    """

    def __init__(
        self,
        clients: Sequence[Client],
        *,
        gammas: tuple[Any, Any] = (Fraction(1, 8), Fraction(1, 8)),
        etas: tuple[Any, Any] = (1, 1),
        controls: str | None = None,
    ) -> None:
        self.problem = [tuple(Fraction(value) for value in client) for client in clients]
        self.gammas = tuple(Fraction(value) for value in gammas)
        self.etas = tuple(Fraction(value) for value in etas)
        self.controls = controls
        n = len(clients)
        self.u, self.v = Fraction(0), [Fraction(0)] * n
        self.ci = [Fraction(0)] * n
        if controls == "paper":
            self.ci = [self.gradients(i, self.u, self.v[i])[0] for i in range(n)]
        self.c = sum(self.ci, Fraction(0)) / n

    def gradients(self, i: int, u: Fraction, v: Fraction) -> tuple[Fraction, Fraction]:
        a, p, z = self.problem[i]
        return a * (u - p) + u + v - z, u + v - z

    def local(self, i: int, steps: int) -> tuple[Fraction, Fraction]:
        """u_i and v_i after the inner steps."""
        x, y = self.u, self.v[i]
        correction = self.c - self.ci[i] if self.controls else Fraction(0)
        for _ in range(steps):
            gu, gv = self.gradients(i, x, y)
            x -= self.gammas[0] * (gu + correction)
            y -= self.gammas[1] * gv
        return x, y

    def round(self, clients: Mapping[int, int], kept: Mapping[int, int] | None = None) -> None:
        """Client to its number of steps, for those whose update is used; ``kept`` keep v_i of work that was lost."""
        for i, steps in (kept or {}).items():
            self.v[i] = (1 - self.etas[1]) * self.v[i] + self.etas[1] * self.local(i, steps)[1]
        if not clients:
            return
        n, m = len(self.problem), len(clients)
        results = {i: self.local(i, steps) for i, steps in clients.items()}
        mean = sum((x for x, _ in results.values()), Fraction(0)) / m
        new_u = (1 - self.etas[0]) * self.u + self.etas[0] * mean
        change = Fraction(0)
        c = self.c
        for i, (x, y) in results.items():
            self.v[i] = (1 - self.etas[1]) * self.v[i] + self.etas[1] * y
            if self.controls:
                new = self.ci[i] - c + (self.u - x) / (clients[i] * self.gammas[0])
                change += new - self.ci[i]
                self.ci[i] = new
        self.c += change / n
        self.u = new_u


def close(value: Any, expected: Any, rel: float = 1e-12) -> None:
    np.testing.assert_allclose(np.ravel(value), np.ravel(expected), rtol=rel, atol=1e-14)
