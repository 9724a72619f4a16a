"""A run as its readers see it: tables as pandas frames, scenario, status and model."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from fedsim.errors import UserError, argument_error, printable
from fedsim.files.locks import is_owned
from fedsim.parts.component import is_user_reference
from fedsim.runs.checkpoint import load_model
from fedsim.runs.folder import RunFolder, Status
from fedsim.runs.phases import aggregated_versions, phases
from fedsim.runs.records import RUN
from fedsim.runs.schema import (
    AGGREGATIONS,
    CLIENTS,
    CRITICAL,
    DISPATCHES,
    EDGE,
    EDGE_AGGREGATIONS,
    EDGE_DISPATCHES,
    EDGES,
    LABELS,
    MESSAGE_INSTANTS,
    MESSAGES,
    METRICS,
    ONLINE,
    PARTITION,
    PAUSES,
    PRESENCE,
    STREAMED,
    STREAMED_OF_EDGES,
    Table,
    impossible,
    nullable,
    with_columns,
    wrong_last,
)
from fedsim.runs.tables import read_parquet, read_stream, spread_metrics
from fedsim.scenario.source import parse_yaml
from fedsim.units import share_of
from fedsim.vocabulary.metrics import DEFINITIONS_KEY, MetricDefinition, definition, from_document
from fedsim.vocabulary.metrics import METRICS as KNOWN_METRICS

if TYPE_CHECKING:
    from torch import Tensor

_SECTIONS = ("task", "devices", "server", "training", "evaluation", "stop")
_PARTS = {"method", "schedule", "selection", "network"}
_RECORDED = ("name", "seed", "tags", "target")
"""Values of a scenario that ``run.json`` repeats."""
_NULLABLE_INTEGERS = {pa.int64(): pd.Int64Dtype()}


def _optional(table: Table) -> functools.cached_property[pd.DataFrame | None]:
    """The attribute of a :class:`Run` with a table that only some runs record; None for the others."""
    return functools.cached_property(lambda run: run._read(table) if run._recorded(table) else None)


class Run:
    """One run folder. Tables are read on first use and then kept.

    A run that is still in progress, or was killed, has the rows that reached the disk. A missing or damaged file
    raises a :class:`UserError` when it is read.

    Args:
        folder: the run folder.
        scenario: its resolved scenario, if that is known already; otherwise it is read on first use.
    """

    def __init__(self, folder: RunFolder, scenario: dict[str, Any] | None = None) -> None:
        self.folder = folder
        self._written: dict[str, pa.Table] = {}
        if scenario is not None:
            self.scenario = scenario
        self.info: dict[str, Any] = folder.read_info()
        """``run.json``: status, versions, hardware, seed, wall seconds, summary."""

    def written(self, tables: Mapping[str, pa.Table]) -> None:
        """Keep tables that have just been written, by name, so that their first use need not read the files."""
        self._written |= tables

    @property
    def path(self) -> Path:
        """The run folder."""
        return self.folder.given

    @property
    def name(self) -> str:
        """The scenario's name."""
        return str(self.scenario.get("name", self.path.name))

    def entry(self, name: str) -> Any:
        """An entry of ``run.json`` that every run, or every complete run, has."""
        value = self.info.get(name)
        if value is None:
            raise RUN.damaged(self.folder.info, f"lacks the entry '{name}'")
        return value

    @property
    def status(self) -> Status:
        """State of the run; one whose process was killed is interrupted."""
        return self.folder.status(self.info)

    @functools.cached_property
    def scenario_text(self) -> str:
        """``scenario.yaml``: the resolved scenario."""
        path = self.folder.scenario
        with RUN.reading(path):
            self.folder.require_unchanged(self.info, path)
            return path.read_text(encoding="utf-8")

    @functools.cached_property
    def scenario(self) -> dict[str, Any]:
        """The resolved scenario as plain data."""
        return self.require_scenario(parse_yaml(self.scenario_text, str(self.folder.scenario)).data)

    def require_scenario(self, content: Any) -> dict[str, Any]:
        """The content of a scenario's file; refuse one of another run."""
        plain: dict[str, Any] = content if isinstance(content, dict) else {}
        sections = [plain.get(key) or {} for key in _SECTIONS]
        parts = [
            each[key] for each in sections if isinstance(each, dict) for key in _PARTS & each.keys()
        ]
        if plain is not content or not all(isinstance(each, dict) for each in (*sections, *parts)):
            raise RUN.damaged(self.folder.scenario, "is not a scenario")
        given = {**plain, "target": (plain.get("stop") or {}).get("target")}
        for key in _RECORDED:
            now, then = given.get(key), self.info.get(key)
            if now is not None and then is not None and printable(now, lines=False) != then:
                raise RUN.damaged(
                    self.folder.scenario, f"its {key} is {now!r}, but that of run.json is {then!r}"
                )
        return {**plain, **{name: plain.get(name) or {} for name in ("stop", "server")}}

    def read_scenario(self, sections: dict[str, dict[str, Any]]) -> None:
        """Read the scenario; ``sections`` caches parsed sections of scenarios by their text, because parsing YAML takes
        longer than all else."""
        texts = re.split(r"(?m)^(?=\w)", self.scenario_text)
        for text in texts:
            if text not in sections:
                sections[text] = parse_yaml(text, str(self.folder.scenario)).data or {}
        every = [sections[text] for text in texts]
        is_plain = any(every) and all(isinstance(section, dict) for section in every)
        content = dict(entry for each in every for entry in each.items()) if is_plain else None
        self.scenario = self.require_scenario(content)

    @functools.cached_property
    def dispatches(self) -> pd.DataFrame:
        """One row per dispatch that has ended, by ``dispatch_id``; columns: :data:`fedsim.runs.schema.DISPATCHES`."""
        return self._read_dispatches(DISPATCHES)

    def _read_dispatches(self, table: Table) -> pd.DataFrame:
        frame = self._read(table)
        # Parquet keeps only the categories that occur, in order of occurrence.
        for name, labels in LABELS.items():
            frame[name] = frame[name].cat.set_categories(list(labels))
        if frame["dispatch_id"].is_monotonic_increasing:
            return frame
        return frame.sort_values("dispatch_id", ignore_index=True)

    @functools.cached_property
    def work(self) -> pd.DataFrame:
        """All work of the clients, in order of its begin: the dispatches and, of a Flower app, its other messages.

        The columns are those of :attr:`dispatches`, whose rows keep their index. Other messages have a client,
        instants, bytes, seconds and energy, but no ``dispatch_id``, version or outcome, and no steps.
        """
        dispatches = self.dispatches
        if self.messages is None:
            return dispatches
        others = self.messages.rename(columns=MESSAGE_INSTANTS)
        others = others[others["dispatch_id"].isna() & others["dispatched_s"].notna()]
        others = others.drop(columns="outcome").assign(steps_done=0)
        others = others[[name for name in dispatches if name in others]]
        work = pd.concat([dispatches, others], ignore_index=True)
        work["outcome"] = work["outcome"].astype(dispatches["outcome"].dtype)
        return work.sort_values(["dispatched_s", "ended_s"], kind="stable")

    @functools.cached_property
    def work_phases(self) -> pd.DataFrame:
        """Seconds that each row of :attr:`work` spent downloading, computing, uploading, paused and waiting.

        See :func:`fedsim.runs.phases.phases`.
        """
        if self.status is not Status.COMPLETE:
            self._require_one_run()
        return phases(self.work, self.device_aggregations, self.simulated_s)

    def _require_one_run(self) -> None:
        """Refuse streams, which have no checksums, of two runs; each may have rows that the other still lacks."""
        listed = self.device_aggregations["contributor_ids"]
        ids = np.concatenate([np.zeros(0, np.int64), *listed])
        dispatches = self.dispatches
        entered = pd.Series(aggregated_versions(dispatches), dispatches["dispatch_id"])
        versions = np.repeat(self.device_aggregations["version"].to_numpy(), listed.map(len))
        known = entered.reindex(ids).to_numpy(np.float64)  # NaN if it is not there yet.
        contradicts = ids[~np.isnan(known) & (known != versions)]
        if len(contradicts):
            made = EDGE_AGGREGATIONS if self.has_edges else AGGREGATIONS
            other = self.folder.stream(DISPATCHES.name).name
            raise UserError(
                f"contradicts {other}, for example in dispatch {contradicts[0]}",
                where=self.folder.stream(made.name),
                hint=self.folder.next_step(self.info),
            )

    @property
    def phases(self) -> pd.DataFrame:
        """The rows of :attr:`work_phases` that are dispatches, aligned with :attr:`dispatches`."""
        spent, dispatches = self.work_phases, self.dispatches
        return spent if self.work is dispatches else spent.loc[dispatches.index]

    @functools.cached_property
    def aggregations(self) -> pd.DataFrame:
        """One row per server update; columns: :data:`fedsim.runs.schema.AGGREGATIONS`."""
        frame = self._read(AGGREGATIONS)
        frame["attributes"] = frame["attributes"].map(dict)
        return frame

    @property
    def has_edges(self) -> bool:
        """Whether edge servers were between the clients and the server, which was then the cloud."""
        stream = self.folder.stream(EDGE_DISPATCHES.name)
        return stream.exists() or self._recorded(EDGE_DISPATCHES)

    @property
    def has_rounds(self) -> bool:
        """Whether every update of the server's versions began with the version before."""
        table = self.edge_dispatches if self.has_edges else self.dispatches
        return not table["staleness"][table["aggregated_version"].notna()].gt(0).any()

    @functools.cached_property
    def edge_dispatches(self) -> pd.DataFrame:
        """One row per dispatch of the cloud to an edge server; columns as those of :attr:`dispatches`."""
        return self._read_dispatches(EDGE_DISPATCHES)

    @functools.cached_property
    def edge_aggregations(self) -> pd.DataFrame:
        """One row per version of an edge server; columns: :data:`fedsim.runs.schema.EDGE_AGGREGATIONS`."""
        return self._read(EDGE_AGGREGATIONS)

    @functools.cached_property
    def edge_phases(self) -> pd.DataFrame:
        """As :attr:`phases`, of the dispatches to edge servers; a round is a local step."""
        return phases(self.edge_dispatches, self.aggregations, self.simulated_s)

    @property
    def device_aggregations(self) -> pd.DataFrame:
        """The server updates of the clients' updates: those of the edge servers if there are any, else all."""
        return self.edge_aggregations if self.has_edges else self.aggregations

    @functools.cached_property
    def metrics(self) -> pd.DataFrame:
        """One row per evaluation: ``time_s``, ``version``, ``round`` and one column per metric."""
        return self._read(METRICS)

    def metric_definition(self, name: str) -> MetricDefinition:
        """Direction, unit and label of a metric: the run's own definition if it carries one, else fedsim's."""
        return definition(name, self.metric_definitions)

    @functools.cached_property
    def metric_definitions(self) -> dict[str, MetricDefinition]:
        """The definitions of the user's own metrics, by name, as ``run.json`` holds them."""
        return from_document(self.info.get(DEFINITIONS_KEY) or {})

    @property
    def has_clients(self) -> bool:
        """Whether the table of clients exists; it is written when a run ends."""
        return self._recorded(CLIENTS)

    @functools.cached_property
    def clients(self) -> pd.DataFrame:
        """One row per client; columns: :data:`fedsim.runs.schema.CLIENTS`."""
        return self._read(CLIENTS)

    online = _optional(ONLINE)
    """Clients online over simulated time (``time_s``, ``online``); None if it was not recorded."""
    presence = _optional(PRESENCE)
    """When the clients of :func:`~fedsim.runs.clients.sampled_clients` were online (``client_id``, ``from_s``,
    ``to_s``); None if it was not recorded."""
    pauses = _optional(PAUSES)
    """When clients were offline in the middle of a dispatch and did not work (``dispatch_id``, ``from_s``,
    ``to_s``), by dispatch and time; None if it was not recorded."""
    critical = _optional(CRITICAL)
    """The critical path to the last server update, by time; columns: :data:`fedsim.runs.schema.CRITICAL`. None if it
    was not recorded."""
    partition = _optional(PARTITION)
    """Labels of the clients' data (``client_id``, ``label``, ``count``); None if it was not recorded."""
    messages = _optional(MESSAGES)
    """One row per message of a Flower app; columns: :data:`fedsim.runs.schema.MESSAGES`. None for a scenario."""
    edges = _optional(EDGES)
    """One row per edge server; columns: :data:`fedsim.runs.schema.EDGES`. None without edge servers."""

    def _recorded(self, table: Table) -> bool:
        path = self.folder.parquet(table.name)
        is_listed = path.name in self.info.get("files", {})
        return is_listed or (path.exists() and not self._is_streaming)

    def may_lack(self, table: Table) -> bool:
        """Whether a table need not be there yet, or may be written just now."""
        stream = self.folder.stream(table.name)
        is_made = stream.exists() or stream.name in self.info["files"]
        return is_owned(self.path) or not (is_made or self.status is Status.COMPLETE)

    @functools.cached_property
    def _is_streaming(self) -> bool:
        """Whether the run has not ended, so that tables and a model that ``run.json`` does not list are another's."""
        stream = self.folder.stream(DISPATCHES.name)
        return self.status is not Status.COMPLETE and stream.exists()

    def _read(self, table: Table) -> pd.DataFrame:
        path, stream = self.folder.parquet(table.name), self.folder.stream(table.name)
        is_streamed = (
            table in (*STREAMED, *STREAMED_OF_EDGES) and self.status is not Status.COMPLETE
        )
        is_missing = not path.exists() and (is_streamed or stream.exists())
        if is_missing or (self._is_streaming and stream.exists()):
            path = stream
        if table.name in self._written:
            data = self._written.pop(table.name)
        elif path.exists():
            self.folder.require_unchanged(self.info, path)
            data = read_stream(path, table) if path is stream else read_parquet(path)
        elif table in STREAMED_OF_EDGES and not self.has_edges:
            raise UserError(f"the run has no edge servers, so no {table.name}", where=self.path)
        else:
            raise self.folder.missing(self.info, path)
        if table is METRICS and "values" in data.column_names:
            data = spread_metrics(data)
        types = {field.name: field.type for field in with_columns(table, data.column_names).schema}
        types.pop("values", None)
        if table in (DISPATCHES, CLIENTS) and self.has_edges:
            types.setdefault(EDGE.name, EDGE.type)
        names = dict.fromkeys(data.column_names)
        for name in [*types, *([*names][3:] if table is METRICS else ())]:
            if name not in names:
                raise RUN.damaged(path, f"lacks the column '{name}'")
            kind = data.schema.field(name).type
            if kind != types.get(name, pa.float64()):
                raise RUN.damaged(path, f"the column '{name}' has the type {kind}")
        known = data.select([name for name in data.column_names if name in types])
        if problem := impossible(table, known, self.info):
            raise RUN.damaged(path, problem)
        is_bounded = table is METRICS and "run_config" not in self.info  # Apps may use percent.
        for name in [*names][3:] if is_bounded and not own_metrics(self.scenario) else ():
            bounds = KNOWN_METRICS.get(name) or self.metric_definition(name)
            values = data.column(name).to_numpy()
            if ((values < bounds.low - 1e-6) | (values > bounds.high + 1e-6)).any():
                raise RUN.damaged(
                    path, f"the metric '{name}' is not {bounds.low:g} to {bounds.high:g}"
                )
        frame: pd.DataFrame = data.rename_columns(printable(data.column_names)).to_pandas()
        if table is METRICS and (problem := wrong_last(frame, self.info)):
            raise RUN.damaged(path, problem)
        for name in nullable(table).intersection(frame):
            # The type of a column must not depend on whether a run happened to have nulls in it.
            frame[name] = data.column(name).to_pandas(types_mapper=_NULLABLE_INTEGERS.get)
        del data
        pa.default_memory_pool().release_unused()
        return frame

    @functools.cached_property
    def simulated_s(self) -> float:
        """Simulated seconds the run lasted; of an unfinished run, the latest instant on record."""
        recorded = self.info.get("simulated_s")
        if recorded is not None:
            return float(recorded)
        tables = (self.dispatches["ended_s"], self.aggregations["time_s"], self.metrics["time_s"])
        return float(max((times.max() for times in tables if len(times)), default=0.0))

    def model(self) -> dict[str, Tensor]:
        """The final global model: tensor name to tensor, on the CPU.

        Raises:
            UserError: the run was timing-only or has not ended.
        """
        return self._tensors()[0]

    def personal_parts(self) -> dict[str, Tensor]:
        """The personal parts of the final model, on the CPU; empty if the method shares everything.

        Each personal tensor has the shape (C, *shape), with one row for each of the ``clients`` (C,) that participated;
        all others still have the initial values.
        """
        return self._tensors()[1]

    def _tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        path = self.folder.model
        if path.exists() and not self._is_streaming:
            self.folder.require_unchanged(self.info, path)
            return load_model(path)
        if self.info.get("timing_only"):
            raise UserError(
                "the run simulated time only, so it has no model",
                where=path,
                hint="run the scenario with learning",
            )
        raise self.folder.missing(self.info, path)

    def time_to(self, metric: str, target: float | str) -> float:
        """Simulated seconds until the first evaluation that reached ``target``; NaN if none did.

        Args:
            metric: the metric.
            target: its value; a percentage such as ``"90%"`` is a share.

        Raises:
            UserError: the run did not measure this metric, or the target is neither a number nor a percentage.
        """
        level = target if isinstance(target, Real) else share_of(target)
        if level == "":
            raise argument_error(
                "target", target, "a number or a percentage", 'for example time_to("accuracy", 0.9)'
            )
        if metric not in self.metrics.columns[3:]:
            measured = ", ".join(self.metrics.columns[3:]) or "none (timing-only)"
            raise UserError(
                f"no metric {metric!r} was measured", where=self.path, hint=f"measured: {measured}"
            )
        reached = self.metric_definition(metric).reached(self.metrics[metric], float(level))
        times = self.metrics["time_s"].to_numpy()
        return float(times[reached.argmax()]) if reached.any() else float("nan")

    def __repr__(self) -> str:
        return f"<Run {str(self.path)!r}: {self.status}>"


