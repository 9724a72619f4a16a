"""Supervised learning: a data set, its partition among clients, and a model."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from fedsim.errors import UserError
from fedsim.randomness import Purpose, Stream, isolated
from fedsim.scenario.model import Evaluation
from fedsim.scenario.parts import OfKind, Part
from fedsim.scenario.training import Training
from fedsim.tasks.base import FORWARD_PASSES_PER_STEP, SizedParams, Task, TaskContext, as_tensor
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.layout import Layout
from fedsim.tasks.model import ModelComponent
from fedsim.tasks.partition import Partition, partition_table
from fedsim.vocabulary.arrays import Bools, Ints
from fedsim.vocabulary.formatting import format_count

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

_SEED_MASK = (1 << 63) - 1

# Batch normalization needs more than one sample.
_PROBE_SAMPLES = 2


class SupervisedTask(Task):
    """A model to be trained on the clients' samples.

    The module is built on first use; a user's is built and checked immediately.

    Attributes:
        dataset: the samples.
        partition: row numbers of each client's samples.
        model: builds the module.
        loss: its training loss.
        offsets, rows: client i trains on ``rows[offsets[i] : offsets[i + 1]]`` of ``train_x``; numpy int64.
        client_test_offsets, client_test_rows: the same for their own test samples, rows of ``client_test``; None if
            clients have none.
        class_masks: classes whose outputs each client trains, (N, classes) bool; None for all. Others count as zero.
        by_hand: whether gradients derived by hand from layers and loss are those of its training.

    Args:
        seed: the scenario's seed, on which the values of frozen parameters depend.
        dtype: ``training.dtype``, to which all parameters are converted.
        merges: whether the method merges adapters into the matrices that they change, which are then in the layout.
    """

    name = "supervised"

    class Params(SizedParams):
        """Real training on a data set partitioned among the clients."""

        dataset: Annotated[Part[Any], OfKind("dataset")]
        """Data set, such as `digits`."""
        partition: Annotated[Part[Any], OfKind("partition")]
        """Partition of the training samples among the clients, such as `{name: iid, clients: 10}`."""
        model: Annotated[Part[Any], OfKind("model")]
        """Model to train, such as `logistic_regression`."""

    dataset: Dataset

    def __init__(
        self,
        dataset: Dataset,
        partition: Partition,
        model: ModelComponent,
        seed: int = 0,
        *,
        dtype: str = "float32",
        merges: bool = False,
    ) -> None:
        self.dataset = dataset
        self.partition = partition
        self.model = model
        self.model_family = model.family
        self.loss = model.loss(dataset)
        self.samples = partition.samples
        self.offsets: Ints = partition.train_offsets
        self.rows: Ints = partition.train_rows
        self.client_test_offsets = partition.test_offsets
        self.client_test_rows = partition.test_rows
        self._seed = seed
        self._dtype = dtype
        self._merges = merges
        self.class_masks: Bools | None = None
        self.by_hand = True
        self._flops: dict[frozenset[str], int] = {}
        if model.is_bundled:
            self.layout = model.layout(dataset)
        else:
            self.layout = self._layout_of_module()
            self.fixed_elements = sum(value.numel() for value in self._fixed.values())

    @classmethod
    def clients_key(cls, params: Params) -> str:
        fields = type(params.partition.params).model_fields
        return "partition.clients" if "clients" in fields else ""

    @classmethod
    def build(cls, params: Params, context: TaskContext) -> SupervisedTask:
        dataset = context.load(params.dataset.create(), context.folder)
        stream = Stream(context.seed, Purpose.PARTITION)
        partition = params.partition.create().split(dataset, stream, context.folder)
        task = cls(
            dataset,
            partition,
            context.adapted(params.model.create()),
            context.seed,
            dtype=context.training.dtype,
            merges=context.merges,
        )
        task.size_bytes = params.size
        return task

    def with_model(self, model: ModelComponent) -> SupervisedTask:
        """A task with the same samples and clients, and another model, whose frozen tensors are those of this one."""
        task = SupervisedTask(
            self.dataset,
            self.partition,
            model,
            self._seed,
            dtype=self._dtype,
            merges=self._merges,
        )
        for name, value in task._fixed.items() if task.fixed_elements else ():
            if name in self._fixed and self._fixed[name].shape == value.shape:
                value.copy_(self._fixed[name])
        return task

    def may_lack_kernel(self, training: Training) -> bool:
        """Whether the model is of unknown structure, or the scenario requires a stacked kernel."""
        return not self.model.is_bundled or training.executor == "stacked"

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.dataset.input_shape

    @cached_property
    def module(self) -> nn.Module:
        """The network; only its tensors outside the layout have meaningful values, see :meth:`initial` for others."""
        import torch

        if not self.model.is_bundled:
            module = self._drawn(Stream(self._seed, Purpose.INITIAL_MODEL))
            tensors = chain(module.parameters(), module.buffers())
            numbers = {value.dtype for value in tensors if value.is_floating_point()}
            types = {str(dtype).removeprefix("torch.") for dtype in numbers}
            self._other_types = sorted(types - {self._dtype, "float32"})
        else:
            with isolated(0):
                module = self.model.build(self.dataset)
        return module.to(getattr(torch, self._dtype))

    def _layout_of_module(self) -> Layout:
        from fedsim.tasks.modules.checks import check_module

        module = self.module
        if not all(parameter.requires_grad for parameter in module.parameters()):
            # The other families guarantee that the flat vector contains all layers.
            self.model_family = "module"
        converted = f"{self._conversion}, which forward must accept; " if self._other_types else ""
        buffers = check_module(module, self.model, self.dataset, self.loss, self._probe, converted)
        return Layout.of_module(module, buffers, merges=self._merges)

    @cached_property
    def _fixed(self) -> dict[str, Tensor]:
        """Floating-point tensors of the module's state that are not in the layout."""
        state = self.module.state_dict()
        tensors = [*self.module.named_parameters(), *self.module.named_buffers()]
        return {
            name: value.detach()
            for name, value in tensors
            if name in state and name not in self.layout.names and value.is_floating_point()
        }

    def fixed(self, dtype: torch.dtype) -> dict[str, Tensor]:
        if not self.fixed_elements:
            return {}
        return {name: value.to(dtype) for name, value in self._fixed.items()}

    @cached_property
    def drops(self) -> bool:
        """Whether training applies dropout, by layers or by functions."""
        from fedsim.tasks.modules.checks import draws_random_numbers
        from fedsim.tasks.modules.dropout import dropout_layers

        if dropout_layers(self.module):
            return True
        return not self.model.is_bundled and draws_random_numbers(self.module, self._probe)

    @cached_property
    def takes_channels_last(self) -> bool:
        """Whether the module has convolutions of images and works in channels-last order, which is faster on a CPU."""
        from fedsim.tasks.modules.checks import takes_channels_last

        return takes_channels_last(self.module, self._probe)

    @cached_property
    def train_x(self) -> Tensor:
        """All training samples as stored, (n, *input_shape), uint8 or float32; shares memory with the dataset."""
        return as_tensor(self.dataset.train_x)

    @cached_property
    def train_y(self) -> Tensor:
        """Their labels, (n,) int64; float32 quantities for a regression."""
        return as_tensor(self.dataset.train_y)

    @cached_property
    def test_x(self) -> Tensor:
        """The shared test samples, (m, *input_shape)."""
        return as_tensor(self.dataset.test_x)

    @cached_property
    def test_y(self) -> Tensor:
        """Their labels, (m,) int64."""
        return as_tensor(self.dataset.test_y)

    @property
    def client_test(self) -> tuple[Tensor, Tensor]:
        """The samples that the clients' test rows refer to, training or test samples, and their labels."""
        if self.partition.test_source == "train":
            return self.train_x, self.train_y
        return self.test_x, self.test_y

    def inputs(self, raw: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """The module's inputs for gathered samples ``raw`` (n, *input_shape), on their device.

        Codes become int64; everything else becomes ``raw * scale + shift`` in ``dtype`` (float32 if None).
        """
        if self.dataset.tokens:
            return raw.long()
        values = raw.float() if dtype is None else raw.to(dtype)
        if self.dataset.scale is None or self.dataset.shift is None:
            return values
        scale, shift = (as_tensor(x).to(values) for x in (self.dataset.scale, self.dataset.shift))
        return values * scale + shift

    def initial(self, stream: Stream, dtype: torch.dtype | None = None) -> Tensor:
        """Initial parameters and buffers; the same for every ``dtype``, because they are drawn in float32."""
        values = self.layout.flatten(self._drawn(stream))
        return values if dtype is None else values.to(dtype)

    def _drawn(self, stream: Stream) -> nn.Module:
        """A new module with the initial values of ``stream``."""
        import torch

        seed = stream.hash(0) & _SEED_MASK
        generator = torch.Generator().manual_seed(seed)
        with isolated(seed):
            module = self.model.build(self.dataset)
            if any(value.is_complex() for value in module.parameters()):
                raise UserError(
                    f"parameters of model {self.model.name} have complex values, which cannot be trained",
                    where="task.model",
                    hint="keep real and imaginary parts as real parameters",
                )
            with torch.no_grad():
                self.model.initialize(module, generator)
        return module

    def flops_per_sample(self, frozen: Collection[str] = ()) -> int:
        """Counted once by running the module forward and backward; matrix products, convolutions and attention only."""
        from fedsim.tasks.modules.checks import count_flops

        key = frozenset(frozen)
        if key not in self._flops:
            probe = self._probe(_PROBE_SAMPLES)
            self._flops[key] = count_flops(self.module, self.loss, *probe, frozen)
        return self._flops[key]

    def activations_per_sample(self) -> int:
        """Counted by running the module: the tensors that torch keeps, without parameters."""
        return self._activations_per_sample

    @cached_property
    def _activations_per_sample(self) -> int:
        from fedsim.tasks.modules.checks import count_activations

        return count_activations(self.module, self.loss, *self._probe(_PROBE_SAMPLES))

    def _probe(self, samples: int) -> tuple[Tensor, Tensor]:
        """Inputs and labels of a few training samples; zeros for a model of fedsim, whose work they do not change."""
        import torch

        if self.model.is_bundled:
            raw = torch.zeros(samples, *self.input_shape, dtype=torch.uint8)
            labels = torch.zeros(samples, dtype=self.train_y.dtype)
            return self.inputs(raw, getattr(torch, self._dtype)), labels
        rows = torch.arange(samples) % len(self.train_x)
        dtype = getattr(torch, self._dtype)
        labels = self.train_y[rows]
        return self.inputs(self.train_x[rows], dtype), (
            labels.to(dtype) if labels.is_floating_point() else labels
        )

    def evaluation_passes(self, *, per_client: bool, objective: bool) -> int:
        """One pass per test sample; for the objective, the passes of a local step per training sample."""
        passes = len(self.dataset.test_y)
        if per_client and self.client_test_rows is not None:
            passes += len(self.client_test_rows)
        if objective:
            passes += FORWARD_PASSES_PER_STEP * int(self.samples.sum())
        return passes

    @property
    def has_client_accuracies(self) -> bool:
        return self.client_test_offsets is not None and self.dataset.kind != "regression"

    @property
    def client_names(self) -> Sequence[str]:
        return self.partition.client_names

    @property
    def label_names(self) -> Sequence[str]:
        names = self.dataset.class_names
        return () if names == tuple(map(str, range(len(names)))) else names

    def partition_rows(self) -> dict[str, Ints] | None:
        if self.dataset.kind in ("next_character", "regression"):
            return None
        table = partition_table(self.dataset, self.partition)
        clients, labels = np.nonzero(table)
        return {"client_id": clients, "label": labels, "count": table[clients, labels]}

    @property
    def _conversion(self) -> str:
        types = ", ".join(self._other_types)
        return (
            f"parameters of model {self.model.name} of type {types} are converted to {self._dtype}"
        )

    def doubts(self) -> list[UserError]:
        doubts = self.dataset.doubts()
        if not self.model.is_bundled and self._other_types:
            doubts.append(
                UserError(
                    self._conversion,
                    where="task.model",
                    hint="training.dtype is the type of all parameters: float32 or float64",
                )
            )
        if not self.model.is_bundled and self.loss.kind == "cross_entropy":
            from fedsim.tasks.modules.checks import returns_probabilities

            if returns_probabilities(self.module, self._probe):
                doubts.append(
                    UserError(
                        f"model {self.model.name} returns probabilities, but the loss expects logits",
                        where="task.model",
                        hint="return the outputs of the last linear layer, without softmax",
                    )
                )
        return doubts

    def check(self, training: Training, evaluation: Evaluation) -> None:
        super().check(training, evaluation)
        if evaluation.per_client and self.client_test_offsets is None:
            raise UserError(
                "clients have no separate test samples",
                where="evaluation.per_client",
                hint="set task.partition.test to split or same_distribution",
            )
        self._check_smallest_batch(training)

    def _check_smallest_batch(self, training: Training) -> None:
        single = self._has_single(training)
        reason = self.refusal_of_one_sample() if single.any() else None
        if reason is not None:
            client = int(np.argmax(single))
            dropping = training.model_copy(update={"last_batch": "drop"})
            drop = "" if self._has_single(dropping).any() else "set training.last_batch to drop, "
            raise UserError(
                f"client {client} has a mini-batch of one sample ({format_count(self.samples[client])} samples in "
                f"batches of {format_count(training.batch_size)}), on which model {self.model.name} cannot be trained: "
                f"{reason}",
                where="training.batch_size",
                hint=f"{drop}choose another batch size, or use a different normalization, such as group norm",
            )

    def _has_single(self, training: Training) -> Bools:
        """Whether each client trains on a mini-batch of one sample, (N,)."""
        batch_size = training.batch_size
        single: Bools = (self.samples == 1) | (batch_size == 1)
        if training.batches == "epochs":
            # The last batch of an epoch, if a dispatch reaches it.
            reached = self.local_steps(training) >= self.steps_per_epoch(training)
            reached |= training.time_budget is not None
            if training.last_batch == "keep":
                single |= (self.samples % batch_size == 1) & reached
        return single

    def refusal_of_one_sample(self) -> str | None:
        """Why the module cannot be trained on a mini-batch of one sample; None if it can."""
        # Of fedsim's layers, only batch normalization has buffers.
        if self.model.is_bundled and not self.layout.buffers:
            return None
        from fedsim.tasks.modules.checks import refusal_of_one_sample

        return refusal_of_one_sample(self.module, self.loss, self._probe)
