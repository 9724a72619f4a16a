"""Metrics of models: on the shared test samples, on each client's own, on the objective, and exact ones.

A metric depends only on the model, not on other models evaluated with it or on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from fedsim.learning.device import Execution, reproducible
from fedsim.learning.kernels.loop import BoundModules
from fedsim.learning.memory import StateStore
from fedsim.learning.metrics import Metric, Predictions, default_metrics, definitions
from fedsim.learning.metrics.base import measured
from fedsim.learning.samples import Samples
from fedsim.learning.workers import Station
from fedsim.methods.base import ServerState
from fedsim.scenario.model import Evaluation
from fedsim.tasks.base import AnalyticTask
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.vocabulary.arrays import Floats, Ints

Metrics = dict[str, float]

_CPU_BATCH = 512
_OBJECTIVE_CPU_BATCH = 2048
_CUDA_BATCH = 8192
# Share of the clients, worst first, that the "worst" metrics average over.
_WORST_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class ClientMetrics:
    """Metrics of clients on their own test samples.

    Attributes:
        accuracy: accuracy of each client, (N,); NaN for clients without test samples, and in regressions.
        loss: mean loss of each client, (N,).
        samples: test samples of each client, (N,).
        error: mean absolute error of each client in a regression, (N,); else None.
    """

    accuracy: Floats
    loss: Floats
    samples: Ints
    error: Floats | None = None

    def summary(self) -> Metrics:
        """The mean over clients, the mean over samples, and the mean over the worst tenth of the clients.

        The names are the same for personal models and the global one, so that both can be compared in one figure.
        """
        known = self.samples > 0
        if not known.any():
            return {}
        name, scores, order = "client_accuracy", self.accuracy[known], 1
        if self.error is not None:
            name, scores, order = "client_mae", self.error[known], -1
        worst_first = np.sort(scores)[::order]
        worst = max(1, round(_WORST_SHARE * len(scores)))
        return {
            name: float(scores.mean()),
            f"{name}_weighted": float(np.average(scores, weights=self.samples[known])),
            f"{name}_worst": float(worst_first[:worst].mean()),
            "client_loss": float(self.loss[known].mean()),
        }


class SupervisedEvaluator:
    """Metrics of models on test samples, whose predictions are gathered batch by batch.

    ``metrics`` are measured in addition to :func:`fedsim.learning.metrics.default_metrics`.
    """

    def __init__(
        self,
        task: SupervisedTask,
        execution: Execution,
        batch: int | None = None,
        metrics: Iterable[Metric] = (),
    ) -> None:
        self._metrics = default_metrics(task.dataset.kind, metrics)
        self._gathers = any(metric.needs_outputs for metric in self._metrics)
        self._task = task
        self._execution = execution
        self._test = Samples(task, task.test_x, task.test_y, execution)
        self._batch = batch or _batch_size(execution)
        self._modules = BoundModules(task, execution)
        # Clients' samples are those of the shared test set, or their own.
        self._client_test = self._test
        if task.client_test_offsets is not None and task.client_test[0] is not task.test_x:
            self._client_test = Samples(task, *task.client_test, execution)

    @torch.no_grad()
    def measure(self, model: Tensor) -> Metrics:
        """All metrics of one model (P,) on the shared test samples; empty if there are none."""
        task, loss, samples, gathers = self._task, self._task.loss, self._test, self._gathers
        if not len(samples):
            return {}
        classes = {"cross_entropy": task.dataset.classes, "logistic": 2, "squared": 0}[loss.kind]
        total = torch.zeros((), dtype=torch.float64, device=self._execution.device)
        pairs = torch.zeros(classes * classes, dtype=torch.int64, device=self._execution.device)
        gathered: list[tuple[Tensor, Tensor]] = []
        with self._modules.at(model) as bound:
            for start in range(0, len(samples), self._batch):
                end = min(len(samples), start + self._batch)
                inputs, labels = samples.slice(start, end), samples.y[start:end]
                outputs = bound.forward(inputs)
                total += loss.per_sample(outputs, labels).sum(dtype=torch.float64)
                if classes:
                    pair = loss.targets(labels) * classes + loss.predictions(outputs)
                    pairs += torch.bincount(pair, minlength=classes * classes)
                if gathers:
                    gathered.append((outputs.cpu(), labels.cpu()))
        confusion = pairs.view(classes, classes).double().cpu().numpy()
        everything = [torch.cat(parts) for parts in zip(*gathered, strict=True)]
        predictions = Predictions(float(total) / len(samples), confusion, *everything)
        return {metric.column: measured(metric, predictions) for metric in self._metrics}

    @torch.no_grad()
    def measure_clients(self, models: Tensor | Callable[[int], Tensor]) -> ClientMetrics | None:
        """Metrics of clients on their own test samples; None if clients have none.

        Args:
            models: one model (P,) for all clients, whose samples then share batches; or the model of each client.
        """
        offsets, rows = self._task.client_test_offsets, self._task.client_test_rows
        if offsets is None or rows is None:
            return None
        counts = np.diff(offsets)
        clients = np.flatnonzero(counts)
        device = self._execution.device
        test_rows = torch.from_numpy(rows[offsets[0] : offsets[-1]]).to(device)
        if isinstance(models, Tensor):
            per_sample = self._per_sample(models, test_rows)
        else:
            split = torch.split(test_rows, counts[clients].tolist())
            parts = [
                self._per_sample(models(client), own_rows)
                for client, own_rows in zip(clients.tolist(), split, strict=True)
            ]
            per_sample = np.concatenate(parts, axis=1) if parts else np.empty((2, 0))
        means = np.full((2, len(counts)), np.nan)
        if len(clients):
            sums = np.add.reduceat(per_sample, offsets[clients] - offsets[0], axis=1)
            means[:, clients] = sums / counts[clients]
        losses, scores = means
        if self._task.loss.kind == "squared":
            return ClientMetrics(np.full(len(counts), np.nan), losses, counts, scores)
        return ClientMetrics(scores, losses, counts)

    def _per_sample(self, model: Tensor, rows: Tensor) -> Floats:
        """Loss, and correctness (0 or 1) or absolute error, of the clients' samples ``rows`` (m,): (2, m)."""
        loss, samples = self._task.loss, self._client_test
        results = []
        with self._modules.at(model) as bound:
            for batch in torch.split(rows, self._batch):
                labels = samples.y[batch]
                outputs = bound.forward(samples.gather(batch))
                if loss.kind == "squared":
                    score = (outputs.reshape(labels.shape).double() - labels.double()).abs()
                else:
                    score = loss.predictions(outputs) == loss.targets(labels)
                result = torch.stack([loss.per_sample(outputs, labels).double(), score.double()])
                results.append(result.cpu().numpy())
        return np.concatenate(results, axis=1)


