"""TiFL: the clients of a round belong to one tier of speed, with fixed or adaptive probabilities."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field, field_validator

from fedsim.errors import UserError
from fedsim.scheduling.base import CohortParams, Selection, ServerPort
from fedsim.scheduling.drawing import equal_tiers, profile
from fedsim.vocabulary.arrays import Bools, Floats


class TiFL(Selection):
    """Each round draws a tier by its probability, and then clients uniformly within it.

    A tier without available clients is not drawn; one with fewer clients than the cohort yields all of them. The static
    policies of Chai et al., TiFL: A Tier-based Federated Learning System, HPDC 2020, section 4.3 (their policy
    ``vanilla`` is uniform selection).
    """

    name = "tifl"

    class Params(CohortParams):
        tiers: int = Field(default=5, ge=1)
        """Number of tiers, of equal size, by the expected duration of a full workload."""
        probabilities: list[float] | None = None
        """Relative probabilities of the tiers, the fastest first; they need not sum to 1. Default: equal."""

        @field_validator("probabilities")
        @classmethod
        def _chances(cls, value: list[float] | None) -> list[float] | None:
            if value is not None and (any(p < 0 for p in value) or not any(value)):
                raise ValueError("probabilities must not be negative, and not all 0")
            return value

    def __init__(self, params: Params, server: ServerPort) -> None:
        super().__init__(params, server)
        self._tiers = equal_tiers(profile(server), params.tiers)
        count = int(self._tiers.max()) + 1
        chances = params.probabilities or [1.0] * count
        if len(chances) != count:
            raise UserError(
                f"there are {len(chances)} probabilities for {count} tiers",
                where="server.selection.probabilities",
            )
        self._chances = np.array(chances, dtype=np.float64)

    def draw(self, count: int) -> list[int]:
        available = self.available()
        tiers = self._tiers[available]
        chances = self.tier_chances(np.bincount(tiers, minlength=len(self._chances)) > 0)
        if not chances.any():
            return []
        generator = self.generator()
        tier = int(generator.choice(len(chances), p=chances / chances.sum()))
        self.on_tier(tier)
        chosen: list[int] = generator.permutation(available[tiers == tier])[:count].tolist()
        return chosen

    def tier_chances(self, present: Bools) -> Floats:
        """Probabilities of the tiers up to a factor, 0 for those not ``present`` (T,); (T,)."""
        return self._chances * present

    def on_tier(self, tier: int) -> None:
        """Record that a tier has been drawn."""


Credits = Annotated[int, Field(ge=0)]


class TiFLAdaptive(TiFL):
    """Each round draws a tier that has credits, and then clients within it; probabilities follow accuracies.

    The accuracy of a tier is the mean accuracy of its clients on their own test samples. It is measured before draws 0,
    I, 2 I, ...; if that of the tier drawn last is not higher than I draws before, the probabilities change: of n tiers
    that have credits, the one with the lowest accuracy gets n / D, the next (n - 1) / D, ..., the highest 1 / D, with
    D = n (n + 1) / 2. In ties, the faster tier ranks lower, and a tier without test samples ranks highest. (Algorithm 2
    leaves this function open, except that lower accuracies give higher probabilities; the one used here is that of the
    public implementations, fltk and FLGo.) Every draw costs its tier one credit, and tiers without credits are not
    drawn. If no tier with available clients has credits, credits are ignored, so that the run continues.

    Chai et al., TiFL: A Tier-based Federated Learning System, HPDC 2020, Algorithm 2. Needs training and test samples
    of the clients; every evaluation executes pending training.
    """

    name = "tifl_adaptive"
    needs_training = True
    needs_client_tests = True

    class Params(TiFL.Params):
        interval: int = Field(default=10, ge=1)
        """Draws between two evaluations of the tiers, after which the probabilities may change (I)."""
        credits: Credits | list[Credits] | None = None
        """Number of times each tier may be drawn (its credits): one number for all, or one per tier, the fastest first;
        default: unlimited."""

    def __init__(self, params: Params, server: ServerPort) -> None:
        super().__init__(params, server)
        count = len(self._chances)
        given = np.inf if params.credits is None else params.credits
        if isinstance(given, list) and len(given) != count:
            raise UserError(
                f"there are {len(given)} credits for {count} tiers",
                where="server.selection.credits",
                hint="give one number for all tiers, or one per tier",
            )
        self._credits = np.broadcast_to(np.asarray(given, dtype=np.float64), count).copy()
        self._draws = 0
        self._is_due = True
        self._current = -1
        self._accuracies: Floats | None = None

    def tier_chances(self, present: Bools) -> Floats:
        """Probabilities of the tiers that have credits, after an update if it is due."""
        if self._is_due and present.any():
            self._is_due = False
            self._adapt()
        chances = super().tier_chances(present)
        affordable = chances * (self._credits > 0)
        if affordable.any():
            return affordable
        # A tier that had no credits at the last change has probability 0, but may be the only one available.
        return chances if chances.any() else present.astype(np.float64)

    def on_tier(self, tier: int) -> None:
        self._credits[tier] -= 1
        self._current = tier
        self._draws += 1
        self._is_due = self._draws % self.params.interval == 0

    def _adapt(self) -> None:
        """Measure the tiers, and change the probabilities if the tier drawn last has not improved."""
        earlier, self._accuracies = self._accuracies, self._tier_accuracies()
        if earlier is not None and self._accuracies[self._current] <= earlier[self._current]:
            self._chances = probabilities(self._accuracies, self._credits > 0)

    def _tier_accuracies(self) -> Floats:
        """Mean accuracy of each tier's clients, (T,); infinite without test samples."""
        accuracies = self.server.client_accuracies()
        tested = ~np.isnan(accuracies)
        tiers, count = self._tiers[tested], len(self._chances)
        clients = np.bincount(tiers, minlength=count)
        sums = np.bincount(tiers, weights=accuracies[tested], minlength=count)
        return np.where(clients > 0, sums / np.maximum(clients, 1), np.inf)


def probabilities(accuracies: Floats, has_credits: Bools) -> Floats:
    """Probabilities of the tiers by the rank of their accuracies, the lowest accuracy most probable; (T,).

    Tiers without credits get 0; if none has any, credits are ignored.
    """
    ranked = np.flatnonzero(has_credits if has_credits.any() else ~has_credits)
    ranked = ranked[np.argsort(accuracies[ranked], kind="stable")]
    weights = np.arange(len(ranked), 0, -1)
    result = np.zeros(len(accuracies))
    result[ranked] = weights / weights.sum()
    return result
