"""One suite for all kernels: they agree with plain torch, and a client's result does not depend on its group."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsim.learning.batches import BatchOrder
from fedsim.learning.device import reproducible
from fedsim.learning.kernels import ConvStackKernel, LinearStackKernel, LoopKernel, VmapKernel
from fedsim.learning.kernels.base import Correction
from fedsim.learning.local_training import active_rows, row_matrix
from fedsim.tasks.losses import Loss
from tests.learning.kernels.building import (
    BATCH,
    build,
    models_of,
    oracle,
    run_gradients,
    squares_of,
)
from tests.learning.problems import SEED, kernel_of, make_training, supervised_task

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


PAIRS = [
    ("linear_stack", "linear"),
    ("linear_stack", "mlp"),
    ("loop", "linear"),
    ("loop", "mlp"),
    ("loop", "conv"),
    ("loop", "batch_norm"),
    ("conv_stack", "layers"),
    ("vmap", "linear"),
    ("vmap", "mlp"),
    ("vmap", "conv"),
]
# Clients with 20, 33, 50 and 64 samples: full batches, and short ones at the end of an epoch.
CLIENTS, STEPS = np.array([5, 3, 2, 0]), np.array([6, 5, 5, 2])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("kind", "model"), PAIRS)
def test_gradients_are_those_of_plain_torch(kind: str, model: str, dtype: torch.dtype) -> None:
    task = supervised_task(model)
    kernel = build(kind, task, dtype)
    weights = models_of(task, 4, dtype)
    sequences = np.arange(4)
    session = kernel.session(CLIENTS, sequences, STEPS, 0)
    order = BatchOrder(SEED, task.offsets, task.rows, BATCH, torch.device("cpu"))
    batches = order.batches(CLIENTS, sequences, first=0, last=6)
    for step in range(6):
        active = int((step < STEPS).sum())
        out = torch.zeros(active, task.layout.size, dtype=dtype)
        before = weights.clone()
        with reproducible(), torch.no_grad():
            losses = session.gradients(step, weights[:active], out)
        for row in range(active):
            rows = batches.rows[step, row, : int(batches.counts[step, row])].tolist()
            loss, gradient = oracle(task, before[row], rows)
            tolerance = TOLERANCE[dtype]
            torch.testing.assert_close(losses[row], loss, atol=tolerance, rtol=tolerance)
            trained = out[row, : task.layout.trainable]
            torch.testing.assert_close(trained, gradient, atol=tolerance, rtol=10 * tolerance)
            assert (out[row, task.layout.trainable :] == 0).all()


FUSED = [pair for pair in PAIRS if pair[0] != "vmap"]


@pytest.mark.parametrize(("kind", "model"), PAIRS)
def test_squared_losses_are_those_of_the_samples(kind: str, model: str) -> None:
    """Sums over each mini-batch by plain torch; the gradients keep their bits."""
    task, sequences = supervised_task(model), np.arange(4)
    order = BatchOrder(SEED, task.offsets, task.rows, BATCH, torch.device("cpu"))
    batches = order.batches(CLIENTS, sequences, first=0, last=6)
    gradients: list[list[Tensor]] = []
    for squared in (False, True):
        kernel = build(kind, task, torch.float64, squared_losses=squared)
        session = kernel.session(CLIENTS, sequences, STEPS, 0)
        weights = row_matrix(4, task.layout.size, like=torch.zeros(1, dtype=torch.float64))
        weights.copy_(models_of(task, 4, torch.float64))
        gradients.append([])
        for step in range(6):
            active = int((step < STEPS).sum())
            out, before = torch.zeros_like(weights)[:active], weights.clone()
            with reproducible(), torch.no_grad():
                losses = session.gradients(step, weights[:active], out)
            gradients[-1].append(out)
            for row in range(active if squared else 0):
                rows = batches.rows[step, row, : int(batches.counts[step, row])].tolist()
                expected = squares_of(task, before[row], rows)
                torch.testing.assert_close(losses[row], expected, atol=1e-12, rtol=1e-12)
    assert all(map(torch.equal, *gradients))


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
        build(kind, task, torch.float64, squared_losses=squared).session(
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
    + [(*pair, name) for pair in FUSED if pair[0] != "loop" for name in ("pull", "shift")],
)
def test_fused_steps_are_bitwise_the_same_in_every_group(
    kind: str, model: str, corrected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough for several pieces, and for several draws of the batch order where the group is large.
    monkeypatch.setattr("fedsim.learning.kernels.supervised._MOST_PLACES", 1500)
    monkeypatch.setattr("fedsim.learning.kernels.linear_stack._PIECE_BYTES", 17_000)
    task = supervised_task(model, sizes=(50,) * 12)
    kernel = build(kind, task)
    # Pieces are only of linear layers; the others need fewer steps for a second draw.
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


@pytest.mark.parametrize(("kind", "model"), [pair for pair in PAIRS if pair[0] != "vmap"])
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
        ("layers", "auto", ConvStackKernel),
        ("layers", "stacked", VmapKernel),
        ("layers", "plain", LoopKernel),
        ("layers", "parallel", LoopKernel),
    ],
)
def test_the_kernel_follows_the_documented_rule(model: str, executor: str, expected: type) -> None:
    task = supervised_task(model)
    training = make_training(executor=executor, threads=2)
    assert type(kernel_of(task, training)) is expected
