"""Reading the parameters of networks, devices, schedules and selections is quick."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fedsim.network import registry


@pytest.mark.parametrize(
    "package",
    [
        "network",
        "devices.compute",
        "devices.availability",
        "scheduling.schedules",
        "scheduling.selections",
    ],
)
def test_parameters_are_read_without_large_libraries(package: str) -> None:
    large = {"torch", "networkx", "scipy", "sklearn", "pandas", "pyarrow", "simpy"}
    code = (
        f"import sys, fedsim.{package} as package\n"
        "for part in package.registry().values():\n"
        "    part.Params.model_json_schema()\n"
        f"print(sorted({large!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_kinds() -> None:
    assert list(registry()) == ["shared", "static", "traced"]
