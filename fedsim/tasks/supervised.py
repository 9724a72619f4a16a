"""Supervised learning: a dataset, its partition among clients, and a model."""

from __future__ import annotations

import copy
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedsim.components import users_line
from fedsim.errors import UserError
from fedsim.randomness import Stream
from fedsim.tasks.base import Task
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.dropout import key_dropout, seed_dropout
from fedsim.tasks.flops import FlopCounter
from fedsim.tasks.frozen import hold_frozen
from fedsim.tasks.layout import Layout
from fedsim.tasks.model import ModelComponent, isolated_torch_random
from fedsim.tasks.partition import Partition

_SEED_MASK = (1 << 63) - 1
_WHERE = "task.model"
# Batch normalisation needs more than one sample.
_PROBE_SAMPLES = 2


class SupervisedTask(Task):
    """A model to be trained on the clients' samples.

    Attributes:
        dataset: the samples as loaded.
        partition: which client holds which.
        model: the part that built the module.
        module: the network; its own parameter values have no meaning, use :meth:`initial`. Its dropout
            layers, if any, are keyed: see :mod:`fedsim.tasks.dropout`. Frozen parameters are buffers.
        loss: what it is trained for.
        train_x: all training samples as stored, (n, *input_shape), uint8 or float32, sharing memory with the dataset.
        train_y: their labels, (n,) int64.
        test_x, test_y: the shared test samples.
        offsets, rows: client i trains on ``rows[offsets[i] : offsets[i + 1]]`` of ``train_x``; numpy int64.
        client_test_x, client_test_y: arrays that the clients' own test rows index (the training or the test samples).
        client_test_offsets, client_test_rows: the same for their own test samples; None where clients have none.

    Raises:
        UserError: the model does not fit the dataset.
    """

    def __init__(self, dataset: Dataset, partition: Partition, model: ModelComponent) -> None:
        self.dataset = dataset
        self.partition = partition
        self.model = model
        self.model_family = model.family
        self.loss = model.loss(dataset)
        with isolated_torch_random(0):
            self.module = key_dropout(model.build(dataset))
        self._refuse_lazy()
        if hold_frozen(self.module):
            # The other families promise what a model with buffers in it cannot keep.
            self.model_family = "module"
        self.layout = Layout.of_module(self.module)
        self.samples = partition.samples
        self.train_x = torch.from_numpy(dataset.train_x)
        self.train_y = torch.from_numpy(dataset.train_y)
        self.test_x = torch.from_numpy(dataset.test_x)
        self.test_y = torch.from_numpy(dataset.test_y)
        self.offsets: npt.NDArray[np.int64] = partition.train_offsets
        self.rows: npt.NDArray[np.int64] = partition.train_rows
        own = partition.test_source == "train"
        self.client_test_x = self.train_x if own else self.test_x
        self.client_test_y = self.train_y if own else self.test_y
        self.client_test_offsets = partition.test_offsets
        self.client_test_rows = partition.test_rows
        self._scale = None if dataset.scale is None else torch.from_numpy(dataset.scale)
        self._shift = None if dataset.shift is None else torch.from_numpy(dataset.shift)
        self._check_output()
        self._check_gradients()

    def inputs(self, raw: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """What the module sees of gathered samples ``raw`` (n, *input_shape), on their device.

        Character codes become int64; everything else becomes ``raw * scale + shift`` in ``dtype``.
        """
        if self.dataset.kind == "next_character":
            return raw.long()
        values = raw.to(dtype)
        if self._scale is None or self._shift is None:
            return values
        scale = self._scale.to(device=raw.device, dtype=dtype)
        return values * scale + self._shift.to(device=raw.device, dtype=dtype)

    def initial(self, stream: Stream, dtype: torch.dtype = torch.float32) -> Tensor:
        """Initial parameters and buffers; drawn in float32 whatever ``dtype``, so that precisions start alike."""
        seed = stream.hash(0) & _SEED_MASK
        generator = torch.Generator().manual_seed(seed)
        with isolated_torch_random(seed):
            module = self.model.build(self.dataset)
            with torch.no_grad():
                self.model.initialise(module, generator)
        return self.layout.flatten(module).to(dtype)

    def flops_per_sample(self) -> int:
        """Counted once by running the module forward and backward; matrix products and convolutions only."""
        return self._flops_per_sample

    @cached_property
    def _flops_per_sample(self) -> int:
        parameters = [value for value in self.module.parameters() if value.requires_grad]
        counter = FlopCounter()
        was_training = self.module.training
        self.module.eval()
        with counter:
            outputs = self.module(self._probe())
            loss = self.loss.per_sample(outputs, self.train_y[self._probe_rows()]).sum()
            torch.autograd.grad(loss, parameters, allow_unused=True)
        self.module.train(was_training)
        return counter.total // len(outputs)

    def activations_per_sample(self) -> int:
        """Counted once by running the module forward and seeing what torch keeps, parameters left out."""
        return self._activations_per_sample

    @cached_property
    def _activations_per_sample(self) -> int:
        parameters = {value.untyped_storage().data_ptr() for value in self.module.parameters()}
        kept: dict[int, int] = {}

        def keep(tensor: Tensor) -> Tensor:
            # Layers keep views of one tensor, such as an output that is the next one's input: it is there once.
            storage = tensor.untyped_storage().data_ptr()
            if storage not in parameters:
                kept.setdefault(storage, tensor.numel())
            # Detached: a node that held its own output would hold itself, where no garbage collector sees it.
            return tensor.detach()

        was_training = self.module.training
        self.module.eval()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            outputs = self.module(self._probe())
            self.loss.per_sample(outputs, self.train_y[self._probe_rows()]).sum()
        self.module.train(was_training)
        return sum(kept.values()) // len(outputs)

    def _probe(self) -> Tensor:
        """A few inputs."""
        return self.inputs(self.train_x[self._probe_rows()])

    def _probe_rows(self) -> Tensor:
        return torch.arange(_PROBE_SAMPLES) % len(self.train_x)

    def _check_output(self) -> None:
        """Run the module once, so that a model that does not fit fails here and not in mid-run."""
        self.module.eval()
        try:
            with torch.no_grad():
                outputs = self.module(self._probe())
        # A module of the user's may fail in any way; whatever it is, it is theirs to mend.
        except Exception as error:
            raise UserError(
                f"model {self.model.name} cannot work on samples of shape {self.dataset.input_shape} "
                f"of {self.dataset.name}: {_told(error)}",
                where=_WHERE,
                hint=f"it is given float32 tensors (n, {', '.join(map(str, self.dataset.input_shape))})"
                if self.dataset.kind != "next_character"
                else f"it is given int64 character codes (n, {self.dataset.input_shape[0]})",
            ) from error
        finally:
            self.module.train()
        width = self.dataset.classes if self.loss.kind == "cross_entropy" else 1
        expected = (_PROBE_SAMPLES, width)
        if not isinstance(outputs, Tensor) or tuple(outputs.shape) != expected:
            shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
            raise UserError(
                f"model {self.model.name} gives {shape} for {_PROBE_SAMPLES} samples, expected {expected}",
                where=_WHERE,
                hint=f"its last layer needs {width} outputs for dataset {self.dataset.name}",
            )
        if not outputs.is_floating_point():
            raise UserError(
                f"model {self.model.name} gives numbers of type {outputs.dtype}",
                where=_WHERE,
                hint="it must give a floating-point score for each class",
            )

    def _check_gradients(self) -> None:
        """Train the module on a few samples, so that one that cannot be trained fails here and not in mid-run."""
        if not any(True for _ in self.module.parameters()):
            raise UserError(
                f"model {self.model.name} has no trainable parameters",
                where=_WHERE,
                hint="leave requires_grad of some of its parameters as it is"
                if self.layout.size
                else "its parameters must be attributes of its modules",
            )
        with isolated_torch_random(0):
            try:
                module, loss = self._training_loss(_PROBE_SAMPLES)
                if loss.requires_grad:
                    # Other samples may use other parameters, as behind a gate.
                    torch.autograd.grad(loss, list(module.parameters()), allow_unused=True)
            except Exception as error:
                raise UserError(
                    f"model {self.model.name} cannot be trained: {_told(error)}", where=_WHERE
                ) from error
        if not loss.requires_grad:
            raise UserError(
                f"the outputs of model {self.model.name} have no gradient by any of its parameters",
                where=_WHERE,
                hint="use them in forward without detach or no_grad",
            )

    def refusal_of_one_sample(self) -> str | None:
        """Why the module cannot be trained on a mini-batch of one sample; None where it can.

        Batch normalisation may need several values a channel.
        """
        with isolated_torch_random(0):
            try:
                self._training_loss(1)
            except Exception as error:
                return _told(error)
        return None

    def _training_loss(self, samples: int) -> tuple[nn.Module, Tensor]:
        """A copy of the module in training, and its loss on so many samples."""
        module = copy.deepcopy(self.module).train()
        seed_dropout(module, 0)
        rows = self._probe_rows()[:samples]
        outputs = module(self.inputs(self.train_x[rows]))
        return module, self.loss.per_sample(outputs, self.train_y[rows]).mean()

    def _refuse_lazy(self) -> None:
        tensors = [*self.module.named_parameters(), *self.module.named_buffers()]
        lazy = [name for name, value in tensors if is_lazy(value)]
        if lazy:
            raise UserError(
                f"the shape of {', '.join(lazy)} of model {self.model.name} is not known before its first use",
                where=_WHERE,
                hint="use layers with all their sizes (nn.Linear, not nn.LazyLinear); a constructor with the arguments "
                "input_shape and classes is given both",
            )


def _told(error: Exception) -> str:
    """An error of a module in one line, with the place in the user's file where there is one."""
    kind = "" if isinstance(error, RuntimeError | ValueError) else f"{type(error).__name__}: "
    line = users_line(error)
    return f"{kind}{error}" + (f" ({line})" if line else "")
