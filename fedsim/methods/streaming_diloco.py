"""Streaming DiLoCo: fragments of the model are synchronized in turn, while the clients go on with their local steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from pydantic import Field

from fedsim.errors import UserError
from fedsim.methods.base import (
    Cohort,
    LocalUpdate,
    Memory,
    MethodContext,
    ServerState,
    Tensor,
    Trainer,
    Updates,
    Vector,
)
from fedsim.methods.server_optimizers import DiLoCo, DiLoCoParams


class StreamingDiLoCoParams(DiLoCoParams):
    """Parameters of Streaming DiLoCo."""

    fragments: int = Field(default=4, ge=1)
    """Parts of the model, one of which is synchronized per round (P); they have equal numbers of consecutive
    parameters."""
    overlap: int = Field(default=1, ge=0)
    """Local steps during which the transfers of a fragment may take place (tau); a client waits for the fragment only
    after them."""
    own_share: float = Field(default=0.5, ge=0, lt=1)
    """Weight of the client's own fragment when the synchronized one is merged into its model (alpha)."""


class StreamingDiLoCo(DiLoCo):
    """DiLoCo of one fragment per round; local models continue from round to round.

    In round r, counted from 0, a client merges fragment r - 1 as the server has made it, theta = alpha theta + (1 -
    alpha) fragment, after its first ``overlap`` local steps, and sends the change of fragment r since that was last
    synchronized. The round's ``local_steps`` are thus H / P in the paper's terms. The first ``overlap`` of them are
    done while the update of the round before and the new fragment are on their way, if the client stays online. A
    client that has not finished its work in the round before gets the whole model and begins with it. With one
    fragment, no overlap and ``own_share: 0`` it is DiLoCo.
    """

    name = "streaming_diloco"
    averages = False
    title = "Streaming DiLoCo"
    paper = (
        "Douillard et al., Streaming DiLoCo with Overlapping Communication: Towards a Distributed Free Lunch, "
        "arXiv:2501.18512, Algorithm 2"
    )
    only_synchronous = "all clients send the same fragment in a round"
    continues_models = True
    Params = StreamingDiLoCoParams

    def __init__(self, params: StreamingDiLoCoParams, context: MethodContext) -> None:
        super().__init__(params, context)
        self._length = -(-context.layout.size // params.fragments)
        if params.fragments > 1 and context.layout.buffers:
            self.needs_exact_uploads = (
                "its fragments contain running statistics, which must be exact"
            )
        if params.overlap >= context.local_steps.min():
            raise UserError(
                f"overlap is {params.overlap}, but a dispatch may have {context.local_steps.min()} local steps",
                where="server.method.overlap",
                hint="give fewer than training.local_steps",
            )

    def download(self) -> Sequence[Vector]:
        """The fragment; a client uses the rest of the model only if it has not been in the round before."""
        return (self._share_of_model(1 / self.params.fragments),)

    def first_download(self) -> Sequence[Vector]:
        """The other fragments."""
        rest = 1 - 1 / self.params.fragments
        return (self._share_of_model(rest),) if rest else ()

    def _share_of_model(self, share: float) -> Vector:
        varies = self.params.fragments > 1
        return Vector("model", self.context.layout.size, share=share, varies=varies)

    def upload(self) -> Sequence[Vector]:
        """The change of a fragment."""
        return (Vector("delta", self._length, varies=self.params.fragments > 1),)

    def memories(self) -> Mapping[str, Memory]:
        """A client's model, the fragments as they were last synchronized, and the version that continues them."""
        kept = partial(Memory, kept_when_lost=True, follows={})
        memory = kept(self.context.layout.size, initial=lambda model: model)
        version = kept(1, initial=lambda model: model.new_full((1,), -1))
        return {"local": memory, "synchronized": memory, "next_version": version}

    def steps_ahead(self) -> int:
        """The overlap."""
        return int(self.params.overlap)

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """Merge the fragment received after the overlap, and send the change of the next one."""
        import torch

        overlap, own_share = self.params.overlap, self.params.own_share
        model = cohort.down["model"]
        versions = cohort.column(cohort.versions, model)
        is_first = cohort.memory["next_version"] != versions
        fragment = torch.arange(model.shape[1], device=model.device) // self._length
        count = self.params.fragments
        received = fragment == cohort.column((cohort.versions - 1) % count, fragment)
        synchronized = torch.where(is_first | received, model, cohort.memory["synchronized"])
        start = torch.where(is_first, model, cohort.memory["local"])
        merged = received & ~is_first

        def merge(weights: Tensor, rows: slice) -> None:
            weights.copy_(torch.where(merged[rows], model[rows].lerp(weights, own_share), weights))

        after_overlap = int((cohort.steps > overlap).sum())
        if overlap:
            midway = overlap, lambda weights: merge(weights, slice(0, after_overlap))
            trained = trainer.run(cohort, start, midway=midway)
            merge(trained.model[after_overlap:], slice(after_overlap, None))
        else:
            merge(start, slice(None))
            trained = trainer.run(cohort, start)
        padding = count * self._length - model.shape[1]
        change = torch.nn.functional.pad(trained.model - synchronized, (0, padding))
        fragments = change.view(-1, count, self._length)
        delta = fragments[np.arange(len(change)), cohort.versions % count]
        memory = {
            "local": trained.model,
            "synchronized": synchronized,
            "next_version": versions + 1,
        }
        return LocalUpdate({"delta": delta}, trained.loss, memory)

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        """A step of the outer optimizer on the fragment of this round."""
        if not len(updates):
            return server
        begin = (updates.version - 1) % self.params.fragments * self._length
        part = slice(begin, begin + self._length)
        change = server["model"].new_zeros(server["model"].shape)
        sent = self.change(updates)
        change[part] = sent[: len(change[part])]
        state, trainable = self.step(server, change), self.context.layout.trainable
        # Buffers move by the mean alone.
        state["model"][trainable:] = (server["model"] + change)[trainable:]
        result = {name: server[name].clone() for name in state}
        for name, tensor in result.items():
            tensor[part] = state[name][part]
        return result
