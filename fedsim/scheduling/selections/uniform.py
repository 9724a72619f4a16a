"""Clients drawn at random: uniformly, by their samples, each with its own probability, or where the grid is clean."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field, field_validator

from fedsim.errors import UserError
from fedsim.parts.component import Parameters
from fedsim.randomness import Purpose
from fedsim.scheduling.base import CohortParams, Selection, ServerPort
from fedsim.scheduling.drawing import Replacing, weighted_order
from fedsim.units import NS_PER_S, Duration, to_ns
from fedsim.vocabulary.arrays import Floats

Probability = Annotated[float, Field(ge=0, le=1)]


class Uniform(Selection):
    """Clients drawn uniformly without replacement from those that are checked in and idle."""

    name = "uniform"
    Params = CohortParams

    def draw(self, count: int) -> list[int]:
        if self._members is None:
            return self.server.sample_online(count)
        clients: list[int] = self.generator().permutation(self.available())[:count].tolist()
        return clients


class UniformWithReplacement(Replacing):
    """As many independent uniform draws as the cohort is large, among the clients that are checked in and idle.

    A client drawn m times works once, and its update counts m times (scheme I of Li et al., On the Convergence of
    FedAvg on Non-IID Data, ICLR 2020, with equal weights).
    """

    name = "uniform_with_replacement"
    Params = CohortParams

    def draw(self, count: int) -> list[int]:
        available = self.available()
        if not len(available):
            return []
        return self.counted(self.generator().choice(available, max(0, count)))


class SampleWeighted(Replacing):
    """Clients drawn in proportion to their numbers of training samples.

    Without replacement the draws are successive. With replacement it is scheme I of Li et al., On the Convergence of
    FedAvg on Non-IID Data, ICLR 2020, which requires a method with ``weights: uniform``.
    """

    name = "sample_weighted"

    class Params(CohortParams):
        replacement: bool = False
        """Whether draws are independent, so that a client may be drawn, and counts, several times."""

    def draw(self, count: int) -> list[int]:
        available = self.available()
        if not len(available) or count < 1:
            return []
        samples = self.server.samples[available].astype(np.float64)
        if self.params.replacement:
            return self.counted(
                self.generator().choice(available, count, p=samples / samples.sum())
            )
        return weighted_order(self.generator(), available, samples)[:count]


class Sine(Parameters):
    """A periodic factor: ``offset`` + ``amplitude`` x sin(2 pi t / ``period``) in round t = 0, 1, ..."""

    offset: float = 0.7
    """Mean of the factor."""
    amplitude: float = Field(default=0.3, ge=0)
    """Largest deviation from the mean."""
    period: float = Field(default=10.0, gt=0)
    """Rounds per period."""


class Bernoulli(Selection):
    """Every client that is checked in and idle participates in a round with its own probability.

    The random draws depend only on seed, client and round. Under schedules without rounds, free slots are filled in
    proportion to the probabilities.
    """

    name = "bernoulli"

    class Params(Parameters):
        probability: Probability | list[Probability] = 0.2
        """Probability that a client participates in a round: one for all, or one per client (per group with
        ``group_size``)."""
        group_size: int | None = Field(default=None, ge=1)
        """Clients per group: the first probability applies to the first group of this size, and so on."""
        sine: Sine | None = None
        """Factor on all probabilities, which changes from round to round."""
        allow_empty: bool = False
        """Whether a round may have no clients (it counts with the schedule's ``min_updates: 0``); if not, empty rounds
        are skipped."""

        @field_validator("probability")
        @classmethod
        def _somebody_participates(cls, value: float | list[float]) -> float | list[float]:
            if not np.any(value):
                raise ValueError("all probabilities are 0, so no client would ever participate")
            return value

    #: Rounds skipped before a client is drawn in proportion to the probabilities instead.
    MAX_EMPTY_ROUNDS: ClassVar[int] = 10_000

    def __init__(self, params: Params, server: ServerPort) -> None:
        super().__init__(params, server)
        self._probability = _per_client(params, server.clients)
        self._coins = server.stream(Purpose.SELECTION, 2)
        self._round = 0

    def probabilities(self, round_: int) -> Floats:
        """Probability that each client participates in a round, (N,)."""
        sine = self.params.sine
        if sine is None:
            return self._probability
        factor = sine.offset + sine.amplitude * math.sin(2 * math.pi * round_ / sine.period)
        scaled: Floats = np.clip(self._probability * factor, 0.0, 1.0)
        return scaled

    @property
    def allows_empty(self) -> bool:
        allowed: bool = self.params.allow_empty
        return allowed

    def cohort_size(self, factor: float = 1.0) -> int:
        """Clients expected in the next round, times ``factor``, rounded up."""
        expected = float(self.probabilities(self._round).sum())
        return max(1, math.ceil(expected * factor - 1e-9))

    def cohort(self, factor: float = 1.0) -> list[int]:
        """The participants of the next round; ``factor`` multiplies the probabilities."""
        available = self.available()
        if not len(available):
            return []
        for _ in range(self.MAX_EMPTY_ROUNDS):
            chances = self.probabilities(self._round)[available] * factor
            coins = self._coins.uniforms(available, self._round)
            self._round += 1
            chosen: list[int] = available[coins < chances].tolist()
            if chosen or self.params.allow_empty:
                return chosen
        return self.draw(1)

    def draw(self, count: int) -> list[int]:
        available = self.available()
        chances = self.probabilities(self._round)[available]
        return weighted_order(self.generator(), available, chances)[:count]


def _per_client(params: Bernoulli.Params, clients: int) -> Floats:
    """Probability of each client, (N,)."""
    values = np.atleast_1d(np.asarray(params.probability, dtype=np.float64))
    if params.group_size is not None:
        values = np.repeat(values, params.group_size)
    elif not isinstance(params.probability, list):
        values = np.repeat(values, clients)
    if len(values) < clients or (params.group_size is None and len(values) > clients):
        raise UserError(
            f"there are {len(values)} probabilities for {clients} clients",
            where="server.selection.probability",
            hint="give one number for all, one per client, or one per group with group_size",
        )
    return values[:clients]


class CarbonAware(Selection):
    """Clients drawn uniformly from the regions whose grid is as clean as it becomes within ``wait``.

    When clients are wanted, the server looks ``wait`` ahead: the clients of a region may be drawn from the instant at
    which its intensity is least, until some are. ``devices.carbon`` is its forecast, without errors. As in FedZero,
    work is put where and when energy is clean; there, it is the excess energy of sites that is used up.

    Waiting: Wiesner et al., Let's Wait Awhile, Middleware 2021; FedZero: Wiesner et al., e-Energy 2024.
    """

    name = "carbon_aware"

    class Params(CohortParams):
        wait: Duration = Field(default=6 * 3600.0, gt=0)
        """Longest time that a draw waits for a cleaner hour."""

    def __init__(self, params: Params, server: ServerPort) -> None:
        super().__init__(params, server)
        if server.grid is None:
            raise UserError(
                "the selection carbon_aware needs the carbon intensity of the grid",
                where="server.selection",
                hint="set devices.carbon: {file: builtin:carbon_week.csv, region: GB}",
            )
        self._grid = server.grid
        self._wait_ns, self._until_ns = to_ns(params.wait), -1
        self._due_ns = np.zeros(len(self._grid.regions), dtype=np.int64)

    def _look_ahead(self) -> None:
        now_ns = self.server.now_ns
        if now_ns <= self._until_ns:
            return
        self._until_ns = now_ns + self._wait_ns
        span_s = now_ns / NS_PER_S, self._until_ns / NS_PER_S
        self._due_ns[:] = [to_ns(region.cleanest_s(*span_s)) for region in self._grid.regions]

    def draw(self, count: int) -> list[int]:
        self._look_ahead()
        available = self.available()
        is_clean = self._due_ns[self._grid.of_client[available]] <= self.server.now_ns
        drawn: list[int] = self.generator().permutation(available[is_clean])[:count].tolist()
        if drawn:
            self._until_ns = -1
        return drawn

    def next_change_ns(self) -> int | None:
        """When the next region becomes clean."""
        later = self._due_ns[self._due_ns > self.server.now_ns]
        return int(later.min()) if len(later) else None
