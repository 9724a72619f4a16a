"""Metrics of models: on the shared test samples, on each client's own, and exact ones of analytic tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedsim.learning.device import Execution
from fedsim.learning.kernels.loop import BoundModule
from fedsim.learning.memory import StateStore
from fedsim.learning.samples import Samples
from fedsim.methods.base import Method, ServerState
from fedsim.tasks.base import AnalyticTask, Task
from fedsim.tasks.kinds.supervised import SupervisedTask

FloatArray = npt.NDArray[np.float64]
Metrics = dict[str, float]

_CPU_BATCH = 512
_CUDA_BATCH = 8192
# Share of the clients, worst first, that the "worst" metrics average over.
_WORST_SHARE = 0.1


class Evaluator(ABC):
    """Measures models of one task."""

    @abstractmethod
    def measure(self, model: Tensor) -> Metrics:
        """Metrics of one model (P,); independent of whatever else is measured. May run on several threads at once."""

    def measure_clients(self, model_of: Callable[[int], Tensor]) -> ClientMetrics | None:
        """Metrics of each client's own test samples, of the model (P,) that ``model_of`` gives.

        None where clients have none.
        """
        return None


@dataclass(frozen=True, slots=True)
class ClientMetrics:
    """Metrics of clients on their own test samples.

    Attributes:
        accuracy: of each client, (N,); NaN where it has no test samples.
        loss: of each client, (N,).
        samples: test samples of each client, (N,).
    """

    accuracy: FloatArray
    loss: FloatArray
    samples: npt.NDArray[np.int64]

    def summary(self) -> Metrics:
        """Mean over clients, mean over samples, and mean over the worst tenth of the clients.

        The names are the same whether a client would use a model of its own or the global one: they answer the same
        question, what a client has of it all, and are to stand in one figure.
        """
        known = self.samples > 0
        accuracy, loss, weights = self.accuracy[known], self.loss[known], self.samples[known]
        if not len(accuracy):
            return {}
        worst = max(1, round(_WORST_SHARE * len(accuracy)))
        return {
            "client_accuracy": float(accuracy.mean()),
            "client_accuracy_weighted": float(np.average(accuracy, weights=weights)),
            "client_accuracy_worst": float(np.sort(accuracy)[:worst].mean()),
            "client_loss": float(loss.mean()),
        }


class AnalyticEvaluator(Evaluator):
    """Exact metrics of a task that knows them in closed form."""

    def __init__(self, task: AnalyticTask) -> None:
        self._task = task

    def measure(self, model: Tensor) -> Metrics:
        """The task's own metrics."""
        return self._task.measure(model)


