"""``fedsim sweep``: run every combination of a scenario's sweep."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
from rich.console import Console
from rich.progress import Progress as Bars
from rich.progress import TaskID

from fedsim.cli.options import json_option, override_option, scenario_argument, user_code_option
from fedsim.cli.progress import (
    LINE_S,
    bar_columns,
    diverged_runs,
    next_command,
    repeated,
    same_command,
    started,
)
from fedsim.errors import UserError
from fedsim.formatting import format_command, format_counted, format_names
from fedsim.runs.divergence import has_diverged
from fedsim.runs.folder import RunFolder
from fedsim.runs.progress import Pace, progress_text, snapshot

if TYPE_CHECKING:
    from fedsim.sweeps.execution import SweepOutcome, SweepProgress

_NAMED = 3


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
    help="Concurrent runs, one core each; by default one per core. With 1, runs execute in this process.",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Processes on this machine, or a Ray cluster (needs the extra 'ray').",
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

    Complete runs are skipped, killed runs are resumed, and failed runs are tried again: after an interruption, repeat
    the same command. 'fedsim compare' reads the folder.

    Exit code 2 means that runs failed because of the scenario, 1 that one failed because of a bug in fedsim.
    """
    from fedsim.sweeps.local import prepare

    if engine == "local" and jobs != 1:
        prepare()
    from fedsim.scenario.loading import load_scenario
    from fedsim.sweeps.execution import default_sweep_folder, sweep

    loaded = load_scenario(scenario, overrides=overrides)
    folder = output or default_sweep_folder(loaded)
    with (
        next_command(folder, same_command()),
        _following(loaded.scenario.name, folder, quiet=as_json) as on_progress,
    ):
        outcome = sweep(
            loaded, folder, jobs=jobs, engine=engine, address=address, on_progress=on_progress
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
            "no_longer_swept": list(outcome.no_longer_swept),
            "failures": {result.task.name: result.error for result in outcome.failures},
        }
        click.echo(json.dumps(document, indent=2))
        return
    done = outcome.ran - len(outcome.failures)
    parts = [f"{format_counted(done, 'run')} done"]
    if outcome.skipped:
        parts.append(f"{outcome.skipped} already complete")
    if outcome.failures:
        parts.append(f"{len(outcome.failures)} failed")
    click.echo(f"{', '.join(parts)}; index: {path / 'index.csv'}")
    if outcome.no_longer_swept:
        folders = format_names(outcome.no_longer_swept, _NAMED)
        click.echo(f"left out, because the sweep no longer contains them: {folders}")
    if diverged := sum(map(has_diverged, outcome.sweep.runs)):
        click.echo(diverged_runs(diverged))
    if outcome.failures:
        click.echo(f"after fixing the cause, retry the failed runs: {same_command()}")
    if done or outcome.skipped:
        click.echo(f"compare them with: {format_command('compare', path)}")


class _Follower:
    """Shows a sweep: a bar over all runs and one per run in progress; lines of text if there is no terminal."""

    def __init__(self, title: str, folder: Path, bars: Bars) -> None:
        self._title, self._folder, self._bars = title, folder, bars
        self._newest: SweepProgress | None = None
        self._all = bars.add_task(title, total=1.0, text="")
        self._active: dict[Path, TaskID] = {}
        self._pace = Pace()

    def __call__(self, progress: SweepProgress) -> None:
        """Take progress; warnings and a failure are shown at once."""
        if self._newest is None:
            # Not before: a scenario that is refused leaves no folder.
            self._print(started("sweep", self._folder))
        self._newest = progress
        for warning in progress.warnings:
            self._print(warning)
        if progress.failure is not None:
            failed = f"failed: {progress.failure.task.folder}\n  {progress.failure.error}"
            self._print(failed)

    def refresh(self) -> None:
        """Show the newest progress."""
        progress = self._newest
        if progress is None:
            return
        self._bars.update(self._all, completed=progress.share, text=self._text(progress))
        for folder in [path for path in self._active if path not in progress.active]:
            self._bars.remove_task(self._active.pop(folder))
        for folder, share, text in self._rows(progress):
            if folder not in self._active:
                self._active[folder] = self._bars.add_task(folder.name, total=1.0, text="")
            self._bars.update(self._active[folder], completed=share, text=text)

    def print_line(self) -> None:
        """Print the newest progress."""
        progress = self._newest
        if progress is None:
            return
        lines = [f"{self._title}: {progress.share:.0%}, {self._text(progress)}"]
        for folder, share, text in self._rows(progress):
            lines.append(", ".join(filter(None, (f"  {folder.name}: {share:.0%}", text))))
        self._print("\n".join(lines))

    @staticmethod
    def _rows(progress: SweepProgress) -> Iterator[tuple[Path, float, str]]:
        """Folder, share and words of every run in progress; its folder is a few seconds behind its share."""
        for folder, share in progress.active.items():
            try:
                shown = snapshot(RunFolder(folder))
            except UserError:
                yield folder, share, ""  # It has not begun, or is writing its files just now.
            else:
                text = progress_text(shown.progress, definitions=shown.definitions)
                yield folder, max(share, shown.progress.share), text

    def _print(self, text: str) -> None:
        self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _text(self, progress: SweepProgress) -> str:
        return progress.text(self._pace.left_s(progress.share))


@contextlib.contextmanager
def _following(
    title: str, folder: Path, *, quiet: bool
) -> Iterator[Callable[[SweepProgress], None] | None]:
    if quiet:
        yield None
        return
    console = Console(stderr=True)
    shown = console.is_terminal
    with Bars(
        *bar_columns(), console=console, expand=True, transient=True, disable=not shown
    ) as bars:
        follower = _Follower(title, folder, bars)
        interval_s, action = (1.0, follower.refresh) if shown else (LINE_S, follower.print_line)
        with repeated(interval_s, action):
            yield follower
