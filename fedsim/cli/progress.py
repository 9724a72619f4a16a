"""Progress of a run: a bar on a terminal, a line every half minute elsewhere."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Column

from fedsim.errors import UserError
from fedsim.files import terminal
from fedsim.vocabulary.formatting import format_command, format_count

Row = tuple[str, float, str]
"""A run or a sweep in progress: its name, the share that is done, and words about it."""
_REFRESH_S = {"run": 0.2, "sweep": 1.0, "decision": 1.0, "forecast": 1.0, "board": 1.0}
LINE_S = 30.0
"""Seconds between two lines of progress if there is no terminal."""
_COLUMNS = (
    TextColumn("{task.description}", style="bold", markup=False),
    BarColumn(bar_width=16),
    TextColumn("{task.percentage:>3.0f}%", table_column=Column(no_wrap=True, min_width=4)),
    TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=7)),
    TextColumn("{task.fields[text]}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
)


def same_command(*more: str) -> str:
    """The command line that is being executed, to be pasted."""
    return format_command(*sys.argv[1:], *more)


def diverged_runs(count: int) -> str:
    """The number of runs of a sweep that have diverged, and a suggested fix."""
    models = (
        "the model of 1 run has" if count == 1 else f"the models of {format_count(count)} runs have"
    )
    return f"{models} diverged; try a smaller learning rate, or training.clip_norm"


@contextlib.contextmanager
def next_command(
    folder: Path, command: str, after_failure: str = "", *, silent: bool = False
) -> Iterator[None]:
    """Print what to type next if the work in ``folder`` is interrupted, or fails after it has begun.

    Args:
        folder: of the run or the sweep.
        command: continues after an interruption.
        after_failure: what to do after a failure; by default, run the same command again.
        silent: whether another process prints it.
    """
    from fedsim.runs.folder import RunFolder, Status

    try:
        yield
    except KeyboardInterrupt:
        if folder.is_dir() and not silent:
            report = folder / "report.html"
            if report.is_file():
                click.echo(f"report so far: {report}", err=True)
            click.echo(f"continue with: {command}", err=True)
        raise
    except Exception as error:
        with contextlib.suppress(UserError):
            if RunFolder(folder).read_info()["status"] == Status.FAILED:
                again = after_failure or f"run the same command again: {same_command()}"
                error.add_note(f"after fixing the cause, {again}")
        raise


@contextlib.contextmanager
def following(
    title: str,
    folder: Path,
    again: str,
    after_failure: str = "",
    *,
    quiet: bool,
    silent: bool = False,
    kind: str = "run",
    bar: bool = True,
    news_of: Callable[[Any], Iterable[str]] = lambda progress: (),
    parts_of: Callable[[Any], Iterable[Row]] = lambda progress: (),
) -> Iterator[Callable[[Any], None]]:
    """A function that shows progress as long as the context lasts: bars on a terminal, else lines; nothing if quiet.

    Args:
        title: name of the run or the sweep.
        folder: its folder.
        again, after_failure, silent: as for :func:`next_command`.
        quiet: whether to show no progress.
        kind: what is followed.
        bar: whether bars may be drawn.
        news_of: texts that are printed at once, such as warnings.
        parts_of: the parts that are in progress, each shown below the whole.
    """
    from fedsim.runs.progress import Pace

    with next_command(folder, again, after_failure, silent=silent):
        if quiet or silent:
            yield lambda progress: None
            return
        console = terminal.console(stderr=True)
        say = functools.partial(console.print, soft_wrap=True)
        pace, newest = Pace(), None

        def show(progress: Any) -> None:
            nonlocal newest
            if newest is None:
                # Not before: a scenario that is refused leaves no folder.
                watch = f" (to watch it: {format_command('watch', folder)})"
                say(f"{kind} folder: {folder}{watch}")
            newest = progress
            for text in news_of(progress):
                say(text)

        def rows() -> list[Row]:
            if newest is None:
                return [(title, 0.0, "starting")]
            text = newest.text(pace.left_s(newest.share))
            return [(title, newest.share, text), *parts_of(newest)]

        if not (console.is_terminal and bar):
            with repeated(LINE_S, lambda: say(_lines(rows()))):
                yield show
            return
        with Bars(*_COLUMNS, console=console, expand=True, transient=True) as bars:
            tasks: dict[str, TaskID] = {}

            def refresh() -> None:
                shown = {name: (share, text) for name, share, text in rows()}
                for name in tasks.keys() - shown.keys():
                    bars.remove_task(tasks.pop(name))
                for name, (share, text) in shown.items():
                    if name not in tasks:
                        tasks[name] = bars.add_task(name, total=1.0, text="")
                    bars.update(tasks[name], completed=share, text=text)

            refresh()
            with repeated(_REFRESH_S[kind], refresh):
                yield show


def _lines(rows: Iterable[Row]) -> str:
    return "\n  ".join(
        ", ".join(filter(None, (f"{name}: {share:.0%}", text))) for name, share, text in rows
    )


@contextlib.contextmanager
def advancing(
    title: str, *, total: int | None = None, quiet: bool = False
) -> Iterator[Callable[..., None] | None]:
    """A function that moves a bar on a terminal to a number of all; None if quiet or without a terminal."""
    console = terminal.console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Bars(*columns, console=console, transient=True) as bars:
        task = bars.add_task(title, total=total)
        yield lambda done, of=total: bars.update(task, completed=done, total=of)


@contextlib.contextmanager
def repeated(interval_s: float, action: Callable[[], None]) -> Iterator[None]:
    """Do something every few seconds, on a separate thread, until the context ends."""
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(interval_s):
            action()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
