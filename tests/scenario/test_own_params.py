"""Users' parts whose ``Params`` lack parameters that fedsim reads: accepted with defaults, or refused with the fix."""

import re
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import Result

from fedsim.errors import UserError
from fedsim.parts.catalog import CATALOG
from fedsim.parts.component import load_user_component
from tests.cli.invoking import invoke
from tests.methods.own_method import SCENARIO

PARTS = {
    "devices.compute": (
        "from fedsim.devices.compute.base import ComputeModel",
        "    def step_s(self):\n        return np.ones(self.context.clients)",
        "ComputeParams",
    ),
    "devices.availability": (
        "from fedsim.devices.availability.base import AvailabilityModel",
        "    def index(self):\n        return AvailabilityIndex.always(self.context.clients)",
        "AvailabilityParams",
    ),
    "server.schedule": (
        "from fedsim.scheduling.continuous import Concurrent",
        "    pass",
        "Concurrent.Params",
    ),
    "training.lr_schedule": (
        "from fedsim.learning.rates import CountingSchedule",
        "    def factor_at(self, t):\n        return 1.0",
        "CountingParams",
    ),
    "server.method": ("from fedsim.methods.fedavg import FedAvg", "    pass", ""),
}
"""The import of the base class, the functions of a part, and the parameters that fedsim reads, by section."""
HEAD = """\
import numpy as np
from fedsim.parts.component import Parameters
from fedsim.traces.availability import AvailabilityIndex
"""


def run_part(folder: Path, section: str, params: str = "") -> Result:
    imported, functions, _ = PARTS[section]
    base = imported.split()[-1]
    text = f"{HEAD}{imported}\nclass Mine({base}):\n{params}{functions}\n"
    (folder / "part.py").write_text(text, encoding="utf-8")
    scenario = SCENARIO.replace('server: {method: {name: "mine.py:Mine"}}\n', "")
    (folder / "own.yaml").write_text(scenario, encoding="utf-8")
    return invoke("run", folder / "own.yaml", "-s", f"{section}=part.py:Mine", "-o", folder / "out")


@pytest.mark.parametrize("section", PARTS)
def test_a_part_without_params_has_those_of_its_base(tmp_path: Path, section: str) -> None:
    result = run_part(tmp_path, section)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("section", [section for section, part in PARTS.items() if part[-1]])
@pytest.mark.parametrize(
    ("params", "fix"),
    [
        ("    class Params(Parameters):\n        speed: float = 1.0\n", "class Params({base})"),
        ("    Params = Parameters\n", "Params = {base} in Mine"),
        ("    Params = Parameters()\n", "Params = {base} in Mine"),
    ],
)
def test_other_params_are_refused_with_the_line_to_write(
    tmp_path: Path, section: str, params: str, fix: str
) -> None:
    imported, _, base = PARTS[section]
    result = run_part(tmp_path, section, params)
    assert result.exit_code == 2, result.output
    assert re.search(rf"part\.py:\d: Mine: its Params do not derive from {base}\n", result.stderr)
    source = f"{imported.partition(' import ')[0]} import {base.partition('.')[0]}"
    assert f"write {fix.format(base=base)}, after {source}" in result.stderr


MISTAKES = {
    "server.method": [
        (
            "    def aggregate(self, server):",
            "takes (self, server), but fedsim passes self, server and updates",
        ),
        ("    def local_rule(self, a, b):", "write def local_rule(self, cohort)"),
        ("    def __init__(self, params):", "write def __init__(self, params, context)"),
        ("    def aggregate(self, server, updates, more=1):", ""),
        ("    def aggregate(self, *arguments):", ""),
    ],
    "server.schedule": [
        ("    def run(self):", ""),
        ("    def on_arrival(self, dispatch):", ""),
        (
            "    def run(self): yield\n    def on_arrival(self, dispatch):",
            "on_arrival keeps events from run",
        ),
    ],
}


@pytest.mark.parametrize(
    ("section", "functions", "said"),
    [(section, *each) for section, rows in MISTAKES.items() for each in rows],
)
def test_functions_that_fedsim_cannot_call(
    tmp_path: Path, section: str, functions: str, said: str
) -> None:
    imported = (
        "from fedsim.scheduling.schedules.sync import Sync"
        if "sched" in section
        else PARTS[section][0]
    )
    text = f"{imported}\nclass Mine({imported.split()[-1]}):\n{functions}\n        pass\n"
    (tmp_path / "part.py").write_text(text, encoding="utf-8")
    given = CATALOG.kinds[section.rpartition(".")[2]]
    loaded = load_user_component("part.py:Mine", given.base(), tmp_path)
    with pytest.raises(UserError, match=re.escape(said)) if said else nullcontext():
        CATALOG.adopt(section.rpartition(".")[2], loaded)


def test_a_parameter_without_params(tmp_path: Path) -> None:
    functions = "    def aggregate(self, server, updates):\n        return self.params.beta\n"
    (tmp_path / "part.py").write_text(
        f"{HEAD}{PARTS['server.method'][0]}\nclass Mine(FedAvg):\n{functions}"
    )
    scenario = SCENARIO.replace('server: {method: {name: "mine.py:Mine"}}\n', "")
    (tmp_path / "own.yaml").write_text(scenario, encoding="utf-8")
    result = invoke(
        "run", tmp_path / "own.yaml", "-s", "server.method=part.py:Mine", "-o", tmp_path / "out"
    )
    assert result.exit_code == 2
    assert (
        "there is no parameter 'beta': those of FedAvgParams are weights, server_lr, partial"
        in result.output
    )
