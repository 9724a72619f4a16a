"""``fedsim forecast``: how long a scenario will take."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

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


@click.command(name="forecast")
@scenario_options
@click.option(
    "--target",
    required=True,
    metavar="METRIC=VALUE",
    help="What to reach: accuracy=0.8; or, without training, rounds=50 or arrivals=500.",
)
@click.option(
    "--runs",
    type=click.IntRange(min=3),
    default=19,
    show_default=True,
    help="Number of runs; 19 are the fewest for 90%.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.9,
    show_default=True,
    help="Probability of the interval.",
)
@click.option(
    "--same-devices",
    is_flag=True,
    help="The real devices are those of the trace; by default, they are others of the same population.",
)
@output_option("Folder of the runs; runs/<name>-forecast by default.")
@engine_options
@json_option
def command(
    scenario: Path,
    overrides: tuple[str, ...],
    ignore: tuple[str, ...],
    target: str,
    output: Path | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Forecast when SCENARIO reaches a target: an interval, and the probability that it does.

    The runs differ in their seeds and in their devices, which are drawn anew from the population of the trace. The
    devices of a calibrated bundle are the real ones; their estimates are drawn within their errors.

    Writes forecast.html and forecast.csv. After an interruption, or with more runs, repeat the command: it continues.
    """
    settings = engine_settings(**settings)
    from fedsim.analysis.comparison.targets import Target
    from fedsim.decisions.forecast import PAGE, default_folder, forecast
    from fedsim.decisions.runs import Progress
    from fedsim.scenario.loading import load_scenario

    loaded = load_scenario(scenario, overrides=overrides).ignoring(ignore)
    folder, goal = output or default_folder(loaded), Target.parse(target)
    with (
        next_command(folder, same_command()),
        following(
            loaded.scenario.name, folder, quiet=as_json, kind="forecast", text_of=Progress.text
        ) as on_progress,
    ):
        if on_progress is not None:
            settings["on_progress"] = on_progress
        result = forecast(loaded, folder, goal, **settings)
    if not as_json:
        click.echo(result.sentence)
        click.echo(f"page: {folder / PAGE}")
        return
    names = ("median_s", "low_s", "high_s")
    numbers = {
        name: value if math.isfinite(value) else None
        for name, value in zip(names, result.interval, strict=True)
    }
    times = [time_s if math.isfinite(time_s) else None for time_s in result.times_s.tolist()]
    content = {
        "forecast": result.sentence,
        "page": str(folder / PAGE),
        **numbers,
        "probability": result.probability,
    }
    print_json({**content, "times_s": times, "never": int(result.flat.sum())})
