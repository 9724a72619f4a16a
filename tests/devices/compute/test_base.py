"""Parameters of the variation of step times: contradictions are refused, and nothing varies by default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from pydantic import BaseModel, ValidationError

import fedsim
from fedsim.composition.assembly import assemble
from fedsim.devices.compute.base import ComputeModel, ComputeParams, Perturbation, Stragglers
from fedsim.errors import UserError
from tests.devices.compute.population import context, times
from tests.devices.worlds import LINKS, phones, timing
from tests.traces.cases import DAY, bundle_of


@pytest.mark.parametrize(
    ("model", "values", "message"),
    [
        (Stragglers, {"slowdown_min": 3, "slowdown_max": 2}, "slowdown_max is smaller"),
        (Perturbation, {"at": "2h", "until": "2h", "factor": 2}, "until must come after at"),
    ],
)
def test_spans_in_the_wrong_order_are_refused(
    model: type[BaseModel], values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        model(**values)


def test_nothing_varies_by_default() -> None:
    steady = times("values", context(2), step=[1.0, 2.0])
    assert steady.constant_steps_ns() is not None
    varied = times("values", context(2), step=[1.0, 2.0], jitter={"cv": 0.1})
    assert varied.constant_steps_ns() is None


def test_a_model_that_does_not_redraw_cannot_be_asked_to() -> None:
    class Second(ComputeModel):
        name = "second"
        Params = ComputeParams

        def step_s(self) -> npt.NDArray[np.float64]:
            return np.ones(self.context.clients)

    with pytest.raises(TypeError, match="second does not redraw step times"):
        Second(ComputeParams(), context()).redrawn_step_s(0, 1)


def test_a_table_of_times_only_cannot_be_asked_for_relative_speeds(tmp_path: Path) -> None:
    columns = {"task": ["*"] * 4, "phase": ["inference"] * 4, "sample_s": [0.1] * 4}
    folder = phones(tmp_path, compute=columns)
    devices = {"trace": folder, "compute": {"reference_step": 1}, "network": LINKS}
    with pytest.raises(UserError, match="has no relative_speed for 4 of 4 clients") as caught:
        assemble(fedsim.read_scenario(timing(devices)))
    assert "devices.compute.reference_step" in str(caught.value)
    assert "remove it" in str(caught.value)
    devices["compute"] = {"train_factor": 3}
    times = assemble(fedsim.read_scenario(timing(devices))).population.compute.step_s
    assert times.tolist() == pytest.approx([3 * 16 * 0.1] * 4)
    bundle = phones(tmp_path, "trained", compute={**columns, "phase": ["training"] * 4})
    with pytest.raises(UserError, match="not measured for inference"):
        assemble(fedsim.read_scenario(timing({**devices, "trace": bundle})))


def test_rows_of_a_task_are_chosen_and_the_first_of_a_device_counts(tmp_path: Path) -> None:
    ids = ["d0", "d1", "d0", "d1"]
    bundle_of(
        {"d0": [(0, DAY)], "d1": [(0, DAY)]},
        tables={
            "compute": {
                "device_id": ids,
                "task": ["cnn", "lstm", "lstm", "cnn"],
                "phase": ["training"] * 4,
                "step_fixed_s": [1.0, None, None, 2.0],
                "sample_s": [0.5, 2.0, 1.0, 0.25],
            }
        },
    ).write(tmp_path / "two")

    def steps(task: str) -> list[float]:
        devices = {"trace": str(tmp_path / "two"), "compute": {"task": task}, "network": LINKS}
        world = timing(devices, clients=2)
        return list(assemble(fedsim.read_scenario(world)).population.compute.step_s)

    assert steps("cnn") == [1 + 16 * 0.5, 2 + 16 * 0.25]
    assert steps("lstm") == [16 * 1.0, 16 * 2.0]
    assert steps("*") == [1 + 16 * 0.5, 16 * 2.0]
