"""``fedsim watch``: follow runs and sweeps from another terminal, or another machine."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
from rich.live import Live
from rich.table import Table

from fedsim.cli.options import path_type
from fedsim.cli.progress import LINE_S, diverged_runs
from fedsim.errors import UserError, printable, raise_all
from fedsim.files import terminal
from fedsim.files.durable import TEMPORARY_PREFIX
from fedsim.files.locks import is_owned
from fedsim.runs.folder import RunFolder, Status
from fedsim.runs.listing import DAMAGED, UNREADABLE, Runs, contents, status_of
from fedsim.runs.progress import WAITING, Pace, Snapshot, snapshot
from fedsim.runs.records import BOARD, RUN, is_sweep
from fedsim.vocabulary.formatting import format_command, format_duration

_LOOK_S = 2.0
_SILENT_S = 180.0
"""A run in progress writes rows or a checkpoint more often than this."""


@click.command(name="watch")
@click.argument("folder", metavar="FOLDER", type=path_type)
@click.option("--once", is_flag=True, help="Show the current state and exit.")
def command(folder: Path, once: bool) -> None:
    """Follow a run, a sweep, a board, or all runs and sweeps below a folder, until they end.

    Only the folder is read, so the run may be in another terminal or, on a shared file system, on another machine. The
    display is a few seconds old, because rows reach the disk in batches. Ctrl-C stops watching, not the run.
    """
    paces: dict[str, Pace] = {}
    console = terminal.console()
    with Live(console=console, auto_refresh=False, transient=False) as live:
        printed_at = -LINE_S
        while True:
            shown = [
                replace(one, name=printable(one.name, lines=False)) for one in _snapshots(folder)
            ]
            ended = once or not _is_going_on(folder, shown)
            if console.is_terminal:
                table = Table(show_edge=False, box=None)
                for name in ("run", "status", "done", ""):
                    table.add_column(name, overflow="fold")
                for one in shown:
                    table.add_row(one.name, one.status, *_cells(one, paces))
                live.update(table, refresh=True)
            elif ended or time.monotonic() - printed_at >= LINE_S:
                printed_at = time.monotonic()
                for one in shown:
                    cells = (f"{one.name}: {one.status}", *_cells(one, paces))
                    click.echo(", ".join(filter(None, cells)))
            if ended:
                break
            time.sleep(_LOOK_S)
    if not once or not (shown or _is_going_on(folder, shown)):
        _print_next(folder, shown)


def _snapshots(folder: Path) -> Iterator[Snapshot]:
    if (folder / BOARD.file).is_file():
        # Its run folders are temporary: one may be removed while it is read.
        for path in sorted(folder.glob(f"{TEMPORARY_PREFIX}*/*/{RUN.file}")):
            with contextlib.suppress(UserError, OSError):
                yield snapshot(RunFolder(path.parent))
        return
    if RUN.is_in(folder) and not is_sweep(folder):
        yield snapshot(RunFolder(folder))
        return
    for each in Runs(folder):
        try:
            if run := each.opened():
                yield replace(snapshot(run), name=each.name)
            elif is_sweep(each.path):
                for one in _snapshots(each.path):
                    yield replace(one, name=f"{each.name}/{one.name}")
            else:
                yield Snapshot(each.name, each.status, each.failure)
        except UserError as problem:  # It does not hide the others.
            yield Snapshot(each.name, status_of(problem), problem.message)


def _is_going_on(folder: Path, shown: list[Snapshot]) -> bool:
    if (folder / BOARD.file).is_file():
        return is_owned(folder)
    statuses = {one.status for one in shown}
    if Status.RUNNING in statuses or WAITING not in statuses:
        return Status.RUNNING in statuses
    return any(map(is_owned, [folder] if is_sweep(folder) else contents(folder)))


def _cells(one: Snapshot, paces: dict[str, Pace]) -> tuple[str, str]:
    if one.status == WAITING:
        return "", ""
    if one.status in (Status.FAILED, DAMAGED, UNREADABLE) and not one.progress.share:
        return "", one.error
    left_s = paces.setdefault(one.name, Pace()).left_s(one.progress.share)
    text = one.progress.text(left_s if one.status == Status.RUNNING else None, one.definitions)
    if one.status == Status.RUNNING and one.silent_s > _SILENT_S:
        # On another machine, a killed process cannot be distinguished from a running one.
        text += f", no news for {format_duration(round(one.silent_s))}"
    if one.has_diverged:
        text += ", the model has diverged"
    return f"{one.progress.share:.0%}", f"{text}, {one.error}" if one.error else text


def _print_next(folder: Path, shown: list[Snapshot]) -> None:
    statuses, run = {one.status for one in shown}, RunFolder(folder)
    if (folder / BOARD.file).is_file():
        from fedsim.runs.verification import verify

        raise_all(verify(folder)[0].problems)
        click.echo("the board is not running; repeat its command to continue, or to see its page")
    elif is_sweep(folder):
        if diverged := sum(one.has_diverged for one in shown):
            click.echo(diverged_runs(diverged))
        if statuses == {Status.COMPLETE}:
            click.echo(f"compare the runs with: {format_command('compare', folder)}")
        elif Status.FAILED in statuses:
            click.echo("after fixing the cause, repeat the command of the sweep")
        else:
            click.echo("to finish the other runs, repeat the command of the sweep")
    elif not RUN.is_in(folder):
        click.echo(f"list them with: {format_command('ls', folder)}")
    elif statuses == {Status.COMPLETE}:
        click.echo(f"report: {run.report}")
    else:
        click.echo(run.next_step(run.read_info()))
