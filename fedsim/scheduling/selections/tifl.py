"""TiFL: the clients of a round belong to one tier of speed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator

from fedsim.errors import UserError
from fedsim.scheduling.base import CohortParams, Selection, ServerPort
from fedsim.scheduling.tiers import equal_tiers, profile


class TiFLParams(CohortParams):
    """Parameters of TiFL."""

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


class TiFL(Selection):
    """Each round draws a tier by its probability, and then clients uniformly within it.

    A tier without available clients is not drawn; one with fewer clients than the cohort yields all of them. The static
    policies of Chai et al., TiFL: A Tier-based Federated Learning System, HPDC 2020, section 4.3 (their policy
    ``vanilla`` is uniform selection).
    """

    name = "tifl"
    Params = TiFLParams

    def __init__(self, params: TiFLParams, server: ServerPort) -> None:
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
        """Draw a tier, and then clients within it."""
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

    def tier_chances(self, present: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        """Probabilities of the tiers up to a factor, 0 for those not ``present`` (T,); (T,)."""
        return self._chances * present

    def on_tier(self, tier: int) -> None:
        """Record that a tier has been drawn."""
