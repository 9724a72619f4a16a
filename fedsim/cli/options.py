"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

scenario_argument = click.argument("scenario", type=click.Path(path_type=Path))
"""The scenario file; missing files are reported by the loader, with what lies beside them."""

override_option = click.option(
    "-s",
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    help="Set a value by its dotted path, such as -s training.optimizer.lr=0.05; may be repeated.",
)

json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON for scripts.")
