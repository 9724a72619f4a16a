"""FFA-LoRA: only the matrices B of the adapters are trained."""

from __future__ import annotations

from collections.abc import Sequence

from fedsim.methods._split import Split
from fedsim.methods.base import (
    Cohort,
    LocalUpdate,
    Method,
    MethodContext,
    ServerState,
    Tensor,
    Trainer,
    Updates,
    Vector,
    WeightedParams,
    averaging_weights,
)
from fedsim.tasks.layout import Layout


class FfaLora(Method):
    """FedAvg of adapters whose matrices A keep their first, random values.

    The mean of B A is then (mean of B) A, so averaging is exact, and a dispatch sends half as much. A client downloads
    A once.
    """

    name = "ffa_lora"
    title = "FFA-LoRA"
    paper = "Sun, Li, Li and Ding, Improving LoRA in Privacy-preserving Federated Learning, ICLR 2024, section 4"
    paper_schedules = ("sync",)
    needs_adapters = True
    Params = WeightedParams
    params: WeightedParams

    def __init__(self, params: WeightedParams, context: MethodContext) -> None:
        super().__init__(params, context)
        self._names = [each.a for each in context.layout.adapters]
        self._split = Split(context.layout, self._names, context.device)
        self._rates = (~self._split.mask).to(context.dtype)

    def download(self) -> Sequence[Vector]:
        """All but A."""
        return (Vector("trained", self._split.shared_size),)

    def first_download(self) -> Sequence[Vector]:
        """A."""
        return (Vector("frozen", self._split.personal_size),)

    def upload(self) -> Sequence[Vector]:
        """The change of all but A."""
        return (Vector("delta", self._split.shared_size),)

    def frozen(self) -> Sequence[str]:
        """The matrices A."""
        return self._names

    def initial_state(self, model: Tensor) -> ServerState:
        """The whole model (P,), and all of it but A."""
        self._frozen = self._split.personal(model)
        return {"model": model, "trained": self._split.shared(model)}

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """Plain local training of all but A."""
        received = cohort.down["trained"]
        start = self._split.join(received, self._frozen.expand(len(received), -1))
        trained = trainer.run(cohort, start, learning_rate_scale=self._rates)
        return LocalUpdate({"delta": self._split.shared(trained.model) - received}, trained.loss)

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """The mean of the changes; unchanged without contributions."""
        if not len(updates):
            return server
        weights = averaging_weights(updates, self.params.weights)
        state = {**server, "trained": server["trained"] + updates.weighted_sum("delta", weights)}
        return {**state, "model": self.whole_model(state)}

    def whole_model(self, state: ServerState) -> Tensor:
        """What is trained, with A."""
        return self._split.join(state["trained"], self._frozen)

    def buffers_in(self, elements: int, layout: Layout) -> int:
        """All of the model's, in what is trained."""
        of_trained = elements == self._split.shared_size
        return layout.size - layout.trainable if of_trained else 0
