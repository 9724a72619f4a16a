"""The facts of one run that a comparison uses, read once so that the run's tables can be freed."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import ConfigDict, TypeAdapter, with_config
from typing_extensions import TypedDict

from fedsim.analysis import statistics
from fedsim.analysis.figures.base import costs_by, population
from fedsim.bundled import PREFIX, written
from fedsim.errors import UserError, nearest_or_all, raise_all
from fedsim.files.documents import parsed
from fedsim.runs import Run, RunFolder
from fedsim.runs.critical import waiting_by_cause
from fedsim.runs.folder import Status
from fedsim.runs.phases import aggregated_versions, aggregation_times
from fedsim.runs.records import FACTS
from fedsim.runs.run import has_diverged, lost_metrics, lost_since
from fedsim.runs.tables import read_parquet
from fedsim.vocabulary.arrays import Floats, Ints
from fedsim.vocabulary.formatting import Kind
from fedsim.vocabulary.metrics import OF_CLASS, MetricDefinition, definition, meets
from fedsim.vocabulary.outcomes import LOST_LABELS

DIGESTED = ("dispatches", "aggregations", "metrics")
SPENT: Mapping[str, tuple[str, Kind]] = {
    "gco2e": ("emissions, g CO2e", "number"),
    "cost": ("cost", "number"),
}
"""Figures of runs whose scenario gives ``devices.carbon`` or ``devices.cost``; NaN otherwise."""
COSTS: Mapping[str, tuple[str, Kind]] = {
    "time_s": ("simulated time", "time"),
    "version": ("server updates", "count"),
    "round": ("rounds", "count"),
    "bytes": ("data moved", "bytes"),
    "compute_s": ("client compute time", "time"),
    "energy_j": ("energy", "energy"),
    **SPENT,
}
"""Costs against which progress can be measured, columns of :attr:`RunFacts.progress`: label and kind of each."""
CLIENT_UPDATES = "client_updates"
"""Another column of :attr:`RunFacts.progress`: the number of client updates that the evaluated model contains."""
PERCENTILES = {50: "median", 95: "95%", 99: "99%"}
"""Percentiles of durations among a run's figures, and what they are called."""
FIGURES: Mapping[str, tuple[str, Kind]] = {
    "simulated_s": ("simulated", "time"),
    "wall_s": ("wall time", "time"),
    "updates": ("server updates", "mean"),
    "rounds": ("rounds", "mean"),
    "dispatches": ("dispatches", "mean"),
    "bytes": ("data moved", "bytes"),
    "energy_j": ("energy", "energy"),
    **SPENT,
    "compute_s": ("client compute", "time"),
    "paused_s": ("paused", "time"),
    # Shares that went into updates that never entered the model.
    "lost_dispatches": ("lost", "share"),
    "lost_steps": ("local steps lost", "share"),
    "lost_bytes": ("data lost", "share"),
    "lost_seconds": ("client time lost", "share"),
    "contributed": ("clients that contributed", "share"),
    "per_update": ("client updates per server update", "number"),
    "gini": ("Gini coefficient", "number"),
    "staleness_mean": ("mean staleness", "number"),
    "staleness_max": ("largest", "mean"),
    "age_s": ("age of updates", "time"),  # mean from dispatch to aggregation
    "tau_avg": ("mean delay τ", "number"),
    "tau_max": ("largest τ", "mean"),
    "interval_s": ("time per server update", "time"),
    **{
        f"interval_p{p}_s": (f"per server update, {name}", "time")
        for p, name in PERCENTILES.items()
    },
    **{
        f"turnaround_p{p}_s": (f"dispatch to arrival, {name}", "time")
        for p, name in PERCENTILES.items()
    },
    "client_updates_per_h": ("client updates per hour", "number"),  # that entered the model
    # With edge servers, else NaN; accuracies are the last means over the clients of an edge server.
    "backhaul_bytes": ("data over the backhaul", "bytes"),
    "edge_rounds": ("rounds of edge servers", "mean"),
    "edge_gini": ("Gini coefficient", "number"),
    "edge_worst": ("accuracy at the worst", "share"),
    "edge_spread": ("spread", "share"),
}
"""The single numbers of a run, by name: label and kind of each, on pages, in tables and in figures."""
EDGE_FIGURES = ("backhaul_bytes", "edge_rounds", "edge_gini", "edge_worst", "edge_spread")
TIMING = ("interval_s", "client_updates_per_h", "lost_steps", "bytes")
"""The main figures of timing-only runs."""
TIMING_TABLE = (*TIMING, "contributed", "energy_j", *SPENT)
"""The figures of timing-only runs in the terminal's table."""
LORENZ_AT: Floats = np.arange(51) / 50


