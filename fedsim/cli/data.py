"""``fedsim data``: list the data sets, and load or download one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedsim.cli import Suggesting, options
from fedsim.errors import UserError
from fedsim.files import terminal
from fedsim.files.checksums import PATHS_ARE_RELATIVE
from fedsim.parts.catalog import CATALOG, summaries
from fedsim.scenario.loading import load_part
from fedsim.scenario.overrides import Override
from fedsim.scenario.problems import shown
from fedsim.vocabulary.formatting import format_count

if TYPE_CHECKING:
    from fedsim.tasks.dataset import Dataset


@click.group(cls=Suggesting)
def command() -> None:
    """List and prepare data sets."""


@command.command("list")
@options.json_option
def list_(as_json: bool) -> None:
    """List the data sets that a scenario can name."""
    options.print_rows(summaries(CATALOG.parts("dataset")), as_json)


@command.command()
@click.argument(
    "name", shell_complete=options.completing(lambda: CATALOG.parts("dataset"), files=True)
)
@options.set_option("settings", "Set a parameter of the data set, such as root=../data/mnist")
@options.user_code_option
@options.json_option
def prepare(name: str, settings: tuple[str, ...], as_json: bool) -> None:
    """Load data set NAME, downloading it if needed, and describe it."""
    given = {item.path: item.value for item in map(Override.parse, settings)}
    dataset = load_part("dataset", {**given, "name": name}, Path.cwd()).create()
    try:
        loaded = dataset.loaded(Path.cwd())
    except UserError as error:
        hint = error.hint
        if hint == PATHS_ARE_RELATIVE:
            hint = "relative paths refer to the current folder"
        raise UserError(error.message, where=error.where, hint=hint) from error
    for doubt in loaded.doubts():
        click.echo("\n  ".join(filter(None, (f"warning: {doubt.message}", doubt.hint))), err=True)
    described = _describe(loaded)
    if as_json:
        options.print_json(described)
        return
    rows = {
        key.replace("_", " "): _text(value)
        for key, value in described.items()
        if value not in (None, [])
    }
    terminal.secho(rows.pop("name"), bold=True)
    options.print_rows(rows)


def _describe(dataset: Dataset) -> dict[str, Any]:
    import numpy as np

    labels = dataset.train_y
    if dataset.kind == "regression":
        classes, counts = None, []
        target_range = [float(f"{edge:.6g}") for edge in (labels.min(), labels.max())]
    else:
        classes, target_range = dataset.classes, None
        counts = np.bincount(labels, minlength=dataset.classes).tolist()
    return {
        "name": dataset.name,
        "kind": dataset.kind,
        "training_samples": len(labels),
        "test_samples": len(dataset.test_y),
        "shape": list(dataset.input_shape),
        "features": list(dataset.feature_names),
        "stored_as": str(dataset.train_x.dtype),
        "bytes": dataset.bytes,
        "classes": classes,
        "class_names": list(dataset.class_names),
        "samples_per_class": counts,
        "target_range": target_range,
        "groups": len(dataset.group_names) if dataset.train_groups is not None else None,
    }


def _text(value: Any) -> str:
    if isinstance(value, list):
        listed = ", ".join(
            format_count(item) if isinstance(item, int) else shown(item) for item in value[:12]
        )
        return f"{listed}, ... ({len(value)} in all)" if len(value) > 12 else listed
    return format_count(value) if isinstance(value, int) else str(value)
