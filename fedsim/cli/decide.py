"""``fedsim decide``: the best settings of a scenario."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedsim.cli.options import (
    engine_options,
    engine_settings,
    json_option,
    output_option,
    print_json,
    scenario_options,
)
from fedsim.cli.progress import following, next_command, same_command
from fedsim.units import parse_duration_s
from fedsim.vocabulary.formatting import ABSENT, format_command, format_decimals

if TYPE_CHECKING:
    from fedsim.decisions.decision import Decision


def _duration(_: click.Context, __: click.Parameter, text: str | None) -> float:
    try:
        return float("inf") if text is None else parse_duration_s(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(name="decide")
@scenario_options
@click.option(
    "--over",
    multiple=True,
    required=True,
    metavar="KEY=VALUES",
    help="A key to decide about: a range such as server.schedule.deadline=1min..1h, or a list such as "
    "server.method=fedavg,fedbuff; may be repeated.",
)
@click.option(
    "--metric",
    required=True,
    metavar="NAME",
    help="What is wanted: time_to:accuracy=0.8; or, without training, time_to:rounds=50, time_to:arrivals=500 or "
    "throughput.",
)
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=MOST",
    help="Largest acceptable time, bytes, energy, compute, updates, gco2e or cost until the target, such as bytes=2GB; "
    "may be repeated.",
)
@click.option(
    "--objective",
    default="time",
    show_default=True,
    metavar="NAMES",
    help="What to minimize until the target: time, bytes, energy, compute, updates, gco2e or cost; several give the "
    "Pareto front.",
)
@click.option(
    "--budget",
    "budget_s",
    metavar="DURATION",
    callback=_duration,
    help="Wall time for everything, such as 20min, earlier calls included; by default, --settings decides.",
)
@click.option(
    "--settings",
    "most",
    type=click.IntRange(min=1),
    default=60,
    show_default=True,
    help="Largest number of settings to try.",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=2),
    default=8,
    show_default=True,
    help="Fresh seeds with which the choice is measured.",
)
@output_option("Folder of the search; runs/<name>-decide by default.")
@engine_options
@json_option
def command(
    scenario: Path,
    overrides: tuple[str, ...],
    ignore: tuple[str, ...],
    over: tuple[str, ...],
    metric: str,
    limits: tuple[str, ...],
    objective: str,
    output: Path | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Find the best settings of SCENARIO, with the numbers to expect of them.

    Settings are suggested by Optuna (extra 'decide'), run with the scenario's seed, and stopped early if they fall
    behind; those that a simulation of time alone rules out are not trained. The best ones are run with more seeds. The
    choice, its rivals and the scenario as given are then measured with fresh seeds, so that the numbers are not those
    of a lucky draw.

    A method that is varied brings its own schedule, unless server.schedule is varied, too; a key that the parts of a
    setting do not have is left out of it.

    Writes best.yaml (ready to run), decide.html and settings.csv. After an interruption, or with a larger budget,
    repeat the command: it continues.
    """
    settings = engine_settings(**settings)
    from fedsim.decisions.deciding import decide, default_folder
    from fedsim.decisions.goal import Goal, Limit, parse_objectives
    from fedsim.decisions.runs import Progress
    from fedsim.decisions.space import parse_dimension
    from fedsim.scenario.loading import load_scenario

    loaded = load_scenario(scenario, overrides=overrides).ignoring(ignore)
    folder = output or default_folder(loaded)
    dimensions = [parse_dimension(text) for text in over]
    goal, most = Goal.parse(metric), [Limit.parse(text) for text in limits]
    objectives = parse_objectives(objective.split(","))
    with (
        next_command(folder, same_command()),
        following(
            loaded.scenario.name, folder, quiet=as_json, kind="decision", text_of=Progress.text
        ) as on_progress,
    ):
        settings |= {"limits": most, "objectives": objectives}
        if on_progress is not None:
            settings["on_progress"] = on_progress
        decision = decide(loaded, folder, dimensions, goal, **settings)
    _print(decision, as_json)


def _print(decision: Decision, as_json: bool) -> None:
    from fedsim.decisions.decision import BEST, PAGE, format_objective

    best, page = decision.path / BEST, decision.path / PAGE
    if as_json:
        table = json.loads(decision.table.to_json(orient="records"))
        content = {"answer": decision.sentence, "best": str(best), "page": str(page)}
        counts = {"tried": len(decision.tried), "ruled_out": decision.ruled_out}
        print_json({**content, "finalists": table, **counts, "notes": decision.notes})
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(show_edge=False)
    probable = len(decision.objectives) == 1
    headings = ["", *decision.objectives, "missed", *(["probability"] if probable else [])]
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for each in decision.finalists:
        cells = [each.words]
        for number, name in enumerate(decision.objectives):
            mean, low, high = (format_objective(name, value) for value in each.interval(number))
            cells.append(f"{mean} ({low} to {high})")
        cells.append(f"{each.missed} of {len(each.runs)}")
        if probable:
            known = each.probability == each.probability
            cells.append(format_decimals(each.probability, 2) if known else ABSENT)
        table.add_row(*cells)
    console = Console(highlight=False, markup=False)
    console.print(decision.sentence, style="bold")
    console.print(table)
    if decision.ruled_out:
        console.print(decision.ruled_out)
    for note in decision.notes:
        console.print(f"warning about the choice: {note}")
    console.print(f"run it: {format_command('run', best)}", soft_wrap=True)
    console.print(f"page: {page}", soft_wrap=True)