def require_cost(name: str, costs: Collection[str] = COSTS, where: str | None = None) -> None:
    """Check that ``costs`` include one of this name."""
    if name not in costs:
        raise UserError(
            f"curves cannot be drawn against '{name}'",
            where=where,
            hint=nearest_or_all(name, costs, f"choose one of {', '.join(costs)}"),
        )


@dataclass(frozen=True)
class RunFacts:
    """The numbers of one run.

    Attributes:
        path: its folder.
        scenario: see :func:`compared_scenario`.
        seed: the scenario's seed.
        progress: one value per evaluation: the :data:`COSTS` and :data:`CLIENT_UPDATES` so far, and the metrics; NaN
            where a metric was not measured.
        metrics: names of the measured metrics, accuracy first.
        figures: the :data:`FIGURES`.
        spent_s: client-seconds by activity.
        client_accuracy: last measured accuracy of each client that has one.
        lorenz: share of the updates given by the least active clients, at :data:`LORENZ_AT`.
        digest: see :func:`results_digest`.
        definitions: definitions of the user's own metrics, by name.
        unequal_samples: whether clients hold different numbers of training samples.
        lost: the metrics whose last value is not finite.
        variant: name that its sweep gives it, or that of its log; empty without one.
        log: the log of the real run from which it was made; empty for others.
        notes: the run's own, such as doubts about its log.
        diverged_s: simulated time of the first evaluation of a model that has diverged; NaN for one that has not.
    """

    path: Path
    scenario: dict[str, Any]
    seed: int
    progress: dict[str, Floats]
    metrics: tuple[str, ...]
    figures: Mapping[str, float]
    spent_s: Mapping[str, float]
    client_accuracy: Floats
    lorenz: Floats
    digest: str = ""
    definitions: Mapping[str, MetricDefinition] = field(default_factory=dict)
    unequal_samples: bool = False
    lost: tuple[str, ...] = ()
    waits_s: Mapping[str, float] = field(default_factory=dict)
    diverged_s: float = np.nan
    variant: str = ""
    log: str = ""
    notes: tuple[str, ...] = ()

    @property
    def target(self) -> dict[str, float]:
        """The scenario's ``stop.target``; empty if it has none."""
        target = (self.scenario.get("stop") or {}).get("target") or {}
        return {str(metric): float(value) for metric, value in target.items()}

    @functools.cached_property
    def stopped_at(self) -> dict[str, float]:
        """The target if it ended the run: its last evaluation met it; else empty."""
        if not self.target:
            return {}
        last = {name: values[-1] for name in self.metrics if len(values := self.progress[name])}
        return self.target if meets(self.target, last, self.definition) else {}

    def definition(self, metric: str) -> MetricDefinition:
        """Direction, unit and label of a metric."""
        return definition(metric, self.definitions)

    def final(self, metric: str) -> float:
        """The last value of a metric; NaN if it was not measured or is not finite."""
        if metric not in self.metrics or metric in self.lost:
            return np.nan
        values = self.progress[metric]
        return float(values[~np.isnan(values)][-1])

    def best(self, metric: str) -> float:
        """The best value of a metric; NaN if it was not measured."""
        if metric not in self.metrics:
            return np.nan
        return self.definition(metric).best(self.progress[metric])


def read_facts(run: Run, sections: dict[str, dict[str, Any]]) -> RunFacts:
    """The numbers of a complete run; ``sections`` is that of :meth:`Run.read_scenario`."""
    run.read_scenario(sections)
    return RunFacts(
        path=run.path,
        scenario=compared_scenario(run, run.scenario),
        seed=run.entry("seed"),
        definitions=run.metric_definitions,
        log=run.info.get("log", ""),
        notes=tuple(run.info.get("notes", ())),
        **(_kept(run) or _measured(run)),
    )


def _measured(run: Run) -> dict[str, Any]:
    clients = population(run)
    table = run.clients if run.has_clients else None
    values = run.metrics.iloc[:, 3:].dropna(axis=1, how="all")
    measured = [name for name in map(str, values) if not name.startswith(OF_CLASS)]
    accuracy = table["last_accuracy"].dropna().to_numpy() if table is not None else np.zeros(0)
    given = statistics.participation_counts(run.dispatches, clients)
    curve = statistics.lorenz_curve(given)
    return {
        "progress": _progress(run),
        "metrics": tuple(sorted(measured, key=lambda name: name != "accuracy")),
        "figures": _figures(run, given),
        # The log of a real run does not say when its clients were online.
        "spent_s": {} if "log" in run.info else statistics.where_time_went(run.work_phases, table),
        "client_accuracy": accuracy,
        "lorenz": np.interp(LORENZ_AT, np.arange(len(curve)) / max(1, clients), curve),
        "digest": results_digest(run.folder),
        "unequal_samples": table is not None and table["samples"].nunique() > 1,
        "lost": tuple(lost_metrics(run)),
        "waits_s": {} if run.critical is None else dict(waiting_by_cause(run.critical)),
        "diverged_s": lost_since(run)[0].time_s if has_diverged(run) else np.nan,
    }