class Objective:
    """f, the mean over clients i of f_i: the mean loss of i's training samples plus the penalty, if any.

    Clients have equal weights, regardless of their number of samples; those without samples do not count. Normalization
    layers and dropout work as in evaluation.
    """

    def __init__(self, samples: Samples) -> None:
        self._task = task = samples.task
        execution = samples.execution
        self._samples = samples
        self._device = execution.device
        self._batch = _batch_size(execution, _OBJECTIVE_CPU_BATCH)
        counts = np.diff(task.offsets)
        self._clients = np.flatnonzero(counts).tolist()
        weights = np.repeat(1 / (len(self._clients) * np.maximum(counts, 1)), counts)
        self._rows = torch.from_numpy(task.rows).to(execution.device)
        self._weights = torch.from_numpy(weights).to(execution.device, execution.dtype)
        self._modules = BoundModules(task, execution)

    def measure(self, model: Tensor) -> Metrics:
        """``objective_loss``, f of one model (P,), and ``gradient_norm_squared``, the squared norm of its gradient."""
        value, gradient = self._over(model, self._rows, self._weights)
        return {"objective_loss": value, "gradient_norm_squared": _norm_squared(gradient)}

    def measure_split(self, model_of: Callable[[int], Tensor], personal: Sequence[str]) -> Metrics:
        """The same for models with personal tensors; ``model_of`` returns the model (P,) of each client.

        ``gradient_norm_squared`` is ||(1/N) sum over i of the gradient of f_i with respect to the shared part||^2 (G_u
        in Chen et al., arXiv:2309.17409), and ``personal_gradient_norm_squared`` is (1/N) sum over i of ||the gradient
        of f_i with respect to i's personal part||^2 (G_v).
        """
        layout = self._task.layout
        mask = layout.mask(personal)[: layout.trainable].to(self._device)
        shared = torch.zeros(layout.trainable, dtype=self._weights.dtype, device=self._device)
        value, personal_squared = 0.0, 0.0
        offsets, count = self._task.offsets, len(self._clients)
        for client in self._clients:
            positions = slice(int(offsets[client]), int(offsets[client + 1]))
            loss, gradient = self._over(
                model_of(client), self._rows[positions], count * self._weights[positions]
            )
            value += loss / count
            personal_squared += _norm_squared(gradient[mask]) / count
            shared += gradient / count
        return {
            "objective_loss": value,
            "gradient_norm_squared": _norm_squared(shared.masked_fill(mask, 0)),
            "personal_gradient_norm_squared": personal_squared,
        }

    def _over(self, model: Tensor, rows: Tensor, weights: Tensor) -> tuple[float, Tensor]:
        """Weighted sum of the losses of ``rows`` plus the penalty, and its gradient in the trainable parameters."""
        loss = self._task.loss
        value = torch.zeros((), dtype=torch.float64, device=self._device)
        total = torch.zeros(self._task.layout.trainable, dtype=model.dtype, device=self._device)
        with self._modules.at(model) as bound, torch.enable_grad():
            for start in range(0, len(rows), self._batch):
                batch = rows[start : start + self._batch]
                outputs = bound.forward(self._samples.gather(batch))
                losses = loss.per_sample(outputs, self._samples.y[batch])
                summed = (losses * weights[start : start + self._batch]).sum()
                if loss.penalty and start == 0:
                    summed = summed + loss.penalties(bound.parameters)
                gradients = torch.autograd.grad(summed, bound.parameters)
                total += torch.cat([gradient.reshape(-1) for gradient in gradients])
                value += summed.detach()
        return float(value), total