class SupervisedEvaluator(Evaluator):
    """Metrics on test samples, batch by batch.

    ``accuracy``; ``loss`` (mean loss of a sample, without penalty); ``macro_f1`` (mean over the classes that occur in
    the test set of 2 TP / (2 TP + FP + FN)); ``balanced_accuracy`` (mean recall over the same classes); and for
    next-character tasks ``perplexity``, exp(loss).

    Args:
        task: whose test samples they are.
        execution: device and dtype.
        batch: samples of a batch; by device where None.
    """

    def __init__(
        self, task: SupervisedTask, execution: Execution, batch: int | None = None
    ) -> None:
        self._task = task
        self._execution = execution
        self._test = Samples(task, task.test_x, task.test_y, execution)
        by_device = _CUDA_BATCH if execution.device.type == "cuda" else _CPU_BATCH
        self._batch = by_device if batch is None else batch
        self._bound = [self._bind()]
        offsets = task.client_test_offsets
        self._client_samples = None if offsets is None else np.diff(offsets)
        self._own: Samples | None = None
        if offsets is not None:
            shared = task.client_test_x is task.test_x
            self._own = (
                self._test
                if shared
                else Samples(task, task.client_test_x, task.client_test_y, execution)
            )

    def _bind(self) -> BoundModule:
        bound = BoundModule(self._task, self._execution.device)
        bound.module.eval()
        return bound

    @torch.no_grad()
    def measure(self, model: Tensor) -> Metrics:
        """Metrics over all shared test samples."""
        if not len(self._test):
            return {}
        loss, confusion = self._over(self._test, model, None)
        total = confusion.sum()
        right = confusion.diagonal()
        actual, predicted = confusion.sum(1), confusion.sum(0)
        occurs = actual > 0
        metrics = {
            "accuracy": float(right.sum() / total),
            "loss": loss,
            "macro_f1": float((2 * right[occurs] / (actual + predicted)[occurs]).mean()),
            "balanced_accuracy": float((right[occurs] / actual[occurs]).mean()),
        }
        if self._task.dataset.kind == "next_character":
            metrics["perplexity"] = float(np.exp(loss))
        return metrics

    @torch.no_grad()
    def measure_clients(self, model_of: Callable[[int], Tensor]) -> ClientMetrics | None:
        """Accuracy and loss on each client's own test samples."""
        offsets, rows = self._task.client_test_offsets, self._task.client_test_rows
        if self._own is None or offsets is None or rows is None or self._client_samples is None:
            return None
        accuracy = np.full(len(self._client_samples), np.nan)
        losses = accuracy.copy()
        for client in np.flatnonzero(self._client_samples).tolist():
            own = torch.from_numpy(rows[offsets[client] : offsets[client + 1]])
            loss, confusion = self._over(
                self._own, model_of(client), own.to(self._execution.device)
            )
            accuracy[client] = confusion.diagonal().sum() / confusion.sum()
            losses[client] = loss
        return ClientMetrics(accuracy, losses, self._client_samples)

    def _over(
        self, samples: Samples, model: Tensor, rows: Tensor | None
    ) -> tuple[float, FloatArray]:
        """Mean loss and confusion matrix (actual, predicted) over ``rows``, or over all samples."""
        bound = self._bound.pop() if self._bound else self._bind()
        task, loss = self._task, self._task.loss
        bound.bind(bound.views(model.contiguous()))
        classes = task.dataset.classes if loss.kind == "cross_entropy" else 2
        count = len(samples) if rows is None else len(rows)
        total = torch.zeros((), dtype=torch.float64, device=self._execution.device)
        pairs = torch.zeros(classes * classes, dtype=torch.int64, device=self._execution.device)
        for start in range(0, count, self._batch):
            end = min(count, start + self._batch)
            if rows is None:
                inputs, labels = samples.slice(start, end), samples.y[start:end]
            else:
                inputs, labels = samples.gather(rows[start:end]), samples.y[rows[start:end]]
            outputs = bound.forward(inputs)
            total += loss.per_sample(outputs, labels).sum(dtype=torch.float64)
            pair = loss.targets(labels) * classes + loss.predictions(outputs)
            pairs += torch.bincount(pair, minlength=classes * classes)
        self._bound.append(bound)
        confusion = pairs.view(classes, classes).double().cpu().numpy()
        return float(total) / count, confusion


def evaluator(task: Task, execution: Execution, batch: int | None = None) -> Evaluator:
    """The evaluator for a task, which looks at ``batch`` samples at once where there are samples."""
    if isinstance(task, AnalyticTask):
        return AnalyticEvaluator(task)
    if isinstance(task, SupervisedTask):
        return SupervisedEvaluator(task, execution, batch)
    raise TypeError(f"no evaluation for {type(task).__name__}")


def personal_model(
    method: Method, server: ServerState, store: StateStore
) -> Callable[[int], Tensor]:
    """The model that a client would use for itself, (P,), by client; the global one where none is personal."""
    if not method.personal:
        return lambda client: server["model"]

    def model_of(client: int) -> Tensor:
        clients = np.array([client])
        return method.personal_models(server, clients, store.rows(clients))[0]

    return model_of