def results_digest(folder: RunFolder) -> str:
    """A hash of all events and learned values, however the files are compressed; equal for identical results."""
    content = hashlib.sha256()
    for name in DIGESTED:
        sink = pa.BufferOutputStream()
        table = read_parquet(folder.parquet(name))
        table = table.combine_chunks().replace_schema_metadata()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        content.update(sink.getvalue())
    return content.hexdigest()


# -- kept with the run ------------------------------------------------------------------------------------------------
# Thousands of runs are compared in a tenth of the time if their tables need not be read again. What is kept follows
# from the tables, and is used only with the ``run.json``, which has their checksums, of the same results.


def keep_facts(run: Run) -> None:
    """Write what :func:`read_facts` reads of the tables of a complete run to ``facts.json`` in its folder."""
    if run.status is Status.COMPLETE:
        # As text of its own, numbers that are not finite and the order of names stay.
        facts = json.dumps(_measured(run), default=np.ndarray.tolist)
        FACTS.write(run.folder.path, {"facts": facts, "run": run.entry("sha256")})


def _kept(run: Run) -> dict[str, Any] | None:
    """The :func:`_measured` of a run from ``facts.json``; None if it is absent, of other results, or of an
    earlier fedsim."""
    try:
        kept = FACTS.read(run.folder.path)
    except FileNotFoundError:
        return None
    if kept["run"] != run.entry("sha256") or "facts" not in kept:
        return None
    names = [f"{name}.parquet" for name in (*DIGESTED, "clients", "critical")]
    raise_all(run.folder.problems(run.info, [name for name in names if name in run.info["files"]]))
    with FACTS.reading(run.folder.facts):
        return _read(kept["facts"])


@with_config(ConfigDict(strict=True, extra="forbid"))
class _Kept(TypedDict):
    """The types of the numbers in ``facts.json``."""

    progress: dict[str, list[float]]
    metrics: list[str]
    figures: dict[str, float]
    spent_s: dict[str, float]
    client_accuracy: list[float]
    lorenz: list[float]
    digest: str
    unequal_samples: bool
    lost: list[str]
    waits_s: dict[str, float]
    diverged_s: float


_KEPT = TypeAdapter(_Kept)


def _read(text: str) -> dict[str, Any]:
    facts: dict[str, Any] = dict(_KEPT.validate_python(parsed(text)))
    facts |= {name: tuple(facts[name]) for name in ("metrics", "lost")}
    facts |= {name: np.array(facts[name], np.float64) for name in ("client_accuracy", "lorenz")}
    by_name = facts["progress"].items()
    progress = facts["progress"] = {name: np.array(each, np.float64) for name, each in by_name}
    columns = {*COSTS, CLIENT_UPDATES, *facts["metrics"]}
    shares = (facts["lorenz"], facts["client_accuracy"])
    if (
        columns - progress.keys()
        or len({len(values) for values in progress.values()}) > 1
        or FIGURES.keys() - facts["figures"].keys()
        or {*facts["lost"]} - progress.keys()
        or any(np.isnan(progress[name]).all() for name in facts["metrics"])
        or facts["lorenz"].shape != LORENZ_AT.shape
        or any((np.abs(each) > 1).any() for each in shares)
        or not facts["spent_s"]
        or not all(value >= 0 for value in facts["spent_s"].values())
        or (progress["time_s"] < 0).any()
    ):
        raise ValueError("entries are missing, or have values that cannot be")
    return facts


def compared_scenario(run: Run, scenario: dict[str, Any]) -> dict[str, Any]:
    """The resolved scenario of a run; for a Flower app, with the app's name and its configuration.

    A user's part has the name of its file without the folder, and a digest of its code: copies in different folders are
    the same part, and versions of one file are not. The same holds for data files.
    """
    info = run.info
    # As in Run.scenario, bundled traces have the name that they have everywhere.
    files = {written(Path(path)): digest for path, digest in info.get("data_files", {}).items()}
    if files or info.get("user_code"):
        scenario = _with_digests(scenario, info.get("user_code", {}), files)
    scenario["clock"] = info.get("log") or info.get("clock", "simulated")
    extra = {"app": {"name": run.info.get("app")}, "run_config": run.info.get("run_config")}
    return {**scenario, **extra} if extra["run_config"] is not None else scenario


