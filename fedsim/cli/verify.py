"""``fedsim verify``: compare the files of runs, sweeps and trace bundles with their checksums."""

from __future__ import annotations

from pathlib import Path

import click

from fedsim.cli.options import json_option, path_type, print_json
from fedsim.errors import UserError, raise_all
from fedsim.vocabulary.formatting import format_counted


@click.command(name="verify")
@click.argument("folders", nargs=-1, required=True, type=path_type)
@json_option
def command(folders: tuple[Path, ...], as_json: bool) -> int:
    """Check every file of each of FOLDERS (runs, sweeps, trace bundles) against its checksum.

    Exit code 0: nothing is damaged; 2: something is. The report page and any files you added have no checksum.
    """
    from fedsim.runs.sweep import is_sweep
    from fedsim.runs.verification import (
        verify_bundle_folder,
        verify_run_folder,
        verify_sweep_folder,
    )
    from fedsim.traces.bundle import MANIFEST_NAME

    hint = "give the folder of a run, a sweep or a trace bundle"
    raise_all(
        UserError("no such folder", where=str(folder), hint=hint)
        for folder in folders
        if not folder.is_dir()
    )
    verdicts = []
    for folder in folders:
        if is_sweep(folder):
            verdicts += verify_sweep_folder(folder)
        elif (folder / MANIFEST_NAME).is_file():
            verdicts.append(verify_bundle_folder(folder))
        else:
            verdicts.append(verify_run_folder(folder))
    if as_json:
        print_json(
            [
                vars(verdict)
                | {"path": str(verdict.path), "problems": list(map(str, verdict.problems))}
                for verdict in verdicts
            ]
        )
    else:
        for verdict in verdicts:
            files = f" ({format_counted(verdict.files, 'file')})" if verdict.files else ""
            if verdict.problems:
                files = f" ({len(verdict.problems)} of {format_counted(verdict.files, 'file')})"
            reason = f": {verdict.error}" if verdict.error else ""
            click.echo(f"{verdict.path}: {verdict.state}{files}{reason}")
            for line in (*verdict.problems, *filter(None, [verdict.next_step])):
                click.echo(f"  {line}")
    return 2 if any(verdict.state == "damaged" for verdict in verdicts) else 0
