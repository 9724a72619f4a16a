"""Calls of users' modules; checks that a module fits its data; its operations and activations, counted."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from fedsim.errors import UserError, reason
from fedsim.parts.component import users_line
from fedsim.parts.functions import shown
from fedsim.randomness import isolated
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.losses import Loss
from fedsim.tasks.model import ModelComponent
from fedsim.tasks.modules.dropout import dropout_layers

Probe = Callable[[int], tuple[Tensor, Tensor]]
"""Returns the module's inputs and the labels of this many training samples."""


def check_module(
    module: nn.Module,
    model: ModelComponent,
    dataset: Dataset,
    loss: Loss,
    probe: Probe,
    converted: str = "",
) -> set[str]:
    """Run and train the module once, so that an unsuitable model fails here instead of during the run.

    ``converted`` says which of its parameters have been converted to another type.

    Returns:
        Names of the saved floating-point buffers that training changes.
    """
    samples = 2
    tensors = [*module.named_parameters(), *module.named_buffers()]
    if lazy := [name for name, value in tensors if is_lazy(value)]:
        raise _refusal(
            f"the shape of {', '.join(lazy)} of model {model.name} is unknown before its first use",
            "use layers with explicit sizes; a constructor gets input_shape and classes if it has such arguments",
        )
    try:
        with torch.no_grad():
            evaluated = copy.deepcopy(module).eval()
            dropping = dropout_layers(evaluated)
            outputs = evaluated(probe(samples)[0])
        if any(layer.training for layer in dropping):
            raise RuntimeError("dropout is active in evaluation: forward must not call train()")
    except UserError:
        raise
    # A user's module may raise any exception; all are reported as the user's errors.
    except Exception as error:
        values = "int64 codes" if dataset.tokens else "float32 tensors"
        raise _refusal(
            f"model {model.name} cannot process samples of {dataset.name}: {_in_one_line(error)}",
            f"{converted}its input is {values} (n, {', '.join(map(str, dataset.input_shape))}); for a forward with "
            'other arguments give their parts of the samples x, such as inputs: {input_ids: "x[0]", mask: "x[1]"}',
        ) from error
    width = dataset.classes if loss.kind == "cross_entropy" else 1
    accepted = [(samples, width)] if loss.kind == "cross_entropy" else [(samples, 1), (samples,)]
    is_tensor = isinstance(outputs, Tensor) and outputs.is_floating_point()
    if not is_tensor or tuple(outputs.shape) not in accepted:
        raise _refusal(
            f"model {model.name} returns {shown(outputs)} for {samples} samples, expected floating-point logits "
            f"{accepted[0]}",
            "return these alone, or an object with .logits",
        )
    try:
        trained, mean_loss = _training_loss(module, loss, probe, samples)
        # Some parameters may be used only for other samples, for example behind a gate.
        trainable = [value for value in trained.parameters() if value.requires_grad]
        torch.autograd.grad(mean_loss, trainable, allow_unused=True)
    except Exception as error:
        raise _refusal(
            f"model {model.name} cannot be trained: {_in_one_line(error)}",
            f"{converted}it needs parameters with requires_grad=True, whose gradient no detach or no_grad cuts off",
        ) from error
    return _changing_buffers(module, trained)


def draws_random_numbers(module: nn.Module, probe: Probe) -> bool:
    """Whether training draws from torch's global generator, as functions of ``torch.nn.functional`` do."""
    trained = copy.deepcopy(module).train()
    inputs, _ = probe(2)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        before = torch.get_rng_state()
        trained(inputs)
        return not torch.equal(before, torch.get_rng_state())


def takes_channels_last(module: nn.Module, probe: Probe) -> bool:
    """Whether the module has 2-d convolutions and accepts images and weights in channels-last order.

    A module that calls ``view`` on them needs the usual order.
    """
    if not any(isinstance(layer, nn.Conv2d) for layer in module.modules()):
        return False
    trained = copy.deepcopy(module).train()
    try:
        trained.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        with torch.no_grad(), isolated(0):
            trained(channels_last(probe(2)[0]))
    # A user's module may raise any exception.
    except Exception:
        return False
    return True


def channels_last(images: Tensor) -> Tensor:
    """Images (n, c, h, w) in channels-last order, which is faster for pooling and convolutions on CPU.

    Inputs of other shapes are returned as they are.
    """
    if images.ndim != 4 or images.stride(1) == 1:
        return images
    _, channels, height, width = images.shape
    if channels > 1:
        return images.contiguous(memory_format=torch.channels_last)
    # With one channel both orders store the same; only the strides differ.
    return images.contiguous().as_strided(images.shape, (height * width, 1, width, 1))


