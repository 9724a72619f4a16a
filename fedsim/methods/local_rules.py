"""Local rules that several methods share."""

from __future__ import annotations

from fedsim.methods.base import Cohort, Corrected, LocalRule, LocalUpdate, Method, Tensor, Trainer

PROXIMAL_OPERATIONS = 3.0
"""Operations per parameter of :func:`proximal_rule`: a difference, a product and a sum."""


def proximal_rule(start: Tensor, strength: float) -> LocalRule | None:
    """The rule that adds the gradient of ``strength`` / 2 x ||w - start||^2; None (no rule) for strength 0.

    Args:
        start: the models received, (B, P).
        strength: mu of Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020, equation 2.
    """
    return Corrected(pull=strength, anchor=start) if strength else None


class Proximal(Method):
    """A method whose local objectives may have a proximal term; clients send their ``model`` or its ``delta``."""

    @property
    def strength(self) -> float:
        """Strength of the term; 0 for none."""
        return float(self.params.proximal)

    def vector_operations(self) -> float:
        """The proximal term."""
        return PROXIMAL_OPERATIONS if self.strength else 0.0

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """Local training with the proximal term, if there is one."""
        start = cohort.down["model"]
        trained = trainer.run(cohort, start, rule=proximal_rule(start, self.strength))
        if self.upload()[0].name == "model":
            return LocalUpdate({"model": trained.model}, trained.loss)
        return LocalUpdate({"delta": trained.model.sub_(start)}, trained.loss)
