"""A run as its readers see it: tables as pandas frames, scenario, status and model."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from fedsim.errors import UserError
from fedsim.metrics import DEFINITIONS_KEY, MetricDefinition, definition, from_document
from fedsim.outcomes import OUTCOME_LABELS
from fedsim.runs.checkpoint import load_model
from fedsim.runs.folder import RunFolder, Status
from fedsim.runs.schema import AGGREGATIONS, CLIENTS, DISPATCHES, METRICS, ONLINE, PARTITION, Table
from fedsim.runs.tables import read_parquet, read_stream, spread_metrics

if TYPE_CHECKING:
    from torch import Tensor

_NULLABLE_INTEGERS = {pa.int64(): pd.Int64Dtype()}


class Run:
    """One run folder. Tables are read when first asked for, and then kept.

    A run that is still going on, or was killed, gives the rows that had reached the disk.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.info: dict[str, Any] = folder.read_info()
        """``run.json``: status, versions, hardware, seed, wall seconds, summary."""

    @property
    def path(self) -> Path:
        """The run folder."""
        return self.folder.path

    @property
    def name(self) -> str:
        """The scenario's name."""
        return str(self.scenario.get("name", self.path.name))

    @property
    def status(self) -> Status:
        """How far the run has come."""
        return Status(self.info.get("status", Status.RUNNING))

    @functools.cached_property
    def scenario(self) -> dict[str, Any]:
        """The resolved scenario.

        Raises:
            UserError: ``scenario.yaml`` is missing or damaged.
        """
        path = self.folder.scenario
        if path.exists():
            self.folder.require_unchanged(self.info, path)
        try:
            content = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
        except (OSError, YAMLError, UnicodeDecodeError) as error:
            raise UserError(
                f"cannot be read: {error}",
                where=str(path),
                hint="the run folder is damaged; repeat the run",
            ) from error
        if not isinstance(content, dict):
            raise UserError("holds no scenario", where=str(path), hint="repeat the run")
        return content

    @functools.cached_property
    def dispatches(self) -> pd.DataFrame:
        """One row a dispatch that has ended, by ``dispatch_id``; columns: :data:`fedsim.runs.schema.DISPATCHES`."""
        frame = _frame(self._read(DISPATCHES), DISPATCHES, self.folder.parquet("dispatches"))
        # Parquet keeps only the categories that occur, in order of occurrence.
        frame["outcome"] = frame["outcome"].cat.set_categories(list(OUTCOME_LABELS))
        return frame.sort_values("dispatch_id", ignore_index=True)

    @functools.cached_property
    def aggregations(self) -> pd.DataFrame:
        """One row a server update; columns: :data:`fedsim.runs.schema.AGGREGATIONS`."""
        frame = _frame(self._read(AGGREGATIONS), AGGREGATIONS, self.folder.parquet("aggregations"))
        frame["attributes"] = frame["attributes"].map(dict)
        return frame

    @functools.cached_property
    def metrics(self) -> pd.DataFrame:
        """One row an evaluation: ``time_s``, ``version``, ``round`` and one column a metric."""
        data = self._read(METRICS)
        if "values" in data.column_names:
            data = spread_metrics(data)
        return _frame(data, METRICS, self.folder.parquet("metrics"))

    def metric_definition(self, name: str) -> MetricDefinition:
        """Direction, unit and label of a metric: the run's own definition if it carries one, else fedsim's."""
        return definition(name, self.metric_definitions)

    @functools.cached_property
    def metric_definitions(self) -> dict[str, MetricDefinition]:
        """The definitions of the user's own metrics, by name, as ``run.json`` holds them."""
        return from_document(self.info.get(DEFINITIONS_KEY) or {})

    @property
    def has_clients(self) -> bool:
        """Whether the table of clients is there; it is written when a run ends."""
        return self.folder.parquet(CLIENTS.name).exists()

    @functools.cached_property
    def clients(self) -> pd.DataFrame:
        """One row a client; columns: :data:`fedsim.runs.schema.CLIENTS`.

        Raises:
            UserError: the run has not ended, so that the table is not there, or the folder is damaged.
        """
        frame = self._optional(CLIENTS)
        if frame is None:
            raise self.folder.missing(self.info, self.folder.parquet(CLIENTS.name))
        return frame

    @functools.cached_property
    def online(self) -> pd.DataFrame | None:
        """Clients online over simulated time (``time_s``, ``online``); None if it was not recorded."""
        return self._optional(ONLINE)

    @functools.cached_property
    def partition(self) -> pd.DataFrame | None:
        """Labels of the clients' data (``client_id``, ``label``, ``count``); None if it was not recorded."""
        return self._optional(PARTITION)

    def _optional(self, table: Table) -> pd.DataFrame | None:
        path = self.folder.parquet(table.name)
        if not path.exists():
            if path.name in self.info.get("files", {}):
                raise self.folder.missing(self.info, path)
            return None
        return _frame(self._read_finished(path), table, path)

    def _read_finished(self, path: Path) -> pa.Table:
        self.folder.require_unchanged(self.info, path)
        return read_parquet(path)

    def _read(self, table: Table) -> pa.Table:
        parquet, stream = self.folder.parquet(table.name), self.folder.stream(table.name)
        if parquet.exists():
            return self._read_finished(parquet)
        if stream.exists():
            return read_stream(stream, table)
        raise self.folder.missing(self.info, parquet)

    @functools.cached_property
    def simulated_s(self) -> float:
        """Simulated seconds the run lasted; of an unfinished run, the latest instant on record."""
        recorded = self.info.get("simulated_s")
        if recorded is not None:
            return float(recorded)
        latest = [
            frame[column].max()
            for frame, column in (
                (self.dispatches, "ended_s"),
                (self.aggregations, "time_s"),
                (self.metrics, "time_s"),
            )
            if len(frame)
        ]
        return float(max(latest, default=0.0))

    def model(self) -> dict[str, Tensor]:
        """The final global model: tensor name to tensor, on the CPU.

        Raises:
            UserError: the run was timing-only or has not ended.
        """
        return self._tensors()[0]

    def personal_parts(self) -> dict[str, Tensor]:
        """What clients have of the final model for themselves, on the CPU; empty where the method shares everything.

        Each personal tensor as (C, *shape), a row for each of the ``clients`` (C,) that took part; all others still
        have what they started with.

        Raises:
            UserError: the run was timing-only or has not ended.
        """
        return self._tensors()[1]

    def _tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        path = self.folder.model
        if path.exists():
            self.folder.require_unchanged(self.info, path)
            return load_model(path)
        if self.info.get("timing_only"):
            raise UserError(
                "the run simulated time alone, so it has no model",
                where=str(path),
                hint="run the scenario with learning",
            )
        raise self.folder.missing(self.info, path)

    def time_to(self, metric: str, target: float) -> float:
        """Simulated seconds until the first evaluation that reached ``target``; NaN if none did.

        Raises:
            UserError: the run did not measure this metric.
        """
        if metric not in self.metrics.columns[3:]:
            measured = ", ".join(self.metrics.columns[3:]) or "none (timing-only)"
            raise UserError(
                f"no metric {metric!r} was measured",
                where=str(self.path),
                hint=f"measured: {measured}",
            )
        reached = self.metric_definition(metric).reached(self.metrics[metric], target)
        times = self.metrics["time_s"].to_numpy()
        return float(times[reached.argmax()]) if reached.any() else float("nan")

    def __repr__(self) -> str:
        return f"<Run {str(self.path)!r}: {self.status}>"


def _frame(data: pa.Table, table: Table, path: Path) -> pd.DataFrame:
    missing = [f.name for f in table.schema if f.name not in data.column_names]
    if missing and table is not METRICS:
        raise UserError(f"lacks the column {missing[0]!r}", where=str(path), hint="repeat the run")
    frame: pd.DataFrame = data.to_pandas()
    for field in data.schema:
        # The type of a column must not depend on whether a run happened to have nulls in it.
        if field.name in ("staleness", "aggregated_version", "staleness_max"):
            frame[field.name] = data.column(field.name).to_pandas(
                types_mapper=_NULLABLE_INTEGERS.get
            )
    return frame


def load_run(path: str | os.PathLike[str]) -> Run:
    """Open a run folder.

    Raises:
        UserError: the folder is not there or is not a run of fedsim.
    """
    return Run(RunFolder(path))
