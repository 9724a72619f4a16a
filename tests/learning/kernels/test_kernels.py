"""One suite for all kernels: they agree with plain torch, and a client's result does not depend on its group."""

import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn import functional

from fedsim.errors import UserError
from fedsim.learning.batches import BatchOrder
from fedsim.learning.device import reproducible
from fedsim.learning.kernels import (
    LinearStackKernel,
    LoopKernel,
    QuadraticKernel,
    SplitLinearKernel,
    VmapKernel,
)
from fedsim.learning.kernels.base import Correction
from fedsim.learning.kernels.convolutions import BatchedConvolutions
from fedsim.learning.local_training import active_rows, row_matrix
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.tasks.losses import Loss
from fedsim.vocabulary.metrics import DispatchLoss
from tests.learning.kernels.building import (
    BATCH,
    binary_task,
    build,
    models_of,
    oracle,
    run_gradients,
    squares_of,
)
from tests.learning.problems import (
    MODELS,
    SEED,
    SHAPE,
    Built,
    batches_of,
    kernel_of,
    make_training,
    quadratic_task,
    supervised_task,
)

LOSSES: tuple[DispatchLoss, DispatchLoss] = ("mean", "root_mean_square")
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


PAIRS = [
    ("linear_stack", "linear"),
    ("linear_stack", "mlp"),
    ("loop", "linear"),
    ("loop", "mlp"),
    ("loop", "conv"),
    ("loop", "batch_norm"),
    ("loop", "layers"),
    ("loop", "views"),
    ("vmap", "linear"),
    ("vmap", "mlp"),
    ("vmap", "conv"),
]
# Clients with 20, 33, 50 and 64 samples: full batches, and short ones at the end of an epoch.
CLIENTS, STEPS = np.array([5, 3, 2, 0]), np.array([6, 5, 5, 2])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("kind", "model"), PAIRS)
def test_gradients_are_those_of_plain_torch(kind: str, model: str, dtype: torch.dtype) -> None:
    """In double precision also with squared losses, sums over samples; the gradients keep their bits."""
    task, tolerance, sequences = supervised_task(model), TOLERANCE[dtype], np.arange(4)
    order = BatchOrder(SEED, task.offsets, task.rows, BATCH, torch.device("cpu"))
    batches = batches_of(order, CLIENTS, sequences, first=0, last=6)
    gradients: list[list[Tensor]] = [[], []]
    for squared in (False, True) if dtype == torch.float64 else (False,):
        kernel = build(kind, task, dtype, dispatch_loss=LOSSES[squared])
        session = kernel.session(CLIENTS, sequences, STEPS, 0)
        weights = row_matrix(4, task.layout.size, like=torch.zeros(1, dtype=dtype))
        weights.copy_(models_of(task, 4, dtype))
        for step in range(6):
            active = int((step < STEPS).sum())
            out, before = torch.zeros_like(weights)[:active], weights.clone()
            with reproducible(), torch.no_grad():
                losses = session.gradients(step, weights[:active], out)
            gradients[squared].append(out)
            for row in range(active):
                rows = batches.rows[step, row, : int(batches.counts[step, row])].tolist()
                loss, gradient = oracle(task, before[row], rows)
                if squared:
                    loss = squares_of(task, before[row], rows)
                torch.testing.assert_close(losses[row], loss, atol=tolerance, rtol=tolerance)
                trained = out[row, : task.layout.trainable]
                torch.testing.assert_close(trained, gradient, atol=tolerance, rtol=10 * tolerance)
                assert (out[row, task.layout.trainable :] == 0).all()
    assert all(map(torch.equal, *gradients))


FUSED = [pair for pair in PAIRS if pair[0] != "vmap"]


