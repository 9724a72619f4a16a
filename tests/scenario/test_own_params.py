"""Users' parts whose ``Params`` lack parameters that fedsim reads: accepted with defaults, or refused with the fix."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fedsim.cli import cli
from tests.methods.own_method import SCENARIO

COMPUTE = """\
import numpy as np
from fedsim.parts.component import Parameters
from fedsim.devices.compute.base import ComputeModel


class Mine(ComputeModel):
    def step_s(self):
        return np.ones(self.context.clients)
"""
AVAILABILITY = """\
from fedsim.parts.component import Parameters
from fedsim.devices.availability.base import AvailabilityModel
from fedsim.traces.availability import AvailabilityIndex


class Mine(AvailabilityModel):
    def index(self):
        return AvailabilityIndex.always(self.context.clients)
"""
SCHEDULE = """\
from fedsim.parts.component import Parameters
from fedsim.scheduling.continuous import Concurrent


class Mine(Concurrent):
    def __init__(self, params, server, selection):
        super().__init__(params, server, selection, updates=1, max_staleness=None)
"""
SYNC = """\
from fedsim.parts.component import Parameters
from fedsim.scheduling.schedules.sync import Sync


class Mine(Sync):
    pass
"""
NETWORK = """\
from fedsim.parts.component import Parameters
from fedsim.network.kinds.static import Static


class Mine(Static):
    pass
"""
METHOD = """\
from fedsim.parts.component import Parameters
from fedsim.methods.fedavg import FedAvg


class Mine(FedAvg):
    pass
"""
RATE = """\
from fedsim.parts.component import Parameters
from fedsim.learning.rates.base import CountingSchedule


class Mine(CountingSchedule):
    def factor_at(self, t):
        return 1.0
"""


def run_part(folder: Path, section: str, text: str) -> Result:
    (folder / "part.py").write_text(text, encoding="utf-8")
    (folder / "own.yaml").write_text(
        SCENARIO.replace('server: {method: {name: "mine.py:Mine"}}\n', ""), encoding="utf-8"
    )
    options = ["-s", f"{section}=part.py:Mine", "-o", str(folder / "out")]
    return CliRunner().invoke(cli, ["run", str(folder / "own.yaml"), *options])


def with_params(text: str, body: str) -> str:
    """The text with the parameters ``body`` in the class Mine."""
    head, line, rest = text.partition("class Mine(")
    name, _, functions = rest.partition("\n")
    return f"{head}{line}{name}\n{body}\n{functions}"


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ("devices.compute", COMPUTE),
        ("devices.availability", AVAILABILITY),
        ("server.schedule", SCHEDULE),
        ("training.lr_schedule", RATE),
        ("server.method", METHOD),
    ],
)
def test_a_part_without_params_has_those_of_its_base(
    tmp_path: Path, section: str, text: str
) -> None:
    result = run_part(tmp_path, section, text)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("section", "text", "base", "package"),
    [
        ("devices.compute", COMPUTE, "ComputeParams", "fedsim.devices.compute.base"),
        (
            "devices.availability",
            AVAILABILITY,
            "AvailabilityParams",
            "fedsim.devices.availability.base",
        ),
        ("server.schedule", SCHEDULE, "SlotParams", "fedsim.scheduling.continuous"),
        ("training.lr_schedule", RATE, "CountingParams", "fedsim.learning.rates.base"),
    ],
)
@pytest.mark.parametrize(
    ("params", "fix"),
    [
        ("    class Params(Parameters):\n        speed: float = 1.0\n", "class Params({base})"),
        ("    Params = Parameters\n", "Params = {base} in Mine"),
    ],
)
def test_other_params_are_refused_with_the_line_to_write(
    tmp_path: Path, section: str, text: str, base: str, package: str, params: str, fix: str
) -> None:
    result = run_part(tmp_path, section, with_params(text, params))
    assert result.exit_code == 2, result.output
    assert re.search(rf"part\.py:\d: Mine: its Params do not derive from {base}\n", result.stderr)
    assert f"write {fix.format(base=base)}, after from {package} import {base}" in result.stderr
