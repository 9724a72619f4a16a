"""The page of a timing-only run says everything that the page of the run with learning says, but for learning."""

import json
from typing import Any, cast

import pytest

import fedsim
from fedsim.analysis.headline import tiles
from fedsim.analysis.report import figures
from fedsim.runs.run import Run
from tests.composition.worlds import digits

LEARNING = {"learning", "targets", "client_accuracy"}
"""Figures that need a model."""


def shown(run: Run) -> dict[str, Any]:
    """The figures of a page by their ids, as the page's script gets them."""
    documents = {name: figure.document() for name, figure in figures(run).items()}
    # Commands name the run's folder.
    text = json.dumps(documents).replace(str(run.path), "RUN")
    return cast("dict[str, Any]", json.loads(text))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    folder = tmp_path_factory.mktemp("runs")
    world = digits(evaluation={"every_rounds": 2, "per_client": True})
    partition = {**world["task"]["partition"], "test": "split"}
    world["task"] = {**world["task"], "partition": partition}
    return fedsim.run(world, folder / "full"), fedsim.run(
        world, folder / "timing", timing_only=True
    )


def test_every_figure_but_those_of_learning_is_there_and_the_same(runs: tuple[Run, Run]) -> None:
    full, timing = map(shown, runs)
    assert set(full) - set(timing) <= LEARNING
    assert "learning" in full
    assert "learning" not in timing
    assert set(timing) <= set(full)
    assert {"time", "work", "outcomes", "online", "timeline", "participation", "age"} <= set(timing)
    for name, document in timing.items():
        assert document == full[name], name


def test_every_tile_but_those_of_learning_is_there_and_the_same(runs: tuple[Run, Run]) -> None:
    full, timing = ({tile.label: tile for tile in tiles(run)} for run in runs)
    assert set(full) - set(timing) == {"Final accuracy"}
    for label, tile in timing.items():
        if label not in ("Wall time", "Simulated time"):
            assert tile == full[label]
    assert full["Simulated time"].value == timing["Simulated time"].value
