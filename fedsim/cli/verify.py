"""``fedsim verify``: compare the files of runs, sweeps and trace bundles with their checksums."""

from __future__ import annotations

from pathlib import Path

import click

from fedsim.cli import options
from fedsim.errors import UserError, printable, raise_all
from fedsim.vocabulary.formatting import format_counted


@click.command(name="verify")
@click.argument("folders", nargs=-1, required=True, type=options.path_type)
@options.json_option
def command(folders: tuple[Path, ...], as_json: bool) -> int:
    """Check every file of each of FOLDERS against its checksum: of runs, sweeps, decisions, forecasts, boards, bundles.

    Exit code 0: nothing is damaged; 2: something is, or is too large to be read. The report page and any files
    you added have no checksum.
    """
    from fedsim.runs.verification import verify

    raise_all(
        UserError("no such folder", where=folder) for folder in folders if not folder.is_dir()
    )
    verdicts = [verdict for folder in folders for verdict in verify(folder)]
    code = options.exit_code(2 if any(verdict.problems for verdict in verdicts) else 0)
    if as_json:
        options.print_json(
            [
                vars(each) | {"path": str(each.path), "problems": list(map(str, each.problems))}
                for each in verdicts
            ]
        )
    for each in () if as_json else verdicts:
        damaged = f"{len(each.problems)} of " if each.problems else ""
        reason = f": {each.error}".replace("\n", "\n  ") if each.error else ""
        files = format_counted(each.files, "file")
        path = printable(str(each.path), lines=False)
        click.echo(f"{path}: {each.state} ({damaged}{files}){reason}")
        for line in (*each.problems, *filter(None, [each.next_step])):
            click.echo(f"  {line}")
    return code
