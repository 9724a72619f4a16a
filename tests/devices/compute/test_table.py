"""The compute table by client."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedsim
from fedsim.composition.assembly import assemble
from fedsim.errors import UserError
from tests.devices.worlds import LINKS, phones, timing
from tests.traces.cases import DAY, bundle_of


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