def _norm_squared(gradient: Tensor) -> float:
    return float(gradient.square().sum(dtype=torch.float64))


def _batch_size(execution: Execution, on_cpu: int | None = None) -> int:
    return _CUDA_BATCH if execution.device.type == "cuda" else on_cpu or _CPU_BATCH


@torch.no_grad()
def with_static_statistics(model: Tensor, samples: Samples) -> Tensor:
    """A model (P,) with running statistics of batch normalization that are means over all clients' training samples."""
    execution, model = samples.execution, model.clone()
    trained = torch.from_numpy(np.unique(samples.task.rows)).to(execution.device)
    with BoundModules(samples.task, execution).at(model) as bound:
        norms = [one for one in bound.module.modules() if isinstance(one, _NormBase)]
        for norm in norms:
            norm.train()
        for number, rows in enumerate(torch.split(trained, _batch_size(execution))):
            for norm in norms:
                norm.momentum = 1 / (number + 1)
            bound.forward(samples.gather(rows))
    return model


class Measurement:
    """All measurements of a version; ``store`` has the clients' memories, for personal models.

    Attributes:
        definitions: direction and unit of the metrics that the run may measure, by name.
    """

    def __init__(
        self, station: Station, evaluation: Evaluation, metrics: Sequence[Metric], store: StateStore
    ) -> None:
        task, samples, self._method = station.task, station.samples, station.method
        self._store = store
        self._per_client = evaluation.per_client or station.method.personal
        self.definitions = definitions(task, evaluation, metrics, station.method.personal)
        self._objective: Objective | None = None
        self._evaluator: SupervisedEvaluator | AnalyticTask
        # Statistics of normalization that are not trained are computed from these samples.
        self._untrained: Samples | None = None
        if samples is None:
            assert isinstance(task, AnalyticTask)
            self._evaluator = task
            return
        with reproducible():
            batch, execution = evaluation.batch_size, station.execution
            self._evaluator = SupervisedEvaluator(samples.task, execution, batch, metrics)
            if evaluation.objective:
                self._objective = Objective(samples)
            parts = station.method.parts
            if parts is not None and parts.submodels.static_statistics and task.layout.buffers:
                self._untrained = samples

    def used(self, server: ServerState) -> ServerState:
        """The server state whose model (P,) has its statistics, if they are not trained."""
        if self._untrained is None:
            return server
        return {**server, "model": with_static_statistics(server["model"], self._untrained)}

    def measure(self, server: ServerState) -> Metrics:
        """Metrics of one version. May run on several threads at once."""
        server = self.used(server)
        metrics = self._evaluator.measure(server["model"])
        if self._per_client and (clients := self._of_clients(server)) is not None:
            metrics |= clients.summary()
        if self._objective is None:
            return metrics
        if personal := self._method.personal_parts():
            models = partial(self._personal_model, server)
            return metrics | self._objective.measure_split(models, personal)
        return metrics | self._objective.measure(server["model"])

    def of_clients(self, server: ServerState) -> ClientMetrics | None:
        """Metrics of each client's own model, or the global one, on its own test samples; None if there are none."""
        return self._of_clients(self.used(server))

    def _of_clients(self, server: ServerState) -> ClientMetrics | None:
        if not isinstance(self._evaluator, SupervisedEvaluator):
            return None
        models = partial(self._personal_model, server)
        return self._evaluator.measure_clients(models if self._method.personal else server["model"])

    def _personal_model(self, server: ServerState, client: int) -> Tensor:
        """The model that a client of a personal method would use, (P,)."""
        clients = np.array([client])
        rows = self._store.rows(clients)
        return self._method.personal_models(server, clients, rows)[0]
