"""Parts with adapters of lower rank."""

from __future__ import annotations

from fedsim.errors import UserError
from fedsim.learning.submodels.base import Submodels
from fedsim.tasks.kinds.supervised import SupervisedTask


class Ranks(Submodels):
    """Adapters of lower rank: the first rows of every A and the first columns of every B.

    The model is a function or module of yours that takes ``model_rate`` and multiplies the rank by it. What a server
    makes of unequal ranks depends on the method: ``hetlora``, ``flexlora`` and ``flora`` follow their papers, and
    others average each entry over the clients that hold it.
    """

    name = "ranks"
    paper = (
        "Cho, Liu, Xu, Fahrezi and Joshi, Heterogeneous LoRA for Federated Fine-tuning of On-Device Foundation Models, "
        "EMNLP 2024: a rank for each device, by truncation"
    )

    def part(self, task: SupervisedTask, rate: float) -> SupervisedTask:
        """The task with adapters of lower rank, whose products have the same factor."""
        part = super().part(task, rate)
        for mine, whole in zip(part.layout.adapters, task.layout.adapters, strict=True):
            if mine.scaling != whole.scaling:
                raise UserError(
                    f"the factor of the adapter '{mine.a}' is {mine.scaling:g} at rate {rate:g}, but "
                    f"{whole.scaling:g} in the whole model",
                    where="task.model",
                    hint="make it the same for all ranks, such as lora_alpha=2 * rank",
                )
        return part
