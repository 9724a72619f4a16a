"""Explicit steps of convolutional networks: those of automatic differentiation, in every group and on every thread."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedsim.learning.device import Execution, multiplies_bfloat16, reproducible
from fedsim.learning.kernels import ConvStackKernel, LoopKernel, choose
from fedsim.learning.samples import training_samples
from fedsim.scenario.training import Augmentation
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.tasks.models.cnn import Cnn
from fedsim.tasks.models.paper_cnns import (
    FedCompassCnn,
    FedSumCifarCnn,
    FedSumMnistCnn,
    FedSumSvhnCnn,
    WangJiCifarCnn,
    WangJiFashionCnn,
)
from fedsim.tasks.partition import Partition
from fedsim.tasks.sequential import Conv, Linear, SequentialModel
from tests.learning.kernels.building import BATCH, build, models_of, oracle
from tests.learning.problems import SEED, kernel_of, make_training
from tests.learning.timelines import assert_same, execute
from tests.learning.workers.cases import Case, asynchronous, on_devices, with_threads

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
CLIENTS, STEPS = np.array([5, 3, 2, 0]), np.array([6, 5, 5, 2])


class Unusual(SequentialModel):
    """What no built-in network has: pooling first and twice, ReLU twice and before pooling, an even kernel."""

    name = "unusual"
    hidden_layers = (
        *("pool", Conv(17, 2, padding=1), "relu", "relu", Conv(3, 3), "pool", "pool"),
        *("relu", "flatten", "relu", Linear(6), Linear(5), "relu"),
    )


class Dense(SequentialModel):
    """No convolution."""

    name = "dense"
    hidden_layers = ("flatten", Linear(7), "relu")


def images(
    model: Any,
    shape: tuple[int, int, int] = (1, 28, 28),
    sizes: tuple[int, ...] = (20, 7, 33, 50, 12, 64),
    **params: Any,
) -> SupervisedTask:
    """Random images; client i has ``sizes[i]``."""
    rng, total = np.random.default_rng(7), sum(sizes)
    x = rng.standard_normal((total, *shape), dtype=np.float32)
    y = rng.integers(0, 5, total)
    dataset = Dataset("random", x, y, x[:9], y[:9], classes=5)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    partition = Partition(offsets, rng.permutation(total))
    return SupervisedTask(dataset, partition, model(model.Params(**params)))


TASKS: dict[str, Callable[[], SupervisedTask]] = {
    "cnn": partial(images, Cnn),
    "cnn, odd colour images": partial(images, Cnn, (3, 9, 7), kernel=3, channels=(4, 18)),
    "fedcompass_cnn": partial(images, FedCompassCnn),
    "fedcompass_cnn, odd colour images": partial(images, FedCompassCnn, (3, 19, 22)),
    "fedsum_svhn_cnn": partial(images, FedSumSvhnCnn, (3, 16, 16)),
    "fedsum_cifar_cnn": partial(images, FedSumCifarCnn, (3, 16, 16)),
    "wangji_fashion_cnn": partial(images, WangJiFashionCnn, (1, 14, 14)),
    "wangji_cifar_cnn": partial(images, WangJiCifarCnn, (3, 12, 12)),
    "unusual": partial(images, Unusual, (2, 27, 30)),
    "dense": partial(images, Dense, (1, 5, 4)),
}


def _largest_difference(task: SupervisedTask, gradient: Tensor, reference: Tensor) -> float:
    """Relative to the largest entry of a weight or bias: sums whose terms cancel have no precision of their own."""
    expected = task.layout.views(reference)
    return max(
        float((value - expected[name]).abs().max() / expected[name].abs().max())
        for name, value in task.layout.views(gradient).items()
    )


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, torch.float64) for name in TASKS),
        ("cnn", torch.float32),
        ("unusual", torch.float32),
    ],
    ids=str,
)
def test_gradients_are_those_of_autograd(name: str, dtype: torch.dtype) -> None:
    task = TASKS[name]()
    kernel = build("conv_stack", task, dtype)
    weights = models_of(task, 4, dtype)
    session = kernel.session(CLIENTS, np.arange(4), STEPS, 0)
    assert isinstance(kernel, ConvStackKernel)
    batches = kernel.order.batches(CLIENTS, np.arange(4), first=0, last=6)
    sizes = set()
    for step in range(6):
        active = int((step < STEPS).sum())
        out = torch.full((active, task.layout.size), 7.0, dtype=dtype)
        with reproducible(), torch.no_grad():
            losses = session.gradients(step, weights[:active], out)
        for row in range(active):
            rows = batches.rows[step, row, : int(batches.counts[step, row])].tolist()
            sizes.add(len(rows))
            loss, gradient = oracle(task, weights[row], rows)
            tolerance = TOLERANCE[dtype]
            torch.testing.assert_close(losses[row], loss, atol=0, rtol=tolerance)
            if _largest_difference(task, out[row], gradient) > tolerance:
                # If two values of a window tie within rounding, autograd may route the gradient to the other.
                _, exact = oracle(task, weights[row].double(), rows)
                assert _largest_difference(task, out[row], exact) <= tolerance
    assert {1, 2, 4, BATCH} <= sizes


@pytest.mark.parametrize("name", TASKS)
def test_steps_by_onednn_are_those_of_blas(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsim.learning.kernels.conv_stack.ONEDNN_FROM", 0)
    task = TASKS[name]()
    weights = models_of(task, 4, torch.float32)

    def gradients(*, by_onednn: bool) -> tuple[Tensor, Tensor]:
        kernel = build("conv_stack", task)
        assert isinstance(kernel, ConvStackKernel)
        kernel.by_onednn = by_onednn
        session = kernel.session(CLIENTS, np.arange(4), STEPS, 0)
        out = torch.empty_like(weights)
        with reproducible(), torch.no_grad():
            return session.gradients(0, weights, out), out

    losses, actual = gradients(by_onednn=True)
    expected_losses, expected = gradients(by_onednn=False)
    torch.testing.assert_close(losses, expected_losses, atol=1e-6, rtol=1e-5)
    for row in range(4):
        assert _largest_difference(task, actual[row], expected[row]) < 1e-4


@pytest.mark.skipif(not multiplies_bfloat16(), reason="the CPU has no bfloat16 products")
@pytest.mark.parametrize("by_onednn", [False, True], ids=["blas", "onednn"])
@pytest.mark.parametrize("name", TASKS)
def test_bfloat16_gradients_are_exact_up_to_rounding(name: str, by_onednn: bool) -> None:
    """As close to the exact gradient as torch's autocast of the module, whose products are rounded as well."""
    task = TASKS[name]()
    weights = models_of(task, 4, torch.float32)
    errors = {}
    for kind in ("conv_stack", "loop"):
        kernel = build(kind, task, autocast=torch.bfloat16)
        if isinstance(kernel, ConvStackKernel):
            kernel.by_onednn = by_onednn
        session = kernel.session(CLIENTS, np.arange(4), STEPS, 0)
        out = torch.zeros_like(weights)
        with reproducible(), torch.no_grad():
            losses = session.gradients(0, weights, out)
        batches = kernel.order.batches(CLIENTS, np.arange(4), first=0, last=1)
        errors[kind] = []
        for row in range(4):
            rows = batches.rows[0, row, : int(batches.counts[0, row])].tolist()
            loss, exact = oracle(task, weights[row].double(), rows)
            assert float(losses[row]) == pytest.approx(float(loss), rel=0.03)
            assert out.dtype == torch.float32
            errors[kind].append(float((out[row] - exact).norm() / exact.norm()))
    assert 0 < max(errors["conv_stack"]) < 1.5 * max(errors["loop"])


