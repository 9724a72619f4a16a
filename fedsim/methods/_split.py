"""Models that are partly shared and partly personal, and the base class of the methods that split them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.errors import UserError
from fedsim.methods.base import (
    Cohort,
    Collected,
    LocalUpdate,
    Memory,
    Method,
    MethodContext,
    ServerState,
    Tensor,
    Trained,
    Trainer,
    Vector,
)
from fedsim.parts.component import Parameters

if TYPE_CHECKING:
    import torch

    from fedsim.tasks.layout import Layout

PersonalPart = Literal["head", "body", "none", "all"] | list[str]
_WHERE = "server.method.personal"


class SplitParams(Parameters):
    """Parameters of methods with a shared and a personal part of the model."""

    personal: PersonalPart = "head"
    """The part that stays with each client: head (the last layer), body (all but the last layer), none, all, or a list
    of names of tensors or modules of the model, with wildcards."""
    gamma_u: float | None = Field(default=None, gt=0)
    """Local step size of the shared part; by default the training section's learning rate. It follows
    ``training.lr_schedule``."""
    gamma_v: float | None = Field(default=None, gt=0)
    """Local step size of the personal part; default and schedule as for ``gamma_u``."""


class Split:
    """Which entries of the flat vector (P,) are shared and which are personal; buffers go with their module.

    Attributes:
        mask: whether an entry is personal, (P,) bool.
        personal_names: tensors that are personal.
        shared_size, personal_size: number of entries of each part.
        shared_trainable, personal_trainable: number of these that have a gradient; they come first.

    Raises:
        UserError: a name matches nothing, or the model has no separate head and body.
    """

    def __init__(self, layout: Layout, personal: PersonalPart, device: torch.device) -> None:
        mask = _mask(layout, personal)
        self._size = layout.size
        self.personal_names = tuple(
            name for name, start in zip(layout.names, layout.offsets, strict=False) if mask[start]
        )
        self.mask = mask.to(device)
        self._personal, self.personal_size = _index(mask, device)
        self._shared, self.shared_size = _index(~mask, device)
        self.personal_trainable = int(mask[: layout.trainable].sum())
        self.shared_trainable = layout.trainable - self.personal_trainable

    def shared(self, models: Tensor) -> Tensor:
        """The shared entries of ``models`` (..., P), possibly a view."""
        return models[..., self._shared]

    def personal(self, models: Tensor) -> Tensor:
        """The personal entries of ``models`` (..., P), possibly a view."""
        return models[..., self._personal]

    def join(self, shared: Tensor, personal: Tensor | None) -> Tensor:
        """Models (..., P) from their two parts."""
        if personal is None or not self.personal_size:
            return shared
        result = shared.new_empty(*shared.shape[:-1], self._size)
        result[..., self._shared] = shared
        result[..., self._personal] = personal
        return result

    def add_to_shared(self, models: Tensor, shared: Tensor) -> None:
        """Add to the shared entries of ``models`` (..., P) in place."""
        models[..., self._shared] += shared


def _mask(layout: Layout, personal: PersonalPart) -> Tensor:
    """The mask of the personal entries, (P,) bool."""
    import torch

    if personal == "none" or personal == "all":
        return torch.full((layout.size,), personal == "all")
    if isinstance(personal, list):
        try:
            return layout.mask(personal)
        except UserError as error:
            raise UserError(error.message, where=_WHERE, hint=error.hint) from None
    trainable = len(layout.names) - len(layout.buffers)
    last = layout.names[trainable - 1]
    module = last.rpartition(".")[0]
    head = layout.mask([module or last])
    if bool(head[: layout.trainable].all()):
        raise UserError(
            f"the model has only one layer ({module or last}), so it has no separate head and body",
            where=_WHERE,
            hint="use none or all, or a model with several layers (for a timing task: name its blocks)",
        )
    return head if personal == "head" else ~head


def _index(mask: Tensor, device: torch.device) -> tuple[slice | Tensor, int]:
    """The index of the entries of a mask, a slice if they are contiguous, and their number."""
    entries = mask.nonzero().squeeze(1)
    count = len(entries)
    first = int(entries[0]) if count else 0
    if bool(mask[first : first + count].all()):
        return slice(first, first + count), count
    return entries.to(device), count


class SplitMethod(Method):
    """A method in which each client keeps part of the model to itself.

    The server averages the changes of the shared part u; the personal part v_i never crosses the network. The server's
    model holds the initial personal part. A client's personal part changes only if the server uses its update, unless
    the method declares otherwise.
    """

    paper_schedules = ("sync",)
    personal = True
    params: SplitParams
    collect: Sequence[Collected] = ()

    def __init__(self, params: SplitParams, context: MethodContext) -> None:
        super().__init__(params, context)
        self.split = Split(context.layout, params.personal, context.device)
        base = context.learning_rate(0, 0.0)
        self.gammas = (params.gamma_u or base, params.gamma_v or base)
        self._factors = (self.gammas[0] / base, self.gammas[1] / base)

    def download(self) -> Sequence[Vector]:
        """The shared part."""
        return (Vector("shared", self.split.shared_size),)

    def upload(self) -> Sequence[Vector]:
        """Change of the shared part."""
        return (Vector("delta", self.split.shared_size),)

    def memories(self) -> Mapping[str, Memory]:
        """The personal part."""
        size = self.split.personal_size
        return {"personal": Memory(size, self.split.personal, follows={})} if size else {}

    def initial_state(self, model: Tensor) -> ServerState:
        """The whole model (P,) and its shared part."""
        return {"model": model, "shared": self.split.shared(model)}

    def start(self, cohort: Cohort) -> Tensor:
        """The model from which each client starts, (B, P)."""
        return self.split.join(cohort.down["shared"], cohort.memory.get("personal"))

    def learning_rate_scale(self, shared: bool = True, personal: bool = True) -> Tensor | None:
        """Factors (P,) on the learning rate of each part, 0 for a part that must not move; None if all are 1."""
        factors = (self._factors[0] * shared, self._factors[1] * personal)
        if factors == (1.0, 1.0):
            return None
        whole = self.split.mask.new_full(
            self.split.mask.shape, factors[0], dtype=self.context.dtype
        )
        return whole.masked_fill_(self.split.mask, factors[1])

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """Joint steps: both parts' gradients are taken at the same point, then both move."""
        start = self.start(cohort)
        trained = trainer.run(
            cohort, start, learning_rate_scale=self.learning_rate_scale(), collect=self.collect
        )
        return self.sent_and_kept(start, trained)

    def sent_and_kept(self, start: Tensor, trained: Trained) -> LocalUpdate:
        """The update after training from ``start`` (B, P)."""
        delta = self.split.shared(trained.model) - self.split.shared(start)
        return LocalUpdate({"delta": delta}, trained.loss, self.kept(trained.model))

    def kept(self, models: Tensor) -> Mapping[str, Tensor]:
        """The personal parts of ``models`` (B, P) as rows of the memory."""
        return {"personal": self.split.personal(models)} if self.split.personal_size else {}

    def moved(self, server: ServerState, change: Tensor) -> ServerState:
        """The state with the shared part moved by ``change``."""
        state = {**server, "shared": server["shared"] + change}
        return {**state, "model": self.whole_model(state)}

    def whole_model(self, state: ServerState) -> Tensor:
        """The shared part with the initial personal part."""
        return self.split.join(state["shared"], self.split.personal(state["model"]))

    def buffers_in(self, elements: int, layout: Layout) -> int:
        """Those of the shared part."""
        of_shared = elements == self.split.shared_size
        return self.split.shared_size - self.split.shared_trainable if of_shared else 0

    def personal_models(
        self, server: ServerState, clients: npt.NDArray[np.int64], memory: Mapping[str, Tensor]
    ) -> Tensor:
        """The shared part of the server with each client's personal part."""
        shared = server["shared"].expand(len(clients), -1)
        return self.split.join(shared, memory.get("personal"))

    def personal_parts(self) -> Sequence[str]:
        """The personal tensors."""
        return self.split.personal_names
