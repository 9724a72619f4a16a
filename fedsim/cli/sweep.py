"""``fedsim sweep``: run every combination of a scenario's sweep."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
from rich.console import Console

from fedsim.cli.options import json_option, override_option, scenario_argument, user_code_option
from fedsim.cli.progress import bar_columns

if TYPE_CHECKING:
    from fedsim.sweeps.execution import SweepOutcome, SweepProgress


@click.command(name="sweep")
@scenario_argument
@override_option
@user_code_option
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Folder of the sweep; runs/<name>-sweep by default.",
)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    help="Runs at a time, one core each; all cores by default. 1 runs in this process.",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Processes of this machine, or a Ray cluster (needs the extra 'ray').",
)
@click.option("--address", metavar="ADDRESS", help="Address of a Ray cluster: auto, or host:port.")
@json_option
def command(
    scenario: Path,
    overrides: tuple[str, ...],
    output: Path | None,
    jobs: int | None,
    engine: Literal["local", "ray"],
    address: str | None,
    as_json: bool,
) -> int:
    """Run every combination of values and seeds in the sweep section of SCENARIO.

    A run that is complete is not run again, one that was killed is resumed, one that failed is tried again: give the
    same command again after anything that went wrong. 'fedsim compare' reads the folder.

    Exit code 2 says that runs failed for something in the scenario, 1 that one failed for a defect of fedsim.
    """
    from fedsim.api import read_scenario
    from fedsim.sweeps.execution import sweep

    loaded = read_scenario(scenario, overrides)
    with _following(loaded.scenario.name, quiet=as_json) as on_progress:
        outcome = sweep(
            loaded, output, jobs=jobs, engine=engine, address=address, on_progress=on_progress
        )
    _print(outcome, as_json)
    if not outcome.failures:
        return 0
    return 2 if all(result.users for result in outcome.failures) else 1


def _print(outcome: SweepOutcome, as_json: bool) -> None:
    path = outcome.sweep.path
    if as_json:
        document = {
            "path": str(path),
            "runs": [str(path / entry.run) for entry in outcome.sweep.record.runs],
            "ran": outcome.ran,
            "skipped": outcome.skipped,
            "failures": {result.task.name: result.error for result in outcome.failures},
        }
        click.echo(json.dumps(document, indent=2))
        return
    done = outcome.ran - len(outcome.failures)
    parts = [f"{done} {'run' if done == 1 else 'runs'} done"]
    if outcome.skipped:
        parts.append(f"{outcome.skipped} had been complete")
    if outcome.failures:
        parts.append(f"{len(outcome.failures)} failed")
    click.echo(f"{', '.join(parts)}; index: {path / 'index.csv'}")
    click.echo(f"compare them with: fedsim compare {path}")


@contextlib.contextmanager
def _following(title: str, *, quiet: bool) -> Iterator[Callable[[SweepProgress], None] | None]:
    """A bar over all runs where somebody watches; failures are told at once whether somebody does or not."""
    from rich.progress import Progress

    if quiet:
        yield None
        return
    console = Console(stderr=True)
    with Progress(
        *bar_columns(), console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(title, total=1.0, text="")

        def show(progress: SweepProgress) -> None:
            text = f"{progress.complete} of {progress.runs} runs"
            if progress.failed:
                text += f", {progress.failed} failed"
            bar.update(task, completed=progress.share, text=text)
            if progress.failure is not None:
                failed = f"failed: {progress.failure.task.folder}\n  {progress.failure.error}"
                bar.console.print(failed, markup=False, highlight=False, soft_wrap=True)

        yield show
