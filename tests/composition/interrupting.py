"""Runs that are interrupted."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import fedsim
from fedsim.composition import run as execution
from fedsim.runs.writer import RunWriter
from tests.composition.worlds import digits


def interrupted(
    path: Path, scenario: Path | Mapping[str, Any] | None = None, *, rounds: int = 1
) -> None:
    """A run that is interrupted after some rounds; without a scenario, one of 50 rounds on digits."""

    def interrupt(progress: execution.Progress) -> None:
        if progress.rounds >= rounds:
            raise KeyboardInterrupt

    scenario = digits(stop={"rounds": 50}) if scenario is None else scenario
    with pytest.raises(KeyboardInterrupt):
        fedsim.run(scenario, path, on_progress=interrupt)


def interrupted_with_checkpoint(path: Path, scenario: Mapping[str, Any], evaluations: int) -> None:
    """A run that is interrupted after some evaluations, with a checkpoint at every moment of rest."""
    append, left = RunWriter.append_metrics, evaluations

    def append_or_stop(self: RunWriter, *values: Any) -> None:
        nonlocal left
        append(self, *values)
        left -= 1
        if not left:
            raise KeyboardInterrupt

    with (
        patch.object(RunWriter, "append_metrics", append_or_stop),
        patch.object(execution, "CHECKPOINT_INTERVAL_S", 0.0),
        pytest.raises(KeyboardInterrupt),
    ):
        fedsim.run(scenario, path)
