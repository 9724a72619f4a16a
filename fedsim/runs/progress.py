"""The progress of a run: from the run itself, or from the rows that have reached its folder."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pandas as pd
import pyarrow as pa

from fedsim.errors import UserError
from fedsim.runs.folder import RunFolder, Status
from fedsim.runs.run import Run, has_diverged
from fedsim.runs.schema import AGGREGATIONS, METRICS
from fedsim.scenario.model import share_done
from fedsim.vocabulary.formatting import format_count, format_duration
from fedsim.vocabulary.metrics import MetricDefinition, definition

WAITING = "waiting"
"""Status of a run of a sweep that has not been started."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run.

    Attributes:
        simulated_s: simulated seconds.
        version: server updates made.
        rounds: rounds closed.
        dispatched: dispatches handed out.
        share: completed share of the run, estimated from its limits; 0 to 1.
        metrics: newest metrics.
    """

    simulated_s: float = 0.0
    version: int = 0
    rounds: int = 0
    dispatched: int = 0
    share: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)

    def text(
        self,
        left_s: float | None = None,
        definitions: Mapping[str, MetricDefinition] | None = None,
    ) -> str:
        """The progress in words: ``simulated 3 h 20 min, version 12, accuracy 61.0%, about 2 min left``."""
        parts = [
            f"simulated {format_duration(self.simulated_s)}",
            f"version {format_count(self.version)}",
        ]
        for name, value in list(self.metrics.items())[:1]:
            metric = definition(name, definitions or {})
            parts.append(f"{metric.label} {metric.format(value)}")
        return ", ".join(parts) + left_text(left_s)


def left_text(left_s: float | None) -> str:
    """The estimated seconds left as the end of a line; nothing if they are unknown."""
    return f", about {format_duration(left_s)} left" if left_s else ""


@dataclass
class Pace:
    """Estimates the time left from the mean pace so far, which the runs of a sweep, fast and slow, change little."""

    _first: tuple[float, float] | None = None

    def left_s(self, share: float) -> float | None:
        """Wall seconds until ``share``, the part done now, becomes 1; None if unknown."""
        now = time.monotonic()
        began, before = self._first = self._first or (now, share)
        if share <= before or now - began < 1:
            return None
        return round((1 - share) * (now - began) / (share - before))


@dataclass(frozen=True)
class Snapshot:
    """A run as its folder shows it.

    Attributes:
        name: name of the folder.
        status: that of the run, or :data:`WAITING`.
        error: why it failed.
        progress: its progress, according to the rows that have reached the disk.
        definitions: of the metrics.
        silent_s: seconds since a file of the folder was last written.
        has_diverged: whether its model has diverged.
    """

    name: str
    status: str
    error: str = ""
    progress: Progress = Progress()
    definitions: Mapping[str, MetricDefinition] = field(default_factory=dict)
    silent_s: float = 0.0
    has_diverged: bool = False


def snapshot(folder: RunFolder) -> Snapshot:
    """The current state of a run's folder; the run may be in progress."""
    run = Run(folder)
    progress, diverged = Progress(), False
    try:
        progress = _progress(run)
        diverged = has_diverged(run)
    except (OSError, pa.ArrowException):
        pass  # It has no tables yet, or is finishing them now.
    except UserError:
        if not any(map(run.may_lack, (AGGREGATIONS, METRICS))):
            raise
    if run.status is Status.INTERRUPTED:
        # A resumed run writes its tables again from the start; its checkpoint may be ahead of them.
        state = folder.checkpoints(run.info).newest_state()
        if state.get("version", 0) > progress.version and "share" in state:
            reached = {name: state[name] for name in ("simulated_s", "version", "share")}
            progress = replace(progress, **reached, metrics={})
    written_at = 0.0
    for path in folder.path.iterdir():
        with contextlib.suppress(OSError):  # It was removed just now.
            written_at = max(written_at, path.stat().st_mtime)
    return Snapshot(
        folder.path.absolute().name,
        str(run.status),
        str(run.info.get("error") or ""),
        progress,
        run.metric_definitions,
        silent_s=max(0.0, time.time() - written_at),
        has_diverged=diverged,
    )


def _progress(run: Run) -> Progress:
    aggregations, metrics, stop = run.aggregations, run.metrics, run.scenario["stop"]
    version = int(aggregations["version"].max()) if len(aggregations) else 0
    # The aggregation closed its round, whose number counts from 0.
    rounds = int(aggregations["round"].max()) + 1 if len(aggregations) else 0
    # The table of dispatches may be long; it is read only if the run is limited by their number.
    counted = stop.get("dispatches") or stop.get("arrivals")
    dispatches = len(run.dispatches) if counted else 0
    simulated_s = run.info.get("simulated_s") or max(
        (float(table["time_s"].max()) for table in (aggregations, metrics) if len(table)),
        default=0.0,
    )
    newest: dict[str, float] = {}
    if len(metrics):
        last = metrics.iloc[-1]
        newest = {name: float(last[name]) for name in metrics.columns[3:] if pd.notna(last[name])}
    share = 1.0
    if run.status is not Status.COMPLETE:
        counts = {"rounds": rounds, "dispatches": dispatches, "arrivals": dispatches}
        share = share_done(stop, simulated_s=simulated_s, **counts)
    return Progress(simulated_s, version, rounds, dispatches, share, newest)
