"""``fedsim decide``: the best settings of a scenario."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedsim.cli import options
from fedsim.cli.progress import following, same_command
from fedsim.files import terminal
from fedsim.units import parse_duration_s
from fedsim.vocabulary.formatting import ABSENT, format_command

if TYPE_CHECKING:
    from fedsim.decisions.decision import Decision
    from fedsim.scenario.loading import LoadedScenario


def _duration(_: click.Context, __: click.Parameter, text: str | None) -> float:
    try:
        return float("inf") if text is None else parse_duration_s(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(name="decide")
@options.loaded_scenario
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
    type=click.IntRange(1, 100_000),
    default=60,
    help="Number of settings to try; the last batch of them is completed.",
)
@click.option(
    "--seeds",
    type=click.IntRange(2, 100_000),
    default=8,
    help="Fresh seeds with which the choice is measured.",
)
@options.output_option("Folder of the search; runs/<name>-decide by default.")
@options.engine_options
@options.json_option
def command(
    loaded: LoadedScenario,
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
    from fedsim.decisions.deciding import decide
    from fedsim.decisions.goal import Goal, Limit, parse_objectives
    from fedsim.decisions.space import parse_dimension
    from fedsim.sweeps.execution import default_folder

    folder = output or default_folder(loaded, "decide")
    dimensions = [parse_dimension(text) for text in over]
    goal, most = Goal.parse(metric), [Limit.parse(text) for text in limits]
    settings |= {"limits": most, "objectives": parse_objectives(objective.split(","))}
    with following(
        loaded.scenario.name, folder, same_command(), kind="decision", quiet=as_json
    ) as on_progress:
        decision = decide(loaded, folder, dimensions, goal, on_progress=on_progress, **settings)
    _print(decision, as_json)


def _print(decision: Decision, as_json: bool) -> None:
    from fedsim.decisions.decision import BEST, PAGE, joined

    best, page = decision.path / BEST, decision.path / PAGE
    if as_json:
        table = json.loads(decision.table.to_json(orient="records"))
        content = {"answer": decision.sentence, "best": str(best), "page": str(page)}
        counts = {"tried": len(decision.tried), "ruled_out": decision.ruled_out}
        counts["limits"] = decision.binding
        options.print_json({**content, "finalists": table, **counts, "notes": decision.notes})
        return
    headings, rows = ["", *decision.objectives, "missed"], []
    if len(decision.objectives) == 1:
        headings.append("probability")
    for each in joined(decision.finalists):
        described = map(each.described, range(len(decision.objectives)))
        cells = [ABSENT if end == ABSENT else f"{middle} ({end})" for middle, end in described]
        missed = f"{each.missed} of {len(each.runs)}"
        row = [each.words, *cells, missed, each.chance]
        rows.append(row[: len(headings)])
    terminal.secho(decision.sentence, bold=True)
    options.print_table(headings, rows)
    for words in filter(None, (decision.binding, decision.ruled_out)):
        click.echo(words)
    for note in decision.notes:
        click.echo(f"warning about the choice: {note}")
    click.echo(f"run it: {format_command('run', best)}")
    click.echo(f"page: {page}")
