"""``fedsim board``: which method is fastest, on which devices, and where a method of the user stands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from fedsim.cli import Suggesting, options
from fedsim.cli.progress import following, same_command
from fedsim.errors import UserError, unknown
from fedsim.vocabulary.formatting import format_counted, format_duration


@click.group(cls=Suggesting)
def command() -> None:
    """Compare methods on frozen scenarios, by the time to a target."""


def _names() -> list[str]:
    from fedsim.board.suite import VERSIONS, suite

    return [name for version in VERSIONS for name in suite(version).scenarios]


@command.command("run")
@click.option(
    "--suite",
    "version",
    type=click.Choice(["board-1", "board-1-large"]),
    default="board-1",
    help="board-1-large has CIFAR-10, FEMNIST and Fashion-MNIST with larger networks, for a GPU.",
)
@click.option("--method", metavar="PART", help="A method: a name, or my_method.py:Mine.")
@click.option(
    "--schedule",
    metavar="PART",
    help="A schedule, as YAML: name or {name: buffered, buffer_size: 5}.",
)
@click.option(
    "--selection", metavar="PART", help="A selection, likewise; the cohort is the scenario's."
)
@click.option(
    "--knob",
    metavar="KEY=A,B,C",
    help="The key that is tuned besides the learning rate, with three values, the usual one in the middle; by default "
    "a parameter of the method, if it has one that is a number.",
)
@click.option("--label", default="mine", help="Its name on the page.")
@click.option(
    "--scenarios",
    metavar="NAMES",
    shell_complete=options.completing(_names),
    help="Names of scenarios of the suite, separated by commas; by default all.",
)
@click.option("--seeds", type=click.IntRange(2, 5), default=5, help="Fresh seeds.")
@click.option(
    "--quick",
    is_flag=True,
    help="Three fresh seeds, on silos, phones_day and slow_uplinks only (board-1-large: on fashion_skew).",
)
@click.option(
    "-j", "--jobs", type=click.IntRange(1, 10_000), help="Concurrent runs; by default one per core."
)
@options.output_option("Folder of the page and the rows; 'board' by default.")
@options.user_code_option
@options.json_option
def run(output: Path | None, as_json: bool, jobs: int | None, **chosen: Any) -> None:
    """Tune and measure a method, schedule or selection as those of the suite were, and show its row among theirs.

    Their results come with fedsim, except for board-1-large; for a scenario without results, FedAvg runs too.
    Without --method, --schedule and --selection, all entries run: hours.

    An interrupted board continues if the same command is repeated.
    """
    import pandas as pd

    from fedsim.board.results import cost_s, shipped, table
    from fedsim.board.running import run_board
    from fedsim.board.suite import BASELINE, TUNING
    from fedsim.decisions.runs import Progress
    from fedsim.processes.cluster import usable_cores
    from fedsim.sweeps.local import prepare

    prepare()
    folder, label = output or Path("board"), chosen["label"]
    suite, whole = _suite(**chosen)
    if not as_json:
        runs, at_once = sum(map(suite.size, suite.scenarios.values())), jobs or usable_cores()
        cost, scenarios = cost_s(suite), format_counted(len(suite.scenarios), "scenario")
        text = f"{format_counted(runs, 'run')} in {scenarios}"
        if cost:
            text += f", about {format_duration(cost / at_once)} for {at_once} at a time"
        if label in suite.entries:
            entry = suite.entries[label]
            text += "; tuned: the learning rate"
            text += f" and {entry.knob} = {', '.join(map(str, entry.choices))}" * bool(entry.knob)
        click.echo(text, err=True)
    with following(suite.version, folder, same_command(), kind="board", quiet=as_json) as show:

        def on_progress(name: str, runs: int, done: int) -> None:
            show(Progress(done / runs, f"{done} of {runs} runs, {name}"))

        rows = run_board(suite, folder, jobs=jobs, on_progress=on_progress).frame()
    broken = rows[rows["error"] != ""].drop_duplicates(["scenario", "entry"])
    for row in broken.itertuples():
        click.echo(f"{row.entry} failed in {row.scenario}: {row.error}", err=True)
    if suite.entries != whole.entries:
        others = shipped(suite)
        fresh = others["seed"].isin(suite.seeds) | (others["kind"] == TUNING)
        rows = pd.concat([rows, others[~others["entry"].isin(suite.entries) & fresh]])
    tables = [table(rows, question) for question in suite.scenarios.values()]
    marked = label if label in suite.entries else BASELINE
    is_useless = all(marked in each.refused for each in tables)
    options.exit_code(2 if is_useless else 0)
    # On a full disk, every run fails.
    if shown := [each for each in tables if each.standings]:
        _show(folder, shown, suite, marked, as_json)
    if is_useless:
        hint = "fix what made its runs fail, and repeat the command"
        raise UserError(f"{marked} works in no scenario", where=folder, hint=hint)


@command.command()
@options.output_option("Folder of the page; 'board' by default.")
@options.json_option
def show(output: Path | None, as_json: bool) -> None:
    """Write the page of the results that come with fedsim, without a run."""
    from fedsim.board.results import shipped, table
    from fedsim.board.suite import BASELINE, suite

    whole = suite()
    tables = [table(shipped(whole), question) for question in whole.scenarios.values()]
    folder = output or Path("board")
    folder.mkdir(parents=True, exist_ok=True)
    _show(folder, tables, whole, BASELINE, as_json)


def _show(folder: Path, tables: list[Any], suite: Any, marked: str, as_json: bool) -> None:
    from fedsim.board.page import write
    from fedsim.board.results import verdict
    from fedsim.board.suite import BASELINE

    page = write(folder, tables, suite, marked)
    verdicts = {each.question.name: verdict(each, marked) for each in tables}
    if as_json:
        document = {"page": str(page), "rows": str(folder / "runs.parquet"), "verdicts": verdicts}
        options.print_json(document)
        return
    if marked != BASELINE:
        click.echo("\n".join(verdicts.values()))
    click.echo(f"page: {page}")


def _suite(
    version: str,
    method: str | None,
    schedule: str | None,
    selection: str | None,
    knob: str | None,
    label: str,
    scenarios: str | None,
    seeds: int,
    quick: bool,
) -> tuple[Any, Any]:
    from fedsim.board.results import shipped
    from fedsim.board.suite import BASELINE, suite
    from fedsim.scenario.source import parse_yaml

    whole = suite(version)
    names = (scenarios or "").split(",") if scenarios else list(whole.quick if quick else ())
    for name in names:
        if name not in whole.scenarios:
            raise unknown("scenario", name, whole.scenarios, "option --scenarios")
    if quick:
        seeds = 3
    given = {"method": method, "schedule": schedule, "selection": selection}
    values = {}
    for key, text in given.items():
        if text is not None:
            part = _from_here(parse_yaml(text, f"option --{key}").data)
            is_name = key == "selection" and isinstance(part, str)
            values[f"server.{key}.name" if is_name else f"server.{key}"] = part
    if not values:
        return whole.limited(names, whole.entries, seeds), whole
    if label == BASELINE:
        raise UserError(
            f"{BASELINE} is the baseline", where="option --label", hint="choose another name"
        )
    entry = whole.limited(names, {}, seeds).own_entry(label, values)
    if knob is not None:
        path, _, listed = knob.partition("=")
        choices = tuple(parse_yaml(f"[{listed}]", "option --knob").data)
        if not path or len(choices) != 3:
            raise UserError(
                "give a key and three values",
                where=f"option --knob {knob}",
                hint="for example server.method.mu=0.001,0.01,0.1",
            )
        entry = replace(entry, knob=path, choices=choices)
    limited = whole.limited(names, {label: entry}, seeds)
    limited.require_loading(label)
    if set(shipped(limited)["scenario"]) != set(limited.scenarios):
        limited = replace(limited, entries={**limited.entries, BASELINE: whole.entries[BASELINE]})
    return limited, whole


def _from_here(part: Any) -> Any:
    """A part whose file, if it names one, is relative to the present folder and not to that of a scenario."""
    if isinstance(part, dict):
        return {**part, "name": _from_here(part.get("name"))}
    file, colon, name = str(part).rpartition(":")
    return f"{Path(file).resolve()}:{name}" if colon and file.endswith(".py") else part
