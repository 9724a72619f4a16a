"""Progress of a run on a terminal; silent elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn

from fedsim.formatting import format_duration

if TYPE_CHECKING:
    from fedsim.composition.execution import Progress as RunProgress

_REFRESH_S = 0.2


def bar_columns() -> tuple[ProgressColumn, ...]:
    """What stands in a line of progress; its ``text`` field says more."""
    return (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(),
    )


@contextlib.contextmanager
def resumable(folder: Path, command: str) -> Iterator[None]:
    """Print the command that continues the work in ``folder`` if an interruption or a signal stops it."""
    try:
        yield
    except KeyboardInterrupt:
        if folder.is_dir():
            click.echo(f"continue with: {command}", err=True)
        raise


@contextlib.contextmanager
def following(title: str, *, quiet: bool) -> Iterator[Callable[[RunProgress], None] | None]:
    """A function to tell of progress, shown as a bar while the context lasts; None where nobody watches."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    with Progress(*bar_columns(), console=console, transient=True) as bar:
        task = bar.add_task(title, total=1.0, text="")
        shown_at = 0.0

        def show(progress: RunProgress) -> None:
            nonlocal shown_at
            now = time.monotonic()
            if now - shown_at < _REFRESH_S:
                return
            shown_at = now
            parts = [
                f"simulated {format_duration(progress.simulated_s)}",
                f"version {progress.version}",
            ]
            parts += [f"{name} {value:.3f}" for name, value in list(progress.metrics.items())[:1]]
            bar.update(task, completed=min(1.0, progress.share), text=", ".join(parts))

        yield show