@pytest.mark.usefixtures("client_by_client")
@pytest.mark.parametrize("squared", [False, True], ids=["means", "squares"])
@pytest.mark.parametrize(("kind", "model"), FUSED)
def test_fused_steps_are_gradient_steps(kind: str, model: str, squared: bool) -> None:
    task = supervised_task(model)
    weights = models_of(task, 4, torch.float64)
    out = torch.zeros_like(weights)
    rates = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    moved, followed = weights.clone(), weights.clone()
    sessions = [
        build(kind, task, torch.float64, dispatch_loss=LOSSES[squared]).session(
            CLIENTS, np.zeros(4, int), STEPS, 0
        )
        for _ in range(2)
    ]
    active = active_rows(STEPS)
    losses = torch.zeros(4, dtype=torch.float64)
    with torch.no_grad():
        fused = sessions[0].descend(moved, rates, active)
        for step, rows in enumerate(active.tolist()):
            losses[:rows] += sessions[1].gradients(step, followed[:rows], out[:rows])
            followed[:rows] -= rates[:rows].unsqueeze(1) * out[:rows]
    trained = slice(0, task.layout.trainable)
    torch.testing.assert_close(moved[:, trained], followed[:, trained], atol=1e-13, rtol=1e-12)
    torch.testing.assert_close(fused, losses, atol=1e-13, rtol=1e-12)