def returns_probabilities(module: nn.Module, probe: Probe) -> bool:
    """Whether the outputs of a checked module are shares that add up to 1."""
    with torch.no_grad():
        outputs = copy.deepcopy(module).eval()(probe(2)[0])
    sums = outputs.sum(1)
    shares = bool((outputs >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), atol=1e-3)
    return outputs.shape[1] > 1 and shares


def refusal_of_one_sample(module: nn.Module, loss: Loss, probe: Probe) -> str | None:
    """Why the module, such as one with batch normalization, cannot be trained on one sample; None if it can."""
    try:
        _training_loss(module, loss, probe, 1)
    except Exception as error:
        return _in_one_line(error)
    return None


def _changing_buffers(module: nn.Module, trained: nn.Module) -> set[str]:
    """Saved floating-point buffers of layers that have running statistics, or a buffer changed by training."""
    state, before = module.state_dict(), dict(module.named_buffers())
    # Some layers may not be used by the probe, for example behind a gate.
    layers = {
        name
        for name, layer in trained.named_modules()
        if isinstance(layer, _NormBase) and layer.training
    }
    for name, value in trained.named_buffers():
        if not torch.equal(value, before[name]):
            layers.add(name.rpartition(".")[0])
    return {
        name
        for name, value in before.items()
        if name in state and value.is_floating_point() and name.rpartition(".")[0] in layers
    }


def _training_loss(
    module: nn.Module, loss: Loss, probe: Probe, samples: int
) -> tuple[nn.Module, Tensor]:
    """A copy of the module in training, and its mean loss on this many samples."""
    trained = copy.deepcopy(module).train()
    inputs, labels = probe(samples)
    with isolated(0):
        return trained, loss.per_sample(trained(inputs), labels).mean()


def _refusal(message: str, hint: str) -> UserError:
    return UserError(message, where="task.model", hint=hint)


def _in_one_line(error: Exception) -> str:
    """An error of a module in one line, with the line of the user's file in its traceback, if any."""
    line = users_line(error)
    return reason(error) + (f" ({line})" if line else "")


_INPUTS = "task.model.inputs"
_PART = re.compile(
    r"(?P<whole>int\()?x(?:\[(?P<first>-?\d*)(?P<colon>:)?(?P<last>-?\d*)\])?(?(whole)\))"
    r"(?:\s*!=\s*(?P<padding>-?\d+))?"
)


def adapt_calls(module: nn.Module, input_shape: tuple[int, ...], inputs: Any = None) -> None:
    """Make the module take samples (n, *input_shape) and return scores (n, classes).

    Args:
        input_shape: shape of one sample.
        module: any module. If it returns an object with ``logits``, as those of transformers do, these are the scores;
            if the logits have shape (n, length, classes), those of the last position.
        inputs: arguments of its forward, each a part of the samples or a dictionary of such parts: ``x``, ``x[1]``,
            ``x[:16]``, inside ``int(...)`` for integers, and followed by ``!= 0`` for a mask; None if the samples are
            its only argument.
    """
    if inputs is not None:
        arguments_of = _reader(inputs, _INPUTS, input_shape)
        module.register_forward_pre_hook(
            lambda _, args, kwargs: ((), arguments_of(args[0])), with_kwargs=True
        )
    module.register_forward_hook(lambda _, args, output: _scores(output))


def _scores(output: Any) -> Any:
    logits = getattr(output, "logits", output)
    if logits is output or not isinstance(logits, Tensor) or logits.ndim != 3:
        return logits
    return logits[:, -1]


def _reader(described: Any, where: str, shape: tuple[int, ...]) -> Callable[[Tensor], Any]:
    """The function from samples (n, ...) to the part or dictionary ``described``."""
    if isinstance(described, Mapping) and described:
        readers = {
            name: _reader(part, f"{where}.{name}", shape) for name, part in described.items()
        }
        return lambda x: {name: read(x) for name, read in readers.items()}
    match = _PART.fullmatch(described.strip()) if isinstance(described, str) else None
    if match is None or where == _INPUTS or (match["first"] == "" and not match["colon"]):
        raise UserError(
            f"{described!r} is not a part of the samples x",
            where=where,
            hint="use argument: part, where a part is x, x[1], x[:16], x[4:8], int(x[:16]) or x != 0, "
            'such as inputs: {input_ids: "x[0]", attention_mask: "x[1]"}',
        )
    first, last = (int(match[name]) if match[name] else None for name in ("first", "last"))
    index = slice(first, last) if match["colon"] else first
    length = shape[0] if shape else 0
    edges = [edge for edge in (first, last) if edge is not None]
    some = range(length)[index] if isinstance(index, slice) else index in range(-length, length)
    if edges and not (some and all(-length <= edge <= length for edge in edges)):
        raise UserError(
            f"{described!r} is not within a sample, which has shape {shape}",
            where=where,
            hint=f"the first axis has the indices 0 to {length - 1}",
        )

    def read(x: Tensor) -> Tensor:
        values = x if index is None else x[:, index]
        values = values.long() if match["whole"] else values
        return values if match["padding"] is None else (values != int(match["padding"])).long()

    return read


