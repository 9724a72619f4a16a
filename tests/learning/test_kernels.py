"""One suite for all kernels: they agree with plain torch, and a client's result does not depend on its group."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedsim.errors import UserError
from fedsim.learning.batches import BatchOrder
from fedsim.learning.device import Execution, reproducible
from fedsim.learning.kernels import (
    Kernel,
    LinearStackKernel,
    LoopKernel,
    QuadraticKernel,
    SplitLinearKernel,
    VmapKernel,
    choose,
)
from fedsim.learning.kernels.linear_steps import PYTHON_STEPS
from fedsim.learning.kernels.loop import BoundModule
from fedsim.learning.local_training import active_rows, row_matrix
from fedsim.learning.samples import Samples
from fedsim.randomness import Purpose, Stream
from fedsim.tasks.datasets.shifted_logistic import ShiftedLogistic
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.tasks.losses import Loss
from fedsim.tasks.models.linear import Linear
from fedsim.tasks.modules.dropout import KeyedDropout, seed_dropout
from fedsim.tasks.partition import Partition
from tests.learning.problems import MODELS, SHAPE, make_training, quadratic_task, supervised_task

BATCH, SEED = 16, 5
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


def build(
    kind: str,
    task: SupervisedTask,
    dtype: torch.dtype = torch.float32,
    *,
    squared_losses: bool = False,
) -> Kernel:
    execution = Execution(torch.device("cpu"), dtype, None, 1)
    samples = Samples(task, task.train_x, task.train_y, execution)
    order = BatchOrder(SEED, task.offsets, task.rows, BATCH, execution.device)
    kinds = {
        "linear_stack": LinearStackKernel,
        "split_linear": SplitLinearKernel,
        "vmap": VmapKernel,
        "loop": LoopKernel,
    }
    return kinds[kind](samples, order, squared_losses=squared_losses)


def models_of(task: SupervisedTask, count: int, dtype: torch.dtype) -> Tensor:
    stream = Stream(SEED, Purpose.INITIAL_MODEL)
    rows = torch.stack([task.initial(stream, dtype)] * count)
    noise = torch.randn(rows.shape, generator=torch.Generator().manual_seed(1), dtype=dtype)
    rows[:, : task.layout.trainable] += 0.1 * noise[:, : task.layout.trainable]
    return rows


def oracle(task: SupervisedTask, model: Tensor, rows: list[int]) -> tuple[Tensor, Tensor]:
    """Loss and gradient of one mini-batch by an ordinary module and backward()."""
    module = copy.deepcopy(task.module).to(model.dtype).train()
    with torch.no_grad():
        for name, value in task.layout.views(model).items():
            module.state_dict()[name].copy_(value)
    inputs = task.inputs(task.train_x[rows], model.dtype)
    loss = task.loss.per_sample(module(inputs), task.train_y[rows]).mean()
    if task.loss.penalty:
        loss = loss + task.loss.penalties(module.parameters())
    loss.backward()
    gradients = [parameter.grad.reshape(-1) for parameter in module.parameters()]  # type: ignore[union-attr]
    return loss.detach(), torch.cat(gradients)


PAIRS = [
    ("linear_stack", "linear"),
    ("linear_stack", "mlp"),
    ("loop", "linear"),
    ("loop", "mlp"),
    ("loop", "conv"),
    ("loop", "batch_norm"),
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


def squares_of(task: SupervisedTask, model: Tensor, rows: list[int]) -> Tensor:
    """Sum of squared losses of samples, without the penalty."""
    module = copy.deepcopy(task.module).to(model.dtype).train()
    with torch.no_grad():
        for name, value in task.layout.views(model).items():
            module.state_dict()[name].copy_(value)
        inputs = task.inputs(task.train_x[rows], model.dtype)
        return task.loss.per_sample(module(inputs), task.train_y[rows]).square().sum()


def test_squared_losses_of_the_binary_linear_model() -> None:
    """Like the others, and without its penalty."""
    task = binary_task(personal_features=4, penalty=0.3, bias=True)
    model = models_of(task, 1, torch.float64)
    rows = task.rows[task.offsets[0] : task.offsets[1]].tolist()
    for kind in ("split_linear", "loop"):
        session = build(kind, task, torch.float64, squared_losses=True).session(
            np.array([0]), np.zeros(1, int), np.array([1]), 0
        )
        losses = session.gradients(0, model, torch.zeros_like(model))
        torch.testing.assert_close(losses[0], squares_of(task, model[0], rows))


@pytest.fixture(params=[False, True], ids=["together", "client by client"])
def client_by_client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """How stacks of linear layers take plain steps, whatever the size of the model."""
    monkeypatch.setattr(LinearStackKernel, "client_by_client", request.param)
    return bool(request.param)


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
@pytest.mark.parametrize(("kind", "model"), FUSED)
def test_fused_steps_are_bitwise_the_same_in_every_group(
    kind: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough for several pieces, and for several draws of the batch order where the group is large.
    monkeypatch.setattr("fedsim.learning.kernels.supervised._MOST_PLACES", 1500)
    monkeypatch.setattr("fedsim.learning.kernels.linear_stack._PIECE_BYTES", 17_000)
    task = supervised_task(model, sizes=(50,) * 12)
    kernel = build(kind, task)
    clients, steps = np.arange(12), np.array([41] * 4 + [33] * 4 + [1] * 4)
    weights = row_matrix(12, task.layout.size, like=torch.zeros(1))
    weights.copy_(models_of(task, 12, torch.float32))
    rates = torch.linspace(0.01, 0.1, 12)

    def run(pick: list[int]) -> tuple[Tensor, Tensor]:
        moved = row_matrix(len(pick), task.layout.size, like=weights)
        moved.copy_(weights[pick])
        session = kernel.session(clients[pick], np.full(len(pick), 2), steps[pick], 0)
        with reproducible(), torch.no_grad():
            return moved, session.descend(moved, rates[pick], active_rows(steps[pick]))

    together, losses = run(list(range(12)))
    for pick in ([0], [7], [11], [2, 3], [0, 5, 9], list(range(1, 12))):
        apart, own = run(pick)
        assert torch.equal(apart, together[pick])
        assert torch.equal(own, losses[pick])


@pytest.mark.parametrize("way", ["together", "client by client", "gradients"])
@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_torchscript_has_the_bits_of_python(
    model: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it is called again and again: TorchScript optimises what it has seen twice."""
    task = supervised_task(model, sizes=(50,) * 4)
    monkeypatch.setattr(LinearStackKernel, "client_by_client", way == "client by client")
    steps = np.array([7, 7, 5, 2])

    def run() -> list[Tensor]:
        weights = row_matrix(4, task.layout.size, like=torch.zeros(1))
        weights.copy_(models_of(task, 4, torch.float32))
        kernel = build("linear_stack", task)
        with reproducible(), torch.no_grad():
            if way == "gradients":
                return run_gradients(kernel, weights, np.arange(4), steps)
            session = kernel.session(np.arange(4), np.zeros(4, int), steps, 0)
            losses = session.descend(weights, torch.full((4,), 0.1), active_rows(steps))
            return [weights, losses]

    scripted = [run() for _ in range(4)]
    monkeypatch.setattr("fedsim.learning.kernels.linear_stack.compiled", lambda: PYTHON_STEPS)
    for found in scripted:
        for part, expected in zip(found, run(), strict=True):
            assert torch.equal(part, expected)


