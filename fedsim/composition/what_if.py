"""A run again with a change, beside the original: the random numbers are the same."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from fedsim.composition.resuming import load_original, require_simulated
from fedsim.composition.run import OnProgress, execute
from fedsim.errors import UserError
from fedsim.files.durable import named
from fedsim.runs.folder import RunFolder, Status
from fedsim.runs.run import Run
from fedsim.scenario.overrides import Override
from fedsim.units import share_of
from fedsim.vocabulary.formatting import Kind

TAG = "what-if"
"""A tag of the new runs, which later ones replace."""
_FACTOR = re.compile(r"(\d+(?:\.\d+)?)x")


def what_if(
    before: Run,
    overrides: Iterable[Override] = (),
    without: str | None = None,
    output: Path | None = None,
    on_progress: OnProgress | None = None,
) -> tuple[Run, pd.DataFrame]:
    """Run a complete run again with a change, as :func:`fedsim.what_if` does; returns the new run and the table."""
    require_simulated(before.info, before.path)
    require_complete(before)
    folder = output or default_folder(before)
    _require_free(folder, before)
    tags = [*dict.fromkeys([*before.scenario.get("tags", []), TAG])]
    # What trackers show is the original.
    changes = [Override("logging", [], "what-if"), Override("tags", tags, "what-if")]
    changes += [_scaled(before, override) for override in overrides]
    if without is not None:
        kept_out = _clients(before, without)
        changes.append(Override("devices.exclude", kept_out, "--without-clients"))
    loaded = load_original(before.folder, before.info, ()).changed(changes)
    after = execute(
        loaded,
        folder,
        overwrite=True,
        timing_only=bool(before.info.get("timing_only")),
        on_progress=on_progress,
    )
    targets = before.scenario["stop"].get("target", {})
    new = {label: value for label, _, value in _figures(after, targets)}
    rows = [(*old, new.get(old[0], math.nan)) for old in _figures(before, targets)]
    return after, pd.DataFrame(rows, columns=["figure", "kind", "before", "after"])


def require_complete(run: Run) -> None:
    """Refuse a run that has not ended."""
    if run.status != Status.COMPLETE:
        hint = run.folder.next_step(run.info)
        raise UserError("the run is not complete", where=run.path, hint=hint)


def default_folder(before: Run) -> Path:
    """The default folder of the new run."""
    path = named(before.path)
    return path.with_name(f"{path.name}-what-if")


def _require_free(folder: Path, before: Run) -> None:
    """Refuse to replace a run that is not of a what-if."""
    there = RunFolder(folder)
    is_other = there.has_begun and TAG not in there.read_info().get("tags", [])
    if is_other or folder.resolve() == before.path.resolve():
        raise UserError(
            "the folder has a run that no what-if made, so it is not replaced",
            where=folder,
            hint="choose another output folder with -o (in Python: output)",
        )


def _scaled(run: Run, override: Override) -> Override:
    """An override whose factor is applied to the run's value."""
    factor = _FACTOR.fullmatch(str(override.value))
    if factor is None:
        return override
    value: Any = run.scenario
    for key in override.path.split("."):
        if not isinstance(value, dict) or key not in value:
            return override  # Loading the scenario says what is wrong with the key.
        value = value[key]
    numbers = value if isinstance(value, list) else [value]
    if not all(isinstance(each, int | float) and not isinstance(each, bool) for each in numbers):
        raise UserError(
            f"{override.path} is {value!r}, not a number to multiply",
            where=override.where,
            hint=f"give its new value: -s {override.path}=...; the rates of a trace are scaled by "
            "devices.network.rate_factor=2x, its speeds by devices.compute.speed_factor=2x",
        )
    scaled = [float(f"{each * float(factor[1]):.12g}") for each in numbers]
    return replace(override, value=scaled if isinstance(value, list) else scaled[0])


def _clients(run: Run, which: str) -> list[int]:
    """The clients that ``--without-clients`` names."""
    kind, _, rest = which.partition(":")
    if kind == "slowest" and 0 <= float((share := share_of(rest)) or -1) <= 1:
        order = run.clients["step_s"].to_numpy().argsort(kind="stable")[::-1]
        return sorted(order[: math.ceil(float(share) * len(order))].tolist())
    if re.fullmatch(r"\d+(,\d+)*", which):
        return sorted(map(int, which.split(",")))
    raise UserError(
        "names no clients",
        where=f"--without-clients {which}",
        hint="write slowest:5%, or numbers of clients: 3,17",
    )


def _figures(run: Run, targets: dict[str, float]) -> Iterator[tuple[str, Kind, float]]:
    """Label, kind and value of each main figure; NaN for a target not reached."""
    for name, target in targets.items():
        label = f"time to {run.metric_definition(name).format_target(target)}"
        yield label, "time", run.time_to(name, target)
    yield "simulated time", "time", run.simulated_s
    yield "server updates", "count", len(run.aggregations)
    yield "dispatches", "count", len(run.dispatches)
    aggregated = run.dispatches["aggregated_version"].notna()
    yield "of them aggregated", "share", float(aggregated.mean())
    for label, names, kind in _SUMS:
        yield label, kind, float(run.dispatches[names].to_numpy().sum())
    for name in run.metrics.columns[3:]:
        metric = run.metric_definition(name)
        yield f"final {metric.label}", metric.unit, float(run.metrics[name].iloc[-1])


_SUMS: tuple[tuple[str, list[str], Kind], ...] = (
    ("data moved", ["bytes_down", "bytes_up"], "bytes"),
    ("client compute", ["compute_s"], "time"),
    ("energy of the devices", ["energy_j"], "energy"),
)