class Constants:
    """The buffers and frozen parameters of a module that are not part of the vector that clients send."""

    def __init__(self, module: nn.Module, sent: Collection[str], model: str) -> None:
        self._model = model
        # By identity, because tied parameters have several names.
        named = [*module.named_parameters(), *module.named_buffers()]
        vector = {id(value) for name, value in named if name in sent}
        self._tensors: list[tuple[str, dict[str, Tensor], str, Tensor, int, Tensor]] = []
        for prefix, layer in module.named_modules():
            for tensors in (layer._buffers, layer._parameters):
                for key, value in tensors.items():
                    # Batch normalization counts its steps, and uses the number only without a momentum.
                    counter = isinstance(layer, _NormBase) and key == "num_batches_tracked"
                    unused = counter and layer.momentum is not None
                    if value is not None and id(value) not in vector and not unused:
                        name = f"{prefix}.{key}".lstrip(".")
                        entry = (name, tensors, key, value, value._version, value.detach().clone())
                        self._tensors.append(entry)

    def check(self) -> None:
        """Check that the tensors have their original values; costs nothing unless they were written to."""
        for name, tensors, key, value, version, before in self._tensors:
            now = tensors[key]
            if now is value and now._version == version:
                continue
            if now is not None and now.shape == before.shape and not torch.equal(now, before):
                raise UserError(
                    f"'{name}' of model {self._model} changes during the run, but is not part of what clients send: "
                    "its changes would pass from one client to the next",
                    where="task.model",
                    hint="make it a floating-point buffer with persistent=True that the first training step changes; "
                    "give batch normalization a momentum, such as momentum=0.1",
                )


def count_flops(
    module: nn.Module,
    loss: Loss,
    inputs: Tensor,
    labels: Tensor,
    frozen: Collection[str] = (),
) -> int:
    """Operations of a forward and backward pass per sample: matrix products, convolutions and attention only.

    Parameters that are ``frozen`` save their gradients.
    """
    counter = FlopCounter()
    # A copy, because a module may keep tensors of its last call.
    module = copy.deepcopy(module).eval()
    for name, parameter in module.named_parameters():
        if name in frozen:
            parameter.requires_grad_(False)
    parameters = [value for value in module.parameters() if value.requires_grad]
    # The counter has no formula for fused attention on a CPU.
    with counter, sdpa_kernel(SDPBackend.MATH):
        outputs = module(inputs)
        total_loss = loss.per_sample(outputs, labels).sum()
        torch.autograd.grad(total_loss, parameters, allow_unused=True)
    return counter.total // inputs.shape[0]


def count_activations(module: nn.Module, loss: Loss, inputs: Tensor, labels: Tensor) -> int:
    """Number of values per sample that torch keeps for the backward pass, without parameters."""
    module = copy.deepcopy(module).eval()
    parameters = {value.untyped_storage().data_ptr() for value in module.parameters()}
    sizes: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        # Layers may keep views of the same tensor, such as an output and the next input; it is counted once.
        storage = tensor.untyped_storage().data_ptr()
        if storage not in parameters:
            sizes.setdefault(storage, tensor.numel())
        # Detached, because a node that keeps its own output forms a cycle that is never collected.
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss.per_sample(module(inputs), labels).sum()
    return sum(sizes.values()) // len(inputs)


class FlopCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations executed inside it, by torch's formulas.

    These are matrix products, convolutions and attention, forward and backward. The count is that of
    ``torch.utils.flop_counter.FlopCounterMode``, whose first use takes seconds because it imports the compiler.

    Attributes:
        total: operations so far (a multiply-add is two).
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total: int = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True would wrap __torch_dispatch__ in code that imports the compiler.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Execute and count ``func``, decomposed if possible."""
        kwargs = kwargs or {}
        with self:
            result = func.decompose(*args, **kwargs)
        if result is not NotImplemented:
            return result
        result = func(*args, **kwargs)
        formula = flop_registry.get(func.overloadpacket)
        if formula is not None:
            self.total += formula(*args, **kwargs, out_val=result)
        return result
