"""Records the output of a Flower app: metrics at their simulated time, the final model, errors and logs."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import torch

from fedsim.composition.run import log_warning
from fedsim.flower import internals as fl
from fedsim.flower.client import Answer
from fedsim.flower.clock import SimulatedClock
from fedsim.flower.exchange import Exchange, Parcel
from fedsim.learning.metrics.base import TABLE_COLUMNS
from fedsim.randomness import unseeded
from fedsim.runs.writer import RunWriter
from fedsim.units import NS_PER_S
from fedsim.vocabulary.formatting import format_duration
from fedsim.vocabulary.metrics import METRICS, MetricDefinition

_ERRORS_SHOWN = 5
_OF_CLIENTS = ("client_", "train_")
"""Prefixes of the metrics of evaluating and of training clients."""
_LESS_IS_BETTER = ("loss", "error", "perplexity", "mse", "mae")


def _column(prefix: str | None, name: str) -> str:
    """The column of a metric, which is not one of the row's own, nor, of a ServerApp, one of its clients' metrics."""
    column = f"{prefix or ''}{name}".replace("-", "_")
    of_clients = prefix == "" and column.startswith(_OF_CLIENTS)
    return f"app_{column}" if of_clients or column in TABLE_COLUMNS else column


class Recording:
    """Records what an app reports.

    Args:
        exchange: gives the time and version of metrics.
        writer: takes the rows.
        target_reached: whether metrics meet the target at which the run stops.

    Attributes:
        last: newest value of each metric.
        errors: number of errors of ClientApps.
        notes: for the page.
    """

    def __init__(
        self,
        exchange: Exchange,
        writer: RunWriter,
        target_reached: Callable[[Mapping[str, float]], bool],
    ) -> None:
        self._exchange = exchange
        self._writer = writer
        self._target_reached = target_reached
        self._row: tuple[int, int, int] | None = None
        self._values: dict[str, float] = {}
        self._result: fl.Result | None = None
        self._beyond = set[str]()
        self.last: dict[str, float] = {}
        self.errors = 0
        self.notes: list[str] = []

    def metrics(self, prefix: str | None, values: Mapping[str, Any]) -> None:
        """Record metrics; those of one instant and version are one row.

        ``prefix`` is that of the clients' metrics, empty for those of a ServerApp, and None if the app names columns.
        """
        exchange = self._exchange
        row = exchange.now_ns, exchange.version, exchange.rounds
        if row != self._row:
            self.flush()
            self._row = row
        numbers = {
            _column(prefix, name): float(value)
            for name, value in values.items()
            if isinstance(value, int | float) and name not in ("num-examples", "num_examples")
        }
        for name, value in numbers.items():
            known = METRICS.get(name, METRICS["accuracy"])
            if value < known.low - 1e-6 or value > known.high + 1e-6:
                self._beyond.add(name)
        self._values |= numbers
        self.last |= numbers
        if self._target_reached(self.last):
            exchange.stop()

    def flush(self) -> None:
        """Write the row that is being collected."""
        if self._row is not None and self._values:
            now_ns, version, rounds = self._row
            self._writer.append_metrics(now_ns / NS_PER_S, version, rounds, self._values)
        self._values = {}

    def definitions(self) -> list[MetricDefinition]:
        """Definitions of metrics that fedsim does not know, or only with other bounds, inferred from their names."""
        return [
            MetricDefinition(
                name,
                higher_is_better=not any(word in name.lower() for word in _LESS_IS_BETTER),
                unit="share" if "acc" in name.lower() and name not in self._beyond else "number",
            )
            for name in self.last
            if name not in METRICS or name in self._beyond
        ]

    def model(self) -> dict[str, torch.Tensor]:
        """The final model, if the app's strategy returns one as arrays of numbers."""
        arrays = {} if self._result is None else self._result.arrays
        tensors = {}
        for name, array in arrays.items():
            with contextlib.suppress(TypeError, ValueError):
                tensors[str(name)] = torch.from_numpy(array.numpy().copy()).contiguous()
        return tensors

    def answered(self, parcel: Parcel, answer: Answer) -> None:
        """Show what is wrong with an answer of a ClientApp; after a few errors, only count."""
        if answer.unseeded:
            self.unseeded(answer.unseeded)
        if answer.problem is None:
            return
        self.errors += 1
        if self.errors > _ERRORS_SHOWN:
            return
        metadata = parcel.metadata
        fl.FLOWER_LOGGER.error(
            "The ClientApp failed on a '%s' message at node %d (partition %d), %s after the start:\n%s%s",
            metadata.message_type,
            metadata.dst_node_id,
            parcel.client,
            format_duration(self._exchange.now_ns / NS_PER_S),
            answer.problem,
            "Further errors of ClientApps are not shown." if self.errors == _ERRORS_SHOWN else "",
        )

    def unseeded(self, where: str) -> None:
        """Warn, once, that a generator took its seed from the system at a line of the app."""
        if not self.notes:
            warning = unseeded(where)
            self.notes.append(f"{warning.message} ({where})")
            log_warning(warning)

    @contextlib.contextmanager
    def observing(self, clock: SimulatedClock, on_joined: Callable[[], None]) -> Iterator[None]:
        """Observe Flower's results and histories, and run its older server in simulated time, while the context lasts.

        Logs of Flower begin with the simulated time. ``on_joined`` is called when all threads of a pool have ended.
        """
        prefixes = {
            "evaluate_metrics_serverapp": "",
            "evaluate_metrics_clientapp": "client_",
            "train_metrics_clientapp": "train_",
        }
        initialize = fl.Result.__init__

        def initialize_observed(result: fl.Result, *args: Any, **kwargs: Any) -> None:
            initialize(result, *args, **kwargs)
            self._result = result
            for name, prefix in prefixes.items():
                setattr(result, name, _Observed(self, prefix, getattr(result, name)))

        def wait_for(manager: Any, num_clients: int, timeout: int = 86400) -> bool:
            end_ns = self._exchange.now_ns + timeout * NS_PER_S
            while manager.num_available() < num_clients:
                if self._exchange.now_ns >= end_ns:
                    return False
                clock.pass_ns(NS_PER_S)
            return True

        def timed(record: logging.LogRecord) -> bool:
            if clock.is_foreign or hasattr(record, "simulated"):
                return True
            elapsed = f"{self._exchange.now_ns / NS_PER_S:,.3f} s"
            record.msg, record.simulated = f"{elapsed:>14} | {record.msg}", True
            return True

        with contextlib.ExitStack() as stack:
            patch = mock.patch.object
            stack.enter_context(patch(fl.Result, "__init__", initialize_observed))
            stack.enter_context(patch(fl.SimpleClientManager, "wait_for", wait_for))
            stack.enter_context(patch(fl.server_module, "concurrent", clock.concurrent(on_joined)))
            for name, prefix, is_loss in (
                ("add_loss_centralized", "", True),
                ("add_metrics_centralized", "", False),
                ("add_loss_distributed", "client_", True),
                ("add_metrics_distributed", "client_", False),
                ("add_metrics_distributed_fit", "train_", False),
            ):
                observed = _observed_history(self, getattr(fl.History, name), prefix, is_loss)
                stack.enter_context(patch(fl.History, name, observed))
            for handler in fl.FLOWER_LOGGER.handlers:
                # Streams of a command show only fedsim's own styles.
                stack.enter_context(patch(handler, "colored", False, create=True))
            fl.FLOWER_LOGGER.addFilter(timed)
            stack.callback(fl.FLOWER_LOGGER.removeFilter, timed)
            yield


class _Observed(dict[int, Any]):
    """The metrics of a result by round; entries that are added are recorded."""

    def __init__(self, recording: Recording, prefix: str, content: Mapping[int, Any]) -> None:
        super().__init__(content)
        self._recording = recording
        self._prefix = prefix

    def __setitem__(self, round_: int, metrics: Any) -> None:
        super().__setitem__(round_, metrics)
        self._recording.metrics(self._prefix, metrics)

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def _observed_history(recording: Recording, function: Any, prefix: str, is_loss: bool) -> Any:
    def add(history: Any, server_round: int, *args: Any, **kwargs: Any) -> None:
        function(history, server_round, *args, **kwargs)
        value = (*args, *kwargs.values())[0]
        recording.metrics(prefix, {"loss": value} if is_loss else value)

    return add