@pytest.mark.usefixtures("client_by_client")
def test_gradients_after_fused_steps() -> None:
    """They share work space, which autograd may have to know of."""
    task = supervised_task("mlp")
    kernel = build("linear_stack", task)
    weights = models_of(task, 2, torch.float32)
    steps = np.array([3, 2])
    with torch.no_grad():
        kernel.session(np.arange(2), np.zeros(2, int), steps, 0).descend(
            weights.clone(), torch.full((2,), 0.1), active_rows(steps)
        )
    found = run_gradients(kernel, weights, np.arange(2), steps)
    expected = run_gradients(build("linear_stack", task), weights, np.arange(2), steps)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def run_gradients(
    kernel: Kernel, weights: Tensor, clients: np.ndarray, steps: np.ndarray
) -> list[Tensor]:
    """Every client's gradients over all its steps at a fixed model."""
    session = kernel.session(clients, np.full(len(clients), 2), steps, 0)
    collected: list[list[Tensor]] = [[] for _ in clients]
    for step in range(int(steps[0])):
        active = int((steps > step).sum())
        out = torch.zeros_like(weights[:active])
        with torch.no_grad():
            session.gradients(step, weights[:active], out)
        for row in range(active):
            collected[row].append(out[row])
    return [torch.stack(gradients) for gradients in collected]


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
    ],
)
def test_the_kernel_follows_the_documented_rule(model: str, executor: str, expected: type) -> None:
    task = supervised_task(model)
    training = make_training(executor=executor, threads=2)
    execution = Execution.of(training)
    samples = Samples(task, task.train_x, task.train_y, execution)
    choice = choose(task, training, execution, samples, SEED)
    assert type(choice.kernel) is expected
    assert choice.workers == (1 if executor == "plain" else 2)


def test_logistic_loss_is_not_for_the_hand_derived_kernel() -> None:
    task = supervised_task("linear")
    task.loss = Loss(penalty=0.1)
    training = make_training()
    execution = Execution.of(training)
    samples = Samples(task, task.train_x, task.train_y, execution)
    assert type(choose(task, training, execution, samples, SEED).kernel) is LoopKernel


@pytest.mark.parametrize("model", ["batch_norm", "dropout"])
def test_what_cannot_be_stacked_is_refused(model: str) -> None:
    task = supervised_task(model)
    training = make_training(executor="stacked")
    execution = Execution.of(training)
    samples = Samples(task, task.train_x, task.train_y, execution)
    with pytest.raises(UserError, match="cannot be vectorized"):
        choose(task, training, execution, samples, SEED)


