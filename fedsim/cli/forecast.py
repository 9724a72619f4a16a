"""``fedsim forecast``: how long a scenario will take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedsim.cli import options
from fedsim.cli.progress import following, same_command
from fedsim.errors import UserError


@click.command(name="forecast")
@options.scenario_options
@click.option(
    "--target",
    required=True,
    metavar="METRIC=VALUE",
    help="What to reach: accuracy=0.8; or, without training, rounds=50 or arrivals=500.",
)
@click.option(
    "--runs",
    type=click.IntRange(3, 100_000),
    default=19,
    help="Number of runs; 19 are the fewest for 90%.",
)
@click.option(
    "--confidence",
    type=options.Finite(0, 1, min_open=True, max_open=True),
    default=0.9,
    help="Probability of the interval.",
)
@click.option(
    "--same-devices",
    is_flag=True,
    help="The real devices are those of the trace; by default, they are others of the same population.",
)
@options.output_option("Folder of the runs; runs/<name>-forecast by default.")
@options.engine_options
@options.json_option
def command(
    scenario: Path,
    overrides: tuple[str, ...],
    ignore: tuple[str, ...],
    target: str,
    output: Path | None,
    as_json: bool,
    **others: Any,
) -> None:
    """Forecast when SCENARIO reaches a target: an interval, and the probability that it does.

    Given the folder of a run, such as that of a deployment, the devices are estimated from its log, as by 'fedsim
    calibrate', into a bundle inside the output.

    The runs differ in their seeds and in their devices, which are drawn anew from the population of the trace. The
    devices of a calibrated bundle are the real ones; their estimates are drawn within their errors.

    Writes forecast.html and forecast.csv. After an interruption, or with more runs, repeat the command: it continues.
    """
    from fedsim.analysis.comparison.targets import Target
    from fedsim.decisions.forecast import PAGE, forecast
    from fedsim.runs.folder import RunFolder
    from fedsim.runs.records import FORECAST, RUN
    from fedsim.scenario.loading import load_scenario, load_scenario_dict
    from fedsim.sweeps.execution import default_folder

    settings, goal = options.engine_settings(**others), Target.parse(target)
    is_run = RUN.is_in(scenario)
    file = RunFolder(scenario).intact_scenario() if is_run else scenario
    loaded = load_scenario(file, overrides=overrides)
    folder = output or default_folder(loaded, "forecast")
    if is_run:
        from fedsim.calibration import calibrate
        from fedsim.files.durable import remove_matching
        from fedsim.sweeps.folder import claimed

        own = load_scenario(file)
        bundle = folder / "devices" / "calibrated"
        with claimed(folder, FORECAST):
            on_devices = calibrate(scenario, bundle, own, overwrite=True).scenario
            if on_devices is None:
                remove_matching(bundle.parent, [bundle.name])
                raise UserError(
                    "the log of its Flower app has fewer than two rounds",
                    where=scenario,
                    hint="forecast a run of more rounds",
                )
        loaded = load_scenario_dict(on_devices, scenario).changed(overrides)
    loaded = loaded.ignoring(ignore)
    with following(
        loaded.scenario.name, folder, same_command(), kind="forecast", quiet=as_json
    ) as on_progress:
        result = forecast(loaded, folder, goal, on_progress=on_progress, **settings)
    if not as_json:
        click.echo(result.sentence)
        click.echo(f"page: {folder / PAGE}")
        return
    times = dict(zip(("median_s", "low_s", "high_s"), result.interval, strict=True))
    options.print_json(
        {
            "forecast": result.sentence,
            "page": str(folder / PAGE),
            **times,
            "probability": result.probability,
            "times_s": result.times_s.tolist(),
            "never": int(result.flat.sum()),
        }
    )
