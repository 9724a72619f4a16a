"""``fedsim what-if``: a run again with a change, beside the original."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from fedsim.cli.options import json_option, output_option, print_json, run_argument, set_option
from fedsim.cli.progress import following, next_command
from fedsim.errors import UserError
from fedsim.runs.run import Run
from fedsim.vocabulary.formatting import Kind, format_command, format_share, format_value

_FACTOR = re.compile(r"(\d+(?:\.\d+)?)x")


@click.command("what-if")
@run_argument
@set_option(
    "overrides",
    "A change by its dotted path: a value, or a factor on the present one, such as -s devices.network.up=2x",
    "PATH=VALUE",
)
@click.option(
    "--without-clients",
    "without",
    metavar="WHICH",
    help="Keep clients out: slowest:SHARE by seconds per local step, such as slowest:5%, or numbers, such as 3,17.",
)
@output_option("Folder of the new run; the folder of RUN with '-what-if' by default.")
@json_option
def command(
    run: Path, overrides: tuple[str, ...], without: str | None, output: Path | None, as_json: bool
) -> None:
    """Run RUN, a complete run, again with a change, and show how its main figures change.

    The random numbers are the same: devices, data, draws and failures differ only where the change makes them differ.
    """
    from fedsim.analysis.run import load_run
    from fedsim.composition.execution import execute
    from fedsim.scenario.loading import load_scenario
    from fedsim.scenario.overrides import Override

    before = load_run(run)
    changes = [_scaled(before, Override.parse(text)) for text in overrides]
    if without is not None:
        kept_out = Override("devices.exclude", _clients(before, without), "--without-clients")
        changes.append(kept_out)
    loaded = load_scenario(before.folder.scenario, overrides=changes)
    folder = output or run.with_name(f"{run.name}-what-if")
    timing_only = bool(before.info.get("timing_only"))
    with (
        next_command(folder, format_command("resume", folder)),
        following(loaded.scenario.name, folder, quiet=as_json) as on_progress,
    ):
        after = execute(
            loaded, folder, overwrite=True, timing_only=timing_only, on_progress=on_progress
        )
    targets = before.scenario["stop"].get("target", {})
    pairs = zip(_figures(before, targets), _figures(after, targets), strict=True)
    rows = [(label, kind, old, new) for (label, kind, old), (_, _, new) in pairs]
    if as_json:
        print_json({label: {"before": old, "after": new} for label, _, old, new in rows})
    else:
        _print(rows, run, folder)


def _scaled(run: Run, override: Any) -> Any:
    """An override whose factor is applied to the run's value."""
    factor = _FACTOR.fullmatch(str(override.value))
    if factor is None:
        return override
    value: Any = run.scenario
    for key in override.path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    numbers = value if isinstance(value, list) else [value]
    if not all(isinstance(each, int | float) and not isinstance(each, bool) for each in numbers):
        raise UserError(
            f"{override.path} is {value!r}, not a number to multiply",
            where=override.where,
            hint=f"give its new value: -s {override.path}=...; the rates of a trace are scaled by "
            "devices.network.rate_factor=2x, its speeds by devices.compute.train_factor=0.5x",
        )
    scaled = [each * float(factor[1]) for each in numbers]
    return replace(override, value=scaled if isinstance(value, list) else scaled[0])


def _clients(run: Run, which: str) -> list[int]:
    """The clients that ``--without-clients`` names."""
    from fedsim.units import share_of

    kind, _, rest = which.partition(":")
    if kind == "slowest" and (share := share_of(rest)) != "":
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


def _print(rows: list[tuple[str, Kind, float, float]], run: Path, folder: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{run.name}: what if", title_justify="left")
    for heading in ("", "run", "what if", "change"):
        table.add_column(heading, justify="right" if heading else "left")
    for label, kind, old, new in rows:
        change = format_share(new / old - 1) if old and math.isfinite(new / old) else "–"
        sign = "+" if change != "–" and new > old else ""
        table.add_row(label, *(_written(each, kind) for each in (old, new)), sign + change)
    console = Console()
    console.print(table)
    compare = format_command("compare", run, folder)
    console.print(f"more: {compare}", soft_wrap=True, highlight=False)


def _written(value: float, kind: Kind) -> str:
    return "not reached" if math.isnan(value) else format_value(value, kind)
