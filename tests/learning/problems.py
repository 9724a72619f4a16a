"""Small tasks, and a driver that plays the time plane."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fedsim.learning.batches import BatchOrder
from fedsim.learning.device import Execution
from fedsim.learning.kernels import Kernel, choose
from fedsim.learning.learner import Learner
from fedsim.learning.local_training import LocalTrainer
from fedsim.learning.rates import learning_rate
from fedsim.learning.samples import training_samples
from fedsim.learning.workers import Station
from fedsim.methods.base import (
    Cohort,
    LocalUpdate,
    Memory,
    Method,
    MethodContext,
    ServerState,
    Step,
    Trained,
    Trainer,
    Updates,
    Vector,
    averaging_weights,
)
from fedsim.methods.fedavg import FedAvg
from fedsim.methods.mixins import with_averaged_buffers
from fedsim.randomness import Purpose, Stream
from fedsim.scenario.model import Evaluation
from fedsim.scenario.training import Training
from fedsim.tasks.base import Task
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.kinds.quadratic import QuadraticTask
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.tasks.model import Family, ModelComponent
from fedsim.tasks.models.cnn import Conv, Linear, SequentialModel
from fedsim.tasks.modules.networks import LinearStack
from fedsim.tasks.partition import Partition
from fedsim.vocabulary.metrics import DispatchLoss
from fedsim.vocabulary.timeline import Aggregate, Contribution, Evaluate, Instruction, Train

SHAPE = (1, 8, 8)
CLASSES = 5


class Built(ModelComponent):
    """A model from a function."""

    name = "built"

    def __init__(self, build: Any, family: Family) -> None:
        super().__init__(None)
        self._build = build
        self.family = family  # type: ignore[misc]

    def build(self, dataset: Dataset) -> nn.Module:
        module: nn.Module = self._build()
        return module


def _features() -> int:
    return int(np.prod(SHAPE))


def _conv(*extra: nn.Module) -> nn.Module:
    return nn.Sequential(
        # A bias in front of a normalization has a gradient of zero, which Adam would blow up from rounding noise.
        nn.Conv2d(
            1, 3, 3, padding=1, bias=not any(isinstance(layer, nn.BatchNorm2d) for layer in extra)
        ),
        *extra,
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(48, CLASSES),
    )


class Viewing(nn.Module):
    """Views of images and weights, which need the usual order of memory."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 2, 3, padding=1)
        self.last = nn.Linear(128, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.second(torch.relu(self.first(images)))
        norms = self.second.weight.view(2, -1).norm(dim=1).view(2, 1, 1)
        outputs: Tensor = self.last((hidden / norms).view(len(images), -1))
        return outputs


class Layers(SequentialModel):
    """Every kind of layer that the hand-derived kernel knows; ReLU before and after pooling, which drops a row."""

    name = "layers"
    hidden_layers = (
        *(Conv(3, 3, padding=1), "pool", "relu"),
        *(Conv(4, 2), "relu", "pool", "flatten"),
        *(Linear(6), "relu"),
    )

    def __init__(self) -> None:
        super().__init__(None)


MODELS: Mapping[str, tuple[Any, Family]] = {
    "linear": (lambda: LinearStack([_features(), CLASSES]), "linear"),
    "mlp": (lambda: LinearStack([_features(), 20, 12, CLASSES]), "mlp"),
    "conv": (_conv, "module"),
    "batch_norm": (lambda: _conv(nn.BatchNorm2d(3)), "module"),
    "views": (Viewing, "module"),
    "dropout": (lambda: _conv(nn.Dropout(0.5)), "module"),
}
"""Models from a function; the model ``layers`` is :class:`Layers`."""


def supervised_task(
    model: str = "mlp",
    sizes: Sequence[int] = (20, 7, 33, 50, 12, 64, 5, 41),
    own_test: bool = False,
) -> SupervisedTask:
    """Random images with labels that can be learnt; client i has ``sizes[i]`` samples."""
    rng = np.random.default_rng(7)
    total, tests = int(np.sum(sizes)), 60
    centers = rng.normal(size=(CLASSES, *SHAPE))
    labels = rng.integers(0, CLASSES, total + tests)
    x = (centers[labels] + rng.normal(size=(total + tests, *SHAPE))).astype(np.float32)
    dataset = Dataset(
        name="random",
        train_x=x[:total],
        train_y=labels[:total],
        test_x=x[total:],
        test_y=labels[total:],
        classes=CLASSES,
    )
    rows = rng.permutation(total)
    partition = Partition(
        train_offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        train_rows=rows,
        test_offsets=np.linspace(0, tests, len(sizes) + 1).astype(np.int64) if own_test else None,
        test_rows=rng.permutation(tests) if own_test else None,
    )
    return SupervisedTask(
        dataset, partition, Layers() if model == "layers" else Built(*MODELS[model])
    )


def quadratic_task(**changes: Any) -> QuadraticTask:
    """Three clients in two dimensions."""
    given: dict[str, Any] = {
        "centers": [[1.0, 0.0], [0.0, 2.0], [-3.0, 1.0]],
        "curvatures": [[1.0, 2.0], [0.5, 1.0], [2.0, 0.25]],
        "initial": [4.0, -4.0],
        "samples": [1, 2, 5],
    }
    return QuadraticTask(QuadraticTask.Params(**(given | changes)))


def make_training(**changes: Any) -> Training:
    """SGD with rate 0.1 and batches of 16 on the CPU."""
    given: dict[str, Any] = {
        "optimizer": {"name": "sgd", "lr": 0.1},
        "batch_size": 16,
        "device": "cpu",
    }
    return Training(**(given | changes))


def make_context(
    task: Task,
    training: Training,
    *,
    seed: int = 3,
    local_steps: Any = 4,
    execution: Execution | None = None,
) -> MethodContext:
    """What a method of the task knows; ``local_steps`` is one number, or one per client."""
    execution = execution or Execution.of(training)
    return MethodContext(
        layout=task.layout,
        clients=task.clients,
        samples=task.samples,
        learning_rate=learning_rate(training),
        local_steps=np.broadcast_to(np.asarray(local_steps, dtype=np.int64), task.clients),
        tensors=lambda: (execution.dtype, execution.device),
        seed=seed,
        optimizer=training.optimizer.create(),
    )


def make_station(
    task: Task,
    training: Training | None = None,
    method: type[Method] = FedAvg,
    params: Any = None,
    *,
    seed: int = 3,
    local_steps: Any = 4,
    execution: Execution | None = None,
) -> Station:
    """A task and its method, by default FedAvg on one thread."""
    training = training or make_training(threads=1)
    execution = execution or Execution.of(training)
    context = make_context(task, training, seed=seed, local_steps=local_steps, execution=execution)
    params = method.Params() if params is None else params
    built = with_averaged_buffers(method, task.layout)(params, context)
    return Station(task, built, training, seed, execution)


def make_learner(
    task: Any,
    training: Training | None = None,
    method: type[Method] = FedAvg,
    params: Any = None,
    *,
    kind: type[Learner] = Learner,
    eager: bool = False,
    max_pending: int | None = None,
    per_client: bool = False,
    objective: bool = False,
    seed: int = 3,
    local_steps: Any = 4,
    execution: Execution | None = None,
    **options: Any,
) -> Learner:
    """A learner, by default of FedAvg with seed 3; waves start after ``max_pending`` contributions."""
    training = training or make_training(threads=1)
    if eager:
        training = training.model_copy(update={"verify": "eager"})
    station = make_station(
        task, training, method, params, seed=seed, local_steps=local_steps, execution=execution
    )
    evaluation = Evaluation(per_client=per_client, objective=objective)
    learner = kind(station, evaluation, **options)
    if max_pending is not None:
        learner._most_pending = max_pending
    return learner


def make_cohort(
    execution: Execution,
    start: torch.Tensor,
    clients: Sequence[int],
    steps: Sequence[int],
    rates: float | Sequence[float] = 0.1,
    samples: Any = None,
    sequence: int = 0,
) -> Cohort:
    """A cohort whose clients all received ``start`` (P,)."""
    count = len(clients)
    return Cohort(
        clients=np.array(clients),
        sequences=np.full(count, sequence),
        versions=np.zeros(count, dtype=np.int64),
        rounds=np.zeros(count, dtype=np.int64),
        steps=np.array(steps),
        steps_assigned=np.array(steps),
        learning_rates=torch.full((count,), 1.0, dtype=start.dtype)
        * torch.as_tensor(rates, dtype=start.dtype),
        samples=np.ones(count, dtype=np.int64) if samples is None else samples[list(clients)],
        in_full=np.full(count, not sequence),
        down={"model": start.expand(count, -1)},
        memory={},
    )


class Remembering(Method):
    """A method with every kind of memory: client and server side, a second vector down and up, personal models."""

    name = "remembering"
    personal = True

    def download(self) -> Sequence[Vector]:
        size = self.context.layout.size
        return (Vector("model", size), Vector("control", size))

    def upload(self) -> Sequence[Vector]:
        size = self.context.layout.size
        return (Vector("delta", size), Vector("gradient", size))

    def memories(self) -> Mapping[str, Memory]:
        size = self.context.layout.size
        return {"own": Memory(size), "table": Memory(size, keeper="server")}

    def initial_state(self, model: torch.Tensor) -> ServerState:
        return {"model": model, "control": torch.zeros_like(model)}

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        correction = cohort.down["control"] - cohort.memory["own"]

        def rule(step: Step) -> None:
            step.gradient.add_(correction[step.rows])

        start = cohort.down["model"]
        trained = trainer.run(cohort, start, rule=rule, collect=("mean_gradient",))
        gradient = trained.mean_gradient
        assert gradient is not None
        return LocalUpdate(
            {"delta": trained.model - start, "gradient": gradient},
            trained.loss,
            {"own": 0.5 * cohort.memory["own"] + 0.5 * gradient},
        )

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        control = server["control"].clone()
        for index in range(len(updates)):
            new = updates.row("gradient", index)
            control += (new - updates.memory("table", index)) / self.context.clients
            updates.remember("table", index, new)
        weights = averaging_weights(updates, "samples") if len(updates) else np.empty(0)
        model = server["model"] + updates.weighted_sum("delta", weights)
        return {"model": model, "control": control}

    def personal_models(
        self, server: ServerState, clients: Any, memory: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        return server["model"] - 0.1 * memory["own"]


class Timeline:
    """Writes timelines as the time plane would: dispatches hold their version and end in a Train or a drop."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.version = 0
        self._dispatches = 0
        self._sequences: dict[int, int] = {}

    def dispatch(self, client: int, steps: int = 3) -> Train:
        """Hand the newest version to a client."""
        sequence = self._sequences.get(client, 0)
        self._sequences[client] = sequence + 1
        train = Train(
            self._dispatches, client, sequence, self.version, self.version, steps, steps, 0.0
        )
        self._dispatches += 1
        self.calls.append(("hold", self.version))
        return train

    def lose(self, train: Train) -> None:
        """The dispatch ends without being used."""
        self.calls.append(("drop", train.version))

    def aggregate(self, *trains: Train) -> None:
        """The next version from these dispatches."""
        for train in trains:
            self.calls.append(("submit", train))
        version, self.version = self.version, self.version + 1
        contributions = tuple(
            Contribution(t.dispatch_id, t.client, version - t.version) for t in trains
        )
        self.calls.append(
            ("submit", Aggregate(self.version, float(self.version), version, contributions))
        )

    def evaluate(self) -> None:
        """Measure the newest version."""
        self.calls.append(("submit", Evaluate(self.version, float(self.version), self.version)))

    def play(self, learner: Learner, until: int | None = None) -> Learner:
        """Give everything (or the first ``until`` calls) to a learner."""
        for name, argument in self.calls[:until]:
            getattr(learner, name)(argument)
        return learner

    @property
    def instructions(self) -> list[Instruction]:
        return [argument for name, argument in self.calls if name == "submit"]


SEED = 5
F64 = torch.float64


class Batches(NamedTuple):
    """The mini-batches of B dispatches from step ``first`` on: sample numbers (S, B, width) and sizes (S, B)."""

    first: int
    rows: Tensor
    counts: Tensor


def batches_of(order: BatchOrder, *dispatches: Any, first: int, **steps: int) -> Batches:
    plan = order.plan(*dispatches, first=first, **steps)  # type: ignore[arg-type]
    return Batches(first, order.draw(*plan), plan[-1][1])


def kernel_of(task: Task, training: Training, *, dispatch_loss: DispatchLoss = "mean") -> Kernel:
    """The kernel that a run chooses."""
    execution = Execution.of(training)
    samples = training_samples(task, execution)
    return choose(task, training, execution, samples, SEED, dispatch_loss=dispatch_loss)


def make_trainer(
    task: Task, training: Training, *, dispatch_loss: DispatchLoss = "mean"
) -> LocalTrainer:
    kernel = kernel_of(task, training, dispatch_loss=dispatch_loss)
    return LocalTrainer(kernel, task.layout, training)


def module_at(task: SupervisedTask, model: Tensor) -> Any:
    """A fresh module with the parameters of ``model`` (P,)."""
    module = copy.deepcopy(task.module).to(model.dtype).train()
    with torch.no_grad():
        for name, value in task.layout.views(model).items():
            module.state_dict()[name].copy_(value)
    return module


def descended(
    task: SupervisedTask, client: int, steps: int, make_optimizer: Any, clip: float | None = None
) -> tuple[Tensor, list[Tensor]]:
    """The same training by a module, an optimizer and backward(): the model, and losses of all samples by step."""
    module = module_at(task, task.initial(Stream(SEED, Purpose.INITIAL_MODEL), F64))
    optimizer = make_optimizer(module.parameters())
    order = BatchOrder(SEED, task.offsets, task.rows, 16, torch.device("cpu"))
    batches = batches_of(order, np.array([client]), np.array([0]), first=0, last=steps)
    losses = []
    for step in range(steps):
        rows = batches.rows[step, 0, : int(batches.counts[step, 0])]
        optimizer.zero_grad()
        outputs = module(task.inputs(task.train_x[rows], F64))
        losses.append(task.loss.per_sample(outputs, task.train_y[rows]))
        losses[-1].mean().backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimizer.step()
    return task.layout.flatten(module), losses


def train(
    task: Task,
    training: Training,
    clients: list[int],
    steps: list[int],
    rates: float | list[float] = 0.1,
    /,
    **options: Any,
) -> tuple[Tensor, Trained]:
    execution = Execution.of(training)
    start = task.initial(Stream(SEED, Purpose.INITIAL_MODEL), execution.dtype)
    cohort = make_cohort(execution, start, clients, steps, rates)
    trained = make_trainer(task, training).run(cohort, cohort.down["model"], **options)
    return start, trained