@pytest.mark.usefixtures("client_by_client")
@pytest.mark.parametrize(
    ("kind", "model", "corrected"),
    [(*pair, "plain") for pair in FUSED]
    + [(*pair, name) for pair in FUSED if pair[1] != "batch_norm" for name in ("pull", "shift")],
)
def test_fused_steps_are_bitwise_the_same_in_every_group(
    kind: str, model: str, corrected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough for several pieces, and for several draws of the batch order where the group is large.
    monkeypatch.setattr("fedsim.learning.kernels.supervised._MOST_PLACES", 1500)
    pieces = {"cpu": (17_000, 68_000, 100)}
    monkeypatch.setattr("fedsim.learning.kernels.supervised._PIECES", pieces)
    task = supervised_task(model, sizes=(50,) * 12)
    kernel = build(kind, task)
    # The others need fewer steps for a second draw.
    most, fewer = (41, 33) if kind == "linear_stack" else (13, 9)
    clients, steps = np.arange(12), np.array([most] * 4 + [fewer] * 4 + [1] * 4)
    weights = row_matrix(12, task.layout.size, like=torch.zeros(1))
    weights.copy_(models_of(task, 12, torch.float32))
    rates = torch.linspace(0.01, 0.1, 12)
    vectors = weights.flip(0)

    def run(pick: list[int]) -> tuple[Tensor, Tensor]:
        moved = row_matrix(len(pick), task.layout.size, like=weights)
        moved.copy_(weights[pick])
        correction: Correction | None = None
        if corrected == "pull":
            correction = Correction(moved, moved, vectors[pick], 0.3)
        elif corrected == "shift":
            change = row_matrix(len(pick), task.layout.size, like=weights).zero_()
            correction = Correction(weights[pick], change, constant=vectors[pick])
        session = kernel.session(clients[pick], np.full(len(pick), 2), steps[pick], 0)
        with reproducible(), torch.no_grad():
            losses = session.descend(moved, rates[pick], active_rows(steps[pick]), correction)
        return moved, losses

    together, losses = run(list(range(12)))
    for pick in ([0], [7], [11], [2, 3], [0, 5, 9], list(range(1, 12))):
        apart, group_losses = run(pick)
        assert torch.equal(apart, together[pick])
        assert torch.equal(group_losses, losses[pick])


@pytest.mark.parametrize(("kind", "model"), FUSED)
def test_result_is_bitwise_the_same_in_every_group(kind: str, model: str) -> None:
    task = supervised_task(model, sizes=(50,) * 12)
    kernel = build(kind, task)
    assert kernel.group_invariant
    clients, steps = np.arange(12), np.array([5] * 4 + [3] * 4 + [1] * 4)
    weights = models_of(task, 12, torch.float32)
    with reproducible():
        together = run_gradients(kernel, weights.clone(), clients, steps)
        for pick in ([0], [7], [11], [2, 3], [0, 5, 9], list(range(1, 12))):
            apart = run_gradients(kernel, weights[pick].clone(), clients[pick], steps[pick])
            for row, client in enumerate(pick):
                assert torch.equal(apart[row], together[client])


def test_penalty_and_logistic_loss() -> None:
    task = supervised_task("linear")
    task.loss = Loss(penalty=0.3)
    weights = models_of(task, 1, torch.float64)
    for kind in ("loop", "vmap"):
        out = torch.zeros_like(weights)
        session = build(kind, task, torch.float64).session(
            np.array([6]), np.array([0]), np.array([1]), 0
        )
        with torch.no_grad():
            losses = session.gradients(0, weights, out)
        rows = task.rows[task.offsets[6] : task.offsets[7]].tolist()
        loss, gradient = oracle(task, weights[0], rows)
        torch.testing.assert_close(out[0], gradient, atol=1e-12, rtol=1e-12)
        torch.testing.assert_close(losses[0], loss, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize(
    ("model", "executor", "expected"),
    [
        ("linear", "auto", LinearStackKernel),
        ("mlp", "auto", LinearStackKernel),
        ("mlp", "stacked", LinearStackKernel),
        ("mlp", "parallel", LoopKernel),
        ("mlp", "plain", LoopKernel),
        ("conv", "auto", LoopKernel),
        ("conv", "stacked", VmapKernel),
        ("batch_norm", "auto", LoopKernel),
        ("dropout", "parallel", LoopKernel),
        ("layers", "auto", LoopKernel),
        ("layers", "stacked", VmapKernel),
        ("layers", "plain", LoopKernel),
        ("layers", "parallel", LoopKernel),
    ],
)
def test_the_kernel_follows_the_documented_rule(model: str, executor: str, expected: type) -> None:
    task = supervised_task(model)
    training = make_training(executor=executor, threads=2)
    assert type(kernel_of(task, training)) is expected


@pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(),  # type: ignore[no-untyped-call]
    reason="this build of torch has no oneDNN",
)
def test_steps_by_onednn_are_those_of_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinearStackKernel, "client_by_client", True)
    task, steps = supervised_task("mlp"), np.array([4, 2])
    assert len(task.layout.shapes) >= 6, "a layer between two others"

    def descend(onednn_from: int) -> tuple[Tensor, Tensor]:
        kernel = build("linear_stack", task)
        assert isinstance(kernel, LinearStackKernel)
        kernel.onednn_from = onednn_from
        weights = row_matrix(2, task.layout.size, like=torch.zeros(1))
        weights.copy_(models_of(task, 2, torch.float32))
        session = kernel.session(np.arange(2), np.zeros(2, int), steps, 0)
        with torch.no_grad():
            return weights, session.descend(weights, torch.full((2,), 0.1), active_rows(steps))

    models, losses = descend(0)
    expected_models, expected_losses = descend(sys.maxsize)
    torch.testing.assert_close(models, expected_models, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(losses, expected_losses, atol=1e-6, rtol=1e-5)


def test_dropout_masks_follow_client_sequence_and_step() -> None:
    task = supervised_task("dropout", sizes=(50,) * 4)
    kernel = build("loop", task)
    weights = models_of(task, 4, torch.float32)
    clients, steps = np.arange(4), np.full(4, 2)
    first = run_gradients(kernel, weights, clients, steps)
    again = run_gradients(kernel.replica(), weights[2:], clients[2:], steps[2:])
    assert torch.equal(first[3], again[1])
    same_batch = supervised_task("conv", sizes=(50,) * 4)
    plain = run_gradients(build("loop", same_batch), weights, clients, steps)
    assert not torch.allclose(first[3], plain[3])


class Branching(nn.Module):
    """Batches whose sum is negative do not use the second layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 5), nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return self.first(x) if x.sum() < 0 else self.first(x) + self.second(x)


def test_parameters_that_a_batch_does_not_use_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "branching", (Branching, "module"))  # type: ignore[arg-type]
    task = supervised_task("branching")
    task.train_x[:] = -task.train_x.abs()
    kernel = build("loop", task)
    weights = models_of(task, 2, torch.float32)
    before = weights.clone()
    with torch.no_grad():
        session = kernel.session(np.arange(2), np.zeros(2, int), np.array([2, 2]), 0)
        session.descend(weights, torch.full((2,), 0.1), np.array([2, 2]))
    first, second = slice(0, 325), slice(325, 650)
    assert not torch.equal(weights[:, first], before[:, first])
    assert torch.equal(weights[:, second], before[:, second])


def test_quadratic_gradients_are_exact() -> None:
    task = quadratic_task()
    kernel = QuadraticKernel(task, SEED)
    points = torch.tensor([[4.0, -4.0], [1.0, 1.0]], dtype=torch.float64)
    out = torch.zeros_like(points)
    session = kernel.session(np.array([2, 0]), np.zeros(2, int), np.array([1, 1]), 0)
    losses = session.gradients(0, points, out)
    # Client 2: diag(2, 0.25) (x - (-3, 1)); client 0: diag(1, 2) (x - (1, 0)).
    assert out.tolist() == [[14.0, -1.25], [0.0, 2.0]]
    assert losses.tolist() == [0.5 * (2 * 49 + 0.25 * 25), 0.5 * 2]


def test_quadratic_noise_is_keyed_by_dispatch_and_step() -> None:
    kernel = QuadraticKernel(quadratic_task(noise_std=1.0), SEED)
    points = torch.zeros(3, 2, dtype=torch.float64)

    def gradients(clients: list[int], sequence: int, step: int, phase: int = 0) -> Tensor:
        out = torch.zeros(len(clients), 2, dtype=torch.float64)
        session = kernel.session(
            np.array(clients), np.full(len(clients), sequence), np.full(len(clients), 9), phase
        )
        session.gradients(step, points[: len(clients)], out)
        return out

    assert torch.equal(gradients([0, 1, 2], 0, 3)[2], gradients([2], 0, 3)[0])
    seen = {
        tuple(gradients([0], sequence, step, phase)[0].tolist())
        for sequence in (0, 1)
        for step in (0, 1)
        for phase in (0, 1)
    }
    assert len(seen) == 8


BINARY: list[dict[str, object]] = [
    {},
    {"personal_features": 4, "penalty": 0.3},
    {"personal_features": 4, "penalty": 0.3, "bias": True},
    {"personal_features": 5, "shuffle_features": True, "unit_norm": True, "positive": [0]},
]


@pytest.mark.parametrize("params", BINARY, ids=str)
def test_the_binary_linear_model_by_hand_and_by_automatic_differentiation(
    params: dict[str, object],
) -> None:
    task = binary_task(**params)
    clients, steps = np.array([4, 1, 2, 0, 3]), np.array([7, 6, 6, 4, 1])
    weights = models_of(task, 5, torch.float64)
    results = []
    for executor, expected in (("auto", SplitLinearKernel), ("plain", LoopKernel)):
        kernel = kernel_of(task, make_training(executor=executor, dtype="float64"))
        assert type(kernel) is expected
        collected = []
        for width in np.unique(kernel.shape_class(clients)):
            alike = np.flatnonzero(kernel.shape_class(clients) == width)
            collected += run_gradients(kernel, weights[alike], clients[alike], steps[alike])
        results.append(collected)
    for by_hand, automatic in zip(*results, strict=True):
        torch.testing.assert_close(by_hand, automatic, atol=1e-14, rtol=1e-12)


def test_squared_losses_of_the_binary_linear_model() -> None:
    """Like the others, and without its penalty."""
    task = binary_task(personal_features=4, penalty=0.3, bias=True)
    model = models_of(task, 1, torch.float64)
    rows = task.rows[task.offsets[0] : task.offsets[1]].tolist()
    for kind in ("split_linear", "loop"):
        session = build(kind, task, torch.float64, dispatch_loss="root_mean_square").session(
            np.array([0]), np.zeros(1, int), np.array([1]), 0
        )
        losses = session.gradients(0, model, torch.zeros_like(model))
        torch.testing.assert_close(losses[0], squares_of(task, model[0], rows))


def test_the_binary_linear_model_is_bitwise_the_same_in_every_group() -> None:
    task = binary_task(personal_features=4, penalty=0.3, bias=True)
    kernel = kernel_of(task, make_training())
    assert kernel.group_invariant
    clients, steps = np.array([4, 2, 1, 4, 2, 1, 4]), np.array([5, 5, 4, 3, 2, 2, 1])
    weights = models_of(task, 7, torch.float32)
    with reproducible():
        together = run_gradients(kernel, weights, clients, steps)
        for pick in ([0], [3], [6], [1, 4], [0, 2, 5], list(range(1, 7))):
            apart = run_gradients(kernel, weights[pick], clients[pick], steps[pick])
            for row, picked in enumerate(pick):
                assert torch.equal(apart[row], together[picked])


class Attending(nn.Module):
    """Draws masks in a layer, in fused attention, and in a function whose first axis is not that of the samples."""

    def __init__(self) -> None:
        super().__init__()
        width = SHAPE[-1]
        self.query, self.head = nn.Linear(width, width), nn.Linear(int(np.prod(SHAPE)), 5)
        self.drop = nn.Dropout(0.2)

    def forward(self, inputs: Tensor) -> Tensor:
        rows = self.drop(inputs.flatten(1, 2))
        attended = functional.scaled_dot_product_attention(
            self.query(rows), rows, rows, dropout_p=0.3 if self.training else 0.0
        )
        hidden = functional.dropout(attended.flatten(0, 1), 0.4, self.training)
        result: Tensor = self.head(hidden.view(len(inputs), -1))
        return result


@pytest.mark.parametrize("model", ["dropout", "attending"])
def test_masks_are_those_of_the_loop(model: str) -> None:
    """Also in short mini-batches beside long ones: clients with 20, 33, 50 and 64 samples."""
    task = supervised_task("dropout")
    if model == "attending":
        task = SupervisedTask(task.dataset, task.partition, Built(Attending, "module"))
    weights = models_of(task, 4, torch.float64)
    clients, steps = np.array([5, 3, 2, 0]), np.array([6, 5, 5, 2])
    stacked, alone = (
        run_gradients(build(kind, task, torch.float64), weights, clients, steps)
        for kind in ("vmap", "loop")
    )
    for one, other in zip(stacked, alone, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-11)
    assert task.drops
    training = make_training(executor="stacked")
    kernel = kernel_of(task, training)
    assert isinstance(kernel, VmapKernel)
    assert not kernel.recorded


def test_what_cannot_be_stacked_is_refused() -> None:
    task = supervised_task("batch_norm")
    training = make_training(executor="stacked")
    with pytest.raises(UserError, match="cannot train several clients in one tensor") as caught:
        kernel_of(task, training)
    assert "running_mean), such as the statistics of batch normalization" in caught.value.message
    assert caught.value.where == "training.executor"


@pytest.mark.parametrize(
    ("channels", "options"),
    [
        (3, {"out_channels": 5, "kernel_size": 3}),
        (3, {"out_channels": 4, "kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0)}),
        (2, {"out_channels": 4, "kernel_size": 1, "stride": 2, "bias": False}),
        (2, {"out_channels": 4, "kernel_size": 2, "stride": 3, "padding": 1}),
        # Left to torch.
        (4, {"out_channels": 4, "kernel_size": 3, "groups": 2}),
        (2, {"out_channels": 4, "kernel_size": 3, "padding": "same"}),
        (2, {"out_channels": 4, "kernel_size": 3, "dilation": 2}),
    ],
)
def test_gradients_are_those_of_torch(channels: int, options: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    module = nn.Sequential(
        nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(), nn.Conv2d(channels, **options)
    )
    parameters = {name: random(3, *tensor.shape) for name, tensor in module.named_parameters()}

    def value(parameters: dict[str, Tensor], images: Tensor) -> Tensor:
        return functional_call(module, parameters, (images,)).square().sum()

    function = vmap(grad_and_value(value))
    images = random(3, 4, channels, 9, 8)
    expected = function(parameters, images)
    with BatchedConvolutions():
        result = function(parameters, images)
    torch.testing.assert_close(result, expected, atol=1e-9, rtol=1e-12)


def test_half_precision_is_that_of_autocast() -> None:
    module = nn.Conv2d(2, 3, 3)
    parameters = {name: torch.randn(2, *t.shape) for name, t in module.named_parameters()}
    function = vmap(lambda parameters, images: functional_call(module, parameters, (images,)))
    images = torch.randn(2, 4, 2, 6, 6)
    with torch.autocast("cpu", torch.bfloat16), BatchedConvolutions():
        result = function(parameters, images)
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(result.float(), function(parameters, images), atol=0.05, rtol=0.05)
