"""Reading the parameters of networks, devices, schedules and selections is quick."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fedsim.catalog import CATALOG


@pytest.mark.parametrize(
    "kind", ["network", "transport", "compute", "availability", "schedule", "selection"]
)
def test_parameters_are_read_without_large_libraries(kind: str) -> None:
    large = {"torch", "networkx", "scipy", "sklearn", "pandas", "pyarrow", "simpy"}
    code = (
        "import sys\n"
        "from fedsim.catalog import CATALOG\n"
        f"for part in CATALOG.parts({kind!r}).values():\n"
        "    part.Params.model_json_schema()\n"
        f"print(sorted({large!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_kinds() -> None:
    assert list(CATALOG.parts("network")) == ["shared", "static", "traced"]
