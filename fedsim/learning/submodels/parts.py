"""The parts of a run's model, and which client trains which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedsim.errors import UserError
from fedsim.learning.submodels import Submodels
from fedsim.tasks.base import as_tensor
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.vocabulary.arrays import Floats, Ints

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_REMEMBERED = 16


class Parts:
    """The parts of a model, the largest first.

    Args:
        submodels: divides the model.
        whole: the task with the whole model.
        level: number of the part that each client trains, (N,).

    Attributes:
        rates: size of each part, K of them.
        tasks: the task with each part as its model.
        within: positions of a part in a larger one, (P_k,), from their numbers and the device.
    """

    def __init__(self, submodels: Submodels, whole: SupervisedTask, level: Ints) -> None:
        self.submodels = submodels
        self.whole = whole
        self.level = level
        self.rates: tuple[float, ...] = submodels.params.rates
        self.tasks = [submodels.part(whole, rate) for rate in self.rates]
        self._positions = lru_cache(_REMEMBERED)(partial(self._located, whole))
        self.within = lru_cache(None)(
            lambda level, inner, device: self._located(self.tasks[level], inner, 0, device)
        )
        for rate, task in zip(self.rates, self.tasks, strict=True):
            submodels.positions(whole.layout, task.layout, 0)
            if rate < 1 and task.layout.size >= whole.layout.size:
                raise UserError(
                    f"the part of rate {rate:g} of model {whole.model.name} is not smaller than the model",
                    where="server.submodels.rates",
                    hint="choose fewer rates, or a larger model",
                )

    # -- sizes --------------------------------------------------------------------------------------------------------

    def sent(self, level: int) -> int:
        """Numbers of a part that are sent."""
        layout = self.tasks[level].layout
        return layout.trainable if self.submodels.static_statistics else layout.size

    def share(self, level: int) -> float:
        """Length of a part's vector as a share of the whole."""
        return self.tasks[level].layout.size / self.whole.layout.size

    @cached_property
    def flops_shares(self) -> list[float]:
        """Operations of a local step of each part, as a share of the whole; the mean if steps differ."""
        flops = [float(task.flops_per_sample()) for task in self.tasks]
        whole = self.whole.flops_per_sample()
        return [
            float(np.mean([flops[one] for one in self.trained(k)])) / whole
            for k in range(len(flops))
        ]

    def trained(self, level: int) -> Sequence[int]:
        """The parts that the local steps of a client with this part train."""
        return range(level, len(self.tasks)) if self.submodels.nested else (level,)

    def of_clients(self, values: Sequence[npt.ArrayLike]) -> Floats:
        """The value of each client's part, (N,), from one number, or one per client, for each part."""
        columns = [
            np.broadcast_to(np.asarray(value, np.float64), self.level.shape) for value in values
        ]
        return np.stack(columns)[self.level, np.arange(len(self.level))]

    # -- positions ----------------------------------------------------------------------------------------------------

    def positions(self, clients: Ints, rounds: Ints, device: torch.device) -> Tensor:
        """Where the entries of the part of these clients, which have the same, lie in the whole vector, (B, P_k)."""
        import torch

        level = int(self.level[clients[0]])
        kept = rounds if self.submodels.moves else rounds[:1] * 0
        rows = [self._positions(level, round, device) for round in dict.fromkeys(kept.tolist())]
        if len(rows) == 1:
            return rows[0].expand(len(clients), -1)
        return torch.stack([self._positions(level, round, device) for round in kept.tolist()])

    def held(
        self,
        clients: Ints,
        rounds: Ints,
        weights: Floats,
        device: torch.device,
    ) -> tuple[Tensor, float]:
        """Sum of the weights of the clients whose updates count, for each entry of the whole vector, and of all."""
        import torch

        held = torch.zeros(self.whole.layout.size, dtype=torch.float64, device=device)
        # Added in one order, so that the sum is exactly that of all where all clients count.
        of_all = 0.0
        levels, kept = self.level[clients], rounds if self.submodels.moves else rounds * 0
        for level, round in dict.fromkeys(zip(levels.tolist(), kept.tolist(), strict=True)):
            members = (levels == level) & (kept == round)
            task, trained = self.tasks[level], slice(0, self.sent(level))
            counts = np.ones((int(members.sum()), 1))
            if task.class_masks is not None:
                counts = np.hstack([counts, task.class_masks[clients[members]]])
            total, *by_class = (weights[members, None] * counts).sum(0).tolist()
            of_all += total
            sums = torch.full((task.layout.size,), total, dtype=torch.float64, device=device)
            if by_class:
                # A client without samples of a class does not train its outputs.
                for view in _output_layer(task.layout.views(sums), len(by_class)):
                    view.movedim(0, -1).copy_(torch.tensor(by_class, dtype=sums.dtype))
            held[self._positions(level, round, device)[trained]] += sums[trained]
        return held, of_all

    def _located(
        self, whole: SupervisedTask, level: int, round: int, device: torch.device
    ) -> Tensor:
        layouts = whole.layout, self.tasks[level].layout
        return as_tensor(self.submodels.positions(*layouts, round)).to(device)


def _output_layer(views: Mapping[str, Tensor], classes: int) -> list[Tensor]:
    """The weights and biases of the last layer of a model, if it has one row per class."""
    tensors = list(views.values())
    last = max(number for number, tensor in enumerate(tensors) if tensor.ndim > 1)
    return [tensor for tensor in tensors[last : last + 2] if len(tensor) == classes]
