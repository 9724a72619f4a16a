"""Step times from counted operations, and who has them counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.composition.assembly import assemble
from fedsim.errors import UserError
from fedsim.parts.catalog import CATALOG
from tests.composition.worlds import digits
from tests.devices.compute.population import context, times


def test_step_times_from_counted_flops() -> None:
    """10 samples of 1e6 operations at 1e8 a second, plus 5 ms: 105 ms."""
    compute = times("flops", context(flops_per_sample=1e6), flops_per_s=1e8, fixed="5ms", sigma=0)
    assert compute.step_s[0] == pytest.approx(0.105)


def test_counted_flops_are_needed() -> None:
    """A timing task that does not give its operations cannot use them."""
    with pytest.raises(UserError, match="flops_per_sample"):
        times("flops", context(), flops_per_s=1e8)


@pytest.mark.parametrize("file", ["speed.py", "my_flops.py"])
def test_operations_are_counted_for_a_model_that_declares_it_whatever_its_file(
    file: str, tmp_path: Path
) -> None:
    (tmp_path / file).write_text(
        "from fedsim.devices.compute.flops import Flops\n\n\nclass Mine(Flops):\n    name = ''\n"
    )

    def step_s(compute: dict[str, Any]) -> list[float]:
        scenario = digits()
        scenario["devices"]["compute"] = compute
        population = assemble(fedsim.read_scenario(scenario)).population
        times_s: list[float] = population.compute.step_s.tolist()
        return times_s

    assert step_s({"name": f"{tmp_path / file}:Mine"}) == step_s({"name": "flops"})


def test_only_counted_flops_declare_that_they_need_them() -> None:
    assert [name for name, model in CATALOG.parts("compute").items() if model.needs_flops] == [
        "flops"
    ]
