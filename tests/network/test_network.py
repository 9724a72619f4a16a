"""Reading the parameters of networks, devices, schedules and selections is quick."""

import subprocess
import sys


def test_parameters_are_read_without_large_libraries() -> None:
    kinds = ("network", "transport", "compute", "availability", "schedule", "selection")
    large = {"torch", "networkx", "scipy", "sklearn", "pandas", "pyarrow", "simpy"}
    code = (
        "import sys\n"
        "from fedsim.parts.catalog import CATALOG\n"
        f"for kind in {kinds!r}:\n"
        "    for part in CATALOG.parts(kind).values():\n"
        "        part.Params.model_json_schema()\n"
        f"    print(kind, *sorted({large!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == list(kinds)