def _with_digests(value: Any, code: Mapping[str, str | None], files: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_with_digests(item, code, files) for item in value]
    if not isinstance(value, dict):
        return value
    result = {key: _with_digests(item, code, files) for key, item in value.items()}
    for key, item in value.items():
        digest = (code if key == "name" else files).get(item) if isinstance(item, str) else None
        if digest:
            named = "code" if key == "name" else f"{key}_digest"
            result |= {key: Path(item).name.removeprefix(PREFIX), named: digest[:8]}
    return result


def _progress(run: Run) -> dict[str, Floats]:
    columns = run.metrics.items()
    progress = {str(name): each.to_numpy(float, na_value=np.nan) for name, each in columns}
    times = progress["time_s"]
    if run.has_edges:
        entered_s = np.sort(aggregation_times(run.dispatches, run.device_aggregations))
        entered_s = entered_s[~np.isnan(entered_s)]
        aggregated = np.searchsorted(entered_s, times, side="right")
    else:
        entered = np.sort(aggregated_versions(run.dispatches))
        entered = entered[entered > 0]
        aggregated = np.searchsorted(entered, progress["version"], side="right")
    of_work = run.work.reindex(columns=["energy_j", *SPENT])
    progress |= costs_by(run, times) | {
        str(name): statistics.spent_by(run.work, values.to_numpy(), times)
        for name, values in of_work.items()
    }
    return progress | {CLIENT_UPDATES: aggregated.astype(float)}


def _figures(run: Run, given: Ints) -> dict[str, float]:
    dispatches, aggregations = run.dispatches, run.aggregations
    work = statistics.work_by_outcome(dispatches, run.phases)
    whole = work.sum()
    lost = work.loc[list(LOST_LABELS)].sum()
    stale = statistics.staleness(dispatches, run.device_aggregations)
    updates = len(aggregations)
    durations_s = {
        "interval": statistics.update_intervals_s(aggregations),
        "turnaround": statistics.turnaround_s(dispatches),
    }
    # With edge servers, clients contribute to versions of these.
    delays = np.full(1, np.nan) if run.has_edges else aggregations["delay_max"].to_numpy(float)
    return {
        "simulated_s": run.simulated_s,
        "wall_s": float(run.info.get("wall_s") or np.nan),
        "updates": updates,
        "rounds": float(run.info.get("rounds") or np.nan),
        "dispatches": len(dispatches),
        "bytes": float(run.work["bytes_down"].sum() + run.work["bytes_up"].sum()),
        "energy_j": float(run.work["energy_j"].sum()),
        **{name: float(run.info.get(name, np.nan)) for name in SPENT},
        "compute_s": float(run.work_phases["compute_s"].sum()),
        "paused_s": float(run.work_phases["paused_s"].sum()),
        **{
            f"lost_{name}": float(lost[name] / whole[name]) if whole[name] else np.nan
            for name in ("dispatches", "steps", "bytes", "seconds")
        },
        "contributed": float((given > 0).mean()) if len(given) else np.nan,
        "per_update": len(stale) / updates if updates else np.nan,
        "gini": statistics.gini(given),
        "staleness_mean": float(stale["versions"].mean()),
        "staleness_max": float(stale["versions"].max()),
        "age_s": float(stale["seconds"].mean()),
        "tau_avg": float(delays.mean()) if len(delays) else 0.0,
        "tau_max": float(delays.max(initial=0.0)),
        "interval_s": float(durations_s["interval"].mean()) if updates else np.nan,
        **{
            f"{name}_p{percent}_s": float(np.percentile(seconds, percent))
            if len(seconds)
            else np.nan
            for name, seconds in durations_s.items()
            for percent in PERCENTILES
        },
        "client_updates_per_h": len(stale) / run.simulated_s * 3600 if run.simulated_s else np.nan,
        **_of_edges(run),
        **dict.fromkeys(run.info.get("unknown", ()), np.nan),
    }


def _of_edges(run: Run) -> dict[str, float]:
    """The figures of edge servers; NaN without."""
    if run.edges is None:
        return dict.fromkeys(EDGE_FIGURES, np.nan)
    table, accuracy = run.edge_dispatches, run.clients.groupby("edge")["last_accuracy"].mean()
    return {
        "backhaul_bytes": float(table["bytes_down"].sum() + table["bytes_up"].sum()),
        "edge_rounds": float(table["steps_done"].sum()),
        "edge_gini": statistics.gini(statistics.participation_counts(table, len(run.edges))),
        "edge_worst": float(accuracy.min()),
        "edge_spread": float(accuracy.max() - accuracy.min()),
    }