# -- whether the model has diverged: the values of the last evaluation that are not finite -------------------------


class Lost(NamedTuple):
    """The first of the evaluations from which on a metric is not finite."""

    metric: str
    version: int
    time_s: float


def last_metrics(run: Run) -> dict[str, float]:
    """The last value of every metric, by name; not finite if it was not."""
    values = run.metrics.iloc[:, 3:]
    measured = dict(values.ffill().iloc[-1]) if len(values) else {}
    # The table also has NaN for metrics that an evaluation of a Flower app did not measure; a finished run has its own
    # record.
    last = {} if run.info.get("app") or not len(values) else dict(values.iloc[-1])
    return measured | (recorded_metrics(run) or last)


def lost_metrics(run: Run) -> list[str]:
    """The metrics whose last value is not finite."""
    recorded = recorded_metrics(run)
    values = last_metrics(run) if recorded is None else recorded
    return [name for name, value in values.items() if not math.isfinite(value)]


def recorded_metrics(run: Run) -> dict[str, float] | None:
    """The last values in ``run.json``, whose null is a value that was not finite."""
    recorded = run.info.get("metrics")
    return recorded and {
        name: math.nan if value is None else value for name, value in recorded.items()
    }


def has_diverged(run: Run) -> bool:
    """Whether a last value is not finite for a reason other than the definition of a user's own metric."""
    lost = lost_metrics(run)
    return bool(lost) and (bool(KNOWN_METRICS.keys() & lost) or not own_metrics(run.scenario))


def lost_since(run: Run) -> list[Lost]:
    """Since when each metric of :func:`lost_metrics` is not finite, from the earliest to the latest."""
    records = []
    for name in set(lost_metrics(run)) & set(run.metrics.columns[3:]):
        finite = np.flatnonzero(np.isfinite(run.metrics[name].to_numpy()))
        row = run.metrics.iloc[finite[-1] + 1 if len(finite) else 0]
        records.append(Lost(name, int(row["version"]), float(row["time_s"])))
    order = list(run.metrics.columns)
    return sorted(records, key=lambda lost: (lost.time_s, order.index(lost.metric)))


def own_metrics(scenario: dict[str, Any]) -> list[str]:
    """The user's own metrics of a scenario, as ``file.py:name``."""
    metrics = (scenario.get("evaluation") or {}).get("metrics", [])
    names = (metric["name"] if isinstance(metric, dict) else metric for metric in metrics)
    return list(filter(is_user_reference, names))
