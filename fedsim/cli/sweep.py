"""``fedsim sweep``: run every combination of a scenario's sweep."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedsim.cli import options
from fedsim.cli.progress import Row, diverged_runs, following, same_command
from fedsim.errors import UserError
from fedsim.files import terminal
from fedsim.runs.folder import RunFolder
from fedsim.runs.progress import snapshot
from fedsim.runs.run import has_diverged
from fedsim.vocabulary.formatting import (
    NAMED,
    format_command,
    format_counted,
    format_duration,
    format_interval,
    format_names,
    format_ratio,
)

if TYPE_CHECKING:
    import pandas as pd

    from fedsim.scenario.loading import LoadedScenario
    from fedsim.sweeps.execution import SweepOutcome, SweepProgress
    from fedsim.sweeps.precision import Precision


@click.command(name="sweep")
@options.loaded_scenario
@options.output_option("Folder of the sweep; runs/<name>-sweep by default.")
@options.timing_only_option
@options.engine_options
@click.option(
    "--until-halfwidth",
    "half_width",
    metavar="SHARE",
    help="Add seeds until the 95% interval of each variant's ratio to the baseline has this half-width, such as 5%.",
)
@click.option(
    "--metric",
    metavar="NAME",
    help="Quantity of the ratios: time_to:accuracy=0.8, or throughput of timing-only runs.",
)
@click.option(
    "--max-seeds",
    type=click.IntRange(min=3),
    default=30,
    help="Largest number of seeds for --until-halfwidth.",
)
@options.json_option
def command(
    loaded: LoadedScenario,
    output: Path | None,
    as_json: bool,
    half_width: str | None,
    metric: str | None,
    max_seeds: int,
    **settings: Any,
) -> int:
    """Run every combination of values and seeds in the sweep section of SCENARIO.

    Complete runs are skipped, killed runs are resumed, and failed runs are tried again: after an interruption, repeat
    the same command. 'fedsim compare' reads the folder.

    With --until-halfwidth, the sweep begins with at least ten seeds and adds more until every ratio is precise, or
    --max-seeds is reached. Runs that miss a target count with the time at which the first of them ended.

    Exit code 2 means that runs failed because of the scenario, 1 that one was killed or met a bug in fedsim.
    """
    from fedsim.sweeps.execution import default_folder, sweep

    folder = output or default_folder(loaded)
    precision, ratios = None, None
    if half_width is not None or metric is not None:
        from fedsim.sweeps.precision import Precision

        precision = Precision.parse(half_width, metric, max_seeds)
    look: Any = {"kind": "sweep", "news_of": _news, "parts_of": _parts, "quiet": as_json}
    with following(loaded.scenario.name, folder, same_command(), **look) as on_progress:
        settings["on_progress"] = on_progress
        if precision is None:
            outcome = sweep(loaded, folder, **settings)
        else:
            from fedsim.sweeps.precision import sweep_to_precision

            outcome, ratios = sweep_to_precision(loaded, folder, precision, **settings)
    is_users = all(result.users for result in outcome.failures)
    code = options.exit_code((2 if is_users else 1) if outcome.failures else 0)
    _print(outcome, as_json, ratios)
    if precision is not None and ratios is not None and len(ratios) and not as_json:
        _print_ratios(ratios, precision)
    return code


def _print_ratios(ratios: pd.DataFrame, precision: Precision) -> None:
    import pandas as pd

    names = ["setting"] * (ratios["setting"].nunique() > 1) + ["label"]
    missed = ["missed the target"] * (precision.target is not None)
    headings = [*names[:-1], "variant", "ratio", "95% interval", "seeds needed", *missed]
    rows = ratios.to_dict("records")
    cells = []
    for row in rows:
        needed = f"more than {row['seeds']}" if pd.isna(row["needed"]) else str(row["needed"])
        interval = format_interval(row["low"], row["high"], format_ratio)
        own = [*(str(row[name]) for name in names), format_ratio(row["ratio"]), interval, needed]
        if missed:
            own.append(f"{row['missed']} of {row['seeds']} (baseline {row['baseline_missed']})")
        cells.append(own)
    terminal.secho(f"{precision}, relative to {rows[0]['baseline']}:", bold=True)
    options.print_table(headings, cells)
    times = {row["censored_s"] for row in rows if not pd.isna(row["censored_s"])}
    if times:
        click.echo(f"runs that missed count with {format_duration(min(times))}, when one ended")
    if ratios["needed"].isna().any():
        click.echo(f"not as precise as wanted: raise --max-seeds above {precision.most}")


def _print(outcome: SweepOutcome, as_json: bool, ratios: pd.DataFrame | None) -> None:
    path = outcome.sweep.path
    if as_json:
        more = {} if ratios is None else {"ratios": json.loads(ratios.to_json(orient="records"))}
        options.print_json(
            {
                **more,
                "path": str(path),
                "runs": [str(path / entry["run"]) for entry in outcome.sweep.record["runs"]],
                "ran": outcome.ran,
                "skipped": outcome.skipped,
                "no_longer_swept": list(outcome.no_longer_swept),
                "failures": {result.task.folder.name: result.error for result in outcome.failures},
            }
        )
        return
    done = outcome.ran - len(outcome.failures)
    parts = [f"{format_counted(done, 'run')} done"]
    if outcome.skipped:
        parts.append(f"{outcome.skipped} already complete")
    if outcome.failures:
        parts.append(f"{len(outcome.failures)} failed")
    click.echo(f"{', '.join(parts)}; index: {path / 'index.csv'}")
    if warned := outcome.warned:
        runs = f"{len(warned)} of {format_counted(outcome.ran, 'run')}"
        click.echo(f"{runs} had warnings: {format_names(warned, NAMED)}")
    if outcome.no_longer_swept:
        folders = format_names(outcome.no_longer_swept, NAMED)
        click.echo(f"left out, because the sweep no longer contains them: {folders}")
    if diverged := sum(map(has_diverged, outcome.sweep.runs)):
        click.echo(diverged_runs(diverged))
    if outcome.failures:
        click.echo(f"after fixing the cause, retry the failed runs: {same_command()}")
    if done or outcome.skipped:
        click.echo(f"compare them with: {format_command('compare', path)}")


def _news(progress: SweepProgress) -> Iterator[str]:
    """Warnings of the run that has just ended, or its failure; an error that several runs share is shown once."""
    yield from progress.warnings
    failure = progress.failure
    if failure is not None and progress.failed_alike:
        yield f"failed: {failure.task.folder}, with the same error as {progress.failed_alike}"
    elif failure is not None:
        yield f"failed: {failure.task.folder}\n{textwrap.indent(failure.error or '', '  ')}"


def _parts(progress: SweepProgress) -> Iterator[Row]:
    """Every run in progress; its folder is a few seconds behind its share."""
    for folder, share in progress.active.items():
        try:
            shown = snapshot(RunFolder(folder))
        except UserError:
            yield folder.name, share, ""  # It has not begun, or is writing its files just now.
        else:
            # The first rows reach the disk in a batch; until then, only the share is known.
            has_rows = shown.progress.simulated_s > 0
            text = shown.progress.text(definitions=shown.definitions) if has_rows else ""
            yield folder.name, max(share, shown.progress.share), text