def test_autocast_leaves_float64_as_it_is() -> None:
    task = TASKS["cnn, odd colour images"]()
    weights = models_of(task, 4, torch.float64)
    gradients = []
    for autocast in (torch.bfloat16, None):
        kernel = build("conv_stack", task, torch.float64, autocast=autocast)
        out = torch.zeros_like(weights)
        with reproducible(), torch.no_grad():
            kernel.session(CLIENTS, np.arange(4), STEPS, 0).gradients(0, weights, out)
        gradients.append(out)
    assert torch.equal(*gradients)


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "scaffold"])
def test_threads_and_devices_give_the_same_bits(method: str) -> None:
    make_task = partial(images, Cnn, (3, 9, 7), (20, 7, 33, 50, 12, 64, 5, 41), kernel=3)
    changes = {"augmentation": Augmentation(crop_padding=1, flip=True)}
    case: Case = (make_task, method, {}, changes, asynchronous)
    expected = execute(make_task(), asynchronous(), **with_threads(case, 1))
    for options in (with_threads(case, 3), on_devices(case, 2)):
        assert_same(execute(make_task(), asynchronous(), **options), expected)


class Rebuilt(Cnn):
    """A network that is not a sequence."""

    def build(self, dataset: Dataset) -> nn.Module:
        return nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.LazyLinear(5))


def test_other_models_and_losses_take_the_loop() -> None:
    regression = TASKS["cnn"]()
    regression.loss = type(regression.loss)("squared")
    with_penalty = TASKS["cnn"]()
    with_penalty.loss = type(with_penalty.loss)(penalty=0.1)
    for task in (images(FedSumMnistCnn), regression, with_penalty):
        assert type(kernel_of(task, make_training())) is LoopKernel
    rebuilt = TASKS["cnn"]()
    rebuilt.model = Rebuilt(Cnn.Params())
    assert not ConvStackKernel.fits(rebuilt)
    task = TASKS["cnn"]()
    execution = Execution(torch.device("cpu"), torch.float32, torch.bfloat16, 1)
    samples = training_samples(task, execution)
    assert type(choose(task, make_training(), execution, samples, SEED)) is ConvStackKernel
