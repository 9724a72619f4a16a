"""Step times from the compute table of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.composition.assembly import assemble
from fedsim.errors import UserError
from tests.devices.worlds import LINKS, phones, timing
from tests.traces.cases import DAY, bundle_of


def test_step_times_from_relative_speeds(tmp_path: Path) -> None:
    columns = {"task": ["*"] * 4, "phase": ["training"] * 4, "relative_speed": [1.0, 2.0, 0.5, 4.0]}
    folder = phones(tmp_path, compute=columns)

    def steps(compute: dict[str, Any], **task: Any) -> list[float]:
        world = timing({"trace": folder, "compute": compute, "network": LINKS})
        world["task"].update(task)
        times: list[float] = assemble(fedsim.read_scenario(world)).population.compute.step_s
        return list(times)

    # From a reference time; from 16 samples of 2 GFLOP at 8 GFLOP/s on a device of speed 1, after a fixed second.
    assert steps({"reference_step": "3s"}) == [3.0, 1.5, 6.0, 0.75]
    flops = {"name": "flops", "speed": "bundle", "flops_per_s": 8e9, "fixed": 1}
    assert steps(flops, flops_per_sample=2e9) == [5.0, 2.5, 10.0, 1.25]
    with pytest.raises(UserError, match="it has relative speeds: give") as caught:
        steps({})
    assert str(caught.value).startswith("devices.compute: the trace bundle ")
    online = {f"d{i}": [(0, DAY)] for i in range(4)}
    of_one = {"device_id": ["d3"], "task": ["*"], "phase": ["training"], "relative_speed": [1.0]}
    bundle_of(online, tables={"compute": of_one}).write(tmp_path / "gaps")
    folder = str(tmp_path / "gaps")
    with pytest.raises(
        UserError,
        match="case has no relative_speed for 3 of 4 clients; the first is client 0, device 'd0'",
    ):
        steps(flops, flops_per_sample=2e9)
    with pytest.raises(UserError, match="no relative_speed for 3 of 4 clients") as caught:
        steps({"reference_step": "3s"})
    assert "use another bundle" in str(caught.value)
    with pytest.raises(UserError, match=r"no time of a local step for 4 of 4 clients"):
        steps({})