class Hidden(torch.nn.Module):
    """Drops inputs by a function of torch."""

    def __init__(self, function: str) -> None:
        super().__init__()
        self.function = function
        self.layer = torch.nn.Linear(int(np.prod(SHAPE)), 5)

    def forward(self, inputs: Tensor) -> Tensor:
        function = getattr(torch.nn.functional, self.function)
        dropped: Tensor = function(inputs.flatten(1), 0.5, self.training)
        return self.layer(dropped)  # type: ignore[no-any-return]


def test_random_numbers_that_cannot_be_repeated_are_refused() -> None:
    task = supervised_task("linear")
    task.module = Hidden("alpha_dropout")
    before = torch.get_rng_state()
    training = make_training()
    execution = Execution.of(training)
    with pytest.raises(UserError, match="global random generator"):
        BoundModule(task, execution)
    assert torch.equal(before, torch.get_rng_state())


def test_functional_dropout_is_a_function_of_the_seed() -> None:
    """As a dropout layer in the same place draws, bit for bit."""
    task = supervised_task("linear")
    task.module = Hidden("dropout").train()
    execution = Execution.of(make_training())
    bound = BoundModule(task, execution)
    bound.module.train()
    inputs = torch.rand(4, *SHAPE, dtype=execution.dtype)
    before = torch.get_rng_state()
    bound.seed_dropout(7)
    outputs = bound.forward(inputs)
    bound.seed_dropout(7)
    assert torch.equal(bound.forward(inputs), outputs)
    assert not torch.equal(bound.forward(inputs), outputs)
    assert torch.equal(before, torch.get_rng_state())
    layer = KeyedDropout(0.5)
    seed_dropout(layer, 7)
    assert torch.equal(bound.module.layer(layer(inputs.flatten(1))), outputs)
    bound.module.eval()
    assert torch.equal(bound.forward(inputs), bound.module.layer(inputs.flatten(1)))


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


def test_all_models_of_the_suite_are_used() -> None:
    used = {model for _, model in PAIRS} | {"dropout"}
    assert used == set(MODELS)


# -- the binary linear model ------------------------------------------------------------------


def binary_task(**params: object) -> SupervisedTask:
    """Five clients, of which two have less than a batch, with a model that has every option."""
    dataset = ShiftedLogistic(ShiftedLogistic.Params(groups=5, samples=37, features=11)).load()
    owned = np.array([0, 9, 46, 83, 97, 185])
    partition = Partition(owned, np.random.default_rng(2).permutation(185))
    return SupervisedTask(dataset, partition, Linear(Linear.Params(**params)))


BINARY: list[dict[str, object]] = [
    {},
    {"personal_features": 4, "penalty": 0.3},
    {"personal_features": 4, "penalty": 0.3, "bias": True},
    {"personal_features": 5, "shuffle_features": True, "unit_norm": True, "positive": [0]},
]


def built_for(task: SupervisedTask, executor: str, dtype: str) -> Kernel:
    training = make_training(executor=executor, dtype=dtype, threads=1)
    execution = Execution.of(training)
    samples = Samples(task, task.train_x, task.train_y, execution)
    return choose(task, training, execution, samples, SEED).kernel


@pytest.mark.parametrize("params", BINARY, ids=str)
def test_the_binary_linear_model_by_hand_and_by_automatic_differentiation(
    params: dict[str, object],
) -> None:
    task = binary_task(**params)
    clients, steps = np.array([4, 1, 2, 0, 3]), np.array([7, 6, 6, 4, 1])
    weights = models_of(task, 5, torch.float64)
    found = []
    for executor, expected in (("auto", SplitLinearKernel), ("plain", LoopKernel)):
        kernel = built_for(task, executor, "float64")
        assert type(kernel) is expected
        collected = []
        for width in np.unique(kernel.shape_class(clients)):
            alike = np.flatnonzero(kernel.shape_class(clients) == width)
            collected += run_gradients(kernel, weights[alike], clients[alike], steps[alike])
        found.append(collected)
    for by_hand, automatic in zip(*found, strict=True):
        torch.testing.assert_close(by_hand, automatic, atol=1e-14, rtol=1e-12)


def test_the_binary_linear_model_is_bitwise_the_same_in_every_group() -> None:
    task = binary_task(personal_features=4, penalty=0.3, bias=True)
    kernel = built_for(task, "auto", "float32")
    assert kernel.group_invariant
    clients, steps = np.array([4, 2, 1, 4, 2, 1, 4]), np.array([5, 5, 4, 3, 2, 2, 1])
    weights = models_of(task, 7, torch.float32)
    with reproducible():
        together = run_gradients(kernel, weights, clients, steps)
        for pick in ([0], [3], [6], [1, 4], [0, 2, 5], list(range(1, 7))):
            apart = run_gradients(kernel, weights[pick], clients[pick], steps[pick])
            for row, place in enumerate(pick):
                assert torch.equal(apart[row], together[place])
